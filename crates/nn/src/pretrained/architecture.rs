//! What all kinds of models have in common: embeddings, transformer layers, a pooled vector and a head; and the names of their weights.

use crate::description::LayerDescription;
use crate::layers::{
    Attention, FirstStep, LastStep, Layer, LayerNorm, Linear, MeanOverSteps, PooledStages, Residual,
};
use crate::params::Slice;
use crate::shape::Shape;

/// How the steps of a sequence become one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// The first step: the class token.
    First,
    /// The last step.
    Last,
    /// The mean over all steps.
    Mean,
    /// The mean over all steps, normalised to mean 0 and variance 1.
    StandardisedMean,
    /// The means over all steps of the embeddings and of each transformer layer, each normalised to mean 0 and variance 1, concatenated.
    AllLayers,
}

impl Pooling {
    /// The layers of a pooled network. Its groups of layers are the embeddings, each transformer layer, and the layers after the last one.
    pub(super) fn after(self, mut groups: Vec<Vec<LayerDescription>>) -> Vec<LayerDescription> {
        let standardised = LayerNorm { affine: false, ..LayerNorm::default() };
        let pooling: &[Layer] = match self {
            Pooling::First => &[FirstStep.into()],
            Pooling::Last => &[LastStep.into()],
            Pooling::Mean => &[MeanOverSteps.into()],
            Pooling::StandardisedMean => &[MeanOverSteps.into(), standardised.into()],
            Pooling::AllLayers => {
                let last = groups.pop().unwrap_or_default();
                groups.last_mut().unwrap_or(&mut Vec::new()).extend(last);
                return vec![PooledStages { stages: groups }.into()];
            }
        };
        let body = groups.into_iter().flatten();
        body.chain(pooling.iter().cloned().map(LayerDescription::from)).collect()
    }
}

/// A kind of model with the sizes of one checkpoint.
pub(super) struct Architecture {
    pub(super) input: Input,
    pub(super) embeddings: Vec<LayerDescription>,
    /// The transformer layers.
    pub(super) blocks: Vec<Vec<LayerDescription>>,
    /// What follows the last transformer layer.
    pub(super) last: Vec<LayerDescription>,
    /// How the model's own head pools the sequence.
    pub(super) pooling: Pooling,
    /// How an embedding of a record is computed by default.
    pub(super) embedding: Pooling,
    /// Pre-trained layers between the pooled vector and the head; a checkpoint may lack them.
    pub(super) pooler: Vec<LayerDescription>,
    /// The model's own head; the number of outputs of its last layer is not known yet.
    pub(super) head: Vec<LayerDescription>,
    pub(super) names: Names,
}

/// What a model reads.
#[derive(Debug, Clone, Copy)]
pub(super) enum Input {
    Tokens { vocabulary: usize, most_steps: usize },
    Image { channels: usize, side: usize },
}

impl Input {
    /// The shape of a record; `max_length` is the largest number of tokens.
    pub(super) fn shape(self, max_length: usize) -> Result<Shape, String> {
        match self {
            Input::Image { channels, side } => Ok(Shape::Image { channels, height: side, width: side }),
            Input::Tokens { most_steps, .. } if !(1..=most_steps).contains(&max_length) => Err(format!(
                "the length must be 1 to {most_steps}, the number of positions of this model, got {max_length}"
            )),
            Input::Tokens { vocabulary, .. } => Ok(Shape::Tokens { steps: max_length, vocabulary }),
        }
    }
}

/// The names of a network's parameters in checkpoints of one kind.
#[derive(Debug, Clone)]
pub(super) struct Names {
    /// The prefix of all names except those of the head, in checkpoints that have a head: `bert.`.
    pub(super) prefix: &'static str,
    /// The classes of `transformers` for the model without and with a head for classification.
    pub(super) classes: [&'static str; 2],
    /// The class for next-token prediction, if the model supports it.
    pub(super) language_model: Option<&'static str>,
    /// The attention layers within their blocks: `attention`.
    pub(super) attention: &'static str,
    /// The projections to queries, keys and values, or one projection for all three; and the output projection.
    pub(super) projections: &'static [&'static str],
    pub(super) output: &'static str,
    /// Weights whose names contain this are stored with the inputs as the first dimension.
    pub(super) transposed: Option<&'static str>,
    /// Tables of which a network has only some rows: the name, the first row, the number of rows.
    pub(super) tables: Vec<(&'static str, usize, usize)>,
    /// Parameters that have more dimensions in a checkpoint.
    pub(super) shapes: Vec<(&'static str, Vec<usize>)>,
    /// Other parameters with different names: the name here and the name in checkpoints.
    pub(super) renamed: &'static [(&'static str, &'static str)],
    /// Parts of names that differ in adapters: `peft` uses the names of modules, which are not always those in checkpoints.
    pub(super) modules: &'static [(&'static str, &'static str)],
    /// Tensors whose names contain one of these are not used.
    pub(super) ignored: &'static [&'static str],
}

/// Where a parameter is in a checkpoint: rows of one tensor, or several tensors stacked by rows.
pub(super) struct Origin {
    pub(super) names: Vec<String>,
    /// The shape of each tensor.
    pub(super) shape: Vec<usize>,
    pub(super) transposed: bool,
    pub(super) first_row: usize,
}

impl Names {
    pub(super) fn origin(&self, slice: &Slice) -> Origin {
        let names = self.translate(&slice.name);
        let mut shape = slice.shape.clone();
        shape[0] /= names.len();
        let transposed = shape.len() == 2 && self.transposed.is_some_and(|part| names[0].contains(part));
        if transposed {
            shape.reverse();
        }
        let mut first_row = 0;
        if let Some((_, first, rows)) = self.tables.iter().find(|(name, ..)| *name == slice.name) {
            (first_row, shape[0]) = (*first, *rows);
        }
        if let Some((_, stored)) = self.shapes.iter().find(|(name, _)| *name == slice.name) {
            shape.clone_from(stored);
        }
        Origin { names, shape, transposed, first_row }
    }

