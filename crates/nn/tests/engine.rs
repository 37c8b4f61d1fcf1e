//! Guarantees of the engine for whole batches: records that are not finite, norms that are not too small, learning.
#![expect(clippy::unwrap_used, reason = "a test stops at the first error")]

mod basics;
mod networks;

use basics::{in_order, numbers, total};
use networks::networks;
use sordino_nn::layers::{Conv2d, Embedding, GlobalAveragePool, Linear, MeanOverSteps, Tanh};
use sordino_nn::{Description, Engine, Inputs, Loss, Network, Params, Pass, Shape, Targets, models};

fn clip(norms: &[f64], weights: &mut [f32]) {
    weights.fill((0.5 / total(norms)).min(1.0) as f32);
}

#[test]
fn a_record_that_is_not_finite_adds_exactly_nothing() {
    for network in networks() {
        let (size, count) = (network.input().len(), 7);
        let mut engine = Engine::with_workers(network, Loss::cross_entropy(), 2).unwrap();
        let params = engine.network().init(2);
        let other = engine.network().init(3);
        let good = numbers(count * size, 4);
        let classes: Vec<u32> = (0..count as u32).map(|record| record % 3).collect();
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38, -1e30] {
            let mut values = good.clone();
            // One bad value in record 2, all values bad in record 5.
            values[2 * size + size / 2] = bad;
            values[5 * size..6 * size].fill(bad);
            let records = engine.records(Inputs::Dense(&values), Targets::Classes(&classes)).unwrap();
            let all: Vec<usize> = (0..count).collect();
            for anchor in [None, Some(&other)] {
                let mut pass = |chosen: &[usize], weighed: bool| {
                    let pass = Pass::new(&params, &records, chosen);
                    let pass = anchor.map_or(pass, |anchor| pass.minus(anchor));
                    let pass = if weighed { pass.weighed_by(&clip) } else { pass };
                    let mut sums = [vec![f64::NAN; params.values().len()]];
                    let outcome = engine.pass(&pass, &mut sums).unwrap();
                    (outcome, sums[0].clone())
                };
                let (outcome, sum) = pass(&all, true);
                assert!(sum.iter().all(|value| value.is_finite()), "{bad}");
                let norm = sum.iter().map(|g| g.powi(2)).sum::<f64>().sqrt();
                assert!(norm <= 0.5 * count as f64 * (1.0 + 1e-5), "{bad}: {norm}");
                if bad.is_nan() {
                    assert_eq!(outcome.non_finite, [2, 5]);
                }
                // Without those records the sum is the same, but for the order of additions.
                let rest: Vec<usize> =
                    all.iter().copied().filter(|r| !outcome.non_finite.contains(r)).collect();
                let (without, expected) = pass(&rest, true);
                assert!(without.non_finite.is_empty());
                for (found, expected) in sum.iter().zip(&expected) {
                    assert!((found - expected).abs() <= 1e-5, "{bad}: {found} {expected}");
                }
                // The plain sum does not look at norms, but a loss that is not finite is kept out of it too.
                let (outcome, sum) = pass(&all, false);
                if outcome.non_finite.len() == 2 {
                    assert!(sum.iter().all(|value| value.is_finite()), "{bad}");
                }
            }
        }
    }
}

#[test]
fn records_must_be_chosen_in_ascending_order() {
    let mut engine = Engine::new(models::linear(2).unwrap(), Loss::Logistic).unwrap();
    let params = engine.network().init(1);
    let records = engine.records(Inputs::Dense(&[0.0; 4]), Targets::Classes(&[0, 1])).unwrap();
    let refused = engine.pass(&Pass::new(&params, &records, &[1, 0]), &mut [vec![0.0; 3]]).unwrap_err();
    assert_eq!(refused.to_string(), "chosen records must be in ascending order");
}

