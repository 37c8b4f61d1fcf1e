//! `band-mf`: what it computes, what it costs, and how much noise is left in the model.

use std::sync::{Arc, Mutex};

use sordino_accounting::{
    Accountant, Delta, Epsilon, NoiseMultiplier, Plan, Sampling, SamplingRate, Steps, calibrate::Budget,
    factorization::Workload,
};
use sordino_algorithms::{Algorithm, NoiseSource, RunFacts};
use sordino_privacy::{Randomness, Terms, Vault};
use sordino_testing::{Rows, rows};

use crate::{
    toy_quadratic::{QUIET, Scratch, Training, config, cubic, facts_for, quiet, toy},
    transcript::{clipped, facts, run, scaled},
};

/// Releases, with the standard deviations of their noise.
type Seen = Arc<Mutex<Vec<(Vec<f32>, f64)>>>;

fn banded(band: u64) -> String {
    format!(r#"{{"type":"band-mf","band":{band}}}"#)
}

fn multiplier(z: f64) -> NoiseSource {
    NoiseSource::Multiplier(NoiseMultiplier::new(z).unwrap())
}

fn coefficients(band: usize, facts: &RunFacts) -> Vec<f64> {
    Workload::PREFIX_SUMS.optimal_coefficients(band, facts.steps.get())
}

/// With almost no noise, every step is that of DP-SGD on the batch that was sampled from its group.
#[test]
fn without_noise_it_is_dp_sgd_on_the_batches_of_the_groups() {
    for band in [1, 2, 3, 5] {
        let facts = facts(0.2);
        run(&banded(band), &facts).follows(&format!("band {band}"), |draw, x, _| {
            scaled(1.0 / facts.expected_batch_size, clipped(&draw(), x, 1.0))
        });
    }
}

/// Leaving out a record moves the releases of a block, together, by at most `|c|_2 C`, at points that follow from the releases of one run.
#[test]
fn a_record_moves_a_block_of_releases_by_at_most_the_norm_of_the_coefficients() {
    const BAND: usize = 3;
    let facts = facts_for(40, 0.3, 25);
    let config = config(&banded(BAND as u64));
    let quiet = quiet(&config.plan(&facts, multiplier(1.0)).unwrap(), facts.records);
    let mut most = 0.0_f64;
    for removed in [0, 7, 38] {
        let records = (0..40).map(|i| [0.4 * i as f32 - 9.0, 11.0 - 0.5 * i as f32]).collect();
        let whole = toy(records, cubic);
        let mut lacking = whole.clone();
        lacking.records[removed] = None;
        let ledgers = ["whole", "lacking"].map(|name| Scratch::new(&format!("band-{name}-{removed}")));
        let seen: [Seen; 2] = Default::default();
        let [mut one, mut other] = [(whole, 0), (lacking, 1)].map(|(records, index): (_, usize)| {
            let mut training =
                Training::new(&config, &facts, &quiet, records, Randomness::seeded(3), &ledgers[index]);
            let sink = Arc::clone(&seen[index]);
            training.vault.observe_releases(move |values, std| {
                sink.lock().unwrap().push((values.to_vec(), std));
            });
            training
        });
        while one.step() {
            assert!(other.step());
            other.point = one.point;
        }
        let [with, without] = seen.map(|seen| seen.lock().unwrap().clone());
        let permitted = with[0].1 / QUIET;
        assert!((permitted - 1.0).abs() < 1e-3, "coefficients have norm 1: {permitted}");
        let moves: Vec<f64> = with
            .iter()
            .zip(&without)
            .map(|((a, _), (b, _))| f64::from(a[0] - b[0]).hypot(f64::from(a[1] - b[1])))
            .collect();
        let (before, blocks) = moves.split_at(removed % BAND);
        assert!(before.iter().all(|moved| *moved < 1e-4), "{before:?}");
        for block in blocks.chunks(BAND) {
            let total = block.iter().map(|moved| moved * moved).sum::<f64>().sqrt();
            assert!(total <= permitted * 1.0001, "record {removed}: {total} {permitted}");
            most = most.max(total);
        }
    }
    assert!(most > 0.99, "{most}");
}

/// With as many groups as batches, all records of a group are drawn, and nothing is random. Then a plan costs as much as `ceil(T / b)`
/// Gaussian releases, `delta = Phi(-epsilon / mu + mu / 2) - e^epsilon Phi(-epsilon / mu - mu / 2)` with `mu = sqrt(ceil(T / b)) / z`.
#[test]
fn the_price_is_that_of_sampled_gaussian_releases() {
    let phi = |x: f64| 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2);
    let delta = Delta::new(1e-5).unwrap();
    for (band, steps, z) in [(20, 100, 2.0), (20, 101, 2.0), (20, 20, 1.0)] {
        let facts = facts_for(2000, 0.05, steps);
        let plan = config(&banded(band)).plan(&facts, multiplier(z)).unwrap();
        let epsilon = Accountant::Pld.price(&plan, delta).unwrap().epsilon.get();
        let mu = (steps.div_ceil(band) as f64).sqrt() / z;
        let exact = phi(-epsilon / mu + mu / 2.0) - epsilon.exp() * phi(-epsilon / mu - mu / 2.0);
        assert!(exact <= 1e-5 && exact > 0.97e-5, "{steps} steps: {exact} at {epsilon}");
    }
    // With fewer groups: the price of Poisson batches at rate b q.
    for (band, blocks) in [(4_u64, 8), (7, 5)] {
        let facts = facts_for(2000, 0.05, 30);
        let plan = config(&banded(band)).plan(&facts, multiplier(1.5)).unwrap();
        let rate = SamplingRate::new(0.05 * band as f64).unwrap();
        let sampled = Plan::dp_sgd(NoiseMultiplier::new(1.5).unwrap(), rate, Steps::new(blocks).unwrap());
        let [found, expected] =
            [plan, sampled].map(|plan| Accountant::Pld.price(&plan, delta).unwrap().epsilon.get());
        assert!((found / expected - 1.0).abs() < 1e-9, "band {band}: {found} {expected}");
    }
}

