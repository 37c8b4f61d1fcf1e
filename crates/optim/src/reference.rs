//! Fixed gradients, and the comparison of a transform with its naive twin.

use crate::transform::Transform;

/// The length of the gradients.
pub(crate) const LEN: usize = 37;

/// `len` standard normal numbers: SplitMix64 (Steele, Lea and Flood, 2014), then Box and Muller.
pub(crate) fn gaussians(seed: u64, len: usize) -> Vec<f32> {
    let mut counter = seed.wrapping_mul(0x2545_f491_4f6c_dd1d);
    let mut uniform = || {
        counter = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = counter;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    };
    (0..len)
        .map(|_| ((-2.0 * (1.0 - uniform()).ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()) as f32)
        .collect()
}

/// Twenty steps on random gradients equal `twin(element, gradient)`, which computes in `f64` with its own memory.
pub(crate) fn follows(
    transform: &mut dyn Transform,
    noise_std: f64,
    mut twin: impl FnMut(usize, f64) -> f64,
) {
    for step in 0..20 {
        let gradient = gaussians(step, LEN);
        let mut update = gradient.clone();
        transform.apply(&mut update, noise_std);
        for (i, (update, gradient)) in update.into_iter().zip(gradient).enumerate() {
            let expected = twin(i, f64::from(gradient));
            let error = (f64::from(update) - expected).abs();
            assert!(
                error <= 1e-5 * expected.abs().max(0.1),
                "step {step}, element {i}: {update} for {expected}"
            );
        }
    }
}
