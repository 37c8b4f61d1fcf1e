//! A multi-layer perceptron.

use crate::{Description, Layer, Network, NetworkError, Shape};

/// Linear layers `fc1`, `fc2`, ... with ReLU between them.
///
/// # Errors
/// If a layer has no features.
pub fn mlp(features: usize, hidden: &[usize], outputs: usize) -> Result<Network, NetworkError> {
    let mut description = Description::new(Shape::Features(features));
    for (index, &width) in hidden.iter().enumerate() {
        description = description.named(&format!("fc{}", index + 1), Layer::linear(width)).then(Layer::Relu);
    }
    Network::new(&description.named(&format!("fc{}", hidden.len() + 1), Layer::linear(outputs)))
}
