//! A network as plain data: built in Rust, or read from TOML or JSON.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::shape::Shape;

/// What a network is made of.
///
/// In a file, `input` gives the shape of a record and `layers` the layers in order:
///
/// ```
/// let text = r#"
/// input = { image = [1, 28, 28] }
/// layers = [
///     { type = "conv2d", channels = 16, kernel = 8, stride = 2, padding = 3 },
///     { type = "relu" },
///     { type = "max_pool", kernel = 2, stride = 1 },
///     { type = "flatten" },
///     { type = "linear", outputs = 10, name = "head" },
/// ]
/// "#;
/// let description: sordino_nn::Description = toml::from_str(text)?;
/// let network = sordino_nn::Network::new(&description)?;
/// assert_eq!(network.layout().slices()[3].name, "head.bias");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The shape of one record.
    pub input: Shape,
    /// The layers, in order.
    pub layers: Vec<LayerDescription>,
}

impl Description {
    /// An empty network on records of this shape.
    pub fn new(input: Shape) -> Description {
        Description { input, layers: Vec::new() }
    }

    /// Adds a layer whose parameters are named by its place, as PyTorch's `Sequential` does: `3.weight`.
    #[must_use]
    pub fn then(mut self, layer: Layer) -> Description {
        self.layers.push(layer.into());
        self
    }

    /// Adds a layer with a name: `conv1.weight`.
    #[must_use]
    pub fn named(mut self, name: &str, layer: Layer) -> Description {
        self.layers.push(LayerDescription::named(name, layer));
        self
    }
}

/// One layer: what it does, its name, and whether its parameters are trained.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerDescription {
    /// What it does.
    #[serde(flatten)]
    pub layer: Layer,
    /// The prefix of its parameters' names; its place in the list if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether its parameters are left alone by training: no norm, no gradient.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub frozen: bool,
}

impl LayerDescription {
    /// A layer with a name.
    pub fn named(name: &str, layer: Layer) -> LayerDescription {
        LayerDescription { layer, name: Some(name.to_owned()), frozen: false }
    }
}

/// The keys beside a layer's own are taken out first, so that a misspelt one is an error and not a default.
impl<'de> Deserialize<'de> for LayerDescription {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LayerDescription, D::Error> {
        let mut keys = serde_json::Map::deserialize(deserializer)?;
        let name = keys.remove("name").map(serde_json::from_value).transpose().map_err(D::Error::custom)?;
        let frozen =
            keys.remove("frozen").map(serde_json::from_value).transpose().map_err(D::Error::custom)?;
        let layer = serde_json::from_value(keys.into()).map_err(D::Error::custom)?;
        Ok(LayerDescription { layer, name, frozen: frozen.unwrap_or(false) })
    }
}

impl From<Layer> for LayerDescription {
    fn from(layer: Layer) -> LayerDescription {
        LayerDescription { layer, name: None, frozen: false }
    }
}

