//! Numerical privacy loss distributions: a tight bracket around the exact epsilon.
//!
//! - Each step is enclosed between two discrete privacy losses, one easier and one harder to distinguish (`polygon.rs`,
//!   `discretisation.rs`).
//! - A schedule may have thousands of different noise multipliers. Only a few dozen of them, the rungs of a ladder, are discretised;
//!   every other multiplier is enclosed between mixtures of its two neighbouring rungs (`ladder.rs`).
//! - All steps are composed by Fourier transform, in both directions separately (`compose.rs`, `low_frequencies.rs`).
//!
//! Both ends of the bracket are proved bounds in real arithmetic. Truncation, wrap-around and an a-priori bound on round-off are counted
//! on the safe side. The grid is refined until the bracket is at most 0.15 % wide.
//!
//! `docs/accounting.md` has the proofs.

mod compose;
mod composed;
mod discretisation;
mod ladder;
mod low_frequencies;
mod moments;
mod pair;
mod polygon;

use crate::{AccountingError, Bracket, Delta, Epsilon, Mu, Plan, Relation, Sampling, gaussian, number::real};
use discretisation::{Discretisation, FIRST_SPACING, first_width, least_width};
use moments::Target;
use pair::Pair;

const NAME: &str = "pld";
/// The relative width of the bracket at which refinement stops.
const RELATIVE_WIDTH: f64 = 1.5e-3;
/// The absolute width of the bracket at which refinement stops.
const ABSOLUTE_WIDTH: f64 = 1e-6;
/// The largest number of grids that are tried.
const MAX_REFINEMENTS: usize = 5;
/// The number of records that are protected together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupSize(u32);

impl GroupSize {
    /// A single record.
    pub const ONE: Self = Self(1);

