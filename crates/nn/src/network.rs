//! A network: layers in order, the shapes between them, and where their parameters lie.

use std::ops::Range;
use std::sync::Arc;

use crate::description::{Description, Layer};
use crate::draft::{Action, Draft, DraftStep, Prefixes, Source};
use crate::error::NetworkError;
use crate::inference::check_input;
use crate::init::{Init, Random};
use crate::layers::{
    Attention, AveragePool, Conv2d, Dropout, Embedding, Filter, Flatten, Gelu, GroupNorm, Gru, LastStep,
    LayerNorm, Linear, Lstm, MaxPool, MeanOverSteps, Operation, Pointwise, Positions, Relu, Tanh,
    TemperedSigmoid,
};
use crate::params::{Layout, Params};
use crate::shape::{Place, Shape};

/// A network that has been checked: every layer fits the one before it.
pub struct Network {
    pub(crate) description: Description,
    pub(crate) nodes: Vec<Node>,
    pub(crate) places: Vec<Place>,
    /// Which values need a gradient: those that trained parameters come before.
    pub(crate) wanted: Vec<bool>,
    pub(crate) layers: Vec<LayerParameters>,
    pub(crate) output: usize,
    pub(crate) inits: Vec<Init>,
    pub(crate) layout: Arc<Layout>,
}

/// The trained parameters of one layer: what per-layer clipping clips together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerParameters {
    /// The prefix of the parameters' names.
    pub name: String,
    /// Where they lie in the flat vector.
    pub range: Range<usize>,
}

/// One thing to do on the way through a network.
pub(crate) struct Node {
    pub(crate) step: Step,
    /// This layer's parameters in the flat vector.
    pub(crate) params: Range<usize>,
    /// Its place among the layers that are trained.
    pub(crate) layer: Option<usize>,
    /// Whether the gradient of its input was begun by a later node and is added to.
    pub(crate) accumulate: bool,
}

/// What a node does with values.
pub(crate) enum Step {
    /// `y = f(x)`.
    Operation { operation: Box<dyn Operation>, x: usize, y: usize },
    /// `value = f(value)`.
    Pointwise { operation: Box<dyn Pointwise>, value: usize },
    /// `to = from`.
    Copy { from: usize, to: usize },
    /// `into += other`.
    Add { other: usize, into: usize },
}

impl Network {
    /// Checks a description and builds the network.
    ///
    /// # Errors
    /// If a layer does not fit what comes before it; the message names the layer:
    ///
    /// ```
    /// use sordino_nn::{Description, Layer, Network, Shape};
    ///
    /// let description = Description::new(Shape::Image { channels: 32, height: 5, width: 5 })
    ///     .then(Layer::Relu)
    ///     .then(Layer::Flatten)
    ///     .then(Layer::Linear { outputs: 10, inputs: Some(512), bias: true });
    /// let error = Network::new(&description).err().map(|error| error.to_string());
    /// assert_eq!(
    ///     error.as_deref(),
    ///     Some("layer 2 (linear): expects 512 inputs, gets 800 from layer 1 (flatten of 32x5x5)")
    /// );
    /// ```
    pub fn new(description: &Description) -> Result<Network, NetworkError> {
        check_input(description.input).map_err(NetworkError::Description)?;
        let mut draft = Draft { shapes: vec![description.input], ..Draft::default() };
        let source =
            Source { value: 0, what: "the input".to_owned(), shape: description.input, fresh: false };
        let end = draft.sequence(&description.layers, &Prefixes::default(), source)?;
        if draft.steps.is_empty() {
            return Err(NetworkError::Description("a network needs at least one layer".to_owned()));
        }
        let Shape::Features(_) = end.shape else {
            return Err(NetworkError::Description(format!(
                "a network must end in a vector, but {} gives {}; end with {}",
                end.what,
                end.shape,
                match end.shape {
                    Shape::Image { .. } => "flatten or global_average_pool, then linear",
                    _ => "last_step or mean_over_steps, then linear",
                }
            )));
        };
        let network = draft.build(description, end.value);
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

    /// What it was made from.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The shape of a record.
    pub fn input(&self) -> Shape {
        self.description.input
    }

    /// The number of outputs.
    pub fn outputs(&self) -> usize {
        self.places[self.output].width()
    }

    /// The names and places of the parameters.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The layers that are trained, in order; norms and weights are given layer by layer in this order.
    pub fn layers(&self) -> &[LayerParameters] {
        &self.layers
    }

    /// Parameters to begin with: Kaiming's uniform rule for linear and convolutional layers, Xavier's for the projections
    /// of attention, ones and zeros for norms, a normal distribution for embeddings. The same seed gives the same parameters.
    pub fn init(&self, seed: u64) -> Params {
        let mut params = Params::zeros(self.layout.clone());
        let mut random = Random::new(seed);
        for (slice, init) in self.layout.slices().iter().zip(&self.inits) {
            init.fill(&mut params.values_mut()[slice.range.clone()], &mut random);
        }
        params
    }

    /// Floating-point operations of the products of one training step on a record of greatest length (two for each
    /// multiply-add): forward, backward to inputs where needed, weight gradients.
    pub fn operations(&self) -> f64 {
        let steps = self.input().steps();
        let count = |node: &Node| match &node.step {
            Step::Operation { operation, x, y } => {
                let [forward, input, weight] = operation.work(steps);
                let input = if self.wanted[*x] { input } else { 0 };
                let weight = if self.wanted[*y] && node.layer.is_some() { weight } else { 0 };
                forward + input + weight
            }
            _ => 0,
        };
        2.0 * self.nodes.iter().map(count).sum::<usize>() as f64
    }
}

/// Parameters that are surely a mistake: 16 GiB of them.
const MOST_PARAMETERS: usize = 1 << 32;

impl Network {
    /// Adds a step and its parameters.
    pub(crate) fn add(&mut self, step: &DraftStep, layout: &mut Layout) {
        let (x, y) = (step.x, step.y);
        let start = layout.len();
        let (taken, trained) = match &step.action {
            Action::Add => (Step::Add { other: x, into: y }, false),
            Action::Copy => (Step::Copy { from: x, to: y }, false),
            Action::Layer(layer) => match pointwise(layer) {
                Some(operation) => (Step::Pointwise { operation, value: y }, false),
                None => {
                    let operation = self.operation(layer, x, y, step.projection);
                    for parameter in operation.parameters() {
                        let part = if step.projection { "in_proj_" } else { "" };
                        let name = format!("{}.{part}{}", step.name, parameter.name);
                        layout.push(name, parameter.shape, step.frozen);
                        self.inits.push(parameter.init);
                    }
                    (Step::Operation { operation, x, y }, !step.frozen)
                }
            },
        };
        let params = start..layout.len();
        let layer = (trained && !params.is_empty()).then(|| {
            self.layers.push(LayerParameters { name: step.name.clone(), range: params.clone() });
            self.layers.len() - 1
        });
        self.nodes.push(Node { step: taken, params, layer, accumulate: false });
    }

