//! A small transformer encoder.

use super::blocks::check_heads;
use super::registry::{ModelType, Reads, model};
use crate::layers::{Attention, Embedding, Gelu, LayerNorm, Linear, MeanOverSteps, Positions, Residual};
use crate::{Description, LayerDescription, Network, NetworkError, Shape};

model! {
    /// A transformer encoder (Vaswani et al., 2017) with learned positions and GELU, normalised after each residual, and the mean over the
    /// steps.
    pub struct Transformer {
        /// Number of layers.
        depth: usize = 2, in 1..=64;
        /// Width of a step.
        width: usize = 256, in 1..=1 << 14;
        /// Heads of attention; divide the width.
        heads: usize = 4, in 1..=1 << 10;
        /// Width of the feed-forward layers.
        hidden: Option<usize> = None, as "4 times the width", in 1..=1 << 16;
    }
}

impl ModelType for Transformer {
    const NAME: &'static str = "transformer";
    const READS: Reads = Reads::Tokens;

    fn describe(&self, input: Shape, outputs: usize) -> Result<Description, String> {
        let (width, heads) = (self.width, self.heads);
        check_heads(heads, width)?;
        let mut description =
            Description::new(input).named("embedding", Embedding { width }).named("positions", Positions);
        for layer in 0..self.depth {
            let attention = vec![LayerDescription::named("self_attn", Attention::new(heads))];
            let feed_forward = vec![
                LayerDescription::named("linear1", Linear::new(self.hidden.unwrap_or(4 * width))),
                Gelu.into(),
                LayerDescription::named("linear2", Linear::new(width)),
            ];
            description = description
                .named(&format!("layers.{layer}"), Residual::new(attention))
                .named(&format!("layers.{layer}.norm1"), LayerNorm::default())
                .named(&format!("layers.{layer}"), Residual::new(feed_forward))
                .named(&format!("layers.{layer}.norm2"), LayerNorm::default());
        }
        Ok(description.then(MeanOverSteps).named("fc", Linear::new(outputs)))
    }
}

/// [`Transformer`]: two encoder layers (width 256, 4 heads, 1024 hidden units), the mean over the steps, and the classes.
///
/// # Errors
/// If the vocabulary, the number of steps or of classes is 0.
pub fn transformer(vocabulary: usize, steps: usize, classes: usize) -> Result<Network, NetworkError> {
    super::ModelConfig::from(Transformer::default()).network(Shape::Tokens { steps, vocabulary }, classes)
}
