//! Gradients that are written out, one record or bag after another.

use crate::cut::GROUP;
use crate::kernels::vector;
use crate::units::Bags;

/// Adds the squared norm of each gradient of `len` floats to `out`.
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

/// Adds the squared norm of each bag's gradient, the sum of its records' gradients of `len` floats, to `out`.
pub(crate) fn squared_norms_of_bags(
    gradients: &[f32],
    len: usize,
    stride: usize,
    bags: Bags<'_>,
    out: &mut [f64],
) {
    if bags.most == 1 {
        return squared_norms(gradients, len, stride, out);
    }
    let mut own = vec![0.0; len];
    for (out, bag) in out.iter_mut().zip(bags.iter()) {
        own.fill(0.0);
        bag.for_each(|record| vector::add(&mut own, &gradients[record * stride..][..len]));
        *out += vector::squared_norm(&own);
    }
}

/// `sum += sum_r weights_r gradient_r` over bags. As for the norm, each bag is summed before it is weighted.
pub(crate) fn weighted_sum_of_bags(
    gradients: &[f32],
    stride: usize,
    bags: Bags<'_>,
    weights: Option<&[f32]>,
    sum: &mut [f32],
) {
    let Some(weights) = weights.filter(|_| bags.most > 1) else {
        return weighted_sum(gradients, stride, bags.records(), weights, sum);
    };
    let (mut own, len) = (vec![0.0; sum.len()], sum.len());
    for (weight, bag) in weights.iter().zip(bags.iter()) {
        own.fill(0.0);
        bag.for_each(|record| vector::add(&mut own, &gradients[record * stride..][..len]));
        vector::add_scaled(sum, *weight, &own);
    }
}
