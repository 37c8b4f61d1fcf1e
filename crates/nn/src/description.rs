//! A network as plain data: built in Rust, or read from TOML or JSON.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::layers::Layer;
use crate::network::Network;
use crate::shape::Shape;

/// The input shape and the layers of a network.
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

    /// Adds a layer whose parameters are named by its position, as in PyTorch's `Sequential`: `3.weight`.
    #[must_use]
    pub fn then(mut self, layer: impl Into<Layer>) -> Description {
        self.layers.push(layer.into().into());
        self
    }

    /// Cuts the network behind the longest row of layers that are not trained: the frozen layers at the beginning, whose outputs can be
    /// computed once, and the rest, which reads these outputs. None if no such row has parameters.
    ///
    /// Names are kept, so the parameters of both networks, one after the other, are those of the whole one. A row ends before dropout,
    /// whose outputs change from step to step, and in a vector or a sequence.
    pub fn split_frozen(&self) -> Option<(Description, Description)> {
        let mut best = None;
        for end in 1..self.layers.len() {
            if contains_dropout(&self.layers[end - 1]) {
                break;
            }
            let before = Description { input: self.input, layers: self.layers[..end].to_vec() };
            // A row that ends in an image is not a network.
            let Ok(network) = Network::new(&before) else { continue };
            if !network.layers().is_empty() {
                break;
            }
            let rest = Description { input: network.output(), layers: self.named_from(end) };
            if !network.layout().is_empty() && Network::new(&rest).is_ok() {
                best = Some((before, rest));
            }
        }
        best
    }

    /// The layers from an index on, under the names that they have in the whole network.
    fn named_from(&self, start: usize) -> Vec<LayerDescription> {
        let named = |(index, described): (usize, &LayerDescription)| {
            let name = described.name.clone().unwrap_or_else(|| index.to_string());
            LayerDescription { name: Some(name), ..described.clone() }
        };
        self.layers.iter().enumerate().skip(start).map(named).collect()
    }

    /// Adds a layer with a name: `conv1.weight`.
    #[must_use]
    pub fn named(mut self, name: &str, layer: impl Into<Layer>) -> Description {
        self.layers.push(LayerDescription::named(name, layer));
        self
    }
}

/// Whether a layer is dropout or has dropout in it.
fn contains_dropout(described: &LayerDescription) -> bool {
    match &described.layer {
        Layer::Dropout(_) => true,
        Layer::Residual(block) => block.body.iter().chain(&block.shortcut).any(contains_dropout),
        Layer::PooledStages(pooled) => pooled.stages.iter().flatten().any(contains_dropout),
        _ => false,
    }
}

/// A layer with its name, and whether its parameters are trained.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerDescription {
    /// The layer.
    #[serde(flatten)]
    pub layer: Layer,
    /// The prefix of its parameters' names; by default its position in the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether its parameters are excluded from training: no norm, no gradient.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub frozen: bool,
}

impl LayerDescription {
    /// A layer with a name.
    pub fn named(name: &str, layer: impl Into<Layer>) -> LayerDescription {
        LayerDescription { layer: layer.into(), name: Some(name.to_owned()), frozen: false }
    }
}

/// The keys `name` and `frozen` are removed first. The layer refuses all keys that it does not have, so a misspelt key is an error.
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
