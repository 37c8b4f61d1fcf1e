//! The mean of embeddings, then a perceptron: a strong and cheap model of text.

use crate::{Description, Layer, Network, NetworkError, Shape};

/// An embedding of 64, its mean over the tokens, 128 hidden units with ReLU, and the classes.
///
/// # Errors
/// If the vocabulary, the number of steps or of classes is 0.
pub fn embedding_mlp(vocabulary: usize, steps: usize, classes: usize) -> Result<Network, NetworkError> {
    Network::new(
        &Description::new(Shape::Tokens { steps, vocabulary })
            .named("embedding", Layer::Embedding { width: 64 })
            .then(Layer::MeanOverSteps)
            .named("fc1", Layer::linear(128))
            .then(Layer::Relu)
            .named("fc2", Layer::linear(classes)),
    )
}
