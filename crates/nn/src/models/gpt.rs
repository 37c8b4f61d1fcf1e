//! A language model.

use super::blocks::{Layers, check_heads};
use super::registry::{ModelType, Reads, model};
use crate::layers::{Attention, Embedding, LastStep, Linear, Positions, TiedOutput};
use crate::{Description, Shape};

model! {
    /// A causal transformer (Radford et al., 2019) whose output layer is its embedding: predicts the next token, or a class from the last
    /// step.
    pub struct Gpt {
        /// Number of layers.
        depth: usize = 4, in 1..=64;
        /// Width of a step.
        width: usize = 256, in 1..=1 << 14;
        /// Heads of attention; divide the width.
        heads: usize = 4, in 1..=1 << 10;
        /// Width of the feed-forward layers.
        hidden: Option<usize> = None, as "4 times the width", in 1..=1 << 16;
    }
}

impl ModelType for Gpt {
    const NAME: &'static str = "gpt";
    const READS: Reads = Reads::Tokens;

    fn describe(&self, input: Shape, outputs: usize) -> Result<Description, String> {
        let (width, heads) = (self.width, self.heads);
        check_heads(heads, width)?;
        let description =
            Description::new(input).named("embedding", Embedding { width }).named("positions", Positions);
        let hidden = self.hidden.unwrap_or(4 * width);
        let layers = Layers { depth: self.depth, width, attention: Attention::causal(heads), hidden };
        let description = layers.add_to(description);
        Ok(match outputs {
            0 => description.then(TiedOutput),
            _ => description.then(LastStep).named("head", Linear::new(outputs)),
        })
    }
}
