//! ResNet-34 with GroupNorm.

use super::blocks::{ResNet, is_large};
use super::registry::{ModelType, Reads, model};
use crate::{Description, Shape};

model! {
    /// ResNet-34 (He et al., 2016) with GroupNorm. Images below 64x64 begin with a 3x3 convolution, larger ones with a 7x7
    /// convolution and pooling.
    pub struct ResNet34 {
        /// Channels of the first stage; a multiple of `groups`.
        width: usize = 64, in 1..=1024;
        /// Groups of every norm.
        groups: usize = 32, in 1..=1024;
        /// Whether filters are standardised.
        standardised: bool = false;
    }
}

impl ModelType for ResNet34 {
    const NAME: &'static str = "resnet34";
    const READS: Reads = Reads::Images;

    fn describe(&self, input: Shape, outputs: usize) -> Result<Description, String> {
        let ResNet34 { width, groups, standardised } = *self;
        let large = is_large(input);
        Ok(ResNet { blocks: &[3, 4, 6, 3], width, groups, standardised, large }.describe(input, outputs))
    }
}
