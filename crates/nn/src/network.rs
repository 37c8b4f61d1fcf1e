//! A network: its nodes, the storage of values, and the layout of parameters.

use std::ops::Range;
use std::sync::Arc;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::description::Description;
use crate::error::NetworkError;
use crate::graph_builder::GraphBuilder;
use crate::init::Init;
use crate::layers::{Operation, ParameterGradients, Pointwise};
use crate::params::{Layout, Params};
use crate::shape::{Shape, Storage};

/// A network that has been checked: every layer fits the one before it.
pub struct Network {
    pub(crate) description: Description,
    pub(crate) nodes: Vec<Node>,
    /// How each value is stored.
    pub(crate) storage: Vec<Storage>,
    /// The different numbers of [extra steps](Storage::extra) of the values.
    pub(crate) extras: Vec<usize>,
    /// Which values need a gradient: those that depend on trained parameters.
    pub(crate) needs_gradient: Vec<bool>,
    pub(crate) layers: Vec<LayerParameters>,
    /// The index of the output among the values.
    pub(crate) output: usize,
    pub(crate) inits: Vec<Init>,
    pub(crate) layout: Arc<Layout>,
}

/// The trained parameters of one layer, which per-layer clipping clips together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerParameters {
    /// The prefix of the parameters' names.
    pub name: String,
    /// Their range in the flat vector.
    pub range: Range<usize>,
}

/// One node of the graph.
pub(crate) struct Node {
    pub(crate) action: Action,
    /// This layer's parameters in the flat vector.
    pub(crate) params: Range<usize>,
    /// Its index among the layers that are trained.
    pub(crate) layer: Option<usize>,
    /// A later node that uses the same parameters. Their gradient belongs to this node, and that one is not trained itself.
    pub(crate) shared_with: Option<usize>,
    /// Whether its backward pass adds to the gradient of its input, which a later node has written.
    pub(crate) accumulate: bool,
}

/// What a node does with values.
pub(crate) enum Action {
    /// `y = f(x)`.
    Operation { operation: Box<dyn Operation>, x: usize, y: usize },
    /// `value = f(value)`.
    Pointwise { operation: Box<dyn Pointwise>, value: usize },
    /// `to = from`.
    Copy { from: usize, to: usize },
    /// `into += other`.
    Add { other: usize, into: usize },
}

impl Node {
    /// A node whose parameters lie at `params`; `layer` is its index among the layers that are trained.
    pub(crate) fn new(action: Action, params: Range<usize>, layer: Option<usize>) -> Node {
        let node = Node { action, params, layer, shared_with: None, accumulate: false };
        assert_eq!(layer.is_some(), node.trained().is_some(), "a layer with parameters has gradients");
        node
    }

    /// The index among the layers that are trained, and the gradients of its parameters; none if the node is not trained.
    pub(crate) fn trained(&self) -> Option<(usize, &dyn ParameterGradients)> {
        match &self.action {
            Action::Operation { operation, .. } => Some((self.layer?, operation.parameter_gradients()?)),
            Action::Pointwise { .. } | Action::Copy { .. } | Action::Add { .. } => None,
        }
    }
}

impl Network {
    /// Checks a description and builds the network.
    ///
    /// # Errors
    /// If a layer does not fit what comes before it; the message names the layer:
    ///
    /// ```
    /// use sordino_nn::layers::{Flatten, Linear, Relu};
    /// use sordino_nn::{Description, Network, Shape};
    ///
    /// let description = Description::new(Shape::Image { channels: 32, height: 5, width: 5 })
    ///     .then(Relu)
    ///     .then(Flatten)
    ///     .then(Linear { inputs: Some(512), ..Linear::new(10) });
    /// let error = Network::new(&description).err().map(|error| error.to_string());
    /// assert_eq!(
    ///     error.as_deref(),
    ///     Some("layer 2 (linear): expects 512 inputs, gets 800 from layer 1 (flatten of 32x5x5)")
    /// );
    /// ```
    pub fn new(description: &Description) -> Result<Network, NetworkError> {
        let network = GraphBuilder::build(description)?;
        if network.layout.len() > MOST_PARAMETERS {
            return Err(NetworkError::Description(format!(
                "the network would have {} parameters, more than the {MOST_PARAMETERS} permitted",
                network.layout.len()
            )));
        }
        let mut names: Vec<&str> = network.layout.slices().iter().map(|slice| slice.name.as_str()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(NetworkError::Description(format!(
                "two parameters are called {}; give the layers different names",
                pair[0]
            ))),
            None => Ok(network),
        }
    }

    /// The description of the network.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The shape of a record.
    pub fn input(&self) -> Shape {
        self.description.input
    }

    /// The shape of the outputs: a vector or a sequence.
    pub fn output(&self) -> Shape {
        self.storage[self.output].shape
    }

    /// The number of outputs; of each step if the network ends in a sequence.
    pub fn outputs(&self) -> usize {
        self.output().width()
    }

    /// How the input of a node is stored.
    pub(crate) fn input_of(&self, node: &Node) -> Storage {
        let (Action::Operation { x: value, .. }
        | Action::Pointwise { value, .. }
        | Action::Copy { from: value, .. }
        | Action::Add { other: value, .. }) = node.action;
        self.storage[value]
    }

    /// The names and ranges of the parameters.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The layers that are trained, in order; norms and weights are given layer by layer in this order.
    pub fn layers(&self) -> &[LayerParameters] {
        &self.layers
    }

    /// Initial parameters: Kaiming's uniform rule for linear and convolutional layers, Xavier's for the projections
    /// of attention, ones and zeros for norms, a normal distribution for embeddings. The same seed gives the same parameters.
    pub fn init(&self, seed: u64) -> Params {
        let mut params = Params::zeros(self.layout.clone());
        let mut random = ChaCha12Rng::seed_from_u64(seed);
        for (slice, init) in self.layout.slices().iter().zip(&self.inits) {
            init.fill(&mut params.values_mut()[slice.range.clone()], &mut random);
        }
        params
    }

    /// Floating-point operations of the products of one training step on a record of maximum length (two for each
    /// multiply-add): forward, backward to inputs where needed, weight gradients.
    pub fn operations(&self) -> f64 {
        let steps = self.input().steps();
        let count = |node: &Node| match &node.action {
            Action::Operation { operation, x, y } => {
                let [forward, input, weight] = operation.work(steps + self.storage[*x].extra);
                let input = if self.needs_gradient[*x] { input } else { 0 };
                let weight = if self.needs_gradient[*y] && node.layer.is_some() { weight } else { 0 };
                forward + input + weight
            }
            _ => 0,
        };
        2.0 * self.nodes.iter().map(count).sum::<usize>() as f64
    }
}

/// The largest number of parameters, 16 GiB; more is surely a mistake.
pub(crate) const MOST_PARAMETERS: usize = 1 << 32;
