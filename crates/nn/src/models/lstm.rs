//! An LSTM classifier.

use super::registry::{ModelType, Reads, model};
use crate::layers::{self, Embedding, LastStep, Linear};
use crate::{Description, Network, NetworkError, Shape};

model! {
    /// An LSTM on the tokens' vectors, and a linear layer on its last state.
    pub struct Lstm {
        /// Length of a token's vector.
        width: usize = 64, in 1..=1 << 14;
        /// Hidden units.
        hidden: usize = 128, in 1..=1 << 14;
        /// Number of layers.
        depth: usize = 1, in 1..=16;
    }
}

impl ModelType for Lstm {
    const NAME: &'static str = "lstm";
    const READS: Reads = Reads::Tokens;

    fn describe(&self, input: Shape, outputs: usize) -> Result<Description, String> {
        let mut description = Description::new(input).named("embedding", Embedding { width: self.width });
        for layer in 0..self.depth {
            let name = if layer == 0 { "lstm".to_owned() } else { format!("lstm{}", layer + 1) };
            description = description.named(&name, layers::Lstm { hidden: self.hidden });
        }
        Ok(description.then(LastStep).named("fc", Linear::new(outputs)))
    }
}

/// [`Lstm`]: an embedding of 64, one layer with 128 hidden units, and a linear layer on its last state.
///
/// # Errors
/// If the vocabulary, the number of steps or of classes is 0.
pub fn lstm_classifier(vocabulary: usize, steps: usize, classes: usize) -> Result<Network, NetworkError> {
    super::ModelConfig::from(Lstm::default()).network(Shape::Tokens { steps, vocabulary }, classes)
}
