//! Numbers and weight rules that several tests use.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Reproducible numbers in (-1, 1).
pub(crate) fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f32) / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

/// The norm over all layers.
pub(crate) fn total(norms: &[f64]) -> f64 {
    norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt()
}

/// A weight rule that is told the place of a record in the batch: the number of calls before this one. This holds for one pass with
/// one worker over records of equal length that are all finite.
pub(crate) fn in_order(
    rule: impl Fn(usize, &[f64], &mut [f32]) + Sync,
) -> impl Fn(&[f64], &mut [f32]) + Sync {
    let calls = AtomicUsize::new(0);
    move |norms, weights| rule(calls.fetch_add(1, Ordering::Relaxed), norms, weights)
}
