//! The whole run in one attack: which of many canaries were members?
//!
//! Every canary has a slot and a coordinate of its own, and is a member with probability 1/2, by the auditor's coin. The attacker sees all
//! releases but not the batches. Let `q` be the sampling rate, `o` the projection of a release on the direction of a canary, in units of the noise,
//! and `k / z` what the canary adds to it if the step draws the canary. The score of a canary is the logarithm of its likelihood ratio,
//!
//! ```text
//! S = sum over steps of ln(1 - q + q exp(sum over releases of (o k/z - (k/z)^2 / 2))),
//! ```
//!
//! where the inner sum is over the releases of the step, and over those of later steps to which the canary also adds.

use std::collections::VecDeque;

use sordino_accounting::{Plan, Sampling};

use crate::{
    AuditError, Content, Mechanism, ObservedStep, Scored,
    steps::{PlannedStep, planned, rate},
};

/// A step whose releases are not all observed yet.
struct OpenStep {
    /// The probability with which the step draws each canary.
    rates: Vec<f64>,
    /// For each canary, the logarithm of its likelihood ratio if it was drawn.
    drawn: Vec<f64>,
    /// The later steps that are not observed yet.
    waiting: usize,
}

impl OpenStep {
    fn close(self, scores: &mut [f64]) {
        for ((score, rate), drawn) in scores.iter_mut().zip(self.rates).zip(self.drawn) {
            // ln(1 - q + q e^d), for large d as well.
            *score += match rate {
                0.0 => 0.0,
                _ if drawn > 30.0 => drawn + rate.ln(),
                _ => (rate * drawn.exp_m1()).ln_1p(),
            };
        }
    }
}

/// The scores of all canaries after the last step of a mechanism.
///
/// `records` is the number of slots before those of the canaries. `response` is what a canary adds to each gradient release of the step that
/// draws it and of the next steps, in units of the sensitivity. `progress` is called after every step and returns false to stop.
///
/// # Errors
/// Those of the mechanism; [`AuditError::Stopped`].
pub fn whole_run_scores(
    mechanism: &mut dyn Mechanism,
    plan: &Plan,
    records: usize,
    members: &[bool],
    response: &[Vec<f64>],
    progress: &mut dyn FnMut() -> bool,
) -> Result<Vec<Scored>, AuditError> {
    let mut scores = vec![0.0; members.len()];
    let later = response.iter().map(Vec::len).max().unwrap_or(1).saturating_sub(1);
    let mut open: VecDeque<OpenStep> = VecDeque::new();
    for planned in planned(plan, u64::MAX) {
        let Some(observed) = mechanism.step()? else { break };
        let rates = (0..members.len()).map(|canary| rate_of(&planned, records + canary)).collect();
        open.push_back(OpenStep { rates, drawn: vec![0.0; members.len()], waiting: later + 1 });
        add(&planned, &observed, response, &mut open);
        if open.front().is_some_and(|step| step.waiting == 0)
            && let Some(step) = open.pop_front()
        {
            step.close(&mut scores);
        }
        if !progress() {
            return Err(AuditError::Stopped);
        }
    }
    open.into_iter().for_each(|step| step.close(&mut scores));
    Ok(scores.into_iter().zip(members).map(|(score, &member)| Scored { score, member }).collect())
}

/// The probability with which a step draws a slot.
fn rate_of(step: &PlannedStep<'_>, slot: usize) -> f64 {
    match step.entry.sampling() {
        Sampling::Rotating { groups, .. } if slot as u64 % groups != step.turn % groups => 0.0,
        sampling => rate(sampling),
    }
}

/// Adds the releases of a step to that step and to the open steps before it.
fn add(
    planned: &PlannedStep<'_>,
    observed: &ObservedStep,
    response: &[Vec<f64>],
    open: &mut VecDeque<OpenStep>,
) {
    let gradients =
        observed.releases.iter().zip(planned.entry.releases()).filter_map(|(release, multiplier)| {
            match &release.content {
                Content::Gradients(projections) => Some((projections, release.noise_std, multiplier.get())),
                Content::Counts(_) => None,
            }
        });
    for ((projections, noise_std, multiplier), response) in gradients.zip(response) {
        for (step, jump) in open.iter_mut().rev().zip(response) {
            let shift = jump / multiplier;
            for (drawn, value) in step.drawn.iter_mut().zip(&projections.canaries) {
                *drawn += f64::from(*value) / noise_std * shift - 0.5 * shift * shift;
            }
        }
    }
    open.iter_mut().for_each(|step| step.waiting -= 1);
}