/// Positions whose output gradients cancel: single precision alone would report norms that are far too small.
#[test]
fn a_norm_is_not_too_small_when_positions_cancel() {
    let (steps, width, outputs) = (8, 48, 40);
    let description = Description::new(Shape::Sequence { steps, width })
        .then(Linear { outputs, inputs: None, bias: false })
        .then(Tanh)
        .then(MeanOverSteps)
        .then(Linear::new(1));
    let mut engine =
        Engine::with_workers(Network::new(&description).unwrap(), Loss::SquaredError, 1).unwrap();
    let params = engine.network().init(1);
    let direction = numbers(width, 3);
    for (seed, tiny) in [1e-3f32, 1e-4, 1e-5, 1e-6, 0.0].into_iter().enumerate() {
        // Steps come in pairs x, -x plus a little: tanh is odd, its slope even, so that the pair's gradients nearly cancel.
        let noise = numbers(steps * width, 9 + seed as u64);
        let values: Vec<f32> = (0..steps * width)
            .map(|i| {
                let sign = if i / width % 2 == 0 { 1.0 } else { -1.0 };
                sign * 3.0 * direction[i % width] + tiny * noise[i]
            })
            .collect();
        let targets = Targets::Values { values: &[1e4], width: 1 };
        let records = engine.records(Inputs::Dense(&values), targets).unwrap();
        let mut sums = [vec![0.0; params.values().len()]];
        let reported = std::sync::Mutex::new(0.0);
        let look = |norms: &[f64], weights: &mut [f32]| {
            *reported.lock().unwrap() = norms[0];
            weights.fill(1.0);
        };
        engine.pass(&Pass::new(&params, &records, &[0]).weighed_by(&look), &mut sums).unwrap();
        let range = engine.network().layers()[0].range.clone();
        let added = sums[0][range].iter().map(|g| g.powi(2)).sum::<f64>().sqrt();
        let reported = *reported.lock().unwrap();
        assert!(reported >= added * (1.0 - 1e-5), "{tiny}: reported {reported}, added {added}");
    }
}

/// The largest norm of what one record adds when its gradient is clipped to 1/2 and when it is normalised to 1/2, also with a regulariser.
fn contribution(
    description: &Description,
    values: &[f32],
    targets: &[f32],
    params: impl Fn(&mut [f32]),
) -> f64 {
    let network = Network::new(description).unwrap();
    let width = network.outputs();
    let mut engine = Engine::with_workers(network, Loss::SquaredError, 1).unwrap();
    let mut at = engine.network().init(1);
    params(at.values_mut());
    let records = engine.records(Inputs::Dense(values), Targets::Values { values: targets, width }).unwrap();
    let mut sums = [vec![0.0; at.values().len()]];
    let mut greatest = 0.0;
    for regulariser in [None, Some(0.0), Some(0.01)] {
        let rule = |norms: &[f64], weights: &mut [f32]| match regulariser {
            None => clip(norms, weights),
            Some(regulariser) => weights.fill((0.5 / (regulariser + total(norms))).min(1e12) as f32),
        };
        engine.pass(&Pass::new(&at, &records, &[0]).weighed_by(&rule), &mut sums).unwrap();
        let added = sums[0].iter().map(|g| g.powi(2)).sum::<f64>().sqrt();
        greatest = if added <= greatest { greatest } else { added };
    }
    greatest
}

