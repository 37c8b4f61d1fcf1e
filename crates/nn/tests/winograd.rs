//! Winograd convolutions against direct convolutions that compute the same function.
#![expect(clippy::unwrap_used, reason = "a test stops at the first error")]

use sordino_nn::layers::{Conv2d, Gelu, GlobalAveragePool, Linear, Tanh};
use sordino_nn::{Description, Engine, Inputs, Loss, Network, Params, Pass, Shape, Targets};

/// A network whose second convolution uses the Winograd algorithm if `kernel` is 3. If `kernel` is 5, the outer taps can be zero, which gives
/// the same function by direct convolutions.
fn wide(kernel: usize) -> Network {
    let wide = Conv2d::new(18, kernel, 1, kernel / 2);
    let description = Description::new(Shape::Image { channels: 2, height: 13, width: 10 })
        .then(Conv2d::new(16, 1, 1, 0))
        .then(Tanh)
        .then(wide)
        .then(Gelu)
        .then(GlobalAveragePool)
        .then(Linear::new(3));
    Network::new(&description).unwrap()
}

fn norm(gradient: &[f64]) -> f64 {
    gradient.iter().map(|g| g * g).sum::<f64>().sqrt()
}

/// The place of each parameter of `wide(3)` among those of `wide(5)`: those before the filters, the inner taps, those after the filters.
fn places() -> Vec<usize> {
    let (before, filters) = (2 * 16 + 16, 16 * 18);
    let taps = (0..filters * 9).map(|i| before + i / 9 * 25 + (i % 9 / 3 + 1) * 5 + i % 3 + 1);
    let after = before + filters * 25..wide(5).layout().len();
    (0..before).chain(taps).chain(after).collect()
}

#[test]
fn norms_and_sums_of_winograd_convolutions_equal_those_of_direct_convolutions() {
    let count = 5;
    let values: Vec<f32> = (0..count * 260).map(|i| (1.7 * i as f32).sin()).collect();
    let classes: Vec<u32> = (0..count as u32).map(|record| record % 3).collect();
    let own = wide(3).init(1);
    let mut padded = vec![0.0; wide(5).layout().len()];
    places().iter().zip(own.values()).for_each(|(place, value)| padded[*place] = *value);
    let gradients = |network: Network, params: &[f32], chosen: &[usize]| {
        let params = Params::new(network.layout().clone(), params.to_vec()).unwrap();
        let mut engine = Engine::with_workers(network, Loss::cross_entropy(), 1).unwrap();
        let records = engine.records(Inputs::Dense(&values), Targets::Classes(&classes)).unwrap();
        let mut sums = [vec![0.0; params.values().len()]];
        let rule = |_: &[f64], weights: &mut [f32]| weights.fill(0.75);
        let pass = Pass::new(&params, &records, chosen);
        let outcome = engine.pass(&pass.weighed_by(&rule), &mut sums).unwrap();
        let [sum] = sums;
        (outcome.norms, sum)
    };
    for chosen in [&[0][..], &[1], &[2, 3, 4], &[0, 1, 2, 3, 4]] {
        let (norms, sum) = gradients(wide(3), own.values(), chosen);
        let (_, truth) = gradients(wide(5), &padded, chosen);
        let truth: Vec<f64> = places().iter().map(|place| truth[*place]).collect();
        let difference: Vec<f64> = sum.iter().zip(&truth).map(|(a, b)| a - b).collect();
        assert!(norm(&difference) < 3e-6 * norm(&truth), "{} {}", norm(&difference), norm(&truth));
        if let [found] = norms[..] {
            assert!((0.75 * found / norm(&sum) - 1.0).abs() < 1e-6, "{found}: {}", norm(&sum));
        }
    }
}
