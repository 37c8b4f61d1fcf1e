//! ResNet-20 with GroupNorm.

use super::blocks::ResNet;
use super::registry::{ModelType, Reads, model};
use crate::{Description, Network, NetworkError, Shape};

model! {
    /// ResNet-20 (He et al., 2016) with GroupNorm, and projections where the shape changes.
    pub struct ResNet20 {
        /// Channels of the first stage; a multiple of `groups`.
        width: usize = 16, in 1..=1024;
        /// Groups of every norm.
        groups: usize = 8, in 1..=1024;
        /// Whether filters are standardised.
        standardised: bool = false;
    }
}

impl ModelType for ResNet20 {
    const NAME: &'static str = "resnet20";
    const READS: Reads = Reads::Images;

    fn describe(&self, input: Shape, outputs: usize) -> Result<Description, String> {
        let ResNet20 { width, groups, standardised } = *self;
        let network = ResNet { blocks: &[3, 3, 3], width, groups, standardised, large: false };
        Ok(network.describe(input, outputs))
    }
}

/// [`ResNet20`] for images of 3x32x32: 272,474 parameters with 10 classes.
///
/// # Errors
/// If there are no classes.
pub fn resnet20(classes: usize) -> Result<Network, NetworkError> {
    let input = Shape::Image { channels: 3, height: 32, width: 32 };
    super::ModelConfig::from(ResNet20::default()).network(input, classes)
}
