//! From a description to a network: names and shapes of layers, the storage of values, and which values may be overwritten.

use std::sync::Arc;

use crate::description::{Description, LayerDescription};
use crate::error::NetworkError;
use crate::init::{Init, Parameter};
use crate::layers::{Form, PlannedOperation, Pointwise, Site};
use crate::network::{Action, LayerParameters, Network, Node};
use crate::params::Layout;
use crate::shape::{Shape, Storage};
use crate::shapes::{check_input, fits};

/// How deep blocks may be nested.
const DEEPEST: usize = 16;

/// A value in the graph: the input, or the output of a layer.
#[derive(Clone, Copy)]
pub(crate) struct Value {
    pub(crate) index: usize,
    pub(crate) shape: Shape,
    /// Whether the next layer may overwrite it: no other layer reads it, and the producer's backward pass does not read it.
    pub(crate) overwritable: bool,
}

/// The value that a layer reads, and the name of its producer in messages.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) value: Value,
    pub(crate) producer: String,
}

impl Source {
    pub(crate) fn shape(&self) -> Shape {
        self.value.shape
    }

    /// The message for a layer that cannot read this shape.
    pub(crate) fn unsuitable(&self, needed: &str, cure: &str) -> String {
        format!("needs {needed}, gets {} from {}{cure}", self.shape(), self.producer)
    }
}

/// A layer's position in the description.
#[derive(Clone)]
pub(crate) struct Position {
    /// The path to the layer: `3`, or `4.body.1` inside a residual block.
    path: String,
    kind: &'static str,
    /// The prefix of its parameters' names.
    name: String,
    /// The prefix of the names of layers at the same level.
    beside: String,
    frozen: bool,
}

impl Position {
    pub(crate) fn error(&self, problem: String) -> NetworkError {
        NetworkError::Layer { layer: self.path.clone(), kind: self.kind, problem }
    }

    /// The same position, for parameters with a longer name.
    pub(crate) fn part(&self, part: &str) -> Position {
        Position { name: format!("{}.{part}", self.name), ..self.clone() }
    }

    /// The same position, for parameters that are not trained.
    pub(crate) fn frozen(&self) -> Position {
        Position { frozen: true, ..self.clone() }
    }
}

/// Prefixes of the paths and names of layers: empty, or those of the residual block that contains them.
#[derive(Default)]
struct Prefixes {
    path: String,
    unnamed: String,
    named: String,
    /// Whether the block, and so everything in it, is frozen.
    frozen: bool,
}

impl Prefixes {
    /// The position of a layer. A layer with a name is a child of the block, `layer1.0.conv1`; others are counted,
    /// `3.body.0`.
    fn position(&self, index: usize, described: &LayerDescription) -> Position {
        Position {
            path: format!("{}{index}", self.path),
            kind: described.layer.kind(),
            name: match &described.name {
                Some(name) => format!("{}{name}", self.named),
                None => format!("{}{index}", self.unnamed),
            },
            beside: self.named.clone(),
            frozen: described.frozen || self.frozen,
        }
    }

    fn inside(block: &Position, branch: &str) -> Prefixes {
        Prefixes {
            path: format!("{}.{branch}.", block.path),
            unnamed: format!("{}.{branch}.", block.name),
            named: format!("{}.", block.name),
            frozen: block.frozen,
        }
    }
}

/// The node of an embedding, and the number of its tokens and the length of their vectors.
pub(crate) struct EmbeddingMatrix {
    pub(crate) node: usize,
    pub(crate) shape: [usize; 2],
}

/// A network under construction.
pub(crate) struct GraphBuilder {
    shapes: Vec<Shape>,
    nodes: Vec<PlannedNode>,
}

struct PlannedNode {
    action: PlannedAction,
    name: String,
    frozen: bool,
    parameters: Vec<Parameter>,
    /// The node whose parameters it uses.
    owner: Option<usize>,
    input: usize,
    output: usize,
}

enum PlannedAction {
    Operation(Box<dyn PlannedOperation>),
    Pointwise(Box<dyn Pointwise>),
    Copy,
    Add,
}

impl PlannedNode {
    fn is_trained(&self) -> bool {
        !self.frozen && !self.parameters.is_empty()
    }
}

impl GraphBuilder {
    /// Checks a description and builds the network.
    pub(crate) fn build(description: &Description) -> Result<Network, NetworkError> {
        check_input(description.input).map_err(NetworkError::Description)?;
        let mut graph = GraphBuilder { shapes: vec![description.input], nodes: Vec::new() };
        let input = Value { index: 0, shape: description.input, overwritable: false };
        let input = Source { value: input, producer: "the input".to_owned() };
        let end = graph.sequence(&description.layers, &Prefixes::default(), input)?;
        if graph.nodes.is_empty() {
            return Err(NetworkError::Description("a network needs at least one layer".to_owned()));
        }
        if let Shape::Image { .. } | Shape::Tokens { .. } = end.shape() {
            return Err(NetworkError::Description(format!(
                "a network must end in a vector or a sequence, but {} gives {}; end with flatten or \
                 global_average_pool, then linear",
                end.producer,
                end.shape()
            )));
        }
        Ok(graph.finish(description, end.value.index))
    }

