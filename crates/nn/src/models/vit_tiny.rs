//! A small vision transformer.

use super::blocks::{Layers, check_heads, is_large};
use super::registry::{ModelType, Reads, model};
use crate::layers::{Attention, ClassToken, Conv2d, FirstStep, ImageToSequence, Linear, Positions};
use crate::{Description, Shape};

model! {
    /// A vision transformer (Dosovitskiy et al., 2021): patches, a class token, learned positions, and layers that normalise first.
    pub struct VitTiny {
        /// Side of a patch; divides the image.
        patch: Option<usize> = None, as "4 for images below 64x64, else 16", in 1..=1024;
        /// Number of layers.
        depth: usize = 12, in 1..=64;
        /// Width of a step.
        width: usize = 192, in 1..=1 << 14;
        /// Heads of attention; divide the width.
        heads: usize = 3, in 1..=1 << 10;
        /// Width of the feed-forward layers.
        hidden: Option<usize> = None, as "4 times the width", in 1..=1 << 16;
    }
}

impl ModelType for VitTiny {
    const NAME: &'static str = "vit-tiny";
    const READS: Reads = Reads::Images;

    fn describe(&self, input: Shape, outputs: usize) -> Result<Description, String> {
        let (width, heads) = (self.width, self.heads);
        let patch = self.patch.unwrap_or(if is_large(input) { 16 } else { 4 });
        check_heads(heads, width)?;
        match input {
            Shape::Image { height, width, .. }
                if height.is_multiple_of(patch) && width.is_multiple_of(patch) => {}
            _ => return Err(format!("patch must divide the sides of the image, got {patch} for {input}")),
        }
        let description = Description::new(input)
            .named("patches", Conv2d::new(width, patch, patch, 0))
            .then(ImageToSequence)
            .named("class_token", ClassToken)
            .named("positions", Positions);
        let hidden = self.hidden.unwrap_or(4 * width);
        let layers = Layers { depth: self.depth, width, attention: Attention::new(heads), hidden };
        Ok(layers.add_to(description).then(FirstStep).named("head", Linear::new(outputs)))
    }
}
