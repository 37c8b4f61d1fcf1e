//! Many short runs on a data set of the attacker's choice: was its one record a member?
//!
//! A guarantee holds for every data set. Here all slots are empty, except that of one record with a huge gradient, which is a member in half of
//! the runs. The attacker sees the updates of every run. The score is the mean of the logarithms of their squared lengths, which grows if the
//! record moves updates by more than the noise, and also if the noise itself depends on the record.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rayon::prelude::*;
use sordino_accounting::{Delta, Epsilon};

use crate::{
    Attack, AuditError, Canaries, Confidence, Mechanism, NoRecords, Observation, Scored, Subject,
    VaultMechanism,
    audit::Coins,
    estimators::{Family, best_threshold, many_runs},
    steps::{STRONGEST, planned, rate},
};

/// The number of free coordinates, which show the noise.
const FREE: usize = 100;

/// The least number of updates of a run, where the plan permits.
const LEAST_UPDATES: f64 = 300.0;

/// Keeps the logarithm of an update without noise finite.
const LEAST_ENERGY: f64 = 1e-200;

/// The number of runs, of which half choose the threshold. It is large enough to refute a claim of this size.
pub(crate) fn runs_against(claim: Epsilon) -> u64 {
    (40.0 * claim.get().min(10.0).exp()).clamp(400.0, 20_000.0) as u64
}

/// The attack. `progress` is called after every run with their number and returns false to stop.
pub(crate) fn distinguish(
    subject: Subject<'_>,
    layers: usize,
    runs: u64,
    delta: Delta,
    confidence: Confidence,
    coins: &Coins,
    progress: &(dyn Fn(u64) -> bool + Sync),
) -> Result<Attack, AuditError> {
    let (done, stopped) = (AtomicU64::new(0), AtomicBool::new(false));
    let scores: Vec<Scored> = (0..runs)
        .into_par_iter()
        .map(|number| {
            if stopped.load(Ordering::Relaxed) {
                return Err(AuditError::Stopped);
            }
            let member = coins.member(number);
            let score = mean_log_energy(subject, layers, member, coins, number)?;
            if !progress(done.fetch_add(1, Ordering::Relaxed) + 1) {
                stopped.store(true, Ordering::Relaxed);
            }
            Ok(Scored { score, member })
        })
        .collect::<Result<_, AuditError>>()?;
    let (pilot, rest) = scores.split_at(scores.len() / 2);
    let family = Family::approximate(delta);
    let threshold = best_threshold(pilot, &family, confidence).unwrap_or(0.0);
    let bound = many_runs(rest, &[threshold], &family, confidence);
    Ok(bound.attack(Observation::WholeRun, 1, runs))
}

/// The mean, over the updates of a run, of the logarithm of the squared length.
fn mean_log_energy(
    subject: Subject<'_>,
    layers: usize,
    member: bool,
    coins: &Coins,
    number: u64,
) -> Result<f64, AuditError> {
    let norm = STRONGEST * subject.facts.max_grad_norm.get();
    let mut canaries = Canaries::with_norms(vec![norm], 1, FREE);
    canaries.members = vec![member];
    let mut mechanism = VaultMechanism::new(
        subject,
        NoRecords::new(layers),
        true,
        canaries,
        vec![0.0],
        coins.randomness(number)?,
        false,
    )?;
    // The record is almost surely drawn in this many steps.
    let mut expected = 0.0;
    let (mut sum, mut count) = (0.0, 0.0);
    for planned in planned(subject.plan, 1_000) {
        let Some(step) = mechanism.step()? else { break };
        if let Some(update) = step.update {
            let all = update.canaries.iter().chain(&update.free);
            let energy = all.map(|value| f64::from(*value).powi(2)).sum::<f64>();
            sum += (energy + LEAST_ENERGY).ln();
            count += 1.0;
        }
        expected += rate(planned.entry.sampling());
        if expected > 5.0 && count >= LEAST_UPDATES {
            break;
        }
    }
    Ok(sum / f64::max(count, 1.0))
}
