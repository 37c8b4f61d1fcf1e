//! Parts of plans that several algorithms share.

use sordino_accounting::{
    Accountant, AccountingError, Delta, Entry, NoiseMultiplier, Plan, Relation, Sampling, SamplingRate,
    Steps, calibrate,
};

use crate::{AlgorithmError, NoiseSource, RunFacts, clipping::rule};

/// An entry of a plan describes identical steps, so a run whose steps all differ has an entry for each step.
const MOST_DIFFERENT_STEPS: u64 = 1_000_000;

/// The least multiplier, relative to the sensitivity, that the theorem of truncated concentrated differential privacy covers: the
/// square root of 5, rounded up. Replacing a record has twice the sensitivity of removing it.
const LEAST_TCDP_MULTIPLIER: f64 = 2.2361;

/// The largest number of bytes for sums that are kept for later steps: a gibibyte.
pub(crate) const MOST_KEPT_BYTES: u64 = 1 << 30;

/// The tightest accountant that can price this sampling.
pub(crate) fn tightest_accountant(sampling: Sampling) -> Accountant {
    match sampling {
        Sampling::FixedSize { .. } => Accountant::Rdp,
        _ => Accountant::Pld,
    }
}

/// A plan of identical steps, with one release each and multiplier 1. A clipping norm that the trusted base refuses is refused
/// here, before a step is charged.
pub(crate) fn equal_steps(facts: &RunFacts) -> Result<Plan, AlgorithmError> {
    rule(facts, facts.max_grad_norm)?;
    Ok(Plan::new(vec![Entry::new(facts.sampling, vec![NoiseMultiplier::new(1.0)?], facts.steps)?]))
}

/// A plan with one release in each step and the multiplier `1 / growth(t / T)` in step `t = 1 .. T`.
pub(crate) fn growing_steps(facts: &RunFacts, growth: impl Fn(f64) -> f64) -> Result<Plan, AlgorithmError> {
    rule(facts, facts.max_grad_norm)?;
    check_steps(facts.steps.get())?;
    let one = Steps::new(1)?;
    let entry = |number: u64| -> Result<Entry, AlgorithmError> {
        let multiplier = NoiseMultiplier::new(1.0 / growth(part_done(number, facts.steps)))?;
        Ok(Entry::new(facts.sampling, vec![multiplier], one)?)
    };
    (0..facts.steps.get()).map(entry).collect()
}

/// The part of a run that is done after the step with this number, counted from 0: `t / T` for `t = 1 .. T`.
pub(crate) fn part_done(number: u64, steps: Steps) -> f64 {
    (number + 1) as f64 / steps.get() as f64
}

/// The plan with all multipliers times the factor that the source of noise gives.
pub(crate) fn calibrated(unit: &Plan, noise: NoiseSource) -> Result<Plan, AlgorithmError> {
    let factor = match noise {
        NoiseSource::Multiplier(multiplier) => return Ok(unit.scaled(multiplier.get())?),
        NoiseSource::Budget(budget, accountant) => match calibrate::noise_scale(unit, budget, accountant) {
            Ok(least) => least.value,
            // The budget allows less noise than the theorem covers. Then the plan has as little noise as the theorem covers.
            Err(AccountingError::Unsupported { .. })
                if accountant == Accountant::Tcdp && is_covered_by_tcdp(unit) =>
            {
                let sensitivity = if unit.relation() == Relation::ReplaceOne { 2.0 } else { 1.0 };
                sensitivity * LEAST_TCDP_MULTIPLIER / smallest_multiplier(unit)
            }
            Err(error) => return Err(error.into()),
        },
    };
    Ok(unit.scaled(NoiseMultiplier::new(factor)?.shortened().get())?)
}

/// Whether the theorem of truncated concentrated differential privacy covers the sampling of a plan.
fn is_covered_by_tcdp(plan: &Plan) -> bool {
    let rare = |entry: &Entry| match entry.sampling() {
        Sampling::Poisson { rate, .. } => rate.get() <= 0.1,
        Sampling::FixedSize { batch_size, population } => batch_size as f64 <= 0.1 * population as f64,
        _ => false,
    };
    plan.entries().iter().all(rare)
}

fn smallest_multiplier(plan: &Plan) -> f64 {
    plan.entries().iter().map(Entry::effective_noise_multiplier).fold(f64::INFINITY, f64::min)
}

/// Replaces the one release of each step, with multiplier `z`, by the releases `split(z)`, which must reveal as much together.
pub(crate) fn split_releases(
    plan: &Plan,
    split: impl Fn(NoiseMultiplier) -> Result<Vec<NoiseMultiplier>, AlgorithmError>,
) -> Result<Plan, AlgorithmError> {
    let entries = plan.entries().iter();
    entries
        .map(|entry| Ok(Entry::new(entry.sampling(), split(entry.releases()[0])?, entry.steps())?))
        .collect()
}

/// The rate of Poisson sampling without a cap, for algorithms that support nothing else.
pub(crate) fn poisson_rate(facts: &RunFacts, algorithm: &str) -> Result<SamplingRate, AlgorithmError> {
    match facts.sampling {
        Sampling::Poisson { rate, cap: None } => Ok(rate),
        other => Err(AlgorithmError::Plan {
            problem: format!("{algorithm} needs Poisson sampling without a cap, got {other}"),
            hint: "leave out {sampling} and {max_batch_size}, or set {algorithm=dp-sgd}",
        }),
    }
}

/// Refuses more different steps than a plan can list.
pub(crate) fn check_steps(steps: u64) -> Result<(), AlgorithmError> {
    match steps <= MOST_DIFFERENT_STEPS {
        true => Ok(()),
        false => Err(AlgorithmError::Plan {
            problem: format!("a plan has at most {MOST_DIFFERENT_STEPS} different steps, got {steps}"),
            hint: "use fewer steps, or an algorithm with identical steps, such as {algorithm=dp-sgd}",
        }),
    }
}

/// `ln(1 / delta)`.
pub(crate) fn log_inverse(delta: Delta) -> f64 {
    -delta.get().ln()
}