    /// Checks that the group has between 1 and 1000 records.
    ///
    /// # Errors
    /// Any other number.
    pub fn new(records: u32) -> Result<Self, AccountingError> {
        if (1..=1000).contains(&records) {
            return Ok(Self(records));
        }
        Err(AccountingError::OutOfRange {
            what: "group size",
            range: "between 1 and 1000",
            got: records.to_string(),
            hint: "the group size is the largest number of records of one person",
        })
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The epsilon of a plan at delta.
///
/// ```
/// use sordino_accounting::{Delta, NoiseMultiplier, Plan, SamplingRate, Steps, pld};
///
/// let plan = Plan::dp_sgd(NoiseMultiplier::new(1.1)?, SamplingRate::new(0.004)?, Steps::new(15_000)?);
/// let epsilon = pld::epsilon(&plan, Delta::new(1e-5)?)?;
/// assert!(epsilon.lower.get() <= 2.2955 && 2.2954 <= epsilon.upper.get());
/// assert!(epsilon.upper.get() <= 1.002 * epsilon.lower.get());
/// # Ok::<(), sordino_accounting::AccountingError>(())
/// ```
///
/// # Guarantees
/// The plan satisfies (`upper`, delta)-DP, and no accountant can prove less than `lower` for the dominating pairs of its steps. For
/// capped and rotating batches `lower` is 0, because the cost of a cap and the number of exposures of a record are upper bounds only.
///
/// # Errors
/// The plan has fixed-size batches (use [`rdp`](crate::rdp)) or stateful entries; the grid would be too large, for example for a noise
/// multiplier below 0.03.
pub fn epsilon(plan: &Plan, delta: Delta) -> Result<Bracket<Epsilon>, AccountingError> {
    epsilon_for_group(plan, GroupSize::ONE, delta)
}

/// The epsilon at delta of a group of records that are removed together.
///
/// The bound is tight for the sampled Gaussian. Every record of the group is sampled independently, so the sensitivity of a step is
/// binomially distributed, instead of `k` times that of one record.
///
/// # Errors
/// As [`epsilon`].
pub fn epsilon_for_group(
    plan: &Plan,
    group: GroupSize,
    delta: Delta,
) -> Result<Bracket<Epsilon>, AccountingError> {
    let steps = DominatingPairs::of(plan, group).map_err(|error| about_group(error, group))?;
    let bracket = plan
        .with_cap(delta, |bracket: &Bracket<Epsilon>| bracket.upper, |delta| steps.epsilon(delta))
        .map_err(|error| about_group(error, group))?;
    let zero = Epsilon::new(0.0).expect("zero is an epsilon");
    Ok(if plan.is_tight() { bracket } else { Bracket { lower: zero, ..bracket } })
}

/// Replaces the hint of an error about a group: no other accountant bounds groups, so the hint must not recommend one.
fn about_group(error: AccountingError, group: GroupSize) -> AccountingError {
    match error {
        _ if group == GroupSize::ONE => error,
        AccountingError::OutOfReach { accountant, reason, .. } => {
            let instead = "use a smaller group size or more noise; no other accountant bounds groups";
            AccountingError::OutOfReach { accountant, reason, instead }
        }
        AccountingError::Unsupported { accountant, entry, reason, .. } => {
            let instead =
                "use a group size of 1; larger groups are bounded for Poisson sampling and full batches only";
            AccountingError::Unsupported { accountant, entry, reason, instead }
        }
        other => other,
    }
}

/// The delta of a plan at epsilon.
///
/// # Guarantees
/// As for [`epsilon`]. If no lower bound is known, `lower` is 0.
///
/// # Errors
/// As [`epsilon`].
pub fn delta(plan: &Plan, epsilon: Epsilon) -> Result<Bracket<f64>, AccountingError> {
    let bracket = DominatingPairs::of(plan, GroupSize::ONE)?.delta(epsilon)?;
    Ok(with_cap_cost(plan, epsilon, bracket))
}

/// The privacy profile: delta at each of these epsilons, from a single discretisation.
///
/// # Errors
/// As [`epsilon`].
pub fn profile(plan: &Plan, epsilons: &[Epsilon]) -> Result<Vec<Bracket<f64>>, AccountingError> {
    let mut brackets = DominatingPairs::of(plan, GroupSize::ONE)?.profile(epsilons)?;
    for (bracket, epsilon) in brackets.iter_mut().zip(epsilons) {
        *bracket = with_cap_cost(plan, *epsilon, *bracket);
    }
    Ok(brackets)
}

/// Upper bounds on delta at these epsilons, which ascend. This is faster than [`profile`], which also computes lower bounds.
///
/// # Errors
/// As [`epsilon`].
pub(crate) fn upper_profile(plan: &Plan, epsilons: &[Epsilon]) -> Result<Vec<f64>, AccountingError> {
    let deltas = DominatingPairs::of(plan, GroupSize::ONE)?.upper_profile(epsilons)?;
    Ok(deltas
        .into_iter()
        .zip(epsilons)
        .map(|(delta, epsilon)| with_cap_cost(plan, *epsilon, Bracket { lower: 0.0, upper: delta }).upper)
        .collect())
}

fn with_cap_cost(plan: &Plan, epsilon: Epsilon, delta: Bracket<f64>) -> Bracket<f64> {
    let lower = if plan.is_tight() { delta.lower } else { 0.0 };
    Bracket { lower, upper: (delta.upper + plan.cap_cost(epsilon)).min(1.0) }
}

/// The dominating pairs of the steps of a plan. All full-batch releases are merged into one Gaussian, and equal pairs are counted.
struct DominatingPairs {
    /// The `mu` of all full-batch releases together.
    gaussian: f64,
    sampled: Vec<(Pair, u64)>,
}

impl DominatingPairs {
    fn of(plan: &Plan, group: GroupSize) -> Result<Self, AccountingError> {
        let mut gaussian = 0.0;
        let mut sampled: Vec<(Pair, u64)> = Vec::new();
        for entry in plan.entries() {
            let mu = 1.0 / entry.effective_noise_multiplier();
            match entry.sampling() {
                Sampling::Stateful { .. } => return Err(AccountingError::stateful(NAME, entry)),
                Sampling::Rotating { .. } if group != GroupSize::ONE => {
                    return Err(AccountingError::Unsupported {
                        accountant: NAME,
                        entry: entry.to_string(),
                        reason: "rotating batches sample different records at different steps".to_owned(),
                        instead: "use a group size of 1",
                    });
                }
                Sampling::Poisson { rate, .. } | Sampling::Rotating { rate, .. } if rate.get() < 1.0 => {
                    sampled.push((Pair { rate: rate.get(), mu, group: group.0 }, entry.exposures()));
                }
                Sampling::FullBatch | Sampling::Poisson { .. } | Sampling::Rotating { .. } => {
                    let steps = real(entry.exposures());
                    gaussian += steps * (mu * f64::from(group.0)).powi(2);
                }
                Sampling::FixedSize { .. } => {
                    return Err(AccountingError::Unsupported {
                        accountant: NAME,
                        entry: entry.to_string(),
                        reason: format!("it is priced under {}", Relation::ReplaceOne),
                        instead: "use {accountant=rdp}, which bounds fixed-size batches",
                    });
                }
            }
        }
        sampled.sort_by(|(a, _), (b, _)| a.rate.total_cmp(&b.rate).then(a.mu.total_cmp(&b.mu)));
        sampled.dedup_by(|(later, count), (kept, total)| {
            let same = later == kept;
            if same {
                *total = total.saturating_add(*count);
            }
            same
        });
        Ok(Self { gaussian: gaussian.sqrt(), sampled })
    }

    /// All pairs, including the merged Gaussian.
    fn pairs(&self) -> Vec<(Pair, u64)> {
        let mut pairs = self.sampled.clone();
        if self.gaussian > 0.0 {
            pairs.push((Pair { rate: 1.0, mu: self.gaussian, group: 1 }, 1));
        }
        pairs
    }

    /// The sum of the total variation distances of all steps, which bounds that of the composition.
    fn total_variation(&self) -> f64 {
        self.pairs().iter().map(|(pair, count)| real(*count) * pair.at(0.0).right).sum()
    }

    fn epsilon(&self, delta: Delta) -> Result<Bracket<Epsilon>, AccountingError> {
        let zero = Epsilon::new(0.0).expect("zero is an epsilon");
        if self.sampled.is_empty() {
            let upper = gaussian::epsilon(Mu::new(self.gaussian)?, delta);
            let lower = Epsilon::new(upper.get() * (1.0 - 1e-9))?;
            return Ok(Bracket { lower, upper });
        }
        if self.total_variation() * (1.0 + 1e-9) <= delta.get() {
            return Ok(Bracket { lower: zero, upper: zero });
        }
        // A delta this large often exceeds the delta at epsilon 0, which is faster to compute.
        if delta.get() > 0.1 && self.delta(zero)?.upper <= delta.get() {
            return Ok(Bracket { lower: zero, upper: zero });
        }
        let bracket = self.refine(Target::Delta(delta.get()), RELATIVE_WIDTH, ABSOLUTE_WIDTH)?;
        Ok(Bracket { lower: Epsilon::new(bracket.lower)?, upper: Epsilon::new(bracket.upper)? })
    }

    /// The closed form, if there are only full-batch releases.
    fn gaussian_delta(&self, epsilon: Epsilon) -> Option<Bracket<f64>> {
        let mu = Mu::new(self.gaussian).ok().filter(|_| self.sampled.is_empty())?;
        let delta = gaussian::delta(epsilon, mu);
        Some(Bracket { lower: delta * (1.0 - 1e-9), upper: (delta * (1.0 + 1e-9)).min(1.0) })
    }

    fn profile(&self, epsilons: &[Epsilon]) -> Result<Vec<Bracket<f64>>, AccountingError> {
        let pairs = self.pairs();
        let target = |epsilon: &Epsilon| Target::Epsilon(epsilon.get());
        let Some(first) = epsilons.first().map(target).filter(|_| !self.sampled.is_empty()) else {
            return Ok(epsilons.iter().filter_map(|epsilon| self.gaussian_delta(*epsilon)).collect());
        };
        let discretised = Discretisation::new(&pairs, 0.7 * first_width(&pairs), FIRST_SPACING, first)?;
        epsilons.iter().map(|epsilon| discretised.bracket(target(epsilon))).collect()
    }

    fn upper_profile(&self, epsilons: &[Epsilon]) -> Result<Vec<f64>, AccountingError> {
        /// One composition is accurate for this many neighbouring epsilons.
        const BLOCK: usize = 8;
        if self.sampled.is_empty() {
            let uppers = epsilons.iter().filter_map(|epsilon| self.gaussian_delta(*epsilon));
            return Ok(uppers.map(|delta| delta.upper).collect());
        }
        let (pairs, target) = (self.pairs(), Target::Epsilon(0.0));
        let discretised = Discretisation::new(&pairs, 0.7 * first_width(&pairs), FIRST_SPACING, target)?;
        let epsilons: Vec<f64> = epsilons.iter().map(|epsilon| epsilon.get()).collect();
        let blocks: Result<Vec<_>, _> =
            epsilons.chunks(BLOCK).map(|block| discretised.upper_deltas(block)).collect();
        Ok(blocks?.concat())
    }

    fn delta(&self, epsilon: Epsilon) -> Result<Bracket<f64>, AccountingError> {
        if let Some(delta) = self.gaussian_delta(epsilon) {
            return Ok(delta);
        }
        // One per cent of delta corresponds to at most a thousandth of epsilon.
        self.refine(Target::Epsilon(epsilon.get()), 10.0 * RELATIVE_WIDTH, f64::MIN_POSITIVE)
    }

    /// Composes on finer and finer grids until the bracket is narrow enough.
    fn refine(&self, target: Target, relative: f64, absolute: f64) -> Result<Bracket<f64>, AccountingError> {
        let pairs = self.pairs();
        let (mut width, mut spacing) = (first_width(&pairs).max(least_width(&pairs, target)), FIRST_SPACING);
        let mut best: Option<Bracket<f64>> = None;
        for attempt in 0..MAX_REFINEMENTS {
            let bracket = match Discretisation::new(&pairs, width, spacing, target)
                .and_then(|discretised| discretised.bracket(target))
            {
                Ok(bracket) => bracket,
                // A wide bracket is better than none: try a coarser grid.
                Err(_) if best.is_none() && attempt + 1 < MAX_REFINEMENTS => {
                    width *= 2.0;
                    spacing *= 1.5;
                    continue;
                }
                Err(error) => return best.ok_or(error),
            };
            // Every bracket contains the exact value, so their intersection does too.
            let (lower, upper) = best.map_or((0.0, f64::INFINITY), |b| (b.lower, b.upper));
            let bracket = Bracket { lower: bracket.lower.max(lower), upper: bracket.upper.min(upper) };
            if bracket.lower > bracket.upper {
                return Err(out_of_reach(format!(
                    "its lower bound {} exceeds its upper bound {}",
                    bracket.lower, bracket.upper
                )));
            }
            best = Some(bracket);
            let excess = (bracket.upper - bracket.lower) / (relative * bracket.upper).max(absolute);
            if excess <= 1.0 {
                break;
            }
            // The width of the bracket falls with the square of both.
            let finer = (0.8 / excess.sqrt()).clamp(0.125, 0.7);
            width *= finer;
            spacing *= finer;
        }
        best.ok_or_else(|| unreachable!("at least one refinement"))
    }
}

fn out_of_reach(reason: String) -> AccountingError {
    let instead =
        "use {accountant=rdp} if this command accepts it (its bound is looser); otherwise, use more noise";
    AccountingError::OutOfReach { accountant: NAME, reason, instead }
}
