//! A multi-layer perceptron.

use super::blocks::{perceptron, vector};
use super::registry::{ModelType, Reads, Widths, model};
use crate::{Description, Network, NetworkError, Shape};

model! {
    /// A multi-layer perceptron with ReLU.
    pub struct Mlp {
        /// Widths of the hidden layers, such as 64x32.
        hidden: Widths = Widths(vec![128]), in 1..=1 << 24;
    }
}

impl ModelType for Mlp {
    const NAME: &'static str = "mlp";
    const READS: Reads = Reads::Values;

    fn describe(&self, input: Shape, outputs: usize) -> Result<Description, String> {
        match (input, &self.hidden.0[..]) {
            (Shape::Image { .. }, []) => super::Linear {}.describe(input, outputs),
            (_, hidden) => Ok(perceptron(vector(input), hidden, outputs)),
        }
    }
}

/// Linear layers `fc1`, `fc2`, ... with ReLU between them.
///
/// # Errors
/// If a layer has no features.
pub fn mlp(features: usize, hidden: &[usize], outputs: usize) -> Result<Network, NetworkError> {
    Network::new(&perceptron(vector(Shape::Features(features)), hidden, outputs))
}