    fn operation(&self, layer: &Layer, x: usize, y: usize, projection: bool) -> Box<dyn Operation> {
        let (from, to) = (self.places[x], self.places[y]);
        match (layer.clone(), from.shape) {
            (Layer::Linear { outputs, bias, .. }, shape) => {
                let linear = Linear::new(shape, outputs, bias);
                Box::new(if projection { linear.for_attention() } else { linear })
            }
            (Layer::Conv2d { kernel, stride, padding, groups, bias, .. }, _) => {
                let filter = Filter { kernel, stride, padding, groups, bias };
                Box::new(Conv2d::new(from.image(), to.image(), filter, self.wanted[x]))
            }
            (Layer::Embedding { width }, Shape::Tokens { vocabulary, .. }) => {
                Box::new(Embedding { vocabulary, width })
            }
            (Layer::Positions, Shape::Sequence { steps, width }) => Box::new(Positions { steps, width }),
            (Layer::LayerNorm, shape) => Box::new(LayerNorm::new(shape)),
            (Layer::GroupNorm { groups }, _) => {
                Box::new(GroupNorm { input: from.image(), output: to.image(), groups })
            }
            (Layer::Lstm { hidden }, _) => Box::new(Lstm::new(from.width(), hidden, from.shape.steps())),
            (Layer::Gru { hidden }, _) => Box::new(Gru::new(from.width(), hidden, from.shape.steps())),
            (Layer::Attention { heads }, _) => Box::new(Attention { width: to.width(), heads }),
            (Layer::MaxPool { kernel, stride, padding }, _) => {
                Box::new(MaxPool { input: from.image(), output: to.image(), kernel, stride, padding })
            }
            (Layer::AveragePool { kernel, stride }, _) => {
                let kernel = (kernel, kernel);
                Box::new(AveragePool { input: from.image(), output: Some(to.image()), kernel, stride })
            }
            (Layer::GlobalAveragePool, _) => {
                let input = from.image();
                let kernel = (input.height, input.width);
                Box::new(AveragePool { input, output: None, kernel, stride: 1 })
            }
            (Layer::Flatten, _) => Box::new(Flatten { input: from.image() }),
            (Layer::LastStep, _) => Box::new(LastStep { width: from.width() }),
            (Layer::MeanOverSteps, _) => Box::new(MeanOverSteps { width: from.width() }),
            (layer, shape) => unreachable!("{} of {shape} was checked", layer.kind()),
        }
    }
}

pub(crate) fn has_parameters(layer: &Layer) -> bool {
    matches!(
        layer,
        Layer::Linear { .. }
            | Layer::Conv2d { .. }
            | Layer::Embedding { .. }
            | Layer::Positions
            | Layer::LayerNorm
            | Layer::GroupNorm { .. }
            | Layer::Lstm { .. }
            | Layer::Gru { .. }
    )
}

pub(crate) fn pointwise(layer: &Layer) -> Option<Box<dyn Pointwise>> {
    match *layer {
        Layer::Relu => Some(Box::new(Relu)),
        Layer::Gelu => Some(Box::new(Gelu)),
        Layer::Tanh => Some(Box::new(Tanh)),
        Layer::TemperedSigmoid { scale, temperature, offset } => {
            Some(Box::new(TemperedSigmoid { scale, temperature, offset }))
        }
        Layer::Dropout { rate } => Some(Box::new(Dropout { rate })),
        _ => None,
    }
}
