//! How much noise `band-mf` leaves in a model, relative to `dp-sgd` at the same privacy budget, batch size and number of steps.
//!
//! `cargo run --release -p sordino-algorithms --example correlated_noise` prints the table of `docs/algorithms.md`: the root mean squared error of the sum of
//! all noisy gradients so far, over all steps, divided by that of `dp-sgd`, and the band in parentheses. An argument sets the momentum.

use std::{error::Error, time::Instant};

use sordino_accounting::{
    Accountant, ClipNorm, Delta, Epsilon, Plan, Sampling, SamplingRate, Steps, calibrate::Budget,
    factorization::Workload,
};
use sordino_algorithms::{Algorithm, BandMf, DpSgd, NoiseSource, RunFacts};

const EPSILONS: [f64; 5] = [0.5, 1.0, 2.0, 3.0, 8.0];

fn main() -> Result<(), Box<dyn Error>> {
    let momentum = std::env::args().nth(1).map_or(Ok(0.0), |text| text.parse())?;
    println!("| data | records | batch | steps | 0.5 | 1 | 2 | 3 | 8 | seconds |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for (name, records, batch, steps) in [
        ("MNIST", 60_000, 512, 2340),
        ("MNIST", 60_000, 1024, 1170),
        ("MNIST", 60_000, 2048, 880),
        ("MNIST, one epoch", 60_000, 512, 116),
        ("MNIST, small batches", 60_000, 128, 9375),
        ("CIFAR-10", 50_000, 1024, 1464),
        ("CIFAR-10", 50_000, 4096, 880),
        ("Adult", 32_561, 256, 1270),
        ("Adult", 32_561, 1024, 640),
        ("Mushroom", 6499, 256, 1270),
    ] {
        let rate = SamplingRate::new(f64::from(batch) / records as f64)?;
        let facts = RunFacts {
            sampling: Sampling::Poisson { rate, cap: None },
            steps: Steps::new(steps)?,
            expected_batch_size: f64::from(batch),
            max_grad_norm: ClipNorm::new(1.0)?,
            layers: None,
            dimension: 100_000,
            records,
            momentum,
            claim: None,
        };
        let (mut cells, mut slowest) = (Vec::new(), 0.0_f64);
        for epsilon in EPSILONS {
            let started = Instant::now();
            let (band, error) = relative_error(&facts, epsilon)?;
            slowest = slowest.max(started.elapsed().as_secs_f64());
            cells.push(format!("{error:.3} ({band})"));
        }
        println!("| {name} | {records} | {batch} | {steps} | {} | {slowest:.2} |", cells.join(" | "));
    }
    Ok(())
}

/// The chosen band, and the error relative to `dp-sgd`.
fn relative_error(facts: &RunFacts, epsilon: f64) -> Result<(u64, f64), Box<dyn Error>> {
    let budget = Budget { epsilon: Epsilon::new(epsilon)?, delta: Delta::new(1e-5)? };
    let noise = NoiseSource::Budget(budget, Accountant::Pld);
    let (found, plain) = (BandMf::default().plan(facts, noise)?, DpSgd::default().plan(facts, noise)?);
    let band = match found.entries()[0].sampling() {
        Sampling::Rotating { groups, .. } => groups,
        _ => 1,
    };
    let workload = Workload::momentum(facts.momentum);
    let error = |plan: &Plan, band: u64| {
        let c = workload.optimal_coefficients(band as usize, facts.steps.get());
        plan.entries()[0].releases()[0].get() * workload.mean_squared_error(&c, facts.steps.get()).sqrt()
    };
    Ok((band, error(&found, band) / error(&plain, 1)))
}
