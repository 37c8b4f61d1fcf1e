//! A vision transformer of twice the width.

use super::VitTiny;
use super::registry::{ModelType, Reads, model};
use crate::{Description, Shape};

model! {
    /// As `vit-tiny`, with twice the width.
    pub struct VitSmall {
        /// Side of a patch; divides the image.
        patch: Option<usize> = None, as "4 for images below 64x64, else 16", in 1..=1024;
        /// Number of layers.
        depth: usize = 12, in 1..=64;
        /// Width of a step.
        width: usize = 384, in 1..=1 << 14;
        /// Heads of attention; divide the width.
        heads: usize = 6, in 1..=1 << 10;
        /// Width of the feed-forward layers.
        hidden: Option<usize> = None, as "4 times the width", in 1..=1 << 16;
    }
}

impl ModelType for VitSmall {
    const NAME: &'static str = "vit-small";
    const READS: Reads = Reads::Images;

    fn describe(&self, input: Shape, outputs: usize) -> Result<Description, String> {
        let VitSmall { patch, depth, width, heads, hidden } = *self;
        VitTiny { patch, depth, width, heads, hidden }.describe(input, outputs)
    }
}
