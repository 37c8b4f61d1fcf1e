//! Metrics of tables with known answers, and the coverage of intervals by simulation.

use rand_chacha::{
    ChaCha20Rng,
    rand_core::{Rng, SeedableRng},
};
use sordino_nn::{Shape, Targets};

use super::{numbers::residual_weights, *};

fn uniform(rng: &mut ChaCha20Rng) -> f64 {
    ((rng.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

fn normal(rng: &mut ChaCha20Rng) -> f64 {
    (-2.0 * uniform(rng).ln()).sqrt() * (std::f64::consts::TAU * uniform(rng)).cos()
}

fn layout(classes: usize, slots: u64, epsilon: f64) -> Layout {
    let variance = 2.0 / (epsilon * epsilon);
    Layout::new(&Targets::Classes(&[]), Shape::Features(1), classes, true, slots, variance)
}

/// The class and the outputs of a record.
type Record = (u32, Vec<f32>);

/// Two classes; the second has this share. Scores have means `-shift` and `shift` and are multiplied by `sure`.
fn two(share: f64, shift: f64, sure: f64) -> impl Fn(&mut ChaCha20Rng) -> Record {
    move |rng| {
        let class = uniform(rng) < share;
        let score =
            normal(rng) + if class { shift } else { -shift } + (share / (1.0 - share)).ln() / (2.0 * shift);
        (u32::from(class), vec![(2.0 * shift * sure * score) as f32])
    }
}

/// Five classes, whose outputs are `size` higher for the true class.
fn five(size: f64) -> impl Fn(&mut ChaCha20Rng) -> Record {
    move |rng| {
        let class = (uniform(rng) * 5.0) as u32;
        let output = |other| size * f64::from(u8::from(other == class)) + normal(rng);
        (class, (0..5).map(output).map(|z| z as f32).collect())
    }
}

fn counts(layout: &Layout, records: impl Iterator<Item = Record>) -> Vec<f64> {
    let Layout::Classes(cells) = layout else { panic!("not classes") };
    let mut counts = vec![0.0; layout.cells()];
    records.for_each(|(class, outputs)| counts[cells.cell(class, &outputs)] += 1.0);
    counts
}

fn noisy(mut counts: Vec<f64>, epsilon: f64, rng: &mut ChaCha20Rng) -> Vec<f64> {
    for count in &mut counts {
        *count += (uniform(rng).ln() - uniform(rng).ln()) / epsilon;
    }
    counts
}

/// All estimates of a measurement, by name.
fn named(metrics: &Metrics) -> Vec<(String, Estimate)> {
    let all = [
        ("accuracy", metrics.accuracy),
        ("majority", metrics.majority.map(|majority| majority.share)),
        ("balanced accuracy", metrics.balanced_accuracy),
        ("AUC", metrics.auc),
        ("average precision", metrics.average_precision),
        ("log loss", metrics.log_loss),
        ("calibration error", metrics.calibration_error),
        ("squared error", metrics.mean_squared_error),
        ("absolute error", metrics.mean_absolute_error),
        ("token loss", metrics.token_loss),
    ];
    let mut named: Vec<(String, Estimate)> =
        all.into_iter().filter_map(|(name, estimate)| Some((name.to_owned(), estimate?))).collect();
    for (number, class) in metrics.classes.iter().enumerate() {
        named.extend(class.recall.map(|recall| (format!("recall {number}"), recall)));
        named.extend(class.precision.map(|precision| (format!("precision {number}"), precision)));
    }
    named
}

/// Draws a table `runs` times. Every metric must contain the value of the whole population in at least 93 % of them (a coverage of 95 % is
/// below that once in 50 for 400 runs; seeds are fixed).
fn check_coverage(
    name: &str,
    layout: &Layout,
    slots: u64,
    epsilon: f64,
    draw: impl Fn(&mut ChaCha20Rng) -> Record,
) {
    let mut rng = ChaCha20Rng::seed_from_u64(3);
    let many = 200_000;
    let population: Vec<Record> = (0..many).map(|_| draw(&mut rng)).collect();
    let whole = counts(layout, population.iter().cloned());
    let truth = Metrics::new(layout, whole, many as u64, 0.0);
    // Not that of the table: its cells are wide.
    let odds = |(class, outputs): &Record| (1.0, log_odds(outputs, *class as usize), false);
    let log_loss = exact_log_loss(&population.iter().map(odds).collect::<Vec<_>>(), f64::from(many));
    let truth = Metrics { log_loss: truth.log_loss.map(|_| log_loss), ..truth };
    let runs = 400;
    let mut hits = std::collections::BTreeMap::<String, [f64; 3]>::new();
    for _ in 0..runs {
        let sample = counts(layout, std::iter::from_fn(|| Some(draw(&mut rng))).take(slots as usize));
        let table = if epsilon.is_finite() { noisy(sample, epsilon, &mut rng) } else { sample };
        let std = if epsilon.is_finite() { 2.0_f64.sqrt() / epsilon } else { 0.0 };
        let metrics = Metrics::new(layout, table, slots, std);
        let found = named(&metrics);
        for (metric, exact) in named(&truth) {
            let Some((_, estimate)) = found.iter().find(|(other, _)| *other == metric) else { continue };
            assert!(
                estimate.low <= estimate.value && estimate.value <= estimate.high,
                "{metric} {estimate:?}"
            );
            let hit = estimate.low <= exact.value && exact.value <= estimate.high;
            let entry = hits.entry(metric).or_default();
            entry[0] += f64::from(u8::from(hit));
            entry[1] += 1.0;
            entry[2] += estimate.high - estimate.low;
        }
    }
    for (metric, [hit, seen, width]) in hits {
        assert!(hit >= 0.93 * seen, "{name}, {metric}: {hit} of {seen}, mean width {}", width / seen);
        // A very wide interval would also contain the true value.
        if slots >= 2000 && (metric == "accuracy" || metric == "AUC" || metric == "log loss") {
            // Cells of five classes, and of very high or low probabilities, are wide.
            let permitted = if name == "five" || name == "too sure" { 1.0 } else { 0.5 };
            assert!(width / seen < permitted, "{name}, {metric}: width {}", width / seen);
        }
    }
}

#[test]
fn intervals_cover_noise_and_sampling_for_two_classes() {
    for (slots, epsilon) in [(2000, f64::INFINITY), (2000, 1.0), (400, 1.0), (200, 0.3)] {
        let layout = layout(2, slots, epsilon);
        check_coverage("even", &layout, slots, epsilon, two(0.5, 1.0, 1.0));
        check_coverage("too sure", &layout, slots, epsilon, two(0.3, 0.7, 8.0));
        check_coverage("nearly perfect", &layout, slots, epsilon, two(0.5, 3.0, 1.0));
    }
    check_coverage("rare", &layout(2, 12_400, 1.0), 12_400, 1.0, two(0.02, 1.0, 1.0));
}

#[test]
fn intervals_cover_noise_and_sampling_for_five_classes() {
    for (slots, epsilon) in [(3000, f64::INFINITY), (3000, 1.0), (300, 1.0)] {
        check_coverage("five", &layout(5, slots, epsilon), slots, epsilon, five(3.0));
    }
}

/// Records with the scores 1, 2, 3 (in different bins) and classes that give areas and precisions that can be computed by hand.
#[test]
fn metrics_of_four_records() {
    let layout = layout(2, 4, f64::INFINITY);
    let records = [(0, -1.2_f32), (1, -0.2), (0, 0.7), (1, 2.5)];
    let table = counts(&layout, records.iter().map(|&(class, z)| (class, vec![z])));
    let metrics = Metrics::new(&layout, table, 4, 0.0);
    assert_eq!(metrics.accuracy.unwrap().value, 0.5);
    // Of the four pairs, only (0.7, -0.2) is in the wrong order.
    assert_eq!(metrics.auc.unwrap().value, 0.75);
    // Precision 1 at the first positive record, 2/3 at the second.
    assert!((metrics.average_precision.unwrap().value - (1.0 + 2.0 / 3.0) / 2.0).abs() < 1e-12);
    assert_eq!(metrics.balanced_accuracy.unwrap().value, 0.5);
    let majority = metrics.majority.unwrap();
    assert_eq!((majority.share.value, metrics.classes.len()), (0.5, 2));
    let class = metrics.classes[1];
    assert_eq!((class.recall.unwrap().value, class.precision.unwrap().value), (0.5, 0.5));
    let loss = |z: f64| (1.0 + (-z).exp()).ln();
    let expected = (loss(1.2) + loss(-0.2) + loss(-0.7) + loss(2.5)) / 4.0;
    let (found, public) = (
        metrics.log_loss.unwrap(),
        records.map(|(class, z)| {
            let odds = if class == 1 { f64::from(z) } else { -f64::from(z) };
            (1.0, odds, odds > 0.0)
        }),
    );
    assert!((found.value - expected).abs() < 0.05 && found.low < expected && expected < found.high);
    assert!((exact_log_loss(&public, 4.0).value - expected).abs() < 1e-7);
}

#[test]
fn perfect_predictions_have_an_interval_below_one() {
    let layout = layout(2, 1000, f64::INFINITY);
    let table = counts(&layout, (0..1000).map(|i| (i % 2, vec![if i % 2 == 1 { 9.0 } else { -9.0 }])));
    let accuracy = Metrics::new(&layout, table, 1000, 0.0).accuracy.unwrap();
    assert_eq!((accuracy.value, accuracy.high), (1.0, 1.0));
    assert!(accuracy.low > 0.994 && accuracy.low < 0.998, "{accuracy:?}");
}

#[test]
fn a_temperature_is_found_if_the_model_is_too_sure_and_only_then() {
    let mut rng = ChaCha20Rng::seed_from_u64(8);
    for (epsilon, slots) in [(f64::INFINITY, 4000), (1.0, 4000)] {
        let layout = layout(2, slots, epsilon);
        let mut fit = |sure: f64| {
            let draw = two(0.5, 1.0, sure);
            let sample = counts(&layout, std::iter::from_fn(|| Some(draw(&mut rng))).take(slots as usize));
            let table = if epsilon.is_finite() { noisy(sample, epsilon, &mut rng) } else { sample };
            Metrics::new(&layout, table, slots, if epsilon.is_finite() { 2.0_f64.sqrt() } else { 0.0 })
        };
        let sure = fit(6.0);
        let found = sure.temperature.unwrap();
        assert!((4.5..8.0).contains(&found.value), "{found:?}");
        assert!(found.log_loss.value < 0.6 * sure.log_loss.unwrap().value);
        assert!(found.calibration_error.unwrap().value < 0.3 * sure.calibration_error.unwrap().value);
        let honest = fit(1.0).temperature;
        assert!(honest.is_none_or(|found| (0.8..1.25).contains(&found.value)), "{honest:?}");
    }
    // Noise alone is not fitted.
    let layout = layout(2, 60, 0.5);
    for _ in 0..50 {
        let metrics = Metrics::new(&layout, noisy(vec![0.0; layout.cells()], 0.1, &mut rng), 60, 14.1);
        assert!(metrics.temperature.is_none_or(|found| found.log_loss.value.is_finite()));
    }
}

/// Five classes whose outputs are four times too large: the bound finds a temperature that improves the exact loss, nearly as much as the
/// best one.
#[test]
fn a_temperature_of_several_classes_improves_the_loss_and_is_not_found_without_need() {
    let mut rng = ChaCha20Rng::seed_from_u64(9);
    let exact = |records: &[Record], temperature: f64| {
        let loss = |(class, outputs): &Record| {
            let sum: f64 = outputs.iter().map(|z| (f64::from(*z) / temperature).exp()).sum();
            sum.ln() - f64::from(outputs[*class as usize]) / temperature
        };
        records.iter().map(loss).sum::<f64>() / records.len() as f64
    };
    for (sure, epsilon) in
        [(4.0, f64::INFINITY), (4.0, 1.0), (1.0, f64::INFINITY), (0.5, f64::INFINITY), (0.5, 1.0)]
    {
        // Outputs of variance 1 around 2 for the true class have calibrated probabilities if they are doubled.
        let draw = five(2.0);
        let scaled =
            |(class, outputs): Record| (class, outputs.iter().map(|z| (2.0 * sure) as f32 * z).collect());
        let records: Vec<Record> = (0..5000).map(|_| scaled(draw(&mut rng))).collect();
        let layout = layout(5, 5000, epsilon);
        let table = counts(&layout, records.iter().cloned());
        let (table, std) = match epsilon.is_finite() {
            true => (noisy(table, epsilon, &mut rng), 2.0_f64.sqrt() / epsilon),
            false => (table, 0.0),
        };
        let found = Metrics::new(&layout, table, 5000, std).temperature;
        let (before, best) = (exact(&records, 1.0), exact(&records, sure));
        match found {
            Some(found) if sure > 1.0 => {
                let after = exact(&records, found.value);
                assert!(after < before - 0.8 * (before - best), "{before} {after} {best} {found:?}");
                assert!(found.log_loss.high > after, "{after} {found:?}");
            }
            Some(found) => panic!("{sure}: {found:?}"),
            None => assert!(sure <= 1.0, "{before} {best}"),
        }
    }
}

/// Residuals with standard deviation 0.2 and losses of tokens around 3, at epsilon 1 and without noise.
#[test]
fn errors_of_numbers_and_tokens_are_covered() {
    let mut rng = ChaCha20Rng::seed_from_u64(4);
    let (slots, runs) = (2000, 300);
    let exact = [0.04, 0.2 * (2.0 / std::f64::consts::PI).sqrt()];
    for std in [0.0, 2.0_f64.sqrt()] {
        let mut hits = [0; 3];
        for _ in 0..runs {
            let layout = Layout::Numbers { width: 1 };
            let mut counts = vec![0.0; layout.cells()];
            for _ in 0..slots {
                residual_weights(0.2 * normal(&mut rng))
                    .into_iter()
                    .for_each(|(cell, weight)| counts[cell] += weight);
            }
            let counts = if std > 0.0 { noisy(counts, 1.0, &mut rng) } else { counts };
            let metrics = Metrics::new(&layout, counts, slots, std);
            let found = [metrics.mean_squared_error.unwrap(), metrics.mean_absolute_error.unwrap()];
            for (hits, (found, exact)) in hits.iter_mut().zip(found.iter().zip(exact)) {
                *hits += i32::from((found.low..=found.high).contains(&exact));
                assert!(found.high - found.low < 0.06, "{found:?}");
            }
            let shares: f64 = metrics.residuals.iter().map(|bin| bin.share.value).sum();
            assert!((shares - 1.0).abs() < 0.05);
            let layout = Layout::Tokens { largest: 11.0 };
            let mut counts = vec![0.0; 2];
            for _ in 0..slots {
                let loss = 3.0 + 0.5 * normal(&mut rng);
                numbers::token_weights(loss, 11.0)
                    .into_iter()
                    .for_each(|(cell, weight)| counts[cell] += weight);
            }
            let counts = if std > 0.0 { noisy(counts, 1.0, &mut rng) } else { counts };
            let loss = Metrics::new(&layout, counts, slots, std).token_loss.unwrap();
            hits[2] += i32::from((loss.low..=loss.high).contains(&3.0));
            assert!(loss.high - loss.low < 0.2, "{loss:?}");
        }
        assert!(hits.iter().all(|hits| *hits >= 279), "{hits:?} of {runs} with noise {std}");
    }
}

/// Whatever the noise does, every number is finite and within its range.
#[test]
fn tables_of_noise_alone_give_numbers_within_their_ranges() {
    let mut rng = ChaCha20Rng::seed_from_u64(6);
    for classes in [2, 3, 10] {
        for slots in [1, 20, 1000] {
            let layout = layout(classes, slots, 0.1);
            let metrics = Metrics::new(&layout, noisy(vec![0.0; layout.cells()], 0.1, &mut rng), slots, 14.1);
            for (name, estimate) in named(&metrics) {
                let inside = |x: f64| x.is_finite() && x >= 0.0 && (name == "log loss" || x <= 1.0);
                assert!(
                    inside(estimate.low) && inside(estimate.value) && inside(estimate.high),
                    "{name} {estimate:?}"
                );
            }
        }
    }
}