/// What a layer does.
///
/// No layer mixes records: a normalisation over the batch would make a record's gradient depend on the others, and the
/// guarantee would be lost. [`GroupNorm`](Layer::GroupNorm) for images and [`LayerNorm`](Layer::LayerNorm) for sequences
/// normalise within a record and take its place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Layer {
    /// `y = W x + b`, on a vector or on each step of a sequence.
    Linear {
        /// The length of `y`.
        outputs: usize,
        /// The length of `x`; inferred, and checked if given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        inputs: Option<usize>,
        /// Whether there is a `b`.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// A convolution with square filters.
    Conv2d {
        /// Output channels.
        channels: usize,
        /// The side of a filter.
        kernel: usize,
        /// Pixels from one position to the next.
        #[serde(default = "one")]
        stride: usize,
        /// Zeros around the image.
        #[serde(default)]
        padding: usize,
        /// Groups of channels that do not see each other.
        #[serde(default = "one")]
        groups: usize,
        /// Whether there is a bias for each output channel.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// A vector for each token.
    Embedding {
        /// Its length.
        width: usize,
    },
    /// Adds a learned vector for each place in a sequence.
    Positions,
    /// Normalises each step of a sequence, or a vector, to mean 0 and variance 1, then scales and shifts.
    LayerNorm,
    /// Normalises groups of channels of an image, then scales and shifts each channel.
    GroupNorm {
        /// How many groups.
        groups: usize,
    },
    /// A long short-term memory: a sequence of hidden states.
    Lstm {
        /// The length of a hidden state.
        hidden: usize,
    },
    /// A gated recurrent unit: a sequence of hidden states.
    Gru {
        /// The length of a hidden state.
        hidden: usize,
    },
    /// Multi-head self-attention; places beyond a record's length are not seen.
    Attention {
        /// How many heads; divides the width.
        heads: usize,
    },
    /// `max(x, 0)`.
    Relu,
    /// `x Phi(x)` with the normal distribution function `Phi`.
    Gelu,
    /// The hyperbolic tangent.
    Tanh,
    /// `scale / (1 + exp(-temperature x)) - offset`, a bounded activation that suits clipped gradients
    /// (Papernot et al., 2021).
    TemperedSigmoid {
        /// The height.
        scale: f32,
        /// The inverse temperature.
        temperature: f32,
        /// What is subtracted.
        offset: f32,
    },
    /// The greatest value of each window of each channel.
    MaxPool {
        /// The side of a window.
        kernel: usize,
        /// Pixels from one window to the next.
        stride: usize,
        /// Pixels around the image that never win.
        #[serde(default)]
        padding: usize,
    },
    /// The mean of each window of each channel.
    AveragePool {
        /// The side of a window.
        kernel: usize,
        /// Pixels from one window to the next.
        stride: usize,
    },
    /// The mean of each channel.
    GlobalAveragePool,
    /// An image as a vector, channel by channel.
    Flatten,
    /// Sets values to zero at random in training and scales up the rest; each record has its own mask.
    Dropout {
        /// The fraction set to zero.
        rate: f32,
    },
    /// `body(x) + shortcut(x)`; an empty shortcut is `x` itself.
    Residual {
        /// The layers of the body.
        body: Vec<LayerDescription>,
        /// The layers of the shortcut.
        #[serde(default)]
        shortcut: Vec<LayerDescription>,
    },
    /// The last step of each record's sequence.
    LastStep,
    /// The mean over the steps of each record's sequence.
    MeanOverSteps,
}

impl Layer {
    /// A linear layer with a bias.
    pub fn linear(outputs: usize) -> Layer {
        Layer::Linear { outputs, inputs: None, bias: true }
    }

    /// A convolution without padding and with a bias.
    pub fn conv2d(channels: usize, kernel: usize, stride: usize, padding: usize) -> Layer {
        Layer::Conv2d { channels, kernel, stride, padding, groups: 1, bias: true }
    }

    /// The type's name in a file and in messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Layer::Linear { .. } => "linear",
            Layer::Conv2d { .. } => "conv2d",
            Layer::Embedding { .. } => "embedding",
            Layer::Positions => "positions",
            Layer::LayerNorm => "layer_norm",
            Layer::GroupNorm { .. } => "group_norm",
            Layer::Lstm { .. } => "lstm",
            Layer::Gru { .. } => "gru",
            Layer::Attention { .. } => "attention",
            Layer::Relu => "relu",
            Layer::Gelu => "gelu",
            Layer::Tanh => "tanh",
            Layer::TemperedSigmoid { .. } => "tempered_sigmoid",
            Layer::MaxPool { .. } => "max_pool",
            Layer::AveragePool { .. } => "average_pool",
            Layer::GlobalAveragePool => "global_average_pool",
            Layer::Flatten => "flatten",
            Layer::Dropout { .. } => "dropout",
            Layer::Residual { .. } => "residual",
            Layer::LastStep => "last_step",
            Layer::MeanOverSteps => "mean_over_steps",
        }
    }
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}
