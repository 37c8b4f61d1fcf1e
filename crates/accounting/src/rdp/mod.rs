//! Renyi differential privacy: an upper bound for almost every plan, a few per cent above the exact epsilon.
//!
//! The Renyi divergence of a plan is `rho(alpha) = sum_t rho_t(alpha)` at every order `alpha > 1`, and for every order
//!
//! ```text
//! epsilon <= rho(alpha) + ln(1 - 1/alpha) - (ln delta + ln alpha) / (alpha - 1).
//! ```
//!
//! The best order is found by a one-dimensional search, not on a grid of orders. `(alpha - 1) rho(alpha)` is a cumulant and hence
//! convex. The bound is therefore a convex function divided by `alpha - 1`, which has a single minimum. Every order gives a valid
//! bound, so an inexact search makes the bound looser, never wrong.
//!
//! # References
//! Mironov, "Renyi Differential Privacy" (2017); Mironov, Talwar and Zhang, "Renyi Differential Privacy of the
//! Sampled Gaussian Mechanism" (2019); Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential
//! Privacy" (2020), Proposition 12 (the conversion).

mod fixed_size;
mod sampled_gaussian;
mod spent;

use crate::{AccountingError, Delta, Epsilon, Plan, Relation, Sampling, number::real, search::minimum};

pub use sampled_gaussian::sampled_gaussian;
pub use spent::spent;

const NAME: &str = "rdp";

/// The order of a Renyi divergence: a finite number above 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Order(f64);

impl Order {
    /// Checks that the order is finite and above 1.
    ///
    /// # Errors
    /// Any other number.
    pub fn new(order: f64) -> Result<Self, AccountingError> {
        if order.is_finite() && order > 1.0 {
            return Ok(Self(order));
        }
        Err(AccountingError::OutOfRange {
            what: "Renyi order",
            range: "a finite number above 1",
            got: order.to_string(),
            hint: "useful orders are between 1.1 and 1000",
        })
    }

    /// The number.
    pub const fn get(self) -> f64 {
        self.0
    }
}

/// `rho(alpha)` of a plan; infinite where no finite bound is known.
///
/// # Errors
/// The plan mixes fixed-size batches, which are priced under replace-one, with Poisson batches, which are not; or it has capped
/// batches, whose cost is a delta; or stateful entries.
pub fn divergence(plan: &Plan, order: Order) -> Result<f64, AccountingError> {
    if plan.is_capped() {
        return Err(AccountingError::Unsupported {
            accountant: NAME,
            entry: "capped batches".to_owned(),
            reason: "a cap costs delta, which is not part of a Renyi divergence".to_owned(),
            instead: "compute epsilon, which includes the cost of caps",
        });
    }
    Ok(RenyiDivergence::of(plan)?.at(order.0))
}

/// The epsilon of the conversion above at one order.
///
/// Edge cases: an infinite divergence gives infinity; the result is at least 0; NaN gives NaN.
pub fn to_epsilon(order: Order, divergence: f64, delta: Delta) -> f64 {
    let alpha = order.0;
    let bound = divergence + (-1.0 / alpha).ln_1p() - (delta.get().ln() + alpha.ln()) / (alpha - 1.0);
    // `f64::max` would turn a NaN into 0, the smallest of all bounds.
    if bound > 0.0 || bound.is_nan() { bound } else { 0.0 }
}

/// The smallest epsilon over all orders.
///
/// ```
/// use sordino_accounting::{Delta, NoiseMultiplier, Plan, SamplingRate, Steps, rdp};
///
/// let plan = Plan::dp_sgd(NoiseMultiplier::new(1.1)?, SamplingRate::new(0.004)?, Steps::new(15_000)?);
/// let epsilon = rdp::epsilon(&plan, Delta::new(1e-5)?)?;
/// assert!((epsilon.get() - 2.5028).abs() < 1e-3);
/// # Ok::<(), sordino_accounting::AccountingError>(())
/// ```
///
/// # Errors
/// As [`divergence`], except for caps; no order gives a finite epsilon.
pub fn epsilon(plan: &Plan, delta: Delta) -> Result<Epsilon, AccountingError> {
    if plan.entries().is_empty() {
        return Epsilon::new(0.0);
    }
    let curve = RenyiDivergence::of(plan)?;
    plan.with_cap(delta, |e| *e, |delta| minimise(|order| to_epsilon(order, curve.at(order.0), delta)))
}

