//! Random test gradients, and the comparison of a transform with a naive reference.

use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use rand_distr::{Distribution, StandardNormal};

use crate::transform::Transform;

/// The length of the gradients.
pub(crate) const LEN: usize = 37;

/// `len` standard normal numbers.
pub(crate) fn gaussians(seed: u64, len: usize) -> Vec<f32> {
    StandardNormal.sample_iter(ChaCha8Rng::seed_from_u64(seed)).take(len).collect()
}

/// Asserts that twenty steps on random gradients equal `naive(element, gradient)`, which computes in `f64` with state of its own.
pub(crate) fn assert_equals(
    transform: &mut dyn Transform,
    noise_std: f64,
    mut naive: impl FnMut(usize, f64) -> f64,
) {
    for step in 0..20 {
        let gradient = gaussians(step, LEN);
        let mut update = gradient.clone();
        transform.apply(&mut update, noise_std);
        for (i, (update, gradient)) in update.into_iter().zip(gradient).enumerate() {
            let expected = naive(i, f64::from(gradient));
            let error = (f64::from(update) - expected).abs();
            assert!(
                error <= 1e-5 * expected.abs().max(0.1),
                "step {step}, element {i}: {update} for {expected}"
            );
        }
    }
}
