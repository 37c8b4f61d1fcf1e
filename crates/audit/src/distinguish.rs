//! Many short runs on a data set of the attacker's choice: was its one record a member?
//!
//! A guarantee holds for every data set. Here all slots are empty, except that of one record with a huge gradient, which is a member in half of
//! the runs. The attacker sees the updates of every run and computes two scores. The *shift* is the mean of the updates in the direction of
//! the record. The *energy* is the median of their squared lengths in other directions, where a sound mechanism has the same noise with and
//! without the record.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rayon::prelude::*;
use sordino_accounting::{Delta, Epsilon};

use crate::{
    Attack, AuditError, Canaries, Confidence, Mechanism, NoRecords, Observation, Scored, Subject,
    VaultMechanism,
    auditor_coins::Coins,
    estimators::{Family, best_threshold, many_runs},
    steps::STRONGEST,
};

/// The number of free coordinates, which show the noise.
const FREE: usize = 1_000;

/// The largest number of steps of a run.
const STEPS: u64 = 1_000;

/// The scores of a run.
#[derive(Debug, Clone, Copy)]
struct Scores {
    shift: f64,
    energy: f64,
}

/// The number of runs. Half of them are used to choose the threshold. The number is large enough to refute a claim of this size.
pub(crate) fn runs_against(claim: Epsilon) -> u64 {
    (40.0 * claim.get().min(10.0).exp()).clamp(400.0, 20_000.0) as u64
}

/// The attack. `progress` is called after every run with the number of finished runs, and returns false to stop.
pub(crate) fn distinguish(
    subject: Subject<'_>,
    layers: usize,
    runs: u64,
    delta: Delta,
    confidence: Confidence,
    coins: &Coins,
    progress: &(dyn Fn(u64) -> bool + Sync),
) -> Result<Vec<Attack>, AuditError> {
    let (done, stopped) = (AtomicU64::new(0), AtomicBool::new(false));
    let scores: Vec<(Scores, bool)> = (0..runs)
        .into_par_iter()
        .map(|number| {
            if stopped.load(Ordering::Relaxed) {
                return Err(AuditError::Stopped);
            }
            let member = coins.member(number);
            let scores = scores(subject, layers, member, coins, number)?;
            if !progress(done.fetch_add(1, Ordering::Relaxed) + 1) {
                stopped.store(true, Ordering::Relaxed);
            }
            Ok((scores, member))
        })
        .collect::<Result<_, AuditError>>()?;
    let family = Family::approximate(delta);
    let attack = |name: &str, score: fn(&Scores) -> f64| {
        let scores: Vec<Scored> =
            scores.iter().map(|(scores, member)| Scored { score: score(scores), member: *member }).collect();
        let (pilot, rest) = scores.split_at(scores.len() / 2);
        let threshold = best_threshold(pilot, &family, confidence).unwrap_or(0.0);
        let mut bound = many_runs(rest, &[threshold], &family, confidence);
        bound.estimator = format!("{name}, {}", bound.estimator);
        bound.attack(Observation::WholeRun, 1, runs)
    };
    Ok(vec![attack("shift", |scores| scores.shift), attack("energy", |scores| scores.energy)])
}

/// The scores of one run.
fn scores(
    subject: Subject<'_>,
    layers: usize,
    member: bool,
    coins: &Coins,
    number: u64,
) -> Result<Scores, AuditError> {
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
    let (mut shift, mut energies) = (0.0, Vec::new());
    for _ in 0..STEPS {
        let Some(step) = mechanism.step()? else { break };
        let Some(update) = step.update else { continue };
        shift += update.canaries.iter().copied().map(f64::from).sum::<f64>();
        let squares = update.free.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>();
        energies.push(squares);
    }
    energies.sort_unstable_by(f64::total_cmp);
    let energy = energies.get(energies.len() / 2).copied().unwrap_or(0.0);
    Ok(Scores { shift: shift / f64::max(energies.len() as f64, 1.0), energy })
}
