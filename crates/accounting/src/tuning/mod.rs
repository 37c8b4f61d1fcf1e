//! The cost of choosing hyperparameters on private data: train several candidates and release the best.
//!
//! The default is the method of Papernot and Steinke: the number of runs `K` is random, and only the best run is released. Let
//! `eps(l)` be the largest Renyi divergence of the candidates. The Renyi divergence of the whole selection is then
//!
//! ```text
//! truncated negative binomial (eta > -1, gamma):
//!   eps'(l) = eps(l) + (1+eta) min_{l'} [ (1 - 1/l') eps(l') + ln(1/gamma)/l' ] + ln(E[K])/(l-1)
//! Poisson (mean m):
//!   eps'(l) = eps(l) + m d + ln(m)/(l-1),     where each run is (e, d)-DP with e^e = 1 + 1/(l-1).
//! ```
//!
//! # Guarantees
//! The bounds hold if
//! - only the best run is released, and neither `K` nor the other runs nor their scores;
//! - the score is part of the private output of each run, or uses public data only;
//! - candidates are drawn independently from a fixed list;
//! - the distribution of `K` is fixed beforehand.
//!
//! # References
//! Papernot and Steinke, "Hyperparameter Tuning with Renyi Differential Privacy" (2022), Theorems 2 and 6; Liu and
//! Talwar, "Private Selection from Private Candidates" (2019), as quoted by the DC-SGD paper.

mod liu_talwar;

pub use liu_talwar::LiuTalwar;

use crate::{
    Accountant, AccountingError, Delta, Epsilon, Plan, pld,
    rdp::{self, Order},
    search::minimum,
};

/// The distribution of the number of runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Runs {
    /// A negative binomial conditioned on at least one run.
    TruncatedNegativeBinomial {
        /// The shape: 1 is the geometric distribution, 0 the logarithmic. A smaller shape costs less and varies more.
        eta: f64,
        /// The probability parameter in (0, 1). A smaller one means more runs.
        gamma: f64,
    },
    /// A Poisson distribution. There may be no run at all.
    Poisson {
        /// The mean.
        mean: f64,
    },
}

impl Runs {
    /// The truncated negative binomial of this shape with this mean.
    ///
    /// # Errors
    /// The shape is -1 or less, or the mean is 1 or less.
    pub fn negative_binomial(eta: f64, mean: f64) -> Result<Self, AccountingError> {
        if !(eta.is_finite() && eta > -1.0) {
            return Err(out_of_range("eta", "a finite number above -1", eta, "use -0.5, 0 or 1"));
        }
        if !(mean.is_finite() && mean > 1.0) {
            return Err(out_of_range("mean number of runs", "a finite number above 1", mean, "try 20"));
        }
        let (mut low, mut high) = (-700.0_f64, -1e-12_f64);
        // The mean falls from infinity to 1 as gamma grows from 0 to 1.
        for _ in 0..200 {
            let mid = 0.5 * (low + high);
            if truncated_mean(eta, mid.exp()) > mean { low = mid } else { high = mid }
        }
        Ok(Self::TruncatedNegativeBinomial { eta, gamma: high.exp() })
    }

    /// A Poisson number of runs.
    ///
    /// # Errors
    /// The mean is not positive.
    pub fn poisson(mean: f64) -> Result<Self, AccountingError> {
        if mean.is_finite() && mean > 0.0 {
            return Ok(Self::Poisson { mean });
        }
        Err(out_of_range("mean number of runs", "a finite number above 0", mean, "try 20"))
    }

    /// The expected number of runs.
    pub fn mean(&self) -> f64 {
        match *self {
            Self::TruncatedNegativeBinomial { eta, gamma } => truncated_mean(eta, gamma),
            Self::Poisson { mean } => mean,
        }
    }
}

fn out_of_range(what: &'static str, range: &'static str, got: f64, hint: &'static str) -> AccountingError {
    AccountingError::OutOfRange { what, range, got: got.to_string(), hint }
}

/// `E[K] = eta (1-gamma) / (gamma (1 - gamma^eta))`, and its limit `(1/gamma - 1) / ln(1/gamma)` at `eta = 0`.
fn truncated_mean(eta: f64, gamma: f64) -> f64 {
    let odds = (1.0 - gamma) / gamma;
    if eta.abs() < 1e-9 { odds / -gamma.ln() } else { eta * odds / -(eta * gamma.ln()).exp_m1() }
}