/// The noise of `x~_t`, and of its prefix sums, over all steps of a run in which no record adds anything. The seed is fixed. Each of 62
/// statistics would exceed 5 standard deviations by chance once in 1.7 million.
#[test]
fn prefix_sums_have_the_noise_that_is_predicted() {
    const COORDINATES: usize = 4000;
    for (band, momentum) in [(4_u64, None), (4, Some(0.9))] {
        let facts = facts_for(50, 0.1, 60);
        let text = match momentum {
            None => banded(band),
            Some(m) => format!(r#"{{"type":"band-mf","band":{band},"momentum":{m}}}"#),
        };
        let (config, z) = (config(&text), 1.7);
        let plan = config.plan(&facts, multiplier(z)).unwrap();
        let terms = Terms::unprotected(plan.clone(), 50, "a test");
        let nothing = Rows { dimension: COORDINATES, ..rows(vec![Vec::new(); 50]) };
        let mut vault = Vault::seal_in_memory(nothing, &terms, Randomness::seeded(12)).unwrap();
        let mut algorithm = config.start::<Rows>(&facts, &plan).unwrap();
        let mut squares = vec![0.0_f64; COORDINATES];
        let (mut velocity, mut model) = (vec![0.0_f64; COORDINATES], vec![0.0_f64; COORDINATES]);
        let mut steps = 0;
        while let Some(release) = vault.round(|round| algorithm.step(round, &[], steps)).unwrap() {
            let release = release.unwrap().unwrap();
            let variance = release.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / COORDINATES as f64;
            let relative = variance / release.noise_std().powi(2) - 1.0;
            assert!(relative.abs() < 5.0 * (2.0 / COORDINATES as f64).sqrt(), "step {steps}: {relative}");
            for (at, noise) in release.iter().enumerate() {
                velocity[at] = momentum.unwrap_or(0.0) * velocity[at] + f64::from(*noise);
                model[at] += velocity[at];
                squares[at] += model[at].powi(2) / 60.0;
            }
            steps += 1;
        }
        assert_eq!(steps, 60);
        let workload = Workload::momentum(momentum.unwrap_or(0.0));
        let optimal = workload.optimal_coefficients(band as usize, 60);
        let predicted = z * z * workload.mean_squared_error(&optimal, 60);
        let mean = squares.iter().sum::<f64>() / COORDINATES as f64;
        let spread = squares.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / COORDINATES as f64;
        let deviation = (mean - predicted) / (spread / COORDINATES as f64).sqrt();
        // The noise is larger by a thousandth, for rounding.
        assert!(deviation.abs() < 5.0 && mean > 0.9 * predicted, "{mean} {predicted}: {deviation}");
        let independent = z * z * workload.mean_squared_error(&[1.0], 60);
        assert!(mean < 0.45 * independent, "{mean} {independent}");
    }
}

/// A resumed run begins without the hidden sums and without earlier releases. With almost no noise its steps are still those
/// of DP-SGD.
#[test]
fn a_resumed_run_continues_without_a_trace_of_lost_sums() {
    let facts = facts_for(30, 0.2, 20);
    let config = config(&banded(4));
    let quiet = quiet(&config.plan(&facts, multiplier(1.0)).unwrap(), facts.records);
    let ledger = Scratch::new("band-resumed");
    let records = || toy((0..30).map(|i| [i as f32, -1.0]).collect(), cubic);
    let mut training = Training::new(&config, &facts, &quiet, records(), Randomness::seeded(3), &ledger);
    (0..7).for_each(|_| assert!(training.step()));
    let (state, point) = (training.algorithm.state(), training.point);
    drop(training);
    let vault = Vault::resume(records(), &quiet, Randomness::seeded(5), &ledger.0).unwrap();
    let mut algorithm = config.start(&facts, &quiet.plan).unwrap();
    algorithm.restore(&state);
    let mut resumed = Training { vault, algorithm, point, rate: 0.0 };
    // All gradients are longer than C = 1 and nearly parallel here, so the norm of a sum is about
    // the number of records in its batch, never a fraction of it.
    while let Some(release) = resumed.release() {
        let release = release.unwrap();
        let length = f64::from(release[0]).hypot(f64::from(release[1]));
        let whole = length / (1.0 - 1.0 / 1024.0);
        assert!(whole < 8.5, "a group has at most 8 records: {whole}");
    }
}

fn ratio(facts: &RunFacts, epsilon: f64) -> (u64, f64) {
    let budget = Budget { epsilon: Epsilon::new(epsilon).unwrap(), delta: Delta::new(1e-5).unwrap() };
    let noise = NoiseSource::Budget(budget, Accountant::Pld);
    let plan = |text: &str| config(text).plan(facts, noise).unwrap();
    let (found, plain) = (plan("band-mf"), plan("dp-sgd"));
    assert!(Accountant::Pld.price(&found, budget.delta).unwrap().epsilon <= budget.epsilon);
    let z = |plan: &Plan| plan.entries()[0].releases()[0].get();
    let band = match found.entries()[0].sampling() {
        Sampling::Rotating { groups, .. } => groups,
        _ => 1,
    };
    let error = |c: &[f64]| Workload::PREFIX_SUMS.mean_squared_error(c, facts.steps.get()).sqrt();
    let c = coefficients(band as usize, facts);
    (band, z(&found) * error(&c) / (z(&plain) * error(&[1.0])))
}

/// The root mean squared error of prefix sums relative to DP-SGD, computed independently in Python with bands that are powers of two
/// (0.95, 0.75, 0.65, 0.76, 0.47). Bands between powers of two have a slightly lower error.
#[test]
fn the_chosen_band_has_the_least_error() {
    for (records, batch, steps, epsilon, expected) in [
        (60_000, 512, 2340, 1.0, 0.95),
        (60_000, 512, 2340, 3.0, 0.75),
        (60_000, 512, 116, 2.0, 0.65),
        (32_561, 256, 1270, 2.0, 0.76),
        (32_561, 256, 1270, 8.0, 0.47),
    ] {
        let facts =
            RunFacts { dimension: 100_000, ..facts_for(records, f64::from(batch) / records as f64, steps) };
        let (band, found) = ratio(&facts, epsilon);
        println!(
            "N {records} B {batch} T {steps} eps {epsilon}: band {band}, {found:.4} (expected {expected})"
        );
        assert!(
            band > 1 && found < expected + 0.006 && found > expected - 0.03,
            "band {band}: {found} {expected}"
        );
    }
}

/// Large batches at a small privacy budget: the best band is 1, which is DP-SGD, and a note says so.
#[test]
fn a_band_of_one_is_dp_sgd() {
    let facts = facts_for(50_000, 4096.0 / 50_000.0, 880);
    let budget = Budget { epsilon: Epsilon::new(1.0).unwrap(), delta: Delta::new(1e-5).unwrap() };
    let noise = NoiseSource::Budget(budget, Accountant::Pld);
    let chosen = config("band-mf");
    let plan = chosen.plan(&facts, noise).unwrap();
    assert_eq!(plan, config("dp-sgd").plan(&facts, noise).unwrap());
    assert!(chosen.notes(&facts, &plan)[0].contains("this run is dp-sgd"));
    let wide = config(&banded(4)).plan(&facts, noise).unwrap();
    assert!(config(&banded(4)).notes(&facts, &wide).is_empty());
}

#[test]
fn bands_that_do_not_fit_are_refused_with_the_largest_that_does() {
    let facts = facts_for(2000, 0.05, 30);
    let refused = |facts: &RunFacts, band: u64| {
        config(&banded(band)).plan(facts, multiplier(1.0)).unwrap_err().to_string()
    };
    assert!(refused(&facts, 21).contains("band must be at most 20, got 21"), "{}", refused(&facts, 21));
    let short = facts_for(2000, 0.05, 7);
    assert!(refused(&short, 8).contains("at most 7"));
    let large = RunFacts { dimension: 1 << 25, ..facts };
    assert!(refused(&large, 4).contains("at most 3"), "{}", refused(&large, 4));
    let unset = config("band-mf").plan(&facts, multiplier(1.0)).unwrap_err();
    assert!(unset.to_string().contains("chosen for a budget"));
    for wrong in [r#"{"type":"band-mf","band":0}"#, r#"{"type":"band-mf","momentum":1.0}"#] {
        assert!(config(wrong).check().is_err(), "{wrong}");
    }
    let full = RunFacts { sampling: Sampling::FullBatch, ..facts };
    assert!(refused(&full, 2).contains("band-mf needs Poisson sampling without a cap"));
}
