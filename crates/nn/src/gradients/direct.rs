//! Gradients that are written out, one record after another.

use crate::cut::GROUP;
use crate::kernels::vector;

/// Adds the squared norm of each record's gradient of `len` floats to `out`.
pub(crate) fn squared_norms(gradients: &[f32], len: usize, stride: usize, out: &mut [f64]) {
    for (out, gradient) in out.iter_mut().zip(gradients.chunks(stride)) {
        *out += vector::squared_norm(&gradient[..len]);
    }
}

/// `sum += sum_r weights_r gradient_r`, [in groups of records](GROUP), and block by block so that sums stay in the nearest cache.
pub(crate) fn weighted_sum(
    gradients: &[f32],
    stride: usize,
    records: usize,
    weights: Option<&[f32]>,
    sum: &mut [f32],
) {
    const BLOCK: usize = 2048;
    let mut own = [0.0; BLOCK];
    for (index, sum) in sum.chunks_mut(BLOCK).enumerate() {
        let own = &mut own[..sum.len()];
        for first in (0..records).step_by(GROUP) {
            own.fill(0.0);
            for record in first..records.min(first + GROUP) {
                let gradient = &gradients[record * stride + index * BLOCK..][..own.len()];
                match weights {
                    None => vector::add(own, gradient),
                    Some(weights) => vector::add_scaled(own, weights[record], gradient),
                }
            }
            vector::add(sum, own);
        }
    }
}
