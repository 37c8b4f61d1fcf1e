//! The cost of choosing hyperparameters on private data: train several candidates and release the best.
//!
//! The default is the method of Papernot and Steinke: the number of runs `K` is random, and only the best run is released. Two bounds are
//! proved, and the lower one is reported:
//!
//! - from Renyi divergences (`renyi.rs`), Papernot and Steinke's theorems;
//! - from the privacy profile of one run (`selection.rs`), which is lower for the plans of training.
//!
//! # Guarantees
//! The bounds hold if
//! - only the best run is released, and neither `K` nor the other runs nor their scores;
//! - the score is part of the private output of each run, or uses public data only;
//! - candidates are drawn independently from a fixed list;
//! - the distribution of `K` is fixed beforehand.
//!
//! A run that trains on some records and is scored on others has two costs. For a training record, the score is computed from the released model,
//! records that are the same on both data sets, and independent noise, so the run costs its plan ([`Trial::of`]). For a record of the score,
//! the model is fixed, and the run costs the score ([`Trial::pure`]). The search costs the larger of the two prices.
//!
//! # References
//! Papernot and Steinke, "Hyperparameter Tuning with Renyi Differential Privacy" (2022), Theorems 2 and 6; Liu and
//! Talwar, "Private Selection from Private Candidates" (2019), as quoted by the DC-SGD paper.

mod curve;
mod liu_talwar;
mod renyi;
mod runs;
mod selection;
#[cfg(test)]
mod toys;
mod trial;

pub use liu_talwar::LiuTalwar;
pub use runs::Runs;
pub use trial::{Price, Trial};

use crate::{Accountant, AccountingError, Delta, Epsilon, Plan};

fn out_of_range(what: &'static str, range: &'static str, got: f64, hint: &'static str) -> AccountingError {
    AccountingError::OutOfRange { what, range, got: got.to_string(), hint }
}

/// The epsilon of training a random number of candidates and releasing only the best one: the lower of the two bounds.
///
/// ```
/// use sordino_accounting::{Delta, NoiseMultiplier, Plan, SamplingRate, Steps, tuning};
///
/// let plan = Plan::dp_sgd(NoiseMultiplier::new(1.0)?, SamplingRate::new(256.0 / 50_000.0)?, Steps::new(3900)?);
/// let runs = tuning::Runs::negative_binomial(0.0, 20.0)?;
/// let epsilon = tuning::epsilon(&[plan], runs, Delta::new(1e-5)?)?;
/// assert!(epsilon.get() < 3.52);
/// # Ok::<(), sordino_accounting::AccountingError>(())
/// ```
///
/// # Errors
/// There is no candidate, or a candidate cannot be priced.
pub fn epsilon(candidates: &[Plan], runs: Runs, delta: Delta) -> Result<Epsilon, AccountingError> {
    Ok(Trial::of(candidates)?.price(runs, delta)?.epsilon())
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

    /// E[K] = 20, and the epsilon of one run is 1.742. The last column has no other source: it was computed by this crate.
    #[test]
    fn matches_the_worked_example() {
        let base = Plan::of_numbers(1.0, 256.0 / 50_000.0, 3900);
        let d = delta(1e-5);
        let binomial = |eta| Runs::negative_binomial(eta, 20.0).unwrap();
        for (runs, by_renyi, by_profile) in [
            (binomial(-0.5), 3.11, 2.554),
            (binomial(0.0), 3.52, 2.684),
            (binomial(1.0), 4.23, 2.885),
            (Runs::poisson(20.0).unwrap(), 4.70, 4.595),
        ] {
            assert!((runs.mean() - 20.0).abs() < 1e-6);
            let price = Trial::of(std::slice::from_ref(&base)).unwrap().price(runs, d).unwrap();
            let (renyi, profile) = (price.renyi.unwrap().get(), price.profile.unwrap().get());
            assert!((renyi - by_renyi).abs() < 0.01, "{runs:?}: {price:?}");
            assert!((profile - by_profile).abs() < 0.005, "{runs:?}: {price:?}");
            assert_eq!((price.epsilon().get(), price.method()), (profile, "privacy loss distributions"));
        }
        let got = sequential_epsilon(&vec![base.clone(); 20], Accountant::Pld, d).unwrap().get();
        assert!((got - 9.32).abs() < 0.02, "sequential: {got}");
        // Liu and Talwar, with delta_2 equal to half of delta. A coarser conversion gives 16.2 at this delta_1 of 2e-17.
        let search = LiuTalwar::new(20.0, 5e-6).unwrap();
        let got = search.epsilon(&base, Accountant::Rdp, d).unwrap().get();
        assert!((got - 15.26).abs() < 0.01, "Liu-Talwar: {got}");
        let exact = search.epsilon(&base, Accountant::Pld, d).unwrap().get();
        assert!(exact < got, "Liu-Talwar: {exact}");
    }

    #[test]
    fn epsilon_is_that_of_the_most_expensive_candidate() {
        let runs = Runs::negative_binomial(0.0, 10.0).unwrap();
        let (cheap, expensive) = (Plan::of_numbers(2.0, 0.01, 100), Plan::of_numbers(1.0, 0.01, 1000));
        let both = epsilon(&[cheap, expensive.clone()], runs, delta(1e-5)).unwrap();
        assert_eq!(both, epsilon(&[expensive], runs, delta(1e-5)).unwrap());
    }

    #[test]
    fn a_search_without_candidates_is_refused() {
        assert!(epsilon(&[], Runs::poisson(3.0).unwrap(), delta(1e-5)).is_err());
    }
}
