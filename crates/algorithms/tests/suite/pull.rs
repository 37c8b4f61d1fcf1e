//! A small problem on which everything can be worked out by hand: records pull towards points of their own.

use std::{fs, path::PathBuf};

use sordino_accounting::{ClipNorm, Delta, Epsilon, Plan, Sampling, SamplingRate, Steps, calibrate::Budget};
use sordino_algorithms::{Algorithm, Choice, Noise, Setting};
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
pub(crate) type Pull = InMemory<[f32; 2], Point, Point>;

pub(crate) fn pull(records: Vec<[f32; 2]>, slope: Slope) -> Pull {
    Pull::new(records, 2, slope)
}

pub(crate) fn choice(text: &str) -> Choice {
    let json = if text.starts_with('{') { text.to_owned() } else { format!(r#"{{"type":"{text}"}}"#) };
    serde_json::from_str(&json).unwrap()
}

/// 2,000 records, batches of 100, 30 steps.
pub(crate) fn setting() -> Setting {
    setting_for(2000, 0.05, 30)
}

pub(crate) fn setting_for(records: usize, rate: f64, steps: u64) -> Setting {
    Setting {
        sampling: Sampling::Poisson { rate: SamplingRate::new(rate).unwrap(), cap: None },
        steps: Steps::new(steps).unwrap(),
        expected_batch_size: rate * records as f64,
        clip: ClipNorm::new(1.0).unwrap(),
        layers: None,
        dimension: 2,
        noise_multiplier: None,
        records: records as u64,
        claim: Some(budget()),
    }
}

pub(crate) fn budget() -> Budget {
    Budget { epsilon: Epsilon::new(2.0).unwrap(), delta: Delta::new(1e-5).unwrap() }
}

/// The terms of a run at the budget.
pub(crate) fn terms(choice: &Choice, setting: &Setting) -> Terms {
    let accountant = choice.accountant(setting);
    let plan = choice.plan(setting, Noise::Budget(budget(), accountant)).unwrap();
    match choice.unprotected() {
        Some(why) => Terms::unprotected(plan, setting.records, why),
        None => {
            let limit = choice.sound_form().is_none().then(|| budget().epsilon);
            Terms::price(plan, setting.records, budget().delta, limit, accountant).unwrap()
        }
    }
}

/// A multiplier of next to no noise.
pub(crate) const QUIET: f64 = 1.001e-6;

pub(crate) fn least_multiplier(plan: &Plan) -> f64 {
    plan.entries().iter().flat_map(|entry| entry.releases()).map(|z| z.get()).fold(f64::INFINITY, f64::min)
}

/// The plan with next to no noise and no price.
pub(crate) fn quiet(plan: &Plan, records: u64) -> Terms {
    let plan = plan.scaled(QUIET / least_multiplier(plan)).unwrap();
    Terms::unprotected(plan, records, "a test without noise")
}

/// A file that goes away with its test.
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

/// A run in the making.
pub(crate) struct Training {
    pub(crate) vault: Vault<Pull>,
    pub(crate) algorithm: Box<dyn Algorithm<Pull>>,
    pub(crate) point: Point,
    /// What a released sum is multiplied with.
    pub(crate) rate: f32,
}

impl Training {
    pub(crate) fn new(
        choice: &Choice,
        setting: &Setting,
        terms: &Terms,
        records: Pull,
        randomness: Randomness,
        ledger: &Scratch,
    ) -> Self {
        let vault = Vault::seal(records, terms, randomness, &ledger.0).unwrap();
        let multiplier = terms.plan().map(|plan| plan.entries()[0].releases()[0]);
        let setting = Setting { noise_multiplier: multiplier, ..*setting };
        let rate = 0.5 / setting.expected_batch_size as f32;
        Self { vault, algorithm: choice.begin(&setting).unwrap(), point: [0.0; 2], rate }
    }

    /// One step of the plan: what the optimizer sees, if anything; nothing at all when the plan is finished.
    pub(crate) fn release(&mut self) -> Option<Option<Release<Vec<f32>>>> {
        let (number, point) = (self.vault.position(), self.point);
        let algorithm = &mut self.algorithm;
        self.vault.round(|round| algorithm.step(round, &point, number)).unwrap().map(Result::unwrap)
    }

    /// One step of the plan, learned from; false when it is finished.
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
