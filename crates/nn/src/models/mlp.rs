//! A multi-layer perceptron.

use crate::layers::{Linear, Relu};
use crate::{Description, Network, NetworkError, Shape};

/// Linear layers `fc1`, `fc2`, ... with ReLU between them.
///
/// # Errors
/// If a layer has no features.
pub fn mlp(features: usize, hidden: &[usize], outputs: usize) -> Result<Network, NetworkError> {
    let mut description = Description::new(Shape::Features(features));
    for (index, &width) in hidden.iter().enumerate() {
        description = description.named(&format!("fc{}", index + 1), Linear::new(width)).then(Relu);
    }
    Network::new(&description.named(&format!("fc{}", hidden.len() + 1), Linear::new(outputs)))
}
