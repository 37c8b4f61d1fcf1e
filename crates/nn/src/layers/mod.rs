//! The layers, one file each: forward, backward to the input, norms and weighted sums of per-record gradients.
//!
//! All work on a chunk of records. A layer never sees a loss or a batch; the same code serves one record and a thousand.

mod activation;
mod attention;
mod conv2d;
mod dropout;
mod embedding;
mod flatten;
mod group_norm;
mod gru;
mod layer_norm;
mod linear;
mod lstm;
mod pooling;
mod positions;
mod sequence;

pub(crate) use activation::{Gelu, Relu, Tanh, TemperedSigmoid};
pub(crate) use attention::Attention;
pub(crate) use conv2d::{Conv2d, Filter, gradient_border};
pub(crate) use dropout::{Dropout, Masks};
pub(crate) use embedding::Embedding;
pub(crate) use flatten::Flatten;
pub(crate) use group_norm::GroupNorm;
pub(crate) use gru::Gru;
pub(crate) use layer_norm::LayerNorm;
pub(crate) use linear::Linear;
pub(crate) use lstm::Lstm;
pub(crate) use pooling::{AveragePool, MaxPool};
pub(crate) use positions::Positions;
pub(crate) use sequence::{LastStep, MeanOverSteps};

use crate::init::Init;
use crate::kernels::{Aligned, Packed};

/// A parameter of a layer: its name after the layer's, its shape, and how it begins.
#[derive(Debug, Clone)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) shape: Vec<usize>,
    pub(crate) init: Init,
}

impl Parameter {
    pub(crate) fn new(name: &'static str, shape: &[usize], init: Init) -> Parameter {
        Parameter { name, shape: shape.to_vec(), init }
    }
}

/// What every layer may know about the chunk it works on.
#[derive(Clone, Copy)]
pub(crate) struct Pass<'a> {
    /// This layer's parameters.
    pub(crate) params: &'a [f32],
    /// This layer's packed weights.
    pub(crate) packs: &'a [Packed],
    /// Records in the chunk.
    pub(crate) records: usize,
    /// Steps of the longest record in the chunk; 1 if the records are no sequences.
    pub(crate) steps: usize,
    /// The length of each record.
    pub(crate) lengths: &'a [usize],
    /// The tokens of the records, `steps` each; tokens beyond a record's length are 0.
    pub(crate) tokens: &'a [u32],
    /// The masks of this layer, if it is a training pass.
    pub(crate) dropout: Option<Masks<'a>>,
    /// Whether the input's gradient is added to what is there, for layers that can.
    pub(crate) accumulate: bool,
}

/// What flows through a layer on the way back.
pub(crate) struct Flow<'a> {
    /// What the layer read.
    pub(crate) x: &'a [f32],
    /// What it wrote.
    pub(crate) y: &'a [f32],
    /// The gradient of what it wrote; it may be used as room.
    pub(crate) dy: &'a mut [f32],
    /// Room for the gradient of what it read, if anybody wants it.
    pub(crate) dx: Option<&'a mut [f32]>,
}

/// Floats for each record that a layer keeps from forward to backward and beyond.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Sizes {
    /// Left factors of gradients.
    pub(crate) activations: usize,
    /// Right factors of gradients, or gradients themselves.
    pub(crate) gradients: usize,
    /// Anything else.
    pub(crate) scratch: usize,
}

/// The memory of a layer for one chunk; each part holds equally many floats for each record.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) activations: Aligned,
    pub(crate) gradients: Aligned,
    pub(crate) scratch: Aligned,
    /// Room for a right operand that is packed on the way.
    pub(crate) packed: Packed,
}

/// One term of a layer's per-record gradients: what it read and what came back.
///
/// A gradient has one term. The difference of gradients at two points has two: with the activations `a` and output
/// gradients `b` of the first point and `a'`, `b'` of the second, `a b - a' b'` is `(a - a') b + a' (b - b')`, which does not
/// cancel when the points are close.
/// Parameters that meet no activation (biases, norms, embeddings) have their difference in the last term alone.
#[derive(Clone, Copy)]
pub(crate) struct Term<'a> {
    pub(crate) pass: Pass<'a>,
    pub(crate) x: &'a [f32],
    pub(crate) dy: &'a [f32],
    pub(crate) memory: &'a Memory,
}

