//! The interface between the engine and the layers: operations on chunks of records, and their buffers.

use super::Masks;
use crate::init::Parameter;
use crate::kernels::{Aligned, Packed};
use crate::shape::{Shape, Storage};
use crate::units::Bags;

/// An operation before the graph is complete. It is built when the storage of its values is known.
pub(crate) trait PlannedOperation {
    /// The parameters, in the order in which they lie in the layer's slice. They are trained unless the layer is frozen.
    fn parameters(&self, input: Shape) -> Vec<Parameter>;

    /// Whether the backward pass reads the output. If not, the next layer may overwrite it.
    fn backward_reads_output(&self) -> bool;

    /// Zero pixels that must surround the input and the output, if these are images; `input_gradient` is true if the gradient of the
    /// input is needed.
    fn borders(&self, input: Shape, output: Shape, input_gradient: bool) -> [usize; 2] {
        let _ = (input, output, input_gradient);
        [0; 2]
    }

    /// Whether this is an embedding, whose matrix a [tied output](super::TiedOutput) can use.
    fn is_embedding(&self) -> bool {
        false
    }

    /// Builds the operation.
    fn build(&self, site: &Site) -> Box<dyn Operation>;
}

/// The surroundings of an operation in its network.
pub(crate) struct Site {
    pub(crate) input: Storage,
    pub(crate) output: Storage,
    /// Whether the gradient of the input is needed.
    pub(crate) input_gradient: bool,
    /// The output of the node that uses the same parameters.
    pub(crate) shared_with: Option<Storage>,
}

/// A layer that computes a value from another one.
pub(crate) trait Operation: Send + Sync {
    /// Norms and sums of the gradients of the parameters; none if the layer has no parameters.
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients>;

    /// Floats for each record with `steps` steps.
    fn buffer_sizes(&self, steps: usize) -> BufferSizes {
        let _ = steps;
        BufferSizes::default()
    }

    /// Multiply-adds for one record: forward, backward to the input, weight gradients.
    fn work(&self, steps: usize) -> [usize; 3] {
        let _ = steps;
        [0; 3]
    }

    /// The smallest number of records with which the layer's products run at full speed.
    fn enough_records(&self) -> usize {
        1
    }

    /// Floats of the packed weights, forward and backward, if the layer has this many parameters.
    fn packed_size(&self, parameters: usize) -> usize {
        2 * parameters
    }

    /// Packs the weights for a pass; `input_gradient` is true if the backward pass needs them.
    fn pack(&self, params: &[f32], input_gradient: bool, packs: &mut Vec<Packed>) {
        let _ = (params, input_gradient, packs);
    }

    /// Computes `y` from `x`.
    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], buffers: &mut LayerBuffers);

    /// Whether the backward pass can add to the input's gradient instead of replacing it.
    fn can_accumulate(&self) -> bool {
        false
    }

    /// Computes `dx`, if it is needed, from `dy`, and leaves in the buffers what norms and sums need.
    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, buffers: &mut LayerBuffers);
}

/// Norms and weighted sums of the gradients of a layer's parameters.
///
/// The gradient of a [bag](Bags) is the sum of the gradients of its records. It has one norm and one weight. Without units, each record is a
/// bag of its own.
pub(crate) trait ParameterGradients {
    /// Floats for each bag in each buffer of [`Workspace::written`], if bags have at most `most` records, of at most `steps` steps.
    fn written_sizes(&self, most: usize, steps: usize) -> [usize; 2] {
        let _ = (most, steps);
        [0; 2]
    }

