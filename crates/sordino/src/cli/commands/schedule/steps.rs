//! Every step of a schedule, and the privacy spent after it.

use rayon::prelude::*;
use serde::Serialize;
use sordino_accounting::{Accountant, Delta, Entry, Mu, Plan, gaussian, gdp, rdp};
use sordino_algorithms::{Dynamic, RunFacts};

use super::calibration::{Calibration, parts};
use crate::cli::problem::Problem;

/// The number of steps that a schedule can list.
const MOST_STEPS: u64 = 1_000_000;

/// A step, and what all steps up to it have spent.
#[derive(Serialize)]
pub(super) struct Step {
    pub(super) step: u64,
    pub(super) clip_norm: f64,
    pub(super) mu: f64,
    pub(super) noise_multiplier: f64,
    /// The standard deviation of the noise on the sum: `sigma_t` of the paper.
    pub(super) noise_std: f64,
    /// By the central limit theorem: not a bound.
    pub(super) mu_spent: f64,
    /// The proved bound, at some of the steps.
    pub(super) epsilon_pld: Option<f64>,
    /// By Renyi divergences: a looser proved bound.
    pub(super) epsilon_rdp: f64,
    /// By the central limit theorem: not a bound.
    pub(super) epsilon_clt: f64,
}

/// All steps of a schedule. The exact epsilon is computed at this many steps at equal distances, including the last step.
pub(super) fn steps(
    dynamic: &Dynamic,
    facts: &RunFacts,
    plan: &Plan,
    whole: &Calibration,
    delta: Delta,
    points: u64,
) -> Result<Vec<Step>, Problem> {
    let count = facts.steps.get();
    if count > MOST_STEPS {
        return Err(Problem::refused(
            format!("a schedule lists at most {MOST_STEPS} steps, got {count}"),
            "`sordino noise` calibrates any number of equal steps",
        ));
    }
    let multipliers = plan.entries().iter().flat_map(|entry: &Entry| {
        let repeats = usize::try_from(entry.steps().get()).unwrap_or(usize::MAX);
        std::iter::repeat_n(entry.effective_noise_multiplier(), repeats)
    });
    let exact = || -> Vec<(u64, f64)> {
        let priced = priced_steps(count, points).into_par_iter();
        // A prefix that cannot be priced has no value.
        let price = |step| match step == count {
            true => Some((step, whole.epsilon)),
            false => Some((step, Accountant::Pld.price(&plan.first(step), delta).ok()?.epsilon.get())),
        };
        priced.filter_map(price).collect()
    };
    // One thread integrates the Renyi divergences while the others price the prefixes.
    let (rdp, exact) = rayon::join(|| rdp::spent(plan, delta), exact);
    let (mu_spent, rdp) = (gdp::spent(plan)?, rdp?);
    let clt = |mu: Mu| gaussian::epsilon(mu, delta).get();
    let mut steps: Vec<Step> = (1..=count)
        .zip(parts(facts).zip(multipliers))
        .zip(mu_spent.into_iter().zip(rdp))
        .map(|((step, (part, noise_multiplier)), (mu, rdp))| {
            let clip_norm = facts.max_grad_norm.get() * dynamic.clip_factor(part);
            Step {
                step,
                clip_norm,
                mu: 1.0 / noise_multiplier,
                noise_multiplier,
                noise_std: clip_norm * noise_multiplier,
                mu_spent: mu.get(),
                epsilon_pld: None,
                epsilon_rdp: rdp.get(),
                epsilon_clt: clt(mu),
            }
        })
        .collect();
    for (step, epsilon) in exact {
        if let Some(row) = usize::try_from(step - 1).ok().and_then(|index| steps.get_mut(index)) {
            row.epsilon_pld = Some(epsilon);
        }
    }
    Ok(steps)
}

/// At most this many steps at equal distances, including the last step.
fn priced_steps(count: u64, points: u64) -> Vec<u64> {
    let points = points.min(count);
    (1..=points).map(|point| (u128::from(count) * u128::from(point) / u128::from(points)) as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priced_steps_are_spread_evenly_and_end_with_the_last() {
        assert_eq!(priced_steps(5000, 4), [1250, 2500, 3750, 5000]);
        assert_eq!(priced_steps(7, 3), [2, 4, 7]);
        assert_eq!(priced_steps(2, 20), [1, 2]);
    }
}