/// Records made to slip through a clip bound of 1/2: huge inputs that cancel, tiny inputs with huge targets.
#[test]
fn an_adversarial_record_stays_within_its_bound() {
    let (steps, width) = (8, 32);
    let bare = |outputs| Linear { outputs, inputs: None, bias: false };
    let sequence = Description::new(Shape::Sequence { steps, width }).then(bare(32)).then(MeanOverSteps);
    let image = Description::new(Shape::Image { channels: 16, height: 1, width: 2 })
        .then(Conv2d { bias: false, ..Conv2d::new(64, 1, 1, 0) })
        .then(GlobalAveragePool);
    for seed in 0..30 {
        for size in [1e2f32, 1e3, 1e4, 1e5] {
            let (noise, start) = (numbers(steps * width, seed), numbers(width, seed + 99));
            let value = |i: usize, columns: usize| {
                let sign = if (i / columns).is_multiple_of(2) { size } else { -size };
                sign * start[i % columns] + noise[i]
            };
            let values: Vec<f32> = (0..steps * width).map(|i| value(i, width)).collect();
            let targets: Vec<f32> = numbers(64, seed + 7).iter().map(|v| 100.0 * v).collect();
            let found = contribution(&sequence, &values, &targets[..32], |params| params.fill(0.0));
            assert!(found <= 0.501, "sequence, {size}: {found}");
            // One row of two pixels, channel by channel.
            let pixels: Vec<f32> = (0..32).map(|i| value(i % 2 * 16 + i / 2, 16)).collect();
            let found = contribution(&image, &pixels, &targets, |params| params.fill(0.0));
            assert!(found <= 0.501, "image, {size}: {found}");
        }
    }
    let single = Description::new(Shape::Features(2)).then(bare(1));
    // The last two: a factor that overflows when it is scaled up, and one that is rounded to twice itself.
    for (x, y) in [
        (1e-23, 5e18),
        (2e-21, 5e20),
        (1e-30, 1e30),
        (1e18, 1e19),
        (3e38, 1e-38),
        (1e-38, 3e38),
        (1e-40, 1.5e38),
        (3e38, 7e-46),
    ] {
        let found = contribution(&single, &[x, 0.0], &[y], |params| params.fill(0.0));
        assert!(found <= 0.501, "{x} {y}: {found}");
        let pixels: Vec<f32> = (0..32).map(|i| if i == 0 { x } else { 0.0 }).collect();
        let found = contribution(&image, &pixels, &[y; 64], |params| params.fill(0.0));
        assert!(found <= 0.501, "image, {x} {y}: {found}");
    }
}

/// Positions whose Gram terms overflow to minus infinity: the norm must not be reported as small.
#[test]
fn a_record_whose_gram_terms_overflow_adds_nothing() {
    let sequence =
        Description::new(Shape::Sequence { steps: 16, width: 20 }).then(Linear::new(24)).then(MeanOverSteps);
    let image = Description::new(Shape::Image { channels: 80, height: 4, width: 4 })
        .then(Conv2d::new(80, 1, 1, 0))
        .then(GlobalAveragePool);
    for (description, width, by_channel) in [(sequence, 20, false), (image, 80, true)] {
        let slope = 1e9;
        let value = |step: usize| {
            let share = match step {
                0 => 1.0,
                1 | 5 | 9 | 13 => -0.3,
                _ => 0.0,
            };
            (share * 3e38_f64.sqrt() / slope / (width as f64).sqrt()) as f32
        };
        let values: Vec<f32> =
            (0..16 * width).map(|i| value(if by_channel { i % 16 } else { i / width })).collect();
        let outputs = Network::new(&description).unwrap().outputs();
        let target = (slope * 8.0 / (outputs as f64).sqrt()) as f32;
        let found = contribution(&description, &values, &vec![target; outputs], |params| params.fill(0.0));
        assert!(found <= 0.501, "{found}");
    }
}

