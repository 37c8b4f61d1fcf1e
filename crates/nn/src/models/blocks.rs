//! Blocks that several models use.

use crate::layers::{
    Attention, Conv2d, Flatten, Gelu, GlobalAveragePool, GroupNorm, LayerNorm, Linear, MaxPool, Relu,
    Residual,
};
use crate::{Description, LayerDescription, Shape};

/// Values as a vector: pixels are features like any other.
pub(super) fn vector(input: Shape) -> Description {
    match input {
        Shape::Image { .. } => Description::new(input).then(Flatten),
        _ => Description::new(input),
    }
}

/// Linear layers `fc1`, `fc2`, ... with ReLU between them.
pub(super) fn perceptron(mut description: Description, hidden: &[usize], outputs: usize) -> Description {
    for (index, &width) in hidden.iter().enumerate() {
        description = description.named(&format!("fc{}", index + 1), Linear::new(width)).then(Relu);
    }
    description.named(&format!("fc{}", hidden.len() + 1), Linear::new(outputs))
}

/// A residual network with blocks of two convolutions and GroupNorm in place of BatchNorm, which would mix records.
pub(super) struct ResNet<'a> {
    /// Blocks of each stage. From one stage to the next, channels double and the image is halved.
    pub(super) blocks: &'a [usize],
    /// Channels of the first stage.
    pub(super) width: usize,
    /// Groups of every norm.
    pub(super) groups: usize,
    pub(super) standardised: bool,
    /// Whether the first convolution is 7x7 and halves the image, and pooling halves it again.
    pub(super) large: bool,
}

impl ResNet<'_> {
    pub(super) fn describe(&self, input: Shape, outputs: usize) -> Description {
        let norm = GroupNorm { groups: self.groups };
        let mut description = match self.large {
            true => Description::new(input)
                .named("conv1", self.convolution(self.width, 7, 2))
                .named("norm1", norm)
                .then(Relu)
                .then(MaxPool { kernel: 3, stride: 2, padding: 1 }),
            false => Description::new(input)
                .named("conv1", self.convolution(self.width, 3, 1))
                .named("norm1", norm)
                .then(Relu),
        };
        for (stage, &blocks) in self.blocks.iter().enumerate() {
            for block in 0..blocks {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                let name = format!("layer{}.{block}", stage + 1);
                description = description.named(&name, self.block(self.width << stage, stride)).then(Relu);
            }
        }
        description.then(GlobalAveragePool).named("fc", Linear::new(outputs))
    }

    fn convolution(&self, channels: usize, kernel: usize, stride: usize) -> Conv2d {
        let convolution = Conv2d::new(channels, kernel, stride, kernel / 2);
        Conv2d { bias: false, standardised: self.standardised, ..convolution }
    }

    fn block(&self, channels: usize, stride: usize) -> Residual {
        let norm = GroupNorm { groups: self.groups };
        let body = vec![
            LayerDescription::named("conv1", self.convolution(channels, 3, stride)),
            LayerDescription::named("norm1", norm),
            Relu.into(),
            LayerDescription::named("conv2", self.convolution(channels, 3, 1)),
            LayerDescription::named("norm2", norm),
        ];
        let shortcut = match stride {
            1 => Vec::new(),
            _ => vec![self.convolution(channels, 1, stride).into(), norm.into()],
        };
        Residual { body, shortcut }
    }
}

/// Whether an image is so large that a network begins by making it smaller.
pub(super) fn is_large(input: Shape) -> bool {
    matches!(input, Shape::Image { height, width, .. } if height.min(width) >= 64)
}

/// Layers of a transformer that normalise before attention and before the feed-forward part; parameters have the names of
/// PyTorch's `TransformerEncoderLayer`.
pub(super) struct Layers {
    pub(super) depth: usize,
    pub(super) width: usize,
    pub(super) attention: Attention,
    pub(super) hidden: usize,
}

impl Layers {
    /// Adds the layers, and a norm after the last one.
    pub(super) fn add_to(&self, mut description: Description) -> Description {
        for layer in 0..self.depth {
            let attention = vec![
                LayerDescription::named("norm1", LayerNorm::default()),
                LayerDescription::named("self_attn", self.attention),
            ];
            let feed_forward = vec![
                LayerDescription::named("norm2", LayerNorm::default()),
                LayerDescription::named("linear1", Linear::new(self.hidden)),
                Gelu.into(),
                LayerDescription::named("linear2", Linear::new(self.width)),
            ];
            let name = format!("layers.{layer}");
            description =
                description.named(&name, Residual::new(attention)).named(&name, Residual::new(feed_forward));
        }
        description.named("norm", LayerNorm::default())
    }
}

/// Refuses heads that do not divide the width.
pub(super) fn check_heads(heads: usize, width: usize) -> Result<(), String> {
    match width.is_multiple_of(heads) {
        true => Ok(()),
        false => Err(format!("heads must divide the width {width}, got {heads}")),
    }
}
