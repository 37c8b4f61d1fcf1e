//! Runs of the algorithms on a toy problem with almost no noise, compared with a transcription of their pseudocode in double precision.
//!
//! All transcriptions clip as the trusted base does, to a thousandth below the clipping norm, which leaves a margin for rounding.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
};

use sordino_accounting::{Epsilon, NoiseMultiplier, Plan, calibrate::Budget};
use sordino_algorithms::{Algorithm, NoiseSource, RunFacts};
use sordino_privacy::{Randomness, Release, Terms, Vault};
use sordino_testing::Intercepted;

use crate::toy_quadratic::{Point, Scratch, Slope, Toy, config, cubic, facts_for, quiet, quiet_plan, toy};

/// A point or a gradient of a transcription.
pub(crate) type Vector = [f64; 2];

/// The records of a batch.
pub(crate) type Batch = Vec<Vector>;

pub(crate) const STEPS: usize = 20;
pub(crate) const RATE: f64 = 0.1;
pub(crate) const RECORDS: usize = 37;

/// Records whose batches are recorded.
type Watched = Intercepted<'static, Toy>;

/// A run of an algorithm on the toy problem.
pub(crate) struct Run {
    /// The point after each step of training.
    pub(crate) points: Vec<Point>,
    /// What the vault has drawn, step by step of the plan.
    batches: Vec<Batch>,
}

impl Run {
    pub(crate) fn new(text: &str, facts: &RunFacts, records: &[[f32; 2]], slope: Slope, rate: f64) -> Self {
        let plan =
            config(text).plan(facts, NoiseSource::Multiplier(NoiseMultiplier::new(1.0).unwrap())).unwrap();
        // The clipping norm of dc-sgd-e depends on the multiplier of the gradients, which is 8 here.
        let told = match text.contains("dc-sgd-e") {
            true => plan.scaled(8.0 / plan.entries()[0].releases()[0].get()).unwrap(),
            false => quiet_plan(&plan),
        };
        let factor = (rate / facts.expected_batch_size) as f32;
        Self::with(text, facts, &told, &quiet(&plan, facts.records), records, slope, |release, point| {
            *point = [point[0] - factor * release[0], point[1] - factor * release[1]];
        })
    }

    pub(crate) fn with(
        text: &str,
        facts: &RunFacts,
        plan: &Plan,
        terms: &Terms,
        records: &[[f32; 2]],
        slope: Slope,
        mut learn: impl FnMut(Release<Vec<f32>>, &mut Point),
    ) -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let ledger = Scratch::new(&format!("papers-{}", RUNS.fetch_add(1, Ordering::Relaxed)));
        let passes = Rc::new(RefCell::new(Vec::<Vec<usize>>::new()));
        let batches = Rc::clone(&passes);
        let watch = move |chosen: &[usize], _| {
            batches.borrow_mut().push(chosen.to_vec());
            chosen.to_vec()
        };
        let watched = Watched { gradients: toy(records.to_vec(), slope), batch: Box::new(watch) };
        let mut vault = Vault::seal(watched, terms, Randomness::seeded(8), &ledger.0).unwrap();
        vault.charge_by(terms.steps());
        // The noise of anchors as published follows from the claim and not from the plan. A huge claim gives almost no noise.
        let claim = Budget { epsilon: Epsilon::new(1e30).unwrap(), ..facts.claim.unwrap() };
        let mut algorithm =
            config(text).start::<Watched>(&RunFacts { claim: Some(claim), ..*facts }, plan).unwrap();
        let (mut points, mut batches, mut point) = (Vec::new(), Vec::new(), [0.0; 2]);
        loop {
            let number = vault.position();
            let Some(release) = vault.round(|round| algorithm.step(round, &point, number)).unwrap() else {
                break Self { points, batches };
            };
            let chosen = passes.take();
            assert!(chosen.windows(2).all(|pair| pair[0] == pair[1]), "{text}: a step has one batch");
            batches.push(chosen[0].iter().map(|&i| records[i].map(f64::from)).collect());
            if let Some(release) = release.unwrap() {
                learn(release, &mut point);
                points.push(point);
            }
        }
    }

    /// Compares with `x <- x - rate v`, where `v` is given the next batches that were drawn, the point and the number of the step.
    pub(crate) fn follows(
        self,
        what: &str,
        mut v: impl FnMut(&mut dyn FnMut() -> Batch, Vector, usize) -> Vector,
    ) {
        assert_eq!(self.points.len(), STEPS, "{what}");
        let mut drawn = self.batches.into_iter();
        let mut draw = || drawn.next().unwrap();
        let mut x = [0.0; 2];
        for (step, point) in self.points.iter().enumerate() {
            x = plus(x, -RATE, v(&mut draw, x, step));
            let apart = norm(plus(x, -1.0, point.map(f64::from)));
            assert!(apart < 1e-5, "{what}, step {step}: {point:?} where {x:?} is expected");
        }
        assert!(drawn.next().is_none(), "{what}: a batch that the pseudocode does not draw");
        assert!(norm(x) > 0.05, "{what}: nothing has moved");
    }
}

pub(crate) fn plus(a: Vector, factor: f64, b: Vector) -> Vector {
    [a[0] + factor * b[0], a[1] + factor * b[1]]
}

pub(crate) fn norm(a: Vector) -> f64 {
    a[0].hypot(a[1])
}

pub(crate) fn sum(terms: impl IntoIterator<Item = Vector>) -> Vector {
    terms.into_iter().fold([0.0; 2], |sum, term| plus(sum, 1.0, term))
}

pub(crate) fn scaled(factor: f64, a: Vector) -> Vector {
    plus([0.0; 2], factor, a)
}

/// The gradient of `cubic`.
pub(crate) fn gradient(record: Vector, x: Vector) -> Vector {
    let [a, b] = plus(x, -1.0, record);
    [a + 0.1 * a.powi(3), b + 0.2 * b.powi(3)]
}

/// The norm to which the trusted base clips, relative to the clipping norm.
pub(crate) const AFTER_MARGIN: f64 = 1.0 - 1.0 / 1024.0;

pub(crate) fn clip(g: Vector, threshold: f64) -> Vector {
    if norm(g) <= AFTER_MARGIN * threshold { g } else { scaled(AFTER_MARGIN * threshold / norm(g), g) }
}

/// `C g / (r + |g|)`; 0 for a gradient of 0.
pub(crate) fn normalise(g: Vector, threshold: f64, r: f64) -> Vector {
    let n = norm(g);
    if n > 0.0 { scaled((threshold / (r + n)).min(AFTER_MARGIN * threshold / n), g) } else { g }
}

/// The sum of clipped gradients.
pub(crate) fn clipped(batch: &[Vector], x: Vector, threshold: f64) -> Vector {
    sum(batch.iter().map(|&record| clip(gradient(record, x), threshold)))
}

/// Some of their gradients are longer than 1 and some are not.
pub(crate) fn records() -> Vec<[f32; 2]> {
    let part = |i: usize, factor: f64| (i as f64 * factor).fract();
    (0..RECORDS).map(|i| [(3.0 * part(i, 0.618) - 0.5) as f32, (2.0 - 3.0 * part(i, 0.414)) as f32]).collect()
}

/// Clipping norms of 1.
pub(crate) fn facts(rate: f64) -> RunFacts {
    facts_for(RECORDS, rate, STEPS as u64)
}

pub(crate) fn run(text: &str, facts: &RunFacts) -> Run {
    Run::new(text, facts, &records(), cubic, RATE)
}
