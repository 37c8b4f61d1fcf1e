//! A toy problem that can be solved by hand: each record pulls the model towards its own point.

use std::{fs, path::PathBuf};

use sordino_accounting::{ClipNorm, Delta, Epsilon, Plan, Sampling, SamplingRate, Steps, calibrate::Budget};
use sordino_algorithms::{Algorithm, AlgorithmConfig, NoiseSource, RunFacts, Steps as AlgorithmSteps};
use sordino_privacy::{Randomness, Release, Terms, Vault};
use sordino_testing::InMemory;

pub(crate) type Point = [f32; 2];

/// The gradient of one record at a point; none for a record that is absent.
pub(crate) type Slope = fn(record: &[f32; 2], at: &Point) -> Point;

/// Half of the squared distance to the record.
pub(crate) fn spring(record: &[f32; 2], at: &Point) -> Point {
    [at[0] - record[0], at[1] - record[1]]
}

/// A bowl that is steeper the farther away, so that gradients at two points do not differ by a constant.
pub(crate) fn cubic(record: &[f32; 2], at: &Point) -> Point {
    let [a, b] = spring(record, at);
    [a * (1.0 + 0.1 * a * a), b * (1.0 + 0.2 * b * b)]
}

/// Records with a slope.
pub(crate) type Toy = InMemory<[f32; 2], Point, Point>;

pub(crate) fn toy(records: Vec<[f32; 2]>, slope: Slope) -> Toy {
    Toy::new(records, 2, slope)
}

pub(crate) fn config(text: &str) -> AlgorithmConfig {
    let json = if text.starts_with('{') { text.to_owned() } else { format!(r#"{{"type":"{text}"}}"#) };
    serde_json::from_str(&json).unwrap()
}

/// 2,000 records, batches of 100, 30 steps.
pub(crate) fn facts() -> RunFacts {
    facts_for(2000, 0.05, 30)
}

pub(crate) fn facts_for(records: usize, rate: f64, steps: u64) -> RunFacts {
    RunFacts {
        sampling: Sampling::Poisson { rate: SamplingRate::new(rate).unwrap(), cap: None },
        steps: Steps::new(steps).unwrap(),
        expected_batch_size: rate * records as f64,
        max_grad_norm: ClipNorm::new(1.0).unwrap(),
        layers: None,
        dimension: 2,
        records: records as u64,
        momentum: 0.0,
        claim: Some(budget()),
    }
}

pub(crate) fn budget() -> Budget {
    Budget { epsilon: Epsilon::new(2.0).unwrap(), delta: Delta::new(1e-5).unwrap() }
}

/// A plan, and the terms that were made of it.
pub(crate) struct Priced {
    pub(crate) plan: Plan,
    pub(crate) terms: Terms,
}

impl Priced {
    /// A plan that is not priced.
    pub(crate) fn unprotected(plan: Plan, records: u64) -> Self {
        Self { terms: Terms::unprotected(plan.clone(), records, "a test"), plan }
    }
}

impl std::ops::Deref for Priced {
    type Target = Terms;

    fn deref(&self) -> &Terms {
        &self.terms
    }
}

/// The plan and the terms of a run at the budget.
pub(crate) fn terms(config: &AlgorithmConfig, facts: &RunFacts) -> Priced {
    let accountant = config.accountant(facts.sampling);
    let plan = config.plan(facts, NoiseSource::Budget(budget(), accountant)).unwrap();
    if !config.about().verdict.is_sound() {
        return Priced::unprotected(plan, facts.records);
    }
    let terms = Terms::price(plan.clone(), facts.records, budget().delta, Some(budget().epsilon), accountant);
    Priced { plan, terms: terms.unwrap() }
}

/// A multiplier of next to no noise.
pub(crate) const QUIET: f64 = 1.001e-6;

pub(crate) fn least_multiplier(plan: &Plan) -> f64 {
    plan.entries().iter().flat_map(|entry| entry.releases()).map(|z| z.get()).fold(f64::INFINITY, f64::min)
}

/// The plan with next to no noise.
pub(crate) fn quiet_plan(plan: &Plan) -> Plan {
    plan.scaled(QUIET / least_multiplier(plan)).unwrap()
}

/// The plan with next to no noise, without a price.
pub(crate) fn quiet(plan: &Plan, records: u64) -> Priced {
    Priced::unprotected(quiet_plan(plan), records)
}

/// A file that is removed at the end of its test.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sordino-algorithms-{name}-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A run in progress.
pub(crate) struct Training {
    pub(crate) vault: Vault<Toy>,
    pub(crate) algorithm: Box<dyn AlgorithmSteps<Toy>>,
    pub(crate) point: Point,
    /// The factor of a released sum.
    pub(crate) rate: f32,
}

impl Training {
    pub(crate) fn new(
        config: &AlgorithmConfig,
        facts: &RunFacts,
        terms: &Priced,
        records: Toy,
        randomness: Randomness,
        ledger: &Scratch,
    ) -> Self {
        let vault = Vault::seal(records, terms, randomness, &ledger.0).unwrap();
        let rate = 0.5 / facts.expected_batch_size as f32;
        Self { vault, algorithm: config.start(facts, &terms.plan).unwrap(), point: [0.0; 2], rate }
    }

    /// Takes one step of the plan. The outer option is none when the plan is finished; the inner option is the release for the optimizer.
    pub(crate) fn release(&mut self) -> Option<Option<Release<Vec<f32>>>> {
        let (number, point) = (self.vault.position(), self.point);
        let algorithm = &mut self.algorithm;
        self.vault.round(|round| algorithm.step(round, &point, number)).unwrap().map(Result::unwrap)
    }

    /// Takes one step of the plan and moves the point. False when the plan is finished.
    pub(crate) fn step(&mut self) -> bool {
        let Some(release) = self.release() else { return false };
        if let Some(release) = release {
            self.point = [self.point[0] - self.rate * release[0], self.point[1] - self.rate * release[1]];
        }
        true
    }
}

/// Many records around (3.3, -2).
pub(crate) fn crowd() -> Vec<[f32; 2]> {
    (0..2000).map(|i| [3.0 + (i % 7) as f32 / 10.0, -2.0]).collect()
}
