//! A one-layer LSTM classifier.

use crate::{Description, Layer, Network, NetworkError, Shape};

/// An embedding of 64, an LSTM with 128 hidden units, and a linear layer on its last state.
///
/// # Errors
/// If the vocabulary, the number of steps or of classes is 0.
pub fn lstm_classifier(vocabulary: usize, steps: usize, classes: usize) -> Result<Network, NetworkError> {
    Network::new(
        &Description::new(Shape::Tokens { steps, vocabulary })
            .named("embedding", Layer::Embedding { width: 64 })
            .named("lstm", Layer::Lstm { hidden: 128 })
            .then(Layer::LastStep)
            .named("fc", Layer::linear(classes)),
    )
}
