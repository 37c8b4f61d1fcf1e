//! LeNet-5.

use super::registry::{ModelType, Reads, model};
use crate::layers::{AveragePool, Conv2d, Flatten, Linear, Tanh};
use crate::{Description, Network, NetworkError, Shape};

model! {
    /// LeNet-5 (LeCun et al., 1998) with average pooling and tanh; for images of at least 12x12.
    pub struct LeNet5 {}
}

impl ModelType for LeNet5 {
    const NAME: &'static str = "lenet5";
    const READS: Reads = Reads::Images;

    fn describe(&self, input: Shape, outputs: usize) -> Result<Description, String> {
        let pool = AveragePool { kernel: 2, stride: 2 };
        Ok(Description::new(input)
            .named("conv1", Conv2d::new(6, 5, 1, 2))
            .then(Tanh)
            .then(pool)
            .named("conv2", Conv2d::new(16, 5, 1, 0))
            .then(Tanh)
            .then(pool)
            .then(Flatten)
            .named("fc1", Linear::new(120))
            .then(Tanh)
            .named("fc2", Linear::new(84))
            .then(Tanh)
            .named("fc3", Linear::new(outputs)))
    }
}

/// [`LeNet5`] for images of 1x28x28: 61,706 parameters with 10 classes.
///
/// # Errors
/// If there are no classes.
pub fn lenet5(classes: usize) -> Result<Network, NetworkError> {
    super::ModelConfig::from(LeNet5 {}).network(Shape::Image { channels: 1, height: 28, width: 28 }, classes)
}
