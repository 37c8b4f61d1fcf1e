//! LeNet-5.

use crate::layers::{AveragePool, Conv2d, Flatten, Linear, Tanh};
use crate::{Description, Network, NetworkError, Shape};

/// [`lenet5_for`] images of 1x28x28: 61,706 parameters with 10 classes.
///
/// # Errors
/// If there are no classes.
pub fn lenet5(classes: usize) -> Result<Network, NetworkError> {
    lenet5_for(Shape::Image { channels: 1, height: 28, width: 28 }, classes)
}

/// LeNet-5 (LeCun et al., 1998) with average pooling and tanh.
///
/// # Errors
/// If the input is not an image of at least 12x12, or there are no outputs.
pub fn lenet5_for(input: Shape, outputs: usize) -> Result<Network, NetworkError> {
    let pool = AveragePool { kernel: 2, stride: 2 };
    Network::new(
        &Description::new(input)
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
            .named("fc3", Linear::new(outputs)),
    )
}