/// Room for norms and sums.
pub(crate) struct Room<'a> {
    /// Gradients of this layer's records, one after another, for weights whose gradients are written out.
    pub(crate) kept: &'a mut [Aligned; 2],
    /// Anything, for the duration of a call.
    pub(crate) scratch: &'a mut Scratch,
}

/// Buffers that all layers of a worker share, for the duration of a call.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) first: Aligned,
    pub(crate) second: Aligned,
    pub(crate) third: Aligned,
    pub(crate) fourth: Aligned,
}

/// A layer that turns one value into another.
pub(crate) trait Operation: Send + Sync {
    /// The parameters, in the order in which they lie in the layer's slice.
    fn parameters(&self) -> Vec<Parameter> {
        Vec::new()
    }

    /// Floats for each record with `steps` steps.
    fn memory(&self, steps: usize) -> Sizes {
        let _ = steps;
        Sizes::default()
    }

    /// Floats for each record in each buffer of [`Room::kept`].
    fn kept(&self) -> [usize; 2] {
        [0; 2]
    }

    /// Multiply-adds for one record: forward, backward to the input, weight gradients.
    fn work(&self, steps: usize) -> [usize; 3] {
        let _ = steps;
        [0; 3]
    }

    /// Packs the weights for this step; `input_gradient` says whether the backward pass will need them.
    fn pack(&self, params: &[f32], input_gradient: bool, packs: &mut Vec<Packed>) {
        let _ = (params, input_gradient, packs);
    }

    /// Computes `y` from `x`.
    fn forward(&self, pass: &Pass<'_>, x: &[f32], y: &mut [f32], memory: &mut Memory);

    /// Whether the backward pass can add to the input's gradient instead of replacing it.
    fn can_accumulate(&self) -> bool {
        false
    }

    /// Computes `dx`, if wanted, from `dy`, and leaves in memory what norms and sums need.
    fn backward(&self, pass: &Pass<'_>, flow: Flow<'_>, memory: &mut Memory);

    /// Adds each record's squared gradient norm to `out`.
    fn squared_norms(&self, terms: &[Term<'_>], room: &mut Room<'_>, out: &mut [f64]) {
        let _ = (terms, room, out);
    }

    /// Adds the sum of gradients times weights to `sum`; all weights are 1 if there are none.
    ///
    /// With weights, [`squared_norms`](Self::squared_norms) has been called on the same terms and room.
    fn weighted_sum(
        &self,
        terms: &[Term<'_>],
        weights: Option<&[f32]>,
        room: &mut Room<'_>,
        sum: &mut [f32],
    ) {
        let _ = (terms, weights, room, sum);
    }

    /// Whether a weighted sum of gradients (not of differences) adds up all records in [groups](crate::cut::GROUP); otherwise it adds up some of
    /// them one after another. In both cases a record adds one vector, which is computed separately and has at most the reported norm.
    fn sums_in_groups(&self) -> bool {
        false
    }

    /// Turns a sum in the layer's own order into the order of its parameters.
    fn finish(&self, sum: &mut [f64]) {
        let _ = sum;
    }
}

/// A layer that changes a value in place.
pub(crate) trait Pointwise: Send + Sync {
    /// Floats for each record whose value has `len` floats.
    fn memory(&self, len: usize) -> usize {
        let _ = len;
        0
    }

    /// Whether 0 stays 0, so that the border of an image needs no care.
    fn keeps_zero(&self) -> bool {
        true
    }

    /// Changes the value.
    fn forward(&self, pass: &Pass<'_>, y: &mut [f32], scratch: &mut [f32]);

    /// Changes the gradient, given the value after [`forward`](Self::forward).
    fn backward(&self, pass: &Pass<'_>, y: &[f32], dy: &mut [f32], scratch: &mut [f32]);
}
