//! The small convolutional network of the private-training papers on MNIST.

use crate::{Description, Layer, Network, NetworkError, Shape};

/// [`mnist_cnn_for`] images of 1x28x28 and 10 classes: 26,010 parameters.
///
/// # Errors
/// None for these sizes.
pub fn mnist_cnn() -> Result<Network, NetworkError> {
    mnist_cnn_for(Shape::Image { channels: 1, height: 28, width: 28 }, 10)
}

/// Two convolutions (16 filters of 8x8 with stride 2, 32 of 4x4 with stride 2), each with ReLU and 2x2 pooling with stride
/// 1, then 32 hidden units and the outputs.
///
/// # Errors
/// If the input is not an image of at least 14x14, or there are no outputs.
pub fn mnist_cnn_for(input: Shape, outputs: usize) -> Result<Network, NetworkError> {
    let pool = Layer::MaxPool { kernel: 2, stride: 1, padding: 0 };
    Network::new(
        &Description::new(input)
            .named("conv1", Layer::conv2d(16, 8, 2, 3))
            .then(Layer::Relu)
            .then(pool.clone())
            .named("conv2", Layer::conv2d(32, 4, 2, 0))
            .then(Layer::Relu)
            .then(pool)
            .then(Layer::Flatten)
            .named("fc1", Layer::linear(32))
            .then(Layer::Relu)
            .named("fc2", Layer::linear(outputs)),
    )
}