/// The epsilon of training a random number of candidates and releasing only the best one.
///
/// ```
/// use sordino_accounting::{Delta, NoiseMultiplier, Plan, SamplingRate, Steps, tuning};
///
/// let plan = Plan::dp_sgd(NoiseMultiplier::new(1.0)?, SamplingRate::new(256.0 / 50_000.0)?, Steps::new(3900)?);
/// let runs = tuning::Runs::negative_binomial(0.0, 20.0)?;
/// let epsilon = tuning::epsilon(&[plan], runs, Delta::new(1e-5)?)?;
/// assert!((epsilon.get() - 3.52).abs() < 0.01);
/// # Ok::<(), sordino_accounting::AccountingError>(())
/// ```
///
/// # Errors
/// There is no candidate, or a candidate cannot be priced.
pub fn epsilon(candidates: &[Plan], runs: Runs, delta: Delta) -> Result<Epsilon, AccountingError> {
    if candidates.is_empty() {
        return Err(AccountingError::NoSolution {
            what: "epsilon",
            reason: "there are no candidates".to_owned(),
        });
    }
    for candidate in candidates {
        let refused = |reason: &str| AccountingError::Unsupported {
            accountant: "tuning",
            entry: format!("a candidate of {} steps", candidate.steps()),
            reason: reason.to_owned(),
            instead: "use candidates without caps and with a single kind of sampling",
        };
        if candidate.relation() != candidates[0].relation() {
            return Err(refused("the candidates are priced under different relations"));
        }
        if candidate.is_capped() {
            return Err(refused("a cap costs delta, which is not part of a Renyi divergence"));
        }
    }
    let curves = candidates.iter().map(rdp::RenyiDivergence::of).collect::<Result<Vec<_>, _>>()?;
    let worst = |order: f64| largest(curves.iter().map(|curve| curve.at(order)));
    let worst_delta = |epsilon: Epsilon| -> Result<f64, AccountingError> {
        let deltas = candidates.iter().map(|plan| pld::delta(plan, epsilon).map(|bracket| bracket.upper));
        deltas.collect::<Result<Vec<_>, _>>().map(|deltas| largest(deltas.into_iter()))
    };
    selection_epsilon(worst, worst_delta, runs, delta)
}

/// The largest of these costs. Unlike `f64::max`, this keeps a NaN.
fn largest(costs: impl Iterator<Item = f64>) -> f64 {
    costs.fold(0.0, |a, b| if a >= b { a } else { b })
}

/// The same from the Renyi divergence and the privacy profile of a single run.
fn selection_epsilon(
    divergence: impl Fn(f64) -> f64,
    profile: impl Fn(Epsilon) -> Result<f64, AccountingError>,
    runs: Runs,
    delta: Delta,
) -> Result<Epsilon, AccountingError> {
    match runs {
        Runs::TruncatedNegativeBinomial { eta, gamma } => {
            let repeated = |order: f64| (1.0 - 1.0 / order) * divergence(order) - gamma.ln() / order;
            let (_, repeated) = minimum(|excess| repeated(1.0 + excess), 10.0, 1e-3);
            rdp::minimise(|order| {
                let selected =
                    divergence(order.get()) + (1.0 + eta) * repeated + runs.mean().ln() / (order.get() - 1.0);
                rdp::to_epsilon(order, selected, delta)
            })
        }
        Runs::Poisson { mean } => rdp::minimise(|order: Order| {
            let Ok(e) = Epsilon::new((1.0 / (order.get() - 1.0)).ln_1p()) else { return f64::INFINITY };
            // If the profile cannot be computed at this epsilon, the trivial bound is used.
            let d = profile(e).unwrap_or(1.0);
            // For a mean below 1 the logarithm is negative. It must not lower the bound.
            let selected = divergence(order.get()) + mean * d + mean.ln().max(0.0) / (order.get() - 1.0);
            rdp::to_epsilon(order, selected, delta)
        }),
    }
}

