//! The step audit: does every part of the mechanism do what the plan states?
//!
//! The attacker sees every release and knows which canaries each batch contains. Several canaries share a coordinate, so that a coordinate has
//! about ten of them in every batch. Let `n` be their number, `z` the planned multiplier and `s` the stated standard deviation of the noise.
//! A sound release `v` in this coordinate satisfies
//!
//! ```text
//! v / s = k n / z + N(0, 1),    k <= 1,
//! ```
//!
//! where `k` is what one canary adds, in units of the sensitivity. The audit estimates the variance of the noise from free coordinates, `k` by
//! regression, and the sampling rate by counting. The three estimates, each at the end of its confidence interval that gives the smaller
//! epsilon, define a plan. Its epsilon by the exact accountant is the lower bound.

mod bound;
mod coins;
mod counts;
mod jumps;
mod noise;
mod test_statistics;

use bound::Measured;
pub use bound::StepEvidence;
use sordino_accounting::{Entry, Plan, Sampling};
use test_statistics::Normal;

use crate::{AuditError, Check, Mechanism, ObservedStep, estimators::normal::quantile};

/// Canaries whose gradients have the same norm.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    /// The name, such as `10 C`.
    pub name: &'static str,
    /// The norm of a gradient, in units of the clipping norm.
    pub norm: f64,
    /// The number of coordinates.
    pub coordinates: usize,
}

/// The rates of false alarms of this many tests add up to the level of an audit.
const MOST_TESTS: f64 = 40.0;

/// The expected number of canaries that a batch draws in each coordinate, where the sampling rate permits.
const DRAWN: f64 = 10.0;

/// The norm of the strongest canaries, in units of the clipping norm. It exceeds every threshold that an algorithm may choose.
pub(crate) const STRONGEST: f64 = 1e12;

/// The kinds of canaries for this number of coordinates. The last kind has most of them; the bound is computed from it.
pub fn kinds(coordinates: usize) -> Vec<Kind> {
    let few = (coordinates / 10).max(1);
    let kind = |name, norm, coordinates| Kind { name, norm, coordinates };
    vec![
        kind("0.1 C", 0.1, few),
        kind("C", 1.0, few),
        kind("10 C", 10.0, few),
        kind("1e12 C", STRONGEST, coordinates.saturating_sub(3 * few).max(1)),
    ]
}

/// The kinds of canaries for releases of counts: half of them are below every threshold, and half are above.
pub fn counted_kinds(coordinates: usize) -> Vec<Kind> {
    let kind = |name, norm| Kind { name, norm, coordinates: (coordinates / 2).max(1) };
    vec![kind("0", 0.0), kind("1e12 C", STRONGEST)]
}

/// How many canaries share a coordinate, so that every batch has about ten of them.
pub fn copies(plan: &Plan) -> usize {
    let share = |entry: &Entry| match entry.sampling() {
        Sampling::Rotating { rate, groups } => rate.get() / groups as f64,
        sampling => rate(sampling),
    };
    let least = plan.entries().iter().map(share).fold(1.0, f64::min);
    (DRAWN / least).ceil().min(1e6) as usize
}

/// One step of a plan.
#[derive(Debug, Clone)]
pub(crate) struct PlannedStep<'a> {
    pub(crate) entry: &'a Entry,
    /// The number of the step within the entry.
    pub(crate) turn: u64,
}

/// The first steps of a plan, one by one.
pub(crate) fn planned(plan: &Plan, count: u64) -> impl Iterator<Item = PlannedStep<'_>> {
    let steps = |entry| (0..Entry::steps(entry).get()).map(move |turn| PlannedStep { entry, turn });
    plan.entries().iter().flat_map(steps).take(usize::try_from(count).unwrap_or(usize::MAX))
}

/// The probability with which a slot that can be drawn is drawn.
pub(crate) fn rate(sampling: Sampling) -> f64 {
    match sampling {
        Sampling::Poisson { rate, .. }
        | Sampling::Rotating { rate, .. }
        | Sampling::Stateful { rate, .. } => rate.get(),
        Sampling::FixedSize { batch_size, population } => batch_size as f64 / population as f64,
        Sampling::FullBatch => 1.0,
    }
}

/// The number of steps after which records can be drawn again.
fn period(plan: &Plan) -> usize {
    let groups = |entry: &Entry| match entry.sampling() {
        Sampling::Rotating { groups, .. } => groups as usize,
        _ => 1,
    };
    plan.entries().iter().map(groups).max().unwrap_or(1)
}

/// Observed steps of a mechanism.
#[derive(Debug, Clone)]
pub struct Observations<'a> {
    plan: &'a Plan,
    kinds: &'a [Kind],
    copies: usize,
    /// The number of real records. Their slots come first, and the group of a slot depends on its place among all slots.
    records: usize,
    steps: Vec<ObservedStep>,
    /// The least difference between the steps that the ledger had charged and those that were taken; none without a ledger.
    charged: Option<i64>,
}

