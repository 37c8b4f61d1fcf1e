//! Linear models.

use super::blocks::vector;
use super::registry::{ModelType, Reads, model};
use crate::{Description, Network, NetworkError, Shape, layers};

model! {
    /// Linear regression; a support vector machine with the loss `hinge`.
    pub struct Linear {}
}

impl ModelType for Linear {
    const NAME: &'static str = "linear";
    const READS: Reads = Reads::Values;

    fn describe(&self, input: Shape, outputs: usize) -> Result<Description, String> {
        Ok(vector(input).named("linear", layers::Linear::new(outputs)))
    }
}

/// One linear output: logistic regression with [`Loss::Logistic`](crate::Loss::Logistic), a linear support vector machine
/// with [`Loss::Hinge`](crate::Loss::Hinge), linear regression with [`Loss::SquaredError`](crate::Loss::SquaredError).
///
/// # Errors
/// If there are no features.
pub fn linear(features: usize) -> Result<Network, NetworkError> {
    softmax_regression(features, 1)
}

/// A linear output for each class: logistic regression with several classes.
///
/// # Errors
/// If there are no features or no classes.
pub fn softmax_regression(features: usize, classes: usize) -> Result<Network, NetworkError> {
    super::ModelConfig::from(Linear {}).network(Shape::Features(features), classes)
}
