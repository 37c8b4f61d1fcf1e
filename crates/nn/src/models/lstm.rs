//! A one-layer LSTM classifier.

use crate::layers::{Embedding, LastStep, Linear, Lstm};
use crate::{Description, Network, NetworkError, Shape};

/// An embedding of 64, an LSTM with 128 hidden units, and a linear layer on its last state.
///
/// # Errors
/// If the vocabulary, the number of steps or of classes is 0.
pub fn lstm_classifier(vocabulary: usize, steps: usize, classes: usize) -> Result<Network, NetworkError> {
    Network::new(
        &Description::new(Shape::Tokens { steps, vocabulary })
            .named("embedding", Embedding { width: 64 })
            .named("lstm", Lstm { hidden: 128 })
            .then(LastStep)
            .named("fc", Linear::new(classes)),
    )
}
