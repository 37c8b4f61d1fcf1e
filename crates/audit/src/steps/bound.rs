//! The lower bound on epsilon from what was measured.

use sordino_accounting::{Accountant, Delta, Entry, NoiseMultiplier, Plan, Sampling, SamplingRate};

use super::rate;
use crate::{AuditError, Check};

/// The least multipliers that are priced, one after another until the accountant accepts one.
const LEAST_MULTIPLIERS: [f64; 4] = [0.05, 0.1, 0.3, 1.0];

/// What is measured of one release of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Measured {
    /// The least jump that the observations permit, in units of the sensitivity.
    pub(super) jump: f64,
    /// The largest standard deviation of the noise that they permit, in units of the stated one.
    pub(super) noise: f64,
}

/// What a step audit found.
#[derive(Debug, Clone, PartialEq)]
pub struct StepEvidence {
    /// Tests of the parts of the mechanism.
    pub checks: Vec<Check>,
    /// The estimate of what a canary adds to each gradient release of a step, and to those of the steps after it, in units of the sensitivity.
    pub response: Vec<Vec<f64>>,
    /// What the observations are too few to test, in words.
    pub untested: Vec<String>,
    /// What is measured of each release of a step, in the order of the plan.
    pub(super) measured: Vec<Option<Measured>>,
    /// The least sampling rate that the observations permit, relative to the planned one.
    pub(super) rate: f64,
}

impl StepEvidence {
    /// Adds the evidence of another audit of the same releases: its tests, and its measurements of releases that were not measured here.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.checks.extend(other.checks);
        self.untested.extend(other.untested);
        self.measured.resize(self.measured.len().max(other.measured.len()), None);
        for (here, there) in self.measured.iter_mut().zip(other.measured) {
            *here = here.or(there);
        }
        self
    }

    /// The same evidence, with a remark after the name of each test.
    #[must_use]
    pub fn renamed(mut self, remark: &str) -> Self {
        self.checks.iter_mut().for_each(|check| check.name = format!("{} ({remark})", check.name));
        self
    }

    /// Whether all tests passed.
    pub fn passed(&self) -> bool {
        self.checks.iter().all(Check::passed)
    }

    /// The lower bound on epsilon for a plan, if all of its steps are like those that were observed.
    ///
    /// # Errors
    /// A plan that the accountant cannot price.
    pub fn lower_bound(&self, plan: &Plan, delta: Delta) -> Result<f64, AuditError> {
        // A mechanism with a gross error has a multiplier near 0, which the accountant refuses. More noise has a smaller epsilon, which is
        // still a lower bound.
        let mut refused = None;
        for least in LEAST_MULTIPLIERS {
            let entries: Option<Vec<Entry>> =
                plan.entries().iter().map(|entry| self.measured_entry(entry, least)).collect();
            let Some(entries) = entries else { return Ok(0.0) };
            match Accountant::Pld.price(&Plan::new(entries), delta) {
                Ok(guarantee) => return Ok(guarantee.epsilon_lower.unwrap_or(guarantee.epsilon).get()),
                Err(error) => refused = Some(error),
            }
        }
        refused.map_or(Ok(0.0), |error| Err(error.into()))
    }

    /// An entry with the noise and the rate that the observations permit; none if they are consistent with an entry that
    /// reveals nothing.
    fn measured_entry(&self, entry: &Entry, least: f64) -> Option<Entry> {
        let scaled = |rate: f64| SamplingRate::new(rate * self.rate).ok();
        let sampling = match entry.sampling() {
            Sampling::Poisson { rate, .. } => Sampling::Poisson { rate: scaled(rate.get())?, cap: None },
            Sampling::Rotating { rate, groups } => Sampling::Rotating { rate: scaled(rate.get())?, groups },
            // A batch of fixed size contains a given record with this probability.
            sampling @ Sampling::FixedSize { .. } => {
                Sampling::Poisson { rate: scaled(rate(sampling))?, cap: None }
            }
            other => other,
        };
        let releases: Vec<NoiseMultiplier> = entry
            .releases()
            .iter()
            .enumerate()
            .filter_map(|(release, multiplier)| {
                let Measured { jump, noise } = (*self.measured.get(release)?)?;
                NoiseMultiplier::new((multiplier.get() * noise / jump).max(least)).ok()
            })
            .collect();
        Entry::new(sampling, releases, entry.steps()).ok()
    }
}
