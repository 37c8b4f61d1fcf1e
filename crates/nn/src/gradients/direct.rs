//! Gradients that are written out, one record after another.

use crate::kernels::vector;

/// Adds the squared norm of each record's gradient of `len` floats to `out`.
pub(crate) fn squared_norms(gradients: &[f32], len: usize, stride: usize, out: &mut [f64]) {
    for (out, gradient) in out.iter_mut().zip(gradients.chunks(stride)) {
        *out += vector::squared_norm(&gradient[..len]);
    }
}

/// `sum += sum_r weights_r gradient_r`, block by block so that the sum stays in the nearest cache.
pub(crate) fn weighted_sum(
    gradients: &[f32],
    stride: usize,
    records: usize,
    weights: Option<&[f32]>,
    sum: &mut [f32],
) {
    const BLOCK: usize = 2048;
    for (index, sum) in sum.chunks_mut(BLOCK).enumerate() {
        for record in 0..records {
            let gradient = &gradients[record * stride + index * BLOCK..][..sum.len()];
            match weights {
                None => vector::add(sum, gradient),
                Some(weights) => vector::add_scaled(sum, weights[record], gradient),
            }
        }
    }
}
