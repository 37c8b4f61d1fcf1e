//! A small transformer encoder.

use crate::layers::{Attention, Embedding, Gelu, LayerNorm, Linear, MeanOverSteps, Positions, Residual};
use crate::{Description, LayerDescription, Network, NetworkError, Shape};

const WIDTH: usize = 256;

/// Two encoder layers (width 256, 4 heads, 1024 hidden units with GELU, normalised after each residual) on embedded tokens
/// with learned positions, the mean over the steps, and the classes.
///
/// # Errors
/// If the vocabulary, the number of steps or of classes is 0.
pub fn transformer(vocabulary: usize, steps: usize, classes: usize) -> Result<Network, NetworkError> {
    let mut description = Description::new(Shape::Tokens { steps, vocabulary })
        .named("embedding", Embedding { width: WIDTH })
        .named("positions", Positions);
    for layer in 0..2 {
        let attention = vec![LayerDescription::named("self_attn", Attention::new(4))];
        let feed_forward = vec![
            LayerDescription::named("linear1", Linear::new(4 * WIDTH)),
            Gelu.into(),
            LayerDescription::named("linear2", Linear::new(WIDTH)),
        ];

        description = description
            .named(&format!("layers.{layer}"), Residual::new(attention))
            .named(&format!("layers.{layer}.norm1"), LayerNorm::default())
            .named(&format!("layers.{layer}"), Residual::new(feed_forward))
            .named(&format!("layers.{layer}.norm2"), LayerNorm::default());
    }
    Network::new(&description.then(MeanOverSteps).named("fc", Linear::new(classes)))
}
