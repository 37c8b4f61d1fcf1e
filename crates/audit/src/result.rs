//! The result of an audit, as it is printed, stored and shown in reports.

use serde::{Deserialize, Serialize};

/// What an audit found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditResult {
    /// The version of Sordino.
    pub version: String,
    /// The algorithm with its options, as in the settings.
    pub algorithm: String,
    /// The data set, as in the settings.
    pub data: String,
    /// The records beside the canaries, such as `1625 public test records`. Private records are not used.
    pub records: String,
    /// The epsilon that the run prints.
    pub claim: Claim,
    /// The attacks, and the lower bound of each.
    pub attacks: Vec<Attack>,
    /// Tests of parts of the mechanism, each with a stated rate of false alarms.
    pub checks: Vec<Check>,
    /// Tests for which there were too few observations.
    #[serde(default)]
    pub untested: Vec<String>,
    /// The seed of the audit, if its random numbers were fixed.
    #[serde(default)]
    pub seed: Option<u64>,
    /// How long the audit took.
    pub seconds: f64,
}

/// The epsilon under test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Epsilon.
    pub epsilon: f64,
    /// Delta, at which all lower bounds are stated.
    pub delta: f64,
    /// Whether epsilon is proved. Otherwise it is the claim of a paper.
    pub proved: bool,
}

/// What the attacker sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Observation {
    /// Every release, and which canaries each batch contains.
    Step,
    /// Every release, but not the batches. Whether a canary was a member is guessed from the whole run.
    WholeRun,
    /// Only the final model.
    FinalModel,
}

/// An attack and its lower bound on epsilon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attack {
    /// What the attacker sees.
    pub observation: Observation,
    /// The estimator, such as `one run`.
    pub estimator: String,
    /// What the bound assumes in addition to the confidence; none if it assumes nothing.
    pub assumption: Option<String>,
    /// The probability that the lower bound holds.
    pub confidence: f64,
    /// The number of canaries.
    pub canaries: u64,
    /// The number of training runs.
    pub runs: u64,
    /// The lower bound on epsilon, at the claim's delta; 0 if there is no evidence.
    pub lower_bound: f64,
    /// Points on the attacker's trade-off curve, as measured.
    pub points: Vec<TradeOffPoint>,
}

/// The success of an attacker at one threshold.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TradeOffPoint {
    /// The share of canaries that were left out and are guessed to be members.
    pub false_positive_rate: f64,
    /// The share of canaries that were members and are guessed to be members.
    pub true_positive_rate: f64,
}

/// A test of one part of the mechanism.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What is tested, such as `noise variance`.
    pub name: String,
    /// What it means, in one sentence.
    pub meaning: String,
    /// The measured value.
    pub measured: f64,
    /// The smallest permitted value.
    pub low: f64,
    /// The largest permitted value.
    pub high: f64,
    /// The probability that a sound mechanism fails this test.
    pub false_alarm_rate: f64,
}

impl Check {
    /// Whether the measured value is permitted.
    pub fn passed(&self) -> bool {
        (self.low..=self.high).contains(&self.measured)
    }
}

impl Attack {
    /// Whether its bound can refute a claim: it does not assume a form of the trade-off curve.
    pub fn decides(&self) -> bool {
        self.observation == Observation::Step || self.assumption.is_none()
    }
}

impl AuditResult {
    /// Checks a result that was read from a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        let Claim { epsilon, delta, .. } = self.claim;
        if !(epsilon >= 0.0 && epsilon.is_finite()) {
            return Err(format!("claim.epsilon must be at least 0, got {epsilon}"));
        }
        if !(0.0..1.0).contains(&delta) {
            return Err(format!("claim.delta must be at least 0 and below 1, got {delta}"));
        }
        if self.attacks.is_empty() {
            return Err("there are no attacks".to_owned());
        }
        Ok(())
    }

    /// The largest lower bound that [decides](Attack::decides); 0 if there is none.
    pub fn lower_bound(&self) -> f64 {
        self.attacks
            .iter()
            .filter(|attack| attack.decides())
            .map(|attack| attack.lower_bound)
            .fold(0.0, f64::max)
    }

    /// Whether [the lower bound](Self::lower_bound) exceeds the claim.
    pub fn refutes_the_claim(&self) -> bool {
        self.lower_bound() > self.claim.epsilon
    }

    /// The tests that failed.
    pub fn failed(&self) -> Vec<&Check> {
        self.checks.iter().filter(|check| !check.passed()).collect()
    }
}
