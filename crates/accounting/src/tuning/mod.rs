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
//! the model is fixed, and the run costs the score ([`Trial::pure`]). The price of the search is the larger of the two.
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

use crate::{
    Accountant, AccountingError, Delta, Epsilon, Guarantee, NoiseMultiplier, Plan, SamplingRate, Steps,
    calibrate::{Budget, Calibrated, least_noise},
};

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

/// The smallest factor of all multipliers of a plan with which a search over runs of this plan is within its budget: the inverse of
/// [`epsilon`]. The guarantee is that of the search.
///
/// # Errors
/// No factor meets the budget, or the plan cannot be priced.
pub fn noise_scale(plan: &Plan, runs: Runs, search: Budget) -> Result<Calibrated<f64>, AccountingError> {
    least_noise(plan, search, |plan| {
        let price = Trial::of(std::slice::from_ref(plan))?.price(runs, search.delta)?;
        Ok(Guarantee {
            epsilon: price.epsilon(),
            epsilon_lower: None,
            delta: search.delta,
            accountant: price.accountant(),
            relation: plan.relation(),
        })
    })
}

/// The smallest noise multiplier of DP-SGD with which a search is within its budget.
///
/// ```
/// use sordino_accounting::{Delta, Epsilon, SamplingRate, Steps, calibrate::Budget, tuning::{self, Runs}};
///
/// let search = Budget { epsilon: Epsilon::new(3.0)?, delta: Delta::new(1e-5)? };
/// let runs = Runs::negative_binomial(0.0, 10.0)?;
/// let found = tuning::noise_multiplier(search, runs, SamplingRate::new(0.01)?, Steps::new(1000)?)?;
/// assert!(found.guarantee.epsilon <= search.epsilon && found.value.get() < 1.0);
/// # Ok::<(), sordino_accounting::AccountingError>(())
/// ```
///
/// # Errors
/// As [`noise_scale`].
pub fn noise_multiplier(
    search: Budget,
    runs: Runs,
    rate: SamplingRate,
    steps: Steps,
) -> Result<Calibrated<NoiseMultiplier>, AccountingError> {
    let plan = Plan::dp_sgd(NoiseMultiplier::new(1.0)?, rate, steps);
    let Calibrated { value, guarantee } = noise_scale(&plan, runs, search)?;
    Ok(Calibrated { value: NoiseMultiplier::new(value)?, guarantee })
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

/// The epsilon of training as many candidates, all with this plan, once each, and releasing everything.
///
/// # Errors
/// As [`sequential_epsilon`], or more steps than an entry may have.
pub fn repeated_epsilon(
    plan: &Plan,
    candidates: u64,
    accountant: Accountant,
    delta: Delta,
) -> Result<Epsilon, AccountingError> {
    accountant.price(&plan.repeated(candidates)?, delta).map(|guarantee| guarantee.epsilon)
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
            assert_eq!((price.epsilon().get(), price.accountant()), (profile, Accountant::Pld));
        }
        let got = sequential_epsilon(&vec![base.clone(); 20], Accountant::Pld, d).unwrap().get();
        assert_eq!(got, repeated_epsilon(&base, 20, Accountant::Pld, d).unwrap().get());
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
    fn the_inverses_lead_back_to_the_budget() {
        let search = Budget { epsilon: Epsilon::new(2.0).unwrap(), delta: delta(1e-5) };
        let (rate, steps) = (SamplingRate::new(0.02).unwrap(), Steps::new(500).unwrap());
        for runs in [Runs::negative_binomial(0.0, 10.0).unwrap(), Runs::poisson(3.0).unwrap()] {
            let found = noise_multiplier(search, runs, rate, steps).unwrap();
            let spent = epsilon(&[Plan::dp_sgd(found.value, rate, steps)], runs, search.delta).unwrap();
            assert_eq!(spent, found.guarantee.epsilon);
            assert!(spent.get() <= 2.0 && spent.get() > 0.998 * 2.0, "{runs:?}: {spent}");
            let pure = Trial::largest_pure(runs, search).unwrap();
            let spent = Trial::pure(pure).price(runs, search.delta).unwrap().epsilon().get();
            assert!(spent <= 2.0 && spent > 0.998 * 2.0, "{runs:?}: {pure} {spent}");
        }
        assert!(
            Trial::largest_pure(
                Runs::poisson(1.0).unwrap(),
                Budget { epsilon: Epsilon::new(0.0).unwrap(), ..search }
            )
            .is_err()
        );
    }

    #[test]
    fn more_trials_cost_more_and_more_noise_costs_less() {
        let price = |z, eta, mean| {
            let runs = Runs::negative_binomial(eta, mean).unwrap();
            epsilon(&[Plan::of_numbers(z, 0.02, 300)], runs, delta(1e-5)).unwrap()
        };
        assert!(
            price(1.0, 0.0, 2.0) < price(1.0, 0.0, 20.0) && price(1.0, 0.0, 20.0) < price(1.0, 0.0, 500.0)
        );
        assert!(
            price(1.0, -0.5, 20.0) < price(1.0, 0.0, 20.0) && price(1.0, 0.0, 20.0) < price(1.0, 2.0, 20.0)
        );
        assert!(price(2.0, 0.0, 20.0) < price(1.0, 0.0, 20.0));
        // A search costs more than one run, even with few trials.
        let one_run = Accountant::Pld.price(&Plan::of_numbers(1.0, 0.02, 300), delta(1e-5)).unwrap().epsilon;
        assert!(one_run < price(1.0, 0.0, 1.01));
    }

    /// A cap costs delta, which the profile includes. Fixed-size batches have a Renyi divergence only.
    #[test]
    fn plans_with_one_kind_of_bound_are_priced() {
        let runs = Runs::negative_binomial(0.0, 5.0).unwrap();
        let price = |text: &str| {
            let plan: Plan = serde_json::from_str(text).unwrap();
            Trial::of(&[plan]).unwrap().price(runs, delta(1e-5))
        };
        let capped = price(
            r#"[{"noise_multiplier":1.5,"sample_rate":0.01,"max_batch_size":800,"population":60000,"steps":100}]"#,
        )
        .unwrap();
        let uncapped = price(r#"[{"noise_multiplier":1.5,"sample_rate":0.01,"steps":100}]"#).unwrap();
        assert!(capped.renyi.is_none() && capped.profile >= uncapped.profile, "{capped:?} {uncapped:?}");
        let fixed = price(
            r#"[{"sampling":"fixed-size","noise_multiplier":4.0,"batch_size":600,"population":60000,"steps":100}]"#,
        )
        .unwrap();
        assert!(fixed.profile.is_none() && fixed.renyi.is_some());
        let stateful = r#"[{"sampling":"stateful","noise_multiplier":2.0,"sample_rate":0.02,"later_shift":3.0,"steps":20}]"#;
        assert!(price(stateful).is_err());
    }

    #[test]
    fn a_search_without_candidates_is_refused() {
        assert!(epsilon(&[], Runs::poisson(3.0).unwrap(), delta(1e-5)).is_err());
    }
}
