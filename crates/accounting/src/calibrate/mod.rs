//! Calibration: the least noise, or the most steps, within a privacy budget.
//!
//! The accountant has priced every result: its epsilon does not exceed the budget, and a calibrated noise multiplier uses at least
//! 99.9 % of it.

mod least_noise;

use crate::{
    Accountant, AccountingError, Delta, Epsilon, Guarantee, NoiseMultiplier, Plan, SamplingRate, Steps,
    number::real,
};

pub(crate) use least_noise::least_noise;

/// A privacy budget.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// The largest permitted epsilon.
    pub epsilon: Epsilon,
    /// The delta of the guarantee.
    pub delta: Delta,
}

/// A calibrated quantity and its guarantee.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibrated<T> {
    /// The quantity.
    pub value: T,
    /// The guarantee, which is within the budget.
    pub guarantee: Guarantee,
}

/// The smallest noise multiplier of DP-SGD within a budget.
///
/// ```
/// use sordino_accounting::{Accountant, Delta, Epsilon, SamplingRate, Steps, calibrate};
///
/// let budget = calibrate::Budget { epsilon: Epsilon::new(1.0)?, delta: Delta::new(1e-6)? };
/// let z = calibrate::noise_multiplier(budget, SamplingRate::new(0.1)?, Steps::new(512)?, Accountant::Pld)?;
/// assert!((z.value.get() - 9.66).abs() < 0.02);
/// assert!(z.guarantee.epsilon <= budget.epsilon);
/// # Ok::<(), sordino_accounting::AccountingError>(())
/// ```
///
/// # Errors
/// No multiplier meets the budget, for example because epsilon is 0.
pub fn noise_multiplier(
    budget: Budget,
    rate: SamplingRate,
    steps: Steps,
    accountant: Accountant,
) -> Result<Calibrated<NoiseMultiplier>, AccountingError> {
    let plan = Plan::dp_sgd(NoiseMultiplier::new(1.0)?, rate, steps);
    let Calibrated { value, guarantee } = noise_scale(&plan, budget, accountant)?;
    Ok(Calibrated { value: NoiseMultiplier::new(value)?, guarantee })
}

/// The smallest factor by which all multipliers of a plan must be multiplied to meet a budget.
///
/// # Errors
/// As [`noise_multiplier`], or the accountant cannot bound the plan.
pub fn noise_scale(
    plan: &Plan,
    budget: Budget,
    accountant: Accountant,
) -> Result<Calibrated<f64>, AccountingError> {
    least_noise(plan, budget, |plan| accountant.price(plan, budget.delta))
}