/// Factors so small that products of their dot products underflow, under a rule that scales them up.
#[test]
fn tiny_gradients_that_underflow_stay_within_their_bound() {
    let description = Description::new(Shape::Sequence { steps: 64, width: 256 })
        .then(Linear { outputs: 256, inputs: None, bias: false })
        .then(MeanOverSteps);
    let mut engine =
        Engine::with_workers(Network::new(&description).unwrap(), Loss::SquaredError, 1).unwrap();
    let params = Params::zeros(engine.network().layout().clone());
    let (values, targets) = (vec![6.25e-13; 64 * 256], [5e-12; 256]);
    let targets = Targets::Values { values: &targets, width: 256 };
    let records = engine.records(Inputs::Dense(&values), targets).unwrap();
    for bound in [1e-11, 1e-10, 1e-9] {
        let rule = |norms: &[f64], weights: &mut [f32]| {
            weights.fill((bound / total(norms)).min(1e12) as f32);
        };
        let mut sums = [vec![0.0; params.values().len()]];
        engine.pass(&Pass::new(&params, &records, &[0]).weighed_by(&rule), &mut sums).unwrap();
        let added = sums[0].iter().map(|g| g.powi(2)).sum::<f64>().sqrt();
        assert!(added <= 1.001 * bound, "{added} beyond {bound}");
    }
}

#[test]
fn a_token_repeated_very_often_has_an_exact_norm() {
    let steps = 20_000;
    let description = Description::new(Shape::Tokens { steps, vocabulary: 2 })
        .then(Embedding { width: 3 })
        .then(MeanOverSteps)
        .then(Linear { outputs: 1, inputs: None, bias: false });
    let mut engine =
        Engine::with_workers(Network::new(&description).unwrap(), Loss::SquaredError, 1).unwrap();
    let mut params = engine.network().init(1);
    params.values_mut().fill(0.7);
    let tokens = vec![1; steps];
    let inputs = Inputs::Tokens { tokens: &tokens, starts: &[0, steps] };
    let records = engine.records(inputs, Targets::Values { values: &[0.0], width: 1 }).unwrap();
    let found = std::sync::Mutex::new(0.0);
    let look = |norms: &[f64], _: &mut [f32]| *found.lock().unwrap() = norms[0];
    engine.pass(&Pass::new(&params, &records, &[0]).weighed_by(&look), &mut []).unwrap();
    // d/d(row) (w . row)^2 = 2 (w . row) w, at the output that single precision gives.
    let inputs = engine.unlabelled(inputs).unwrap();
    let output = f64::from(engine.outputs(&params, &inputs, &[0]).unwrap()[0]);
    let truth = 2.0 * output * 0.7 * 3f64.sqrt();
    assert!((*found.lock().unwrap() / truth - 1.0).abs() < 1e-6);
}

#[test]
fn batches_of_growing_size_may_follow_each_other() {
    let mut engine =
        Engine::with_workers(models::mlp(40, &[32], 2).unwrap(), Loss::cross_entropy(), 2).unwrap();
    let (here, there) = (engine.network().init(1), engine.network().init(2));
    let values = numbers(40 * 300, 5);
    let classes: Vec<u32> = (0..300).map(|record| record % 2).collect();
    let records = engine.records(Inputs::Dense(&values), Targets::Classes(&classes)).unwrap();
    let all: Vec<usize> = (0..300).collect();
    let mut sums = [vec![0.0; here.values().len()]];
    for count in [3, 4, 0, 300, 1, 64] {
        let pass = Pass::new(&here, &records, &all[..count]).weighed_by(&clip);
        engine.pass(&pass.minus(&there), &mut sums).unwrap();
        engine.pass(&pass, &mut sums).unwrap();
    }
}

#[test]
fn records_belong_to_the_engine_that_checked_them() {
    let two = Engine::new(models::mlp(3, &[], 2).unwrap(), Loss::SquaredError).unwrap();
    let mut one = Engine::new(models::mlp(3, &[], 1).unwrap(), Loss::SquaredError).unwrap();
    let targets = Targets::Values { values: &[0.0; 2], width: 2 };
    let records = two.records(Inputs::Dense(&[1.0; 3]), targets).unwrap();
    let params = one.network().init(1);
    assert!(one.pass(&Pass::new(&params, &records, &[0]), &mut [vec![0.0; 4]]).is_err());
}

