//! A small transformer encoder.

use crate::{Description, Layer, LayerDescription, Network, NetworkError, Shape};

const WIDTH: usize = 256;

/// Two encoder layers (width 256, 4 heads, 1024 hidden units with GELU, normalised after each residual) on embedded tokens
/// with learned positions, the mean over the steps, and the classes.
///
/// # Errors
/// If the vocabulary, the number of steps or of classes is 0.
pub fn transformer(vocabulary: usize, steps: usize, classes: usize) -> Result<Network, NetworkError> {
    let mut description = Description::new(Shape::Tokens { steps, vocabulary })
        .named("embedding", Layer::Embedding { width: WIDTH })
        .named("positions", Layer::Positions);
    for layer in 0..2 {
        let attention = vec![LayerDescription::named("self_attn", Layer::Attention { heads: 4 })];
        let feed_forward = vec![
            LayerDescription::named("linear1", Layer::linear(4 * WIDTH)),
            Layer::Gelu.into(),
            LayerDescription::named("linear2", Layer::linear(WIDTH)),
        ];
        let residual = |body| Layer::Residual { body, shortcut: Vec::new() };
        description = description
            .named(&format!("layers.{layer}"), residual(attention))
            .named(&format!("layers.{layer}.norm1"), Layer::LayerNorm)
            .named(&format!("layers.{layer}"), residual(feed_forward))
            .named(&format!("layers.{layer}.norm2"), Layer::LayerNorm);
    }
    Network::new(&description.then(Layer::MeanOverSteps).named("fc", Layer::linear(classes)))
}
