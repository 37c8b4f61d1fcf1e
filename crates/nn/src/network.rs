//! A network: layers in order, the shapes between them, and where their parameters lie.

use std::ops::Range;
use std::sync::Arc;

use crate::description::{Description, Layer, LayerDescription};
use crate::error::NetworkError;
use crate::inference::{check_input, infer};
use crate::init::{Init, Random};
use crate::layers::{
    Attention, AveragePool, Conv2d, Dropout, Embedding, Filter, Flatten, Gelu, GroupNorm, Gru, LastStep,
    LayerNorm, Linear, Lstm, MaxPool, MeanOverSteps, Operation, Pointwise, Positions, Relu, Tanh,
    TemperedSigmoid, gradient_border,
};
use crate::params::{Layout, Params};
use crate::shape::{Place, Shape};

/// A network that has been checked: every layer fits the one before it.
pub struct Network {
    description: Description,
    pub(crate) nodes: Vec<Node>,
    pub(crate) places: Vec<Place>,
    /// Which values need a gradient: those that trained parameters come before.
    pub(crate) wanted: Vec<bool>,
    pub(crate) layers: Vec<LayerParameters>,
    pub(crate) output: usize,
    inits: Vec<Init>,
    layout: Arc<Layout>,
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
    /// of attention, ones and zeros for norms, all as PyTorch begins. The same seed gives the same parameters.
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

/// How deep residual blocks may be nested.
const DEEPEST: usize = 16;

/// Parameters that are surely a mistake: 16 GiB of them.
const MOST_PARAMETERS: usize = 1 << 32;

/// Where a layer's input comes from.
#[derive(Clone)]
pub(crate) struct Source {
    value: usize,
    /// What it is called in messages.
    pub(crate) what: String,
    pub(crate) shape: Shape,
    /// Whether the value may be overwritten: nobody else reads it, and who wrote it will not look at it again.
    fresh: bool,
}

/// What comes before the places and names of layers: nothing, or the residual block they are in.
#[derive(Default)]
struct Prefixes {
    place: String,
    unnamed: String,
    named: String,
    /// Whether the block is frozen, and all that is in it.
    frozen: bool,
}

impl Prefixes {
    /// A layer with a name of its own is a child of the block, `layer1.0.conv1`; others are counted, `3.body.0`.
    fn within(place: &str, name: &str, part: &str, frozen: bool) -> Prefixes {
        Prefixes {
            place: format!("{place}.{part}."),
            unnamed: format!("{name}.{part}."),
            named: format!("{name}."),
            frozen,
        }
    }
}

/// What a step under construction does.
enum Action {
    Layer(Layer),
    Copy,
    Add,
}

/// A network under construction.
#[derive(Default)]
struct Draft {
    shapes: Vec<Shape>,
    steps: Vec<DraftStep>,
}

struct DraftStep {
    action: Action,
    name: String,
    frozen: bool,
    x: usize,
    y: usize,
    /// The projection to queries, keys and values: PyTorch calls its parameters `in_proj_weight`, without a dot.
    projection: bool,
}

impl Draft {
    fn value(&mut self, shape: Shape) -> usize {
        self.shapes.push(shape);
        self.shapes.len() - 1
    }

    fn push(&mut self, action: Action, name: &str, frozen: bool, x: usize, y: usize) {
        self.steps.push(DraftStep { action, name: name.to_owned(), frozen, x, y, projection: false });
    }

    fn sequence(
        &mut self,
        layers: &[LayerDescription],
        prefixes: &Prefixes,
        mut source: Source,
    ) -> Result<Source, NetworkError> {
        for (index, described) in layers.iter().enumerate() {
            let place = format!("{}{index}", prefixes.place);
            let name = match &described.name {
                Some(name) => format!("{}{name}", prefixes.named),
                None => format!("{}{index}", prefixes.unnamed),
            };
            let described =
                LayerDescription { frozen: described.frozen || prefixes.frozen, ..described.clone() };
            source = self.layer(&described, &place, &name, source)?;
        }
        Ok(source)
    }