    /// The names of a parameter in a checkpoint, without the prefix.
    fn translate(&self, name: &str) -> Vec<String> {
        if let Some((_, theirs)) = self.renamed.iter().find(|(ours, _)| *ours == name) {
            return vec![(*theirs).to_owned()];
        }
        let (input, output) =
            (format!("{}.in_proj_", self.attention), format!("{}.out_proj.", self.attention));
        match (name.split_once(&input), name.split_once(&output)) {
            (Some((block, kind)), _) => {
                self.projections.iter().map(|projection| format!("{block}{projection}.{kind}")).collect()
            }
            (_, Some((block, kind))) => vec![format!("{block}{}.{kind}", self.output)],
            _ => vec![name.to_owned()],
        }
    }

    /// The module to which an adapter belongs, without the prefix, and the adapter's matrix; none if the parameter does not belong to an
    /// adapter.
    pub(super) fn adapter(&self, name: &str) -> Option<(String, &'static str)> {
        let (block, rest) = name.split_once(&format!("{}.lora_", self.attention))?;
        let (matrix, projection) = rest.split_once('.')?;
        let projection = self.projections[if projection == "value" { 2 } else { 0 }];
        Some((self.module(&format!("{block}{projection}")), if matrix == "A" { "lora_A" } else { "lora_B" }))
    }

    /// The last parts of the names of the modules that have adapters.
    pub(super) fn adapted_modules(&self) -> Vec<String> {
        let adapted = self.projections.iter().step_by(2).map(|projection| self.module(projection));
        adapted.map(|name| name.rsplit('.').next().unwrap_or(&name).to_owned()).collect()
    }

    fn module(&self, name: &str) -> String {
        self.modules.iter().fold(name.to_owned(), |name, (stored, module)| name.replace(stored, module))
    }
}

/// The sizes of a transformer layer.
pub(super) struct Sizes {
    pub(super) width: usize,
    pub(super) heads: usize,
    pub(super) hidden: usize,
    pub(super) activation: Layer,
    pub(super) epsilon: f32,
    pub(super) causal: bool,
}

/// The names of the layers of a transformer layer.
pub(super) struct BlockNames {
    pub(super) attention: &'static str,
    pub(super) first_norm: &'static str,
    pub(super) up: &'static str,
    pub(super) down: &'static str,
    pub(super) second_norm: &'static str,
}

impl Sizes {
    pub(super) fn norm(&self) -> LayerNorm {
        LayerNorm { epsilon: self.epsilon, ..LayerNorm::default() }
    }

    fn attention(&self) -> Attention {
        Attention { causal: self.causal, ..Attention::new(self.heads) }
    }

    fn feed_forward(&self, names: &BlockNames) -> [LayerDescription; 3] {
        [
            LayerDescription::named(names.up, Linear::new(self.hidden)),
            self.activation.clone().into(),
            LayerDescription::named(names.down, Linear::new(self.width)),
        ]
    }

    /// A layer that normalises after each residual: BERT and its relatives.
    pub(super) fn post_norm(&self, block: &str, names: &BlockNames) -> Vec<LayerDescription> {
        let attention = vec![LayerDescription::named(names.attention, self.attention())];
        vec![
            LayerDescription::named(block, Residual::new(attention)),
            LayerDescription::named(&format!("{block}.{}", names.first_norm), self.norm()),
            LayerDescription::named(block, Residual::new(self.feed_forward(names).into())),
            LayerDescription::named(&format!("{block}.{}", names.second_norm), self.norm()),
        ]
    }

    /// A layer that normalises within each residual: GPT-2 and ViT.
    pub(super) fn pre_norm(&self, block: &str, names: &BlockNames) -> Vec<LayerDescription> {
        let attention = vec![
            LayerDescription::named(names.first_norm, self.norm()),
            LayerDescription::named(names.attention, self.attention()),
        ];
        let mut feed_forward = vec![LayerDescription::named(names.second_norm, self.norm())];
        feed_forward.extend(self.feed_forward(names));
        vec![
            LayerDescription::named(block, Residual::new(attention)),
            LayerDescription::named(block, Residual::new(feed_forward)),
        ]
    }
}
