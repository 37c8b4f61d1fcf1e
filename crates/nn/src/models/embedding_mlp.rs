//! The mean of embeddings, then a perceptron: a fast and accurate model of text.

use crate::layers::{Embedding, Linear, MeanOverSteps, Relu};
use crate::{Description, Network, NetworkError, Shape};

/// An embedding of 64, its mean over the tokens, 128 hidden units with ReLU, and the classes.
///
/// # Errors
/// If the vocabulary, the number of steps or of classes is 0.
pub fn embedding_mlp(vocabulary: usize, steps: usize, classes: usize) -> Result<Network, NetworkError> {
    Network::new(
        &Description::new(Shape::Tokens { steps, vocabulary })
            .named("embedding", Embedding { width: 64 })
            .then(MeanOverSteps)
            .named("fc1", Linear::new(128))
            .then(Relu)
            .named("fc2", Linear::new(classes)),
    )
}
