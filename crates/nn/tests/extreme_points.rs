//! Whatever the point and the records, a weighted sum is finite and within its bound. Otherwise an error would reveal records.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[expect(dead_code, reason = "other tests use the rest")]
mod basics;
mod networks;

use basics::{numbers, total};
use networks::networks;
use sordino_nn::layers::{Embedding, LayerNorm, Linear, MeanOverSteps, Positions};
use sordino_nn::{Description, Engine, Inputs, Loss, Network, Pass, Shape, Targets};

/// Numbers of all sizes, with zeros, subnormal numbers and values near the end of the range.
fn extreme(count: usize, seed: u64, most: i32) -> Vec<f32> {
    let (signs, sizes) = (numbers(count, seed), numbers(count, seed + 1000));
    let number = |(sign, size): (&f32, &f32)| match (size * 1e4) as i32 % 7 {
        0 => 0.0,
        1 | 2 => *sign,
        _ => (f64::from(*sign) * 10_f64.powf(f64::from(*size) * f64::from(most))) as f32,
    };
    signs.iter().zip(&sizes).map(number).map(|v| if v.is_finite() { v } else { 3e38 }).collect()
}

#[test]
fn sums_at_extreme_points_are_finite_and_bounded() {
    let tokens = Description::new(Shape::Tokens { steps: 12, vocabulary: 5 })
        .then(Embedding { width: 4 })
        .then(Positions)
        .then(LayerNorm::default())
        .then(MeanOverSteps)
        .then(Linear::new(3));
    let mut all = networks();
    all.push(Network::new(&tokens).unwrap());
    let (mut moved, mut erased) = (0, 0);
    for (which, network) in all.into_iter().enumerate() {
        let (input, length) = (network.input(), network.layout().len());
        let mut engine = Engine::with_workers(network, Loss::SquaredError, 1).unwrap();
        for seed in 0..60_u64 {
            let most = [3, 12, 25, 45][seed as usize % 4];
            let mut params = engine.network().init(seed);
            if seed % 5 > 0 {
                let wild = extreme(length, 31 * seed + 7, most.min(38));
                let keep = numbers(length, seed + 5);
                let values = params.values_mut().iter_mut().zip(wild).zip(keep);
                values.for_each(|((value, wild), keep)| {
                    if keep > 0.6 {
                        *value = wild
                    }
                });
            }
            let values = extreme(3 * input.len(), seed + 77, most);
            let targets = extreme(9, seed + 99, most);
            let words: Vec<u32> = numbers(36, seed).iter().map(|v| (v.abs() * 4.9) as u32).collect();
            let starts = [0, 12, 24, 36];
            let inputs = match input {
                Shape::Tokens { .. } => Inputs::Tokens { tokens: &words, starts: &starts },
                Shape::Sequence { steps, .. } => {
                    let starts: &'static [usize] = vec![0, steps, 2 * steps, 3 * steps].leak();
                    Inputs::Sequences { values: &values, starts }
                }
                _ => Inputs::Dense(&values),
            };
            let records = engine.records(inputs, Targets::Values { values: &targets, width: 3 }).unwrap();
            let mut anchor = params.clone();
            anchor.values_mut().iter_mut().for_each(|value| *value *= 0.5);
            for bound in [1e-9, 1.0, 1e12] {
                let rule = |norms: &[f64], weights: &mut [f32]| {
                    let norm = total(norms);
                    let weight = if norm > 0.0 { (0.999 * bound / norm).min(1e12) } else { 0.0 };
                    weights.fill(weight as f32);
                };
                for difference in [false, true] {
                    for record in 0..3 {
                        let chosen = [record];
                        let mut pass = Pass::new(&params, &records, &chosen).weighed_by(&rule);
                        if difference {
                            pass = pass.minus(&anchor);
                        }
                        let mut sums = [vec![0.0; length]];
                        let outcome = engine.pass(&pass, &mut sums).unwrap();
                        let added = sums[0].iter().map(|g| g * g).sum::<f64>().sqrt();
                        assert!(added <= 1.0001 * bound, "{which} {seed} {bound} {difference}: {added}");
                        match outcome.non_finite.is_empty() {
                            true => moved += usize::from(added > 0.5 * bound),
                            false => erased += 1,
                        }
                    }
                }
            }
        }
    }
    assert!(moved > 500 && erased > 500, "{moved} {erased}");
}
