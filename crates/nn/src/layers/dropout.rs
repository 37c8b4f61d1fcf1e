//! Sets values to zero at random in training; each record has its own mask.

use super::{Pass, Pointwise};
use crate::kernels::math;

/// Keeps a value with probability `1 - rate` and scales it by `1 / (1 - rate)`; does nothing outside of training.
///
/// The mask is a function of the seed, the record's place in the batch and the value's place in the record, so that it
/// does not depend on how the batch is cut into chunks, and is the same at both points of a difference.
pub(crate) struct Dropout {
    pub(crate) rate: f32,
}

impl Pointwise for Dropout {
    fn memory(&self, len: usize) -> usize {
        len
    }

    fn forward(&self, pass: &Pass<'_>, y: &mut [f32], mask: &mut [f32]) {
        let Some(seed) = pass.dropout else { return };
        let record = y.len() / pass.records.max(1);
        let (kept, threshold) = (1.0 / (1.0 - self.rate), (f64::from(self.rate) * 2f64.powi(64)) as u64);
        for (index, mask) in mask[..y.len()].chunks_mut(record.max(1)).enumerate() {
            let stream = mix(seed ^ mix((pass.first_record + index) as u64));
            for (place, mask) in mask.iter_mut().enumerate() {
                *mask = if mix(stream.wrapping_add(place as u64)) < threshold { 0.0 } else { kept };
            }
        }
        math::times(y, mask);
    }

    fn backward(&self, pass: &Pass<'_>, _: &[f32], dy: &mut [f32], mask: &mut [f32]) {
        if pass.dropout.is_some() {
            math::times(dy, mask);
        }
    }
}

/// A bijection of 64-bit words that looks random (Steele, Lea and Flood, 2014: the finaliser of SplitMix).
pub(crate) fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}