#[test]
fn a_weight_that_is_not_finite_counts_as_zero() {
    let mut engine =
        Engine::with_workers(models::mlp(3, &[4], 2).unwrap(), Loss::cross_entropy(), 1).unwrap();
    let params = engine.network().init(1);
    let records = engine.records(Inputs::Dense(&[1.0; 6]), Targets::Classes(&[0, 1])).unwrap();
    let rule = in_order(|place, _, weights| weights.fill(if place == 0 { f32::NAN } else { 1.0 }));
    let mut both = [vec![0.0; params.values().len()]];
    engine.pass(&Pass::new(&params, &records, &[0, 1]).weighed_by(&rule), &mut both).unwrap();
    let mut plain = [vec![0.0; params.values().len()]];
    engine.pass(&Pass::new(&params, &records, &[1]), &mut plain).unwrap();
    assert!(both[0].iter().zip(&plain[0]).all(|(a, b)| (a - b).abs() < 1e-6));
}

#[test]
fn zero_gradients_have_norm_zero() {
    let mut engine = Engine::new(models::linear(4).unwrap(), Loss::Hinge).unwrap();
    let mut params = engine.network().init(1);
    params.values_mut().copy_from_slice(&[10.0, 0.0, 0.0, 0.0, 0.0]);
    let values = [1.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0];
    let records = engine.records(Inputs::Dense(&values), Targets::Classes(&[1, 1])).unwrap();
    let mut sums = [vec![0.0; 5]];
    let outcome = engine.pass(&Pass::new(&params, &records, &[0, 1]).weighed_by(&clip), &mut sums).unwrap();
    assert_eq!(outcome.norms[0], 0.0);
    assert!((outcome.norms[1] - 2f64.sqrt()).abs() < 1e-6);
    assert_eq!(outcome.losses, [0.0, 11.0]);
    assert!((sums[0][0] - 0.5 / 2f64.sqrt()).abs() < 1e-6);
}

#[test]
fn frozen_layers_have_no_gradient_and_no_norm() {
    let mut description = models::mlp(6, &[5, 4], 3).unwrap().description().clone();
    description.layers[0].frozen = true;
    let frozen = Network::new(&description).unwrap();
    let trained: usize = frozen.layout().trainable().iter().map(std::ops::Range::len).sum();
    assert_eq!((trained, frozen.layout().trainable()[0].start), (24 + 15, 35));
    assert_eq!(frozen.layers().iter().map(|layer| layer.name.as_str()).collect::<Vec<_>>(), ["fc2", "fc3"]);
    let values = numbers(60, 1);
    let classes = [0, 1, 2, 0, 1, 2, 0, 1, 2, 0];
    let run = |network: Network| {
        let mut engine = Engine::with_workers(network, Loss::cross_entropy(), 1).unwrap();
        let params = engine.network().init(4);
        let records = engine.records(Inputs::Dense(&values), Targets::Classes(&classes)).unwrap();
        let layers = engine.network().layers().len();
        let last_two = |norms: &[f64], weights: &mut [f32]| {
            (layers - 2..layers).for_each(|layer| weights[layer] = norms[layer] as f32);
        };
        let mut sums = [vec![0.0; params.values().len()]];
        let all: Vec<usize> = (0..10).collect();
        engine.pass(&Pass::new(&params, &records, &all).weighed_by(&last_two), &mut sums).unwrap();
        sums[0].clone()
    };
    let (with, without) = (run(frozen), run(models::mlp(6, &[5, 4], 3).unwrap()));
    assert!(with[..35].iter().all(|value| *value == 0.0));
    assert_eq!(with, without);
}