    fn layer(
        &mut self,
        described: &LayerDescription,
        place: &str,
        name: &str,
        source: Source,
    ) -> Result<Source, NetworkError> {
        let layer = &described.layer;
        let shape = infer(layer, &source).map_err(|problem| NetworkError::Layer {
            layer: place.to_owned(),
            kind: layer.kind(),
            problem,
        })?;
        let what = match layer {
            Layer::Flatten => format!("layer {place} (flatten of {})", source.shape),
            _ => format!("layer {place} ({})", layer.kind()),
        };
        if let Layer::Residual { body, shortcut } = layer {
            if place.matches('.').count() >= 2 * DEEPEST {
                let problem = format!("residual blocks may be {DEEPEST} deep");
                return Err(NetworkError::Layer { layer: place.to_owned(), kind: layer.kind(), problem });
            }
            let fork = Source { fresh: false, ..source };
            let mut main =
                self.sequence(body, &Prefixes::within(place, name, "body", described.frozen), fork.clone())?;
            let other =
                self.sequence(shortcut, &Prefixes::within(place, name, "shortcut", described.frozen), fork)?;
            if main.shape != other.shape {
                let problem = format!(
                    "the body gives {}, the shortcut {}; they are added and must agree",
                    main.shape, other.shape
                );
                return Err(NetworkError::Layer { layer: place.to_owned(), kind: layer.kind(), problem });
            }
            if !main.fresh {
                main = self.copy(main);
            }
            self.push(Action::Add, name, true, other.value, main.value);
            return Ok(Source { what, fresh: true, ..main });
        }
        if pointwise(layer).is_some() {
            let source = if source.fresh { source } else { self.copy(source) };
            self.push(Action::Layer(layer.clone()), name, true, source.value, source.value);
            // Derivatives of these are read off their values.
            let fresh = matches!(layer, Layer::Gelu | Layer::Dropout { .. });
            return Ok(Source { what, fresh, ..source });
        }
        if let (Layer::Attention { .. }, Shape::Sequence { steps, width }) = (layer, source.shape) {
            // Three nodes: projections to queries, keys and values; attention; projection of the heads.
            let wide = self.value(Shape::Sequence { steps, width: 3 * width });
            let heads = self.value(shape);
            let out = self.value(shape);
            let linear = |outputs| Action::Layer(Layer::linear(outputs));
            self.push(linear(3 * width), name, described.frozen, source.value, wide);
            self.steps.last_mut().expect("it was pushed").projection = true;
            self.push(Action::Layer(layer.clone()), name, true, wide, heads);
            self.push(linear(width), &format!("{name}.out_proj"), described.frozen, heads, out);
            return Ok(Source { value: out, what, shape, fresh: true });
        }
        let y = self.value(shape);
        self.push(Action::Layer(layer.clone()), name, described.frozen, source.value, y);
        Ok(Source { value: y, what, shape, fresh: !matches!(layer, Layer::MaxPool { .. }) })
    }

    fn copy(&mut self, source: Source) -> Source {
        let to = self.value(source.shape);
        self.push(Action::Copy, "", true, source.value, to);
        Source { value: to, fresh: true, ..source }
    }

    fn build(self, description: &Description, output: usize) -> Network {
        let mut wanted = vec![false; self.shapes.len()];
        for step in &self.steps {
            let trained =
                !step.frozen && matches!(&step.action, Action::Layer(layer) if has_parameters(layer));
            wanted[step.y] |= trained || wanted[step.x];
        }
        let mut places: Vec<Place> = self.shapes.iter().map(|&shape| Place { shape, border: 0 }).collect();
        for step in &self.steps {
            if let Action::Layer(Layer::Conv2d { kernel, stride, padding, .. }) = step.action {
                places[step.x].border = places[step.x].border.max(padding);
                if wanted[step.x] {
                    let (input, out) = (places[step.x].image(), places[step.y].image());
                    let filter = [kernel, stride, padding];
                    let border =
                        gradient_border((input.height, input.width), (out.height, out.width), filter);
                    places[step.y].border = places[step.y].border.max(border);
                }
            }
        }
        let mut network = Network {
            description: description.clone(),
            nodes: Vec::new(),
            places,
            wanted,
            layers: Vec::new(),
            output,
            inits: Vec::new(),
            layout: Arc::default(),
        };
        let mut layout = Layout::default();
        for step in &self.steps {
            network.add(step, &mut layout);
        }
        network.layout = Arc::new(layout);
        // From the end: who comes first writes a value's gradient, later ones add to it.
        let mut begun = vec![false; network.places.len()];
        for node in network.nodes.iter_mut().rev() {
            let input = match node.step {
                Step::Operation { x, .. } => x,
                Step::Copy { from, .. } => from,
                Step::Add { other, .. } => other,
                Step::Pointwise { .. } => continue,
            };
            node.accumulate = std::mem::replace(&mut begun[input], true);
        }
        network
    }
}

impl Network {
    fn add(&mut self, step: &DraftStep, layout: &mut Layout) {
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
            (Layer::Lstm { hidden }, _) => Box::new(Lstm::new(from.width(), hidden)),
            (Layer::Gru { hidden }, _) => Box::new(Gru::new(from.width(), hidden)),
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

fn has_parameters(layer: &Layer) -> bool {
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

fn pointwise(layer: &Layer) -> Option<Box<dyn Pointwise>> {
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
