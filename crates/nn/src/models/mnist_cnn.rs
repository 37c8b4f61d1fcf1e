//! The small convolutional network of the private-training papers on MNIST.

use super::registry::{ModelType, Reads, model};
use crate::layers::{Conv2d, Flatten, Linear, MaxPool, Relu, Tanh};
use crate::{Description, Network, NetworkError, Shape};

model! {
    /// Two convolutions (16 filters of 8x8 with stride 2, 32 of 4x4 with stride 2), each with ReLU and 2x2 pooling with stride
    /// 1, then 32 hidden units; for images of at least 14x14.
    pub struct MnistCnn {
        /// Use tanh in place of ReLU. It is more accurate with strong clipping and much noise.
        tanh: bool = false;
    }
}

impl ModelType for MnistCnn {
    const NAME: &'static str = "mnist-cnn";
    const READS: Reads = Reads::Images;

    fn describe(&self, input: Shape, outputs: usize) -> Result<Description, String> {
        let pool = MaxPool { kernel: 2, stride: 1, padding: 0 };
        let activated = |description: Description| match self.tanh {
            true => description.then(Tanh),
            false => description.then(Relu),
        };
        let first = activated(Description::new(input).named("conv1", Conv2d::new(16, 8, 2, 3))).then(pool);
        let second = activated(first.named("conv2", Conv2d::new(32, 4, 2, 0))).then(pool);
        Ok(activated(second.then(Flatten).named("fc1", Linear::new(32))).named("fc2", Linear::new(outputs)))
    }
}

/// [`MnistCnn`] for images of 1x28x28 and 10 classes: 26,010 parameters.
///
/// # Errors
/// None for these sizes.
pub fn mnist_cnn() -> Result<Network, NetworkError> {
    super::ModelConfig::from(MnistCnn::default())
        .network(Shape::Image { channels: 1, height: 28, width: 28 }, 10)
}