/// The epsilon of training every candidate once and releasing everything: plain composition.
///
/// # Errors
/// The accountant cannot price the composed plan.
pub fn sequential_epsilon(
    candidates: &[Plan],
    accountant: Accountant,
    delta: Delta,
) -> Result<Epsilon, AccountingError> {
    let all: Plan = candidates.iter().flat_map(|plan| plan.entries().iter().cloned()).collect();
    accountant.price(&all, delta).map(|guarantee| guarantee.epsilon)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(d: f64) -> Delta {
        Delta::new(d).unwrap()
    }

    /// E[K] = 20, and the epsilon of one run is 1.742.
    #[test]
    fn matches_the_worked_example() {
        let base = Plan::of_numbers(1.0, 256.0 / 50_000.0, 3900);
        let d = delta(1e-5);
        for (eta, expected) in [(-0.5, 3.11), (0.0, 3.52), (1.0, 4.23)] {
            let runs = Runs::negative_binomial(eta, 20.0).unwrap();
            assert!((runs.mean() - 20.0).abs() < 1e-6);
            let got = epsilon(std::slice::from_ref(&base), runs, d).unwrap().get();
            assert!((got - expected).abs() < 0.01, "eta {eta}: {got}");
        }
        let got = epsilon(std::slice::from_ref(&base), Runs::poisson(20.0).unwrap(), d).unwrap().get();
        assert!((got - 4.70).abs() < 0.01, "Poisson: {got}");
        let got = sequential_epsilon(&vec![base.clone(); 20], Accountant::Pld, d).unwrap().get();
        assert!((got - 9.32).abs() < 0.02, "sequential: {got}");
        // Liu and Talwar, with delta_2 equal to half of delta. A coarser conversion gives 16.2 at this delta_1 of 2e-17.
        let search = LiuTalwar::new(20.0, 5e-6).unwrap();
        let got = search.epsilon(&base, Accountant::Rdp, d).unwrap().get();
        assert!((got - 15.26).abs() < 0.01, "Liu-Talwar: {got}");
        let exact = search.epsilon(&base, Accountant::Pld, d).unwrap().get();
        assert!(exact < got, "Liu-Talwar: {exact}");
    }

    /// dp_accounting 0.6.0 with its default orders. It also computes the profile from Renyi divergences.
    #[test]
    fn matches_repeat_and_select() {
        let base = Plan::of_numbers(1.0, 0.01, 1000);
        let curve = rdp::RenyiDivergence::of(&base).unwrap();
        let profile = |e: Epsilon| {
            let ln_delta = |excess: f64| {
                let alpha = 1.0 + excess;
                excess * (curve.at(alpha) - e.get() + (-1.0 / alpha).ln_1p()) - alpha.ln()
            };
            Ok(minimum(ln_delta, 10.0, 1e-3).1.exp().min(1.0))
        };
        for (mean, expected) in [(10.0, 4.329_497_68), (100.0, 16.396_757_1)] {
            let runs = Runs::poisson(mean).unwrap();
            let got = selection_epsilon(|order| curve.at(order), profile, runs, delta(1e-5)).unwrap().get();
            assert!((got / expected - 1.0).abs() < 5e-3 && got <= expected * 1.001, "{mean}: {got}");
            let exact = epsilon(std::slice::from_ref(&base), runs, delta(1e-5)).unwrap().get();
            assert!(exact < got, "{mean}: {exact} {got}");
        }
    }

    /// Papernot and Steinke, Corollary 3: pure epsilon-DP becomes (2 + eta) epsilon.
    #[test]
    fn pure_privacy_costs_two_plus_eta() {
        for (eta, expected) in [(5.0, 7.0), (0.0, 2.0)] {
            let runs = Runs::negative_binomial(eta, 1000.0).unwrap();
            let got = selection_epsilon(|_| 1.0, |_| Ok(1.0), runs, delta(1e-10)).unwrap().get();
            assert!((got - expected).abs() < 1e-4, "{eta}: {got}");
        }
    }

    #[test]
    fn epsilon_is_that_of_the_most_expensive_candidate() {
        let runs = Runs::negative_binomial(0.0, 10.0).unwrap();
        let (cheap, expensive) = (Plan::of_numbers(2.0, 0.01, 100), Plan::of_numbers(1.0, 0.01, 1000));
        let both = epsilon(&[cheap, expensive.clone()], runs, delta(1e-5)).unwrap();
        assert_eq!(both, epsilon(&[expensive], runs, delta(1e-5)).unwrap());
    }

    #[test]
    fn bad_distributions_are_refused() {
        assert!(Runs::negative_binomial(-1.0, 20.0).is_err() && Runs::negative_binomial(0.0, 1.0).is_err());
        assert!(Runs::poisson(0.0).is_err() && Runs::poisson(f64::NAN).is_err());
        assert!(epsilon(&[], Runs::poisson(3.0).unwrap(), delta(1e-5)).is_err());
    }
}
