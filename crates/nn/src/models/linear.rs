//! Linear models.

use crate::layers::Linear;
use crate::{Description, Network, NetworkError, Shape};

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
    Network::new(&Description::new(Shape::Features(features)).named("linear", Linear::new(classes)))
}
