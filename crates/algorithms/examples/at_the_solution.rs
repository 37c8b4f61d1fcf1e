//! Which algorithms stay at the solution? Table 2 of the DP-C4 paper, as an experiment.
//!
//! A third of the records is at 2 and two thirds are at -1. At the mean of all records, their gradients are not 0 but add up to 0. Each run
//! begins at this solution. Its first step has learning rate 0, so that the algorithm's state (an anchor, the length of a gradient) also
//! comes from the solution. Each algorithm runs in four ways: unchanged, without sampling (each batch has all records), without noise, and
//! without both. The table shows the distance from the solution at the end, and the noise of the last step.
//!
//! `cargo run -p sordino-algorithms --example at_the_solution`

use std::{
    env,
    error::Error,
    fs, process,
    sync::atomic::{AtomicU64, Ordering},
};

use sordino_accounting::{ClipNorm, Delta, Epsilon, Sampling, SamplingRate, Steps, calibrate::Budget};
use sordino_algorithms::{Algorithm, AlgorithmConfig, NoiseSource, RunFacts};
use sordino_privacy::{Randomness, Terms, Vault};
use sordino_testing::InMemory;

/// The algorithms of the paper's table, with anchors over all records, and the sound form of DP-C4.
pub(crate) const ALGORITHMS: [(&str, &str); 8] = [
    ("DP-SGD", r#"{"type":"dp-sgd"}"#),
    ("DP-SGD^TD", r#"{"type":"dynamic","mu_growth":1,"clip_decay":1000}"#),
    ("DP-SVRG", r#"{"type":"dp-svrg","anchor_batch":3000,"update_probability":0.1}"#),
    (
        "DP-SVRG^TD",
        r#"{"type":"dp-svrg","anchor_batch":3000,"update_probability":0.1,"clip_schedule":"0:1/1:0.001"}"#,
    ),
    ("DiceSGD", r#"{"type":"dice-published"}"#),
    ("DP-C4", r#"{"type":"dp-c4-published","anchor_batch":3000,"update_probability":0.1}"#),
    ("DP-C4+", r#"{"type":"dp-c4-plus-published","anchor_batch":3000,"update_probability":0.1}"#),
    ("dp-c4", r#"{"type":"dp-c4","anchor_scale":1,"anchor_batch":3000,"update_probability":0.1}"#),
];

/// The sources of randomness of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Randomly {
    /// Noise, and batches that are sampled.
    Run,
    /// Noise, and batches of all records.
    Noisy,
    /// Sampled batches; almost no noise.
    Sampled,
    /// Almost no noise, and batches of all records.
    Neither,
}

/// The result of a run.
pub(crate) struct Outcome {
    /// The largest distance from the solution.
    pub(crate) farthest: f64,
    /// The distance from the solution at the end.
    pub(crate) end: f64,
    /// The standard deviation of the noise of each training step, on the mean gradient.
    pub(crate) noise: Vec<f64>,
}

const RECORDS: u64 = 3000;
const STEPS: u64 = 300;

impl Randomly {
    fn samples(self) -> bool {
        matches!(self, Self::Run | Self::Sampled)
    }

    fn has_noise(self) -> bool {
        matches!(self, Self::Run | Self::Noisy)
    }
}

/// Batches of 100 or of all records, clipping norm 1.
pub(crate) fn facts(randomly: Randomly) -> Result<RunFacts, Box<dyn Error>> {
    let rate = if randomly.samples() { 100.0 / RECORDS as f64 } else { 1.0 };
    Ok(RunFacts {
        sampling: Sampling::Poisson { rate: SamplingRate::new(rate)?, cap: None },
        steps: Steps::new(STEPS)?,
        expected_batch_size: rate * RECORDS as f64,
        max_grad_norm: ClipNorm::new(1.0)?,
        layers: None,
        dimension: 2,
        records: RECORDS,
        momentum: 0.0,
        claim: Some(Budget { epsilon: Epsilon::new(2.0)?, delta: Delta::new(1e-5)? }),
    })
}

/// A run of an algorithm that begins at the solution. The seed is fixed.
pub(crate) fn run(algorithm: &str, randomly: Randomly) -> Result<Outcome, Box<dyn Error>> {
    let (config, mut facts): (AlgorithmConfig, _) = (serde_json::from_str(algorithm)?, facts(randomly)?);
    let accountant = config.accountant(facts.sampling);
    let budget = Budget { epsilon: Epsilon::new(2.0)?, delta: Delta::new(1e-5)? };
    let mut plan = config.plan(&facts, NoiseSource::Budget(budget, accountant))?;
    if !randomly.has_noise() {
        let multipliers = plan.entries().iter().flat_map(|entry| entry.releases()).map(|z| z.get());
        plan = plan.scaled(2e-6 / multipliers.fold(f64::INFINITY, f64::min))?;
        // The noise of anchors as published follows from the claim and not from the plan. A huge claim gives almost no noise.
        facts.claim = Some(Budget { epsilon: Epsilon::new(1e30)?, ..budget });
    }
    let terms = match config.about().verdict.is_sound() && randomly.has_noise() {
        true => Terms::price(plan.clone(), RECORDS, budget.delta, Some(budget.epsilon), accountant)?,
        false => Terms::unprotected(plan.clone(), RECORDS, "an experiment"),
    };

    // Half of the squared distance to the record.
    let records = (0..RECORDS).map(|i| if i % 3 == 0 { 2.0 } else { -1.0 }).collect();
    let records = InMemory::<f32, [f32; 2], [f32; 2]>::new(records, 2, |record, at| [at[0] - record, at[1]]);
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let name = format!("sordino-at-the-solution-{}-{}", process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
    let ledger = env::temp_dir().join(name);
    let mut vault = Vault::seal(records, &terms, Randomness::seeded(1), &ledger)?;
    vault.charge_by(terms.steps());

    let mut steps = config.start(&facts, &plan)?;
    let (mut point, mut outcome) = ([0.0_f32; 2], Outcome { farthest: 0.0, end: 0.0, noise: Vec::new() });
    while let Some(release) = {
        let number = vault.position();
        vault.round(|round| steps.step(round, &point, number))?
    } {
        let Some(release) = release? else { continue };
        let rate = if outcome.noise.is_empty() { 0.0 } else { 0.2 / facts.expected_batch_size as f32 };
        point = [0, 1].map(|i| point[i] - rate * release[i]);
        outcome.end = f64::from(point[0]).hypot(f64::from(point[1]));
        outcome.farthest = outcome.farthest.max(outcome.end);
        outcome.noise.push(release.noise_std() / facts.expected_batch_size);
    }
    drop(vault);
    fs::remove_file(ledger)?;
    Ok(outcome)
}

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "Distance from the solution after {STEPS} steps that begin there, and the noise of the last step\n"
    );
    println!("| algorithm | as run | without sampling | without noise | without both | noise |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    for (name, algorithm) in ALGORITHMS {
        let whole = run(algorithm, Randomly::Run)?;
        let mut line = format!("| {name} | {:.5} |", whole.end);
        for randomly in [Randomly::Noisy, Randomly::Sampled, Randomly::Neither] {
            line += &format!(" {:.5} |", run(algorithm, randomly)?.end);
        }
        println!("{line} {:.5} |", whole.noise.last().copied().unwrap_or_default());
    }
    Ok(())
}
