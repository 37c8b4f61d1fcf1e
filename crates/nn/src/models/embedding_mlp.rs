//! The mean of embeddings, then a perceptron: a fast and accurate model of text.

use super::blocks::perceptron;
use super::registry::{ModelType, Reads, Widths, model};
use crate::layers::{Embedding, MeanOverSteps};
use crate::{Description, Network, NetworkError, Shape};

model! {
    /// The mean of the tokens' vectors, and a multi-layer perceptron with ReLU: a fast model of text.
    pub struct EmbeddingMlp {
        /// Length of a token's vector.
        width: usize = 64, in 1..=1 << 14;
        /// Widths of the hidden layers, such as 64x32.
        hidden: Widths = Widths(vec![128]), in 1..=1 << 24;
    }
}

impl ModelType for EmbeddingMlp {
    const NAME: &'static str = "embedding-mlp";
    const READS: Reads = Reads::Tokens;

    fn describe(&self, input: Shape, outputs: usize) -> Result<Description, String> {
        let mean =
            Description::new(input).named("embedding", Embedding { width: self.width }).then(MeanOverSteps);
        Ok(perceptron(mean, &self.hidden.0, outputs))
    }
}

/// [`EmbeddingMlp`]: an embedding of 64, its mean over the tokens, 128 hidden units with ReLU, and the classes.
///
/// # Errors
/// If the vocabulary, the number of steps or of classes is 0.
pub fn embedding_mlp(vocabulary: usize, steps: usize, classes: usize) -> Result<Network, NetworkError> {
    super::ModelConfig::from(EmbeddingMlp::default()).network(Shape::Tokens { steps, vocabulary }, classes)
}