impl<'a> Observations<'a> {
    /// Observes the first steps of a mechanism. `progress` is called after every step and returns false to stop.
    ///
    /// # Errors
    /// Those of the mechanism; [`AuditError::Stopped`].
    pub fn gather(
        mechanism: &mut dyn Mechanism,
        plan: &'a Plan,
        kinds: &'a [Kind],
        copies: usize,
        records: usize,
        count: u64,
        progress: &mut dyn FnMut() -> bool,
    ) -> Result<Self, AuditError> {
        let mut observed = Self { plan, kinds, copies, records, steps: Vec::new(), charged: None };
        while (observed.steps.len() as u64) < count {
            let Some(step) = mechanism.step()? else { break };
            observed.steps.push(step);
            // Reading the ledger takes longer than a step.
            if observed.steps.len().is_power_of_two()
                && let Some(charged) = mechanism.charged()?
            {
                let ahead = charged as i64 - observed.steps.len() as i64;
                observed.charged = Some(observed.charged.map_or(ahead, |least| least.min(ahead)));
            }
            if !progress() {
                return Err(AuditError::Stopped);
            }
        }
        Ok(observed)
    }

    /// The number of observed steps.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether no step was observed.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    fn planned(&self) -> impl Iterator<Item = (PlannedStep<'_>, &ObservedStep)> {
        planned(self.plan, self.steps.len() as u64).zip(&self.steps)
    }

    fn slots(&self) -> usize {
        self.copies * self.kinds.iter().map(|kind| kind.coordinates).sum::<usize>()
    }

    /// The number of canary slots that a step can draw.
    fn eligible(&self, step: &PlannedStep<'_>) -> f64 {
        match step.entry.sampling() {
            Sampling::Rotating { groups, .. } => {
                let (groups, group) = (groups as usize, (step.turn % groups) as usize);
                let of_group = |slots: usize| slots.saturating_sub(group).div_ceil(groups);
                (of_group(self.records + self.slots()) - of_group(self.records)) as f64
            }
            _ => self.slots() as f64,
        }
    }

    /// The number of canaries in each coordinate that a step drew.
    fn counts(&self, step: &ObservedStep) -> Vec<f64> {
        let mut counts = vec![0.0; self.slots() / self.copies];
        step.drawn.iter().for_each(|&slot| counts[slot as usize / self.copies] += 1.0);
        counts
    }

    /// Runs all tests. `level` is the probability that the bound does not hold, and `alarms` the probability that any test of a sound
    /// mechanism fails by chance.
    pub fn evidence(&self, level: f64, alarms: f64) -> StepEvidence {
        let tests = Normal { rate: alarms / MOST_TESTS };
        let releases = self.steps.iter().map(|step| step.releases.len()).max().unwrap_or(0);
        // The noise, the rate, the jump of each release, and the noise of counts.
        let quantile = -quantile(level / (3.0 + releases as f64));
        let mut checks = self.checks_of_releases();
        let (noise_checks, noise) = self.noise(&tests, quantile);
        checks.extend(noise_checks);
        let (jump_checks, jumps, untested) = self.jumps(&tests, quantile);
        checks.extend(jump_checks);
        let (count_checks, counted) = self.counted(&tests, quantile);
        checks.extend(count_checks);
        let (coin_checks, rate) = self.coins(&tests, quantile);
        checks.extend(coin_checks);
        let measured = (0..releases)
            .map(|release| {
                let jump = jumps.iter().find(|jump| jump.release == release);
                let counted = counted.iter().find(|(index, _)| *index == release);
                jump.map(|jump| Measured { jump: jump.least, noise })
                    .or(counted.map(|(_, measured)| *measured))
            })
            .collect();
        let response = jumps.into_iter().map(|jump| jump.response).collect();
        StepEvidence { checks, response, untested, measured, rate }
    }

    /// Runs only the tests of the releases and of their noise.
    pub fn noise_evidence(&self, alarms: f64) -> StepEvidence {
        let tests = Normal { rate: alarms / MOST_TESTS };
        let mut checks = self.checks_of_releases();
        checks.extend(self.noise(&tests, 0.0).0);
        StepEvidence { checks, response: Vec::new(), untested: Vec::new(), measured: Vec::new(), rate: 1.0 }
    }

    /// Tests that every planned release was made, and that every step was charged before it was taken.
    fn checks_of_releases(&self) -> Vec<Check> {
        let missing: usize = self
            .planned()
            .map(|(planned, step)| planned.entry.releases().len().abs_diff(step.releases.len()))
            .sum();
        let mut checks = vec![Normal::certain(
            "missing releases",
            "The difference between the numbers of planned and observed releases. Every step makes all releases of the plan, for any batch.",
            missing as f64,
            0.0,
            0.0,
        )];
        checks.extend(self.charged.map(|ahead| {
            Normal::certain(
                "ledger",
                "The number of charged steps minus the number of steps taken. Every step is charged before it is taken.",
                ahead as f64,
                0.0,
                self.plan.steps() as f64,
            )
        }));
        checks
    }
}
