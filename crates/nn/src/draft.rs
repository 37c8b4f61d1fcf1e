//! From a description to the steps of a network: places, names, shapes, and which values may be overwritten.

use std::sync::Arc;

use crate::description::{Description, Layer, LayerDescription};
use crate::error::NetworkError;
use crate::inference::infer;
use crate::layers::gradient_border;
use crate::network::{Network, Step, has_parameters, pointwise};
use crate::params::Layout;
use crate::shape::{Place, Shape};

/// How deep residual blocks may be nested.
const DEEPEST: usize = 16;

/// Where a layer's input comes from.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) value: usize,
    /// What it is called in messages.
    pub(crate) what: String,
    pub(crate) shape: Shape,
    /// Whether the value may be overwritten: nobody else reads it, and who wrote it will not look at it again.
    pub(crate) fresh: bool,
}

/// What comes before the places and names of layers: nothing, or the residual block they are in.
#[derive(Default)]
pub(crate) struct Prefixes {
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
pub(crate) enum Action {
    Layer(Layer),
    Copy,
    Add,
}

/// A network under construction.
#[derive(Default)]
pub(crate) struct Draft {
    pub(crate) shapes: Vec<Shape>,
    pub(crate) steps: Vec<DraftStep>,
}

/// One step of it.
pub(crate) struct DraftStep {
    pub(crate) action: Action,
    pub(crate) name: String,
    pub(crate) frozen: bool,
    pub(crate) x: usize,
    pub(crate) y: usize,
    /// The projection to queries, keys and values: PyTorch calls its parameters `in_proj_weight`, without a dot.
    pub(crate) projection: bool,
}

impl Draft {
    fn value(&mut self, shape: Shape) -> usize {
        self.shapes.push(shape);
        self.shapes.len() - 1
    }

    fn push(&mut self, action: Action, name: &str, frozen: bool, x: usize, y: usize) {
        self.steps.push(DraftStep { action, name: name.to_owned(), frozen, x, y, projection: false });
    }

    /// Adds layers in order; returns where they end.
    pub(crate) fn sequence(
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

    /// Builds the network.
    pub(crate) fn build(self, description: &Description, output: usize) -> Network {
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