/// Plain gradient descent on a tiny task: the loss must fall to a fraction.
fn learns(name: &str, network: Network, loss: Loss, rate: f32) {
    let mut engine = Engine::new(network, loss).unwrap();
    let shape = engine.network().input();
    let (count, mut params) = (12, engine.network().init(1));
    let values = numbers(count * shape.len(), 2);
    let tokens: Vec<u32> = match shape {
        Shape::Tokens { vocabulary, .. } => numbers(count * shape.len(), 3)
            .iter()
            .map(|v| ((v + 1.0) * 0.499 * vocabulary as f32) as u32)
            .collect(),
        _ => Vec::new(),
    };
    let starts: Vec<usize> = (0..=count).map(|record| record * shape.steps()).collect();
    let inputs = match shape {
        Shape::Tokens { .. } => Inputs::Tokens { tokens: &tokens, starts: &starts },
        _ => Inputs::Dense(&values),
    };
    let classes: Vec<u32> = (0..count as u32).map(|record| record % 2).collect();
    let records = engine.records(inputs, Targets::Classes(&classes)).unwrap();
    let all: Vec<usize> = (0..count).collect();
    let mut losses = Vec::new();
    for _ in 0..60 {
        let mut sums = [vec![0.0; params.values().len()]];
        // Normalised per record, as private training would.
        let rule = |norms: &[f64], weights: &mut [f32]| {
            weights.fill((1.0 / (total(norms) + 0.01)) as f32);
        };
        let outcome = engine.pass(&Pass::new(&params, &records, &all).weighed_by(&rule), &mut sums).unwrap();
        losses.push(outcome.losses.iter().sum::<f64>());
        for (value, step) in params.values_mut().iter_mut().zip(&sums[0]) {
            *value -= rate * *step as f32 / count as f32;
        }
    }
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    assert!(last < 0.6 * first, "{name}: from {first} to {last}");
}

#[test]
fn every_model_learns_a_tiny_task() {
    learns("logistic regression", models::linear(20).unwrap(), Loss::Logistic, 1.0);
    learns("support vector machine", models::linear(20).unwrap(), Loss::Hinge, 0.5);
    learns("softmax regression", models::softmax_regression(20, 2).unwrap(), Loss::cross_entropy(), 1.0);
    learns("mlp", models::mlp(20, &[16, 8], 2).unwrap(), Loss::cross_entropy(), 1.0);
    learns("mnist_cnn", models::mnist_cnn().unwrap(), Loss::cross_entropy(), 1.0);
    learns("lenet5", models::lenet5(10).unwrap(), Loss::cross_entropy(), 1.0);
    learns("resnet20", models::resnet20(10).unwrap(), Loss::cross_entropy(), 1.0);
    learns("lstm", models::lstm_classifier(30, 6, 2).unwrap(), Loss::cross_entropy(), 1.0);
    learns("gru", models::gru_classifier(30, 6, 2).unwrap(), Loss::cross_entropy(), 1.0);
    learns("embedding_mlp", models::embedding_mlp(30, 6, 2).unwrap(), Loss::cross_entropy(), 1.0);
    learns("transformer", models::transformer(30, 6, 2).unwrap(), Loss::cross_entropy(), 0.5);
}

#[test]
fn parameters_of_another_network_are_refused() {
    let mut engine = Engine::new(models::mlp(3, &[], 2).unwrap(), Loss::cross_entropy()).unwrap();
    let own = engine.network().init(1);
    let foreign: Params = models::mlp(3, &[2], 2).unwrap().init(1);
    let records = engine.records(Inputs::Dense(&[0.0; 6]), Targets::Classes(&[0, 1])).unwrap();
    let mut sums = [vec![0.0; 8]];
    assert!(engine.pass(&Pass::new(&foreign, &records, &[0]), &mut sums).is_err());
    assert!(engine.pass(&Pass::new(&own, &records, &[0]).minus(&foreign), &mut sums).is_err());
    let message = engine.pass(&Pass::new(&own, &records, &[2]), &mut sums).unwrap_err().to_string();
    assert_eq!(message, "record 2 was chosen, but there are only 2");
    assert!(engine.pass(&Pass::new(&own, &records, &[0]), &mut [vec![0.0; 7]]).is_err());
    assert!(engine.pass(&Pass::new(&own, &records, &[0]), &mut []).is_err());
}
