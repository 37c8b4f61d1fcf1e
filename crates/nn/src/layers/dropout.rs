//! Sets values to zero at random in training; each record has its own mask.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

use serde::{Deserialize, Serialize};

use super::{Context, Form, LayerType, Pointwise};
use crate::graph_builder::Source;
use crate::kernels::math;
use crate::shape::Shape;
use crate::shapes::real_values;
use crate::units::Member;

/// Keeps a value with probability `1 - rate` and scales it by `1 / (1 - rate)`; does nothing outside training.
///
/// The mask is a function of the key of the pass, the layer, the record's place in the data set, the number of its view and the position of
/// the value in the record. So it does not depend on which other records are chosen or on how the batch is cut, and is the same at both points of a
/// difference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropout {
    /// The fraction set to zero.
    pub rate: f32,
}

impl LayerType for Dropout {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        match (0.0..1.0).contains(&self.rate) {
            true => real_values(input),
            false => Err(format!("rate must be in [0, 1), got {}", self.rate)),
        }
    }

    fn form(&self) -> Form<'_> {
        Form::Pointwise(Box::new(*self))
    }
}

/// The source of the masks of a layer: one ChaCha stream for each record.
#[derive(Clone, Copy)]
pub(crate) struct Masks<'a> {
    pub(crate) key: [u8; 32],
    /// The number of the layer in the network.
    pub(crate) layer: usize,
    /// The records of the chunk.
    pub(crate) members: &'a [Member],
}

impl Masks<'_> {
    /// The stream for a record of the chunk.
    fn stream(&self, record: usize) -> ChaCha8Rng {
        let mut stream = ChaCha8Rng::from_seed(self.key);
        stream.set_stream(self.members[record].stream());
        // A stream has 2^68 words: 2^40 for each layer.
        stream.set_word_pos((self.layer as u128) << 40);
        stream
    }
}

impl Pointwise for Dropout {
    fn scratch_size(&self, len: usize) -> usize {
        len
    }

    fn keeps_zero(&self) -> bool {
        true
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn forward(&self, context: &Context<'_>, y: &mut [f32], mask: &mut [f32]) {
        let Some(masks) = context.dropout else { return };
        let record = y.len() / context.records.max(1);
        let (kept, threshold) = (1.0 / (1.0 - self.rate), (f64::from(self.rate) * 2f64.powi(32)) as u64);
        for (index, mask) in mask[..y.len()].chunks_mut(record.max(1)).enumerate() {
            let mut stream = masks.stream(index);
            for mask in mask {
                *mask = if u64::from(stream.next_u32()) < threshold { 0.0 } else { kept };
            }
        }
        math::times(y, mask);
    }

    fn backward(&self, context: &Context<'_>, _: &[f32], dy: &mut [f32], mask: &mut [f32]) {
        if context.dropout.is_some() {
            math::times(dy, mask);
        }
    }
}
