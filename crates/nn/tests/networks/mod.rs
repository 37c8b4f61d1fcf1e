//! What several tests need: numbers, and networks of every kind.

use std::sync::atomic::{AtomicUsize, Ordering};

use sordino_nn::layers::{
    Attention, Conv2d, Gelu, GlobalAveragePool, GroupNorm, Gru, LayerNorm, Linear, Lstm, MaxPool,
    MeanOverSteps, Relu,
};
use sordino_nn::{Description, Layer, Network, Shape, models};

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
/// one worker over records that are all finite.
pub(crate) fn in_order(
    rule: impl Fn(usize, &[f64], &mut [f32]) + Sync,
) -> impl Fn(&[f64], &mut [f32]) + Sync {
    let calls = AtomicUsize::new(0);
    move |norms, weights| rule(calls.fetch_add(1, Ordering::Relaxed), norms, weights)
}

/// Networks that between them write gradients out, use Gram matrices, and do neither.
pub(crate) fn networks() -> Vec<Network> {
    let image = Description::new(Shape::Image { channels: 3, height: 9, width: 9 });
    let convolutions = image
        .then(Conv2d::new(8, 3, 1, 1))
        .then(GroupNorm { groups: 2 })
        .then(Relu)
        .then(MaxPool { kernel: 3, stride: 2, padding: 1 })
        .then(Conv2d::new(24, 5, 1, 0))
        .then(GlobalAveragePool)
        .then(Linear::new(3));
    let sequence = |layer: Layer| {
        Description::new(Shape::Sequence { steps: 40, width: 3 })
            .then(Linear::new(4))
            .then(layer)
            .then(LayerNorm)
            .then(MeanOverSteps)
            .then(Linear::new(3))
    };
    let mut all = vec![models::mlp(20, &[30, 10], 3).unwrap(), Network::new(&convolutions).unwrap()];
    let layers: [Layer; 4] =
        [Lstm { hidden: 5 }.into(), Gru { hidden: 5 }.into(), Attention { heads: 2 }.into(), Gelu.into()];
    for layer in layers {
        all.push(Network::new(&sequence(layer)).unwrap());
    }
    all
}