/// The smallest value over all orders of a bound with a single minimum.
pub(crate) fn minimise(bound: impl Fn(Order) -> f64) -> Result<Epsilon, AccountingError> {
    let (_, value) = minimum(|excess| bound(Order(1.0 + excess)), 10.0, 1e-3);
    Epsilon::new(value).map_err(|_| AccountingError::OutOfReach {
        accountant: NAME,
        reason: "its epsilon is not a finite number".to_owned(),
        instead: "use more noise",
    })
}

/// The Renyi divergence of a plan as a function of the order.
pub(crate) struct RenyiDivergence {
    parts: Vec<(Part, f64)>,
}

enum Part {
    /// A Gaussian release of the full batch; `mu` is the ratio of sensitivity to noise.
    Gaussian { mu: f64 },
    /// A Poisson-sampled Gaussian release.
    Sampled { rate: f64, mu: f64 },
    /// A fixed-size batch under replace-one.
    FixedSize(fixed_size::FixedSize),
}

impl RenyiDivergence {
    pub(crate) fn of(plan: &Plan) -> Result<Self, AccountingError> {
        let relation = plan.relation();
        let mut parts = Vec::new();
        let mut gaussian = 0.0;
        for entry in plan.entries() {
            // Replacing a record shifts a sum twice as far as removing it.
            let sensitivity = if relation == Relation::ReplaceOne { 2.0 } else { 1.0 };
            let mu = sensitivity / entry.effective_noise_multiplier();
            let steps = real(entry.exposures());
            match entry.sampling() {
                Sampling::FullBatch => gaussian += steps * mu * mu,
                Sampling::Stateful { .. } => return Err(AccountingError::stateful(NAME, entry)),
                Sampling::Poisson { .. } | Sampling::Rotating { .. } if relation == Relation::ReplaceOne => {
                    return Err(AccountingError::Unsupported {
                        accountant: NAME,
                        entry: entry.to_string(),
                        reason: "the plan also has fixed-size batches, which are priced under replace-one"
                            .to_owned(),
                        instead: "use a single kind of sampling",
                    });
                }
                Sampling::Poisson { rate, .. } | Sampling::Rotating { rate, .. } if rate.get() < 1.0 => {
                    parts.push((Part::Sampled { rate: rate.get(), mu }, steps));
                }
                Sampling::Poisson { .. } | Sampling::Rotating { .. } => gaussian += steps * mu * mu,
                Sampling::FixedSize { batch_size, population } if batch_size == population => {
                    gaussian += steps * mu * mu;
                }
                Sampling::FixedSize { batch_size, population } => {
                    let rate = real(batch_size) / real(population);
                    parts.push((Part::FixedSize(fixed_size::FixedSize::new(rate, mu)), steps));
                }
            }
        }
        if gaussian > 0.0 {
            parts.push((Part::Gaussian { mu: gaussian.sqrt() }, 1.0));
        }
        Ok(Self { parts })
    }

    /// `rho(alpha)`.
    pub(crate) fn at(&self, alpha: f64) -> f64 {
        let cost = |part: &Part| match *part {
            Part::Gaussian { mu } => 0.5 * alpha * mu * mu,
            Part::Sampled { rate, mu } => sampled_gaussian::divergence(rate, mu, alpha),
            Part::FixedSize(ref part) => part.divergence(alpha),
        };
        self.parts.iter().map(|(part, steps)| steps * cost(part)).sum()
    }
}