/// The largest number of DP-SGD steps within a budget.
///
/// # Errors
/// Not even one step is within the budget.
pub fn steps(
    budget: Budget,
    noise_multiplier: NoiseMultiplier,
    rate: SamplingRate,
    accountant: Accountant,
) -> Result<Calibrated<Steps>, AccountingError> {
    let price = |steps: u64| -> Result<Guarantee, AccountingError> {
        accountant.price(&Plan::dp_sgd(noise_multiplier, rate, Steps::new(steps)?), budget.delta)
    };
    let fits = |guarantee: &Guarantee| guarantee.epsilon <= budget.epsilon;
    let first = price(1)?;
    if !fits(&first) {
        return Err(AccountingError::NoSolution {
            what: "number of steps",
            reason: format!("a single step costs epsilon = {:.4}", first.epsilon.get()),
        });
    }
    let (mut most, mut guarantee) = (1, first);
    let mut too_many = None;
    // Epsilon grows at least like the square root of the number of steps and at most linearly.
    while too_many.is_none_or(|n| n - most > 1) && most < Steps::MAX {
        let next = match too_many {
            None => most * 4,
            Some(n) if n / most >= 2 => geometric_middle(most, n),
            Some(n) => most + (n - most) / 2,
        };
        match price(next) {
            Ok(found) if fits(&found) => (most, guarantee) = (next, found),
            // Out of reach means more steps than the accountant can compose, so this number is not returned.
            Ok(_) | Err(AccountingError::OutOfReach { .. }) => too_many = Some(next),
            Err(error) => return Err(error),
        }
    }
    Ok(Calibrated { value: Steps::new(most)?, guarantee })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^41")]
fn geometric_middle(low: u64, high: u64) -> u64 {
    ((real(low) * real(high)).sqrt() as u64).clamp(low + 1, high - 1)
}

/// The multiplier that is left for one release when another release of the same batch has `spent` and both together must
/// amount to `total`: `(total^-2 - spent^-2)^(-1/2)`.
///
/// Examples: the gradients of DC-SGD next to its histogram (`sigma_T` from `sigma` and `sigma_H`); with `spent = 2 sigma_b`,
/// the gradients of adaptive quantile clipping next to its count.
///
/// # Errors
/// `spent` is not larger than `total`: the other release alone reveals too much.
///
/// ```
/// use sordino_accounting::{NoiseMultiplier, calibrate};
///
/// let (total, histogram) = (NoiseMultiplier::new(1.0)?, NoiseMultiplier::new(6.0)?);
/// let gradient = calibrate::remaining_noise_multiplier(total, histogram)?;
/// assert!((gradient.get() - 1.014_185_105_674_22).abs() < 1e-12);
/// # Ok::<(), sordino_accounting::AccountingError>(())
/// ```
pub fn remaining_noise_multiplier(
    total: NoiseMultiplier,
    spent: NoiseMultiplier,
) -> Result<NoiseMultiplier, AccountingError> {
    let rest = total.get().powi(-2) - spent.get().powi(-2);
    NoiseMultiplier::new(rest.powf(-0.5)).map_err(|_| AccountingError::NoSolution {
        what: "noise multiplier",
        reason: format!("the other release's multiplier of {spent} must be larger than the total of {total}"),
    })
}

fn no_noise(reason: &str) -> AccountingError {
    AccountingError::NoSolution { what: "noise multiplier", reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(epsilon: f64, delta: f64) -> Budget {
        Budget { epsilon: Epsilon::new(epsilon).unwrap(), delta: Delta::new(delta).unwrap() }
    }

    fn rate(q: f64) -> SamplingRate {
        SamplingRate::new(q).unwrap()
    }

    #[test]
    fn noise_meets_the_budget_and_uses_nearly_all_of_it() {
        for accountant in [Accountant::Pld, Accountant::Rdp, Accountant::GdpClt] {
            for (epsilon, delta, q, t) in [
                (1.0, 1e-5, 0.01, 1000),
                (8.0, 1e-5, 0.04, 2000),
                (0.1, 1e-6, 0.001, 100),
                (3.0, 1e-6, 1.0, 10),
                (50.0, 1e-5, 0.1, 500),
            ] {
                let z = noise_multiplier(budget(epsilon, delta), rate(q), Steps::new(t).unwrap(), accountant)
                    .unwrap();
                let spent = z.guarantee.epsilon.get();
                assert!(
                    spent <= epsilon && spent >= 0.999 * epsilon,
                    "{accountant} {epsilon} {q} {t}: {spent}"
                );
                let again = accountant.price(
                    &Plan::dp_sgd(z.value, rate(q), Steps::new(t).unwrap()),
                    Delta::new(delta).unwrap(),
                );
                assert_eq!(again.unwrap().epsilon, z.guarantee.epsilon);
            }
        }
    }

    #[test]
    fn matches_published_multipliers() {
        let steps = |n| Steps::new(n).unwrap();
        // Opacus 1.6.0, accountants_test.py: tolerance 0.01 in epsilon, hence multipliers within 0.2 %.
        let z = noise_multiplier(budget(8.0, 1e-5), rate(0.04), steps(2000), Accountant::Rdp)
            .unwrap()
            .value
            .get();
        assert!((z / 1.3562 - 1.0).abs() < 2e-3, "{z}");
        let z = noise_multiplier(budget(8.0, 1e-5), rate(0.04), steps(2000), Accountant::Pld)
            .unwrap()
            .value
            .get();
        assert!((z / 1.2915 - 1.0).abs() < 2e-3, "{z}");
        // dp_accounting 0.6.0, accountant_test.py: one step.
        let z =
            noise_multiplier(budget(1.0, 1e-5), rate(0.01), steps(1), Accountant::Pld).unwrap().value.get();
        assert!((z / 0.673_792_946_82 - 1.0).abs() < 1e-3, "{z}");
        let z = noise_multiplier(budget(1.0, 0.787_600_74), rate(1.0), steps(1), Accountant::Pld)
            .unwrap()
            .value
            .get();
        assert!((z / (1.0 / 3.0) - 1.0).abs() < 1e-3, "{z}");
        // The analytic Gaussian mechanism.
        let z =
            noise_multiplier(budget(1.0, 1e-5), rate(1.0), steps(1), Accountant::Pld).unwrap().value.get();
        assert!((z / 3.730_631_634_8 - 1.0).abs() < 1e-3, "{z}");
        // prv_accountant's test_dpsgd.py: must not overflow.
        let hard = budget(4.0, 0.000_114_482_774_997_590_97);
        noise_multiplier(hard, rate(0.260_586_319_218_241_05), steps(18_800), Accountant::Pld).unwrap();
    }

    #[test]
    fn steps_match_a_published_example() {
        // jax_privacy, accounting.py doctest.
        let found =
            super::steps(budget(2.0, 1e-6), NoiseMultiplier::new(3.0).unwrap(), rate(0.1), Accountant::Pld);
        assert_eq!(found.unwrap().value.get(), 155);
    }

    #[test]
    fn one_more_step_would_exceed_the_budget() {
        let (z, q) = (NoiseMultiplier::new(1.1).unwrap(), rate(0.01));
        for accountant in [Accountant::Pld, Accountant::Rdp] {
            let most = super::steps(budget(2.0, 1e-5), z, q, accountant).unwrap();
            let price = |n| {
                accountant
                    .price(&Plan::dp_sgd(z, q, Steps::new(n).unwrap()), Delta::new(1e-5).unwrap())
                    .unwrap()
            };
            assert!(price(most.value.get()).epsilon.get() <= 2.0);
            assert!(price(most.value.get() + 1).epsilon.get() > 2.0);
        }
    }

    #[test]
    fn impossible_budgets_are_refused() {
        let one = Steps::new(1).unwrap();
        assert!(matches!(
            noise_multiplier(budget(0.0, 1e-5), rate(0.1), one, Accountant::Pld),
            Err(AccountingError::NoSolution { .. })
        ));
        let little = NoiseMultiplier::new(0.1).unwrap();
        assert!(matches!(
            super::steps(budget(0.1, 1e-5), little, rate(0.5), Accountant::Pld),
            Err(AccountingError::NoSolution { .. })
        ));
    }

    #[test]
    fn a_release_with_too_little_noise_leaves_none_for_the_other() {
        let z = |v| NoiseMultiplier::new(v).unwrap();
        assert!(remaining_noise_multiplier(z(1.0), z(1.0)).is_err());
        assert!(remaining_noise_multiplier(z(1.0), z(0.5)).is_err());
    }
}