    /// Adds layers in order; returns the output of the last one.
    fn sequence(
        &mut self,
        layers: &[LayerDescription],
        prefixes: &Prefixes,
        mut source: Source,
    ) -> Result<Source, NetworkError> {
        for (index, described) in layers.iter().enumerate() {
            let at = prefixes.position(index, described);
            let layer = described.layer.layer_type();
            let shape = layer.output_shape(&source).and_then(|shape| fits(shape, 0).map(|()| shape));
            let shape = shape.map_err(|problem| at.error(problem))?;
            if layer.reads_tokens() {
                self.check_tokens(&source).map_err(|problem| at.error(problem))?;
            }
            let value = match layer.form() {
                Form::Operation(operation) => self.operation(&at, operation, source.value, shape),
                Form::Pointwise(operation) => self.pointwise(operation, source.value),
                Form::Composite(composite) => composite.add_to(self, &at, &source, shape)?,
            };
            let producer = format!("layer {} ({})", at.path, layer.label(at.kind, source.shape()));
            source = Source { value, producer };
        }
        Ok(source)
    }

    /// Checks that each step of a value belongs to a token of the network's input.
    fn check_tokens(&self, source: &Source) -> Result<(), String> {
        match self.shapes[0] {
            Shape::Tokens { steps, .. } if steps == source.shape().steps() => Ok(()),
            input => Err(format!("needs a network on tokens with a step for each token, gets {input}")),
        }
    }

    /// Adds the layers of a branch of a residual block.
    pub(crate) fn branch(
        &mut self,
        layers: &[LayerDescription],
        block: &Position,
        name: &str,
        input: &Source,
    ) -> Result<Value, NetworkError> {
        Ok(self.nested(layers, block, Prefixes::inside(block, name), input)?.value)
    }

    /// Adds the layers of a stage. Named layers keep the names that they would have outside the block.
    pub(crate) fn stage(
        &mut self,
        layers: &[LayerDescription],
        block: &Position,
        index: usize,
        input: &Source,
    ) -> Result<Source, NetworkError> {
        let prefixes = Prefixes::inside(block, &format!("stage{index}"));
        self.nested(layers, block, Prefixes { named: block.beside.clone(), ..prefixes }, input)
    }

    /// Adds layers inside a block. They must not overwrite the input of the block.
    fn nested(
        &mut self,
        layers: &[LayerDescription],
        block: &Position,
        prefixes: Prefixes,
        input: &Source,
    ) -> Result<Source, NetworkError> {
        if block.path.matches('.').count() >= 2 * DEEPEST {
            return Err(block.error(format!("blocks may be nested at most {DEEPEST} deep")));
        }
        let input = Source { value: Value { overwritable: false, ..input.value }, ..input.clone() };
        self.sequence(layers, &prefixes, input)
    }

    /// Adds `y = f(x)`.
    pub(crate) fn operation(
        &mut self,
        at: &Position,
        operation: Box<dyn PlannedOperation>,
        input: Value,
        output: Shape,
    ) -> Value {
        let output = self.value(output, !operation.backward_reads_output());
        self.nodes.push(PlannedNode {
            parameters: operation.parameters(input.shape),
            action: PlannedAction::Operation(operation),
            name: at.name.clone(),
            frozen: at.frozen,
            owner: None,
            input: input.index,
            output: output.index,
        });
        output
    }