    /// Adds each bag's squared gradient norm to `out`.
    fn squared_norms(&self, terms: &[Term<'_>], workspace: &mut Workspace<'_>, out: &mut [f64]);

    /// Adds the sum of the bags' gradients times weights to `sum`; without weights, all weights are 1.
    ///
    /// With weights, [`squared_norms`](Self::squared_norms) has been called on the same terms and workspace.
    fn weighted_sum(
        &self,
        terms: &[Term<'_>],
        weights: Option<&[f32]>,
        workspace: &mut Workspace<'_>,
        sum: &mut [f32],
    );

    /// Whether a weighted sum of gradients (not of differences) of bags of one record, of at most `steps` steps, adds up all records in
    /// [groups](crate::cut::GROUP).
    /// Otherwise it adds up some of them one after another. In both cases a bag adds one vector, which is computed separately and has at most
    /// the reported norm.
    fn sums_in_groups(&self, steps: usize) -> bool;

    /// Turns a sum in the layer's own order into the order of its parameters.
    fn reorder(&self, sum: &mut [f64]) {
        let _ = sum;
    }
}

/// A layer that changes a value in place.
pub(crate) trait Pointwise: Send + Sync {
    /// Floats for each record whose value has `len` floats.
    fn scratch_size(&self, len: usize) -> usize {
        let _ = len;
        0
    }

    /// Whether 0 stays 0, so that the border of an image needs no special treatment.
    fn keeps_zero(&self) -> bool;

    /// Whether the backward pass reads the value. If not, the next layer may overwrite it.
    fn backward_reads_output(&self) -> bool;

    /// Changes the value.
    fn forward(&self, context: &Context<'_>, y: &mut [f32], scratch: &mut [f32]);

    /// Changes the gradient, given the value after [`forward`](Self::forward).
    fn backward(&self, context: &Context<'_>, y: &[f32], dy: &mut [f32], scratch: &mut [f32]);
}

/// The layer's parameters and the records of the chunk.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// This layer's parameters.
    pub(crate) params: &'a [f32],
    /// This layer's packed weights.
    pub(crate) packs: &'a [Packed],
    /// Records in the chunk.
    pub(crate) records: usize,
    /// The bags that they form. Only gradients of parameters depend on them.
    pub(crate) bags: Bags<'a>,
    /// Steps of the longest record in the chunk; 1 if the records are not sequences.
    pub(crate) steps: usize,
    /// The largest number of steps of a record in the chunk's [class of lengths](crate::limits::LengthClass). How norms are computed depends on it, and not on
    /// `steps`, which depends on other records.
    pub(crate) most_steps: usize,
    /// The length of each record.
    pub(crate) lengths: &'a [usize],
    /// The tokens of the records, `steps` each; tokens beyond a record's length are 0.
    pub(crate) tokens: &'a [u32],
    /// The masks of this layer in a training pass.
    pub(crate) dropout: Option<Masks<'a>>,
    /// Whether the input's gradient is added to the current gradient, for layers that support this.
    pub(crate) accumulate: bool,
}

/// The values and gradients of a backward pass through one layer.
pub(crate) struct Flow<'a> {
    /// The input.
    pub(crate) x: &'a [f32],
    /// The output.
    pub(crate) y: &'a [f32],
    /// The gradient of the output; may be used as scratch space.
    pub(crate) dy: &'a mut [f32],
    /// Buffer for the gradient of the input, if it is needed.
    pub(crate) dx: Option<&'a mut [f32]>,
}

/// Floats for each record that a layer keeps from forward to backward and beyond.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct BufferSizes {
    /// Left factors of gradients.
    pub(crate) activations: usize,
    /// Right factors of gradients, or gradients themselves.
    pub(crate) gradients: usize,
    /// Anything else.
    pub(crate) scratch: usize,
}

/// The buffers of a layer for one chunk; each has the same number of floats for every record.
#[derive(Default)]
pub(crate) struct LayerBuffers {
    pub(crate) activations: Aligned,
    pub(crate) gradients: Aligned,
    pub(crate) scratch: Aligned,
    /// Buffer for a right operand that is packed during a pass.
    pub(crate) packed: Packed,
}

/// One term of a layer's per-record gradients: its input and the gradient of its output.
///
/// A gradient has one term. The difference of gradients at two points has two: with the activations `a` and output
/// gradients `b` of the first point and `a'`, `b'` of the second, `a b - a' b'` is `(a - a') b + a' (b - b')`, which does not
/// cancel when the points are close.
/// Parameters that are not multiplied by activations (biases, norms, embeddings) have their difference in the last term alone.
/// If two nodes share their parameters, as many terms of the second one follow.
#[derive(Clone, Copy)]
pub(crate) struct Term<'a> {
    pub(crate) context: Context<'a>,
    pub(crate) x: &'a [f32],
    pub(crate) dy: &'a [f32],
    pub(crate) buffers: &'a LayerBuffers,
}

/// Buffers for norms and sums.
pub(crate) struct Workspace<'a> {
    /// Gradients of this layer's bags, one after another, for weights whose gradients are written out.
    pub(crate) written: &'a mut [Aligned; 2],
    /// Scratch space for the duration of a call.
    pub(crate) scratch: &'a mut Scratch,
}

/// Scratch space that all layers of a worker share.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) first: Aligned,
    pub(crate) second: Aligned,
    pub(crate) third: Aligned,
    pub(crate) fourth: Aligned,
}
