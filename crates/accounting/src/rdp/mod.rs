//! Renyi differential privacy: the accountant that answers everywhere, a little loosely.
//!
//! A plan costs `rho(alpha) = sum_t rho_t(alpha)` at every order `alpha > 1`, and for every order
//!
//! ```text
//! epsilon <= rho(alpha) + ln(1 - 1/alpha) - (ln delta + ln alpha) / (alpha - 1).
//! ```
//!
//! There is no grid of orders. `(alpha - 1) rho(alpha)` is a cumulant, hence convex, and so is the numerator of
//! the bound over `alpha - 1`; a convex function over a positive linear one has a single valley, which a
//! one-dimensional search finds wherever it lies. Every order that the search visits gives a valid bound, so an
//! inexact search costs tightness, never truth.
//!
//! # References
//! Mironov, "Renyi Differential Privacy" (2017); Mironov, Talwar and Zhang, "Renyi Differential Privacy of the
//! Sampled Gaussian Mechanism" (2019); Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential
//! Privacy" (2020), Proposition 12 (the conversion).

mod fixed_size;
mod sampled_gaussian;

use crate::{AccountingError, Delta, Epsilon, Plan, Relation, Sampling, number::real, search::valley};

pub use sampled_gaussian::sampled_gaussian;

const NAME: &str = "rdp";

/// The order of a Renyi divergence: a finite number above 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Order(f64);

impl Order {
    /// Checks that the order is finite and above 1.
    ///
    /// # Errors
    /// Anything else.
    pub fn new(order: f64) -> Result<Self, AccountingError> {
        if order.is_finite() && order > 1.0 {
            return Ok(Self(order));
        }
        Err(AccountingError::OutOfRange {
            what: "Renyi order",
            range: "a finite number above 1",
            got: order.to_string(),
            hint: "useful orders lie between 1.1 and 1000",
        })
    }

    /// The number itself.
    pub const fn get(self) -> f64 {
        self.0
    }
}

/// `rho(alpha)` of a plan; infinite where no finite bound is known.
///
/// # Errors
/// A plan that mixes fixed-size batches, which are priced under replace-one, with Poisson batches, which are not; capped
/// batches, whose cost is a delta.
pub fn divergence(plan: &Plan, order: Order) -> Result<f64, AccountingError> {
    if plan.is_capped() {
        return Err(AccountingError::Unsupported {
            accountant: NAME,
            entry: "capped batches".to_owned(),
            reason: "what a cap adds to delta is not part of a Renyi divergence".to_owned(),
            instead: "ask for epsilon, which charges it",
        });
    }
    Ok(RenyiDivergence::of(plan)?.at(order.0))
}

/// The conversion above at one order.
///
/// Edge cases: an infinite divergence gives infinity; the result is at least 0.
pub fn to_epsilon(order: Order, divergence: f64, delta: Delta) -> f64 {
    let alpha = order.0;
    let bound = divergence + (-1.0 / alpha).ln_1p() - (delta.get().ln() + alpha.ln()) / (alpha - 1.0);
    // Not f64::max, which would turn a NaN into the best of all bounds.
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
/// As [`divergence`], and a plan whose cost no order can express in a finite number.
pub fn epsilon(plan: &Plan, delta: Delta) -> Result<Epsilon, AccountingError> {
    if plan.entries().is_empty() {
        return Epsilon::new(0.0);
    }
    let curve = RenyiDivergence::of(plan)?;
    plan.with_cap(delta, |e| *e, |delta| minimise(|order| to_epsilon(order, curve.at(order.0), delta)))
}

/// The smallest value over all orders of a bound with a single valley.
pub(crate) fn minimise(bound: impl Fn(Order) -> f64) -> Result<Epsilon, AccountingError> {
    let (_, value) = valley(|excess| bound(Order(1.0 + excess)), 10.0, 1e-3);
    Epsilon::new(value).map_err(|_| AccountingError::OutOfReach {
        accountant: NAME,
        reason: "its epsilon is not a finite number".to_owned(),
        instead: "use more noise",
    })
}

/// A plan's divergence as a function of the order.
pub(crate) struct RenyiDivergence {
    parts: Vec<(Part, f64)>,
}

enum Part {
    /// A Gaussian release over everybody, `mu` the ratio of sensitivity to noise.
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
            // Replacing a record moves a sum twice as far as removing it.
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
                        instead: "use one kind of sampling throughout",
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