    /// The network's embedding.
    pub(crate) fn embedding(&self) -> Result<EmbeddingMatrix, &'static str> {
        let is_embedding = |node: &PlannedNode| match &node.action {
            PlannedAction::Operation(operation) => operation.is_embedding(),
            _ => false,
        };
        let node = self.nodes.iter().position(is_embedding).ok_or("needs an embedding before it")?;
        match self.nodes[node].parameters[0].shape[..] {
            [vocabulary, width] => Ok(EmbeddingMatrix { node, shape: [vocabulary, width] }),
            _ => Err("needs an embedding with one matrix"),
        }
    }

    /// Lets the last node use the parameters of an earlier one.
    pub(crate) fn share(&mut self, owner: usize, at: &Position) -> Result<(), NetworkError> {
        if self.nodes.iter().any(|node| node.owner == Some(owner)) {
            return Err(at.error("only one layer can use the vectors of an embedding".to_owned()));
        }
        if at.frozen && !self.nodes[owner].frozen {
            let name = &self.nodes[owner].name;
            return Err(
                at.error(format!("has the parameters of {name}; freeze that layer as well or neither"))
            );
        }
        if let Some(node) = self.nodes.last_mut() {
            node.owner = Some(owner);
        }
        // With vectors of length about 1 for each value, the first outputs would be far from equal probabilities.
        for parameter in &mut self.nodes[owner].parameters {
            parameter.init = Init::Normal(0.02);
        }
        Ok(())
    }

    /// Adds `value = f(value)`.
    pub(crate) fn pointwise(&mut self, operation: Box<dyn Pointwise>, input: Value) -> Value {
        let value = self.overwritable(input);
        let overwritable = !operation.backward_reads_output();
        self.without_parameters(PlannedAction::Pointwise(operation), value, value);
        Value { overwritable, ..value }
    }

    /// Adds `first = first + second`.
    pub(crate) fn add(&mut self, first: Value, second: Value) -> Value {
        let sum = self.overwritable(first);
        self.without_parameters(PlannedAction::Add, second, sum);
        sum
    }

    /// The value itself if it may be overwritten, else a copy.
    fn overwritable(&mut self, value: Value) -> Value {
        if value.overwritable {
            return value;
        }
        let copy = self.value(value.shape, true);
        self.without_parameters(PlannedAction::Copy, value, copy);
        copy
    }

    fn value(&mut self, shape: Shape, overwritable: bool) -> Value {
        self.shapes.push(shape);
        Value { index: self.shapes.len() - 1, shape, overwritable }
    }

    fn without_parameters(&mut self, action: PlannedAction, input: Value, output: Value) {
        self.nodes.push(PlannedNode {
            action,
            name: String::new(),
            frozen: false,
            parameters: Vec::new(),
            owner: None,
            input: input.index,
            output: output.index,
        });
    }

    /// Builds the operations, now that all values are known.
    fn finish(self, description: &Description, output: usize) -> Network {
        let needs_gradient = self.needs_gradient();
        let storage = self.storage(&needs_gradient);
        let (mut layout, mut inits) = (Layout::default(), Vec::new());
        let (mut nodes, mut layers) = (Vec::<Node>::new(), Vec::new());
        let sharing: Vec<Option<usize>> = (0..self.nodes.len())
            .map(|index| self.nodes.iter().position(|node| node.owner == Some(index)))
            .collect();
        let outputs: Vec<usize> = self.nodes.iter().map(|node| node.output).collect();
        for (planned, shared_with) in self.nodes.into_iter().zip(sharing) {
            let (x, y, trained) = (planned.input, planned.output, planned.is_trained());
            let start = layout.len();
            for Parameter { name, shape, init } in planned.parameters {
                layout.push(format!("{}.{name}", planned.name), shape, planned.frozen);
                inits.push(init);
            }
            let params = planned.owner.map_or(start..layout.len(), |owner| nodes[owner].params.clone());
            let layer = trained.then(|| {
                layers.push(LayerParameters { name: planned.name, range: params.clone() });
                layers.len() - 1
            });
            let action = match planned.action {
                PlannedAction::Operation(operation) => {
                    let site = Site {
                        input: storage[x],
                        output: storage[y],
                        input_gradient: needs_gradient[x],
                        shared_with: shared_with.map(|node| storage[outputs[node]]),
                    };
                    Action::Operation { operation: operation.build(&site), x, y }
                }
                PlannedAction::Pointwise(operation) => Action::Pointwise { operation, value: y },
                PlannedAction::Copy => Action::Copy { from: x, to: y },
                PlannedAction::Add => Action::Add { other: x, into: y },
            };
            nodes.push(Node { shared_with, ..Node::new(action, params, layer) });
        }
        set_accumulation(&mut nodes, storage.len());
        let (description, layout) = (description.clone(), Arc::new(layout));
        let mut extras: Vec<usize> = storage.iter().map(|storage| storage.extra).collect();
        extras.sort_unstable();
        extras.dedup();
        Network { description, nodes, storage, extras, needs_gradient, layers, output, inits, layout }
    }

    /// Which values need a gradient: those that depend on trained parameters.
    fn needs_gradient(&self) -> Vec<bool> {
        let mut needs_gradient = vec![false; self.shapes.len()];
        for node in &self.nodes {
            needs_gradient[node.output] |= node.is_trained() || needs_gradient[node.input];
        }
        needs_gradient
    }

    /// How values are stored: images with the borders that the operations on both sides of them need.
    fn storage(&self, needs_gradient: &[bool]) -> Vec<Storage> {
        let steps = self.shapes[0].steps();
        let mut storage: Vec<Storage> = self.shapes.iter().map(|&shape| Storage::new(shape, steps)).collect();
        for node in &self.nodes {
            let PlannedAction::Operation(operation) = &node.action else { continue };
            let (x, y) = (node.input, node.output);
            let [input, output] = operation.borders(self.shapes[x], self.shapes[y], needs_gradient[x]);
            storage[x].border = storage[x].border.max(input);
            storage[y].border = storage[y].border.max(output);
        }
        storage
    }
}

/// Decides which nodes add to the gradient of their input. The backward pass starts at the last node: the first node that it reaches
/// writes the gradient, later ones add to it.
fn set_accumulation(nodes: &mut [Node], values: usize) {
    let mut written = vec![false; values];
    for node in nodes.iter_mut().rev() {
        let input = match node.action {
            Action::Operation { x, .. } => x,
            Action::Copy { from, .. } => from,
            Action::Add { other, .. } => other,
            Action::Pointwise { .. } => continue,
        };
        node.accumulate = std::mem::replace(&mut written[input], true);
    }
}
