//! The central limit theorem of Gaussian differential privacy: fast and popular, but **not a bound**.
//!
//! In the limit of many steps, sampled releases together approach a single Gaussian release with
//!
//! ```text
//! mu_tot = sqrt( sum_t q_t^2 (e^(mu_t^2) - 1) ),      mu_t = 1 / (noise multiplier of step t),
//! ```
//!
//! At a finite number of steps the limit usually under-reports: an epsilon of 1 by the limit, at sampling rates of 0.001 and 0.0005,
//! is an exact epsilon of 2.3 and 4. This accountant exists to reproduce published numbers. Its results are marked as approximate.
//!
//! # References
//! Bu, Dong, Long and Su, "Deep Learning with Gaussian Differential Privacy" (2020), Theorem 5; Du, Li, Chen, Chen and Hong,
//! "Dynamic Differential-Privacy Preserving SGD", equation 7 (steps of unequal noise), equation 13 and Corollary 2.

use crate::{
    AccountingError, Delta, Entry, Epsilon, Mu, Plan, Sampling, SamplingRate, Steps, gaussian, number::real,
};

const NAME: &str = "gdp-clt";

/// `mu_tot` of a plan. Full-batch releases add their exact `mu_t^2`.
///
/// # Errors
/// The plan has fixed-size, capped or stateful batches, or so little noise that the formula overflows.
pub fn mu(plan: &Plan) -> Result<Mu, AccountingError> {
    let mut total = 0.0;
    for entry in plan.entries() {
        total += real(entry.exposures()) * squared_mu(entry)?;
    }
    checked(total.sqrt())
}

/// `mu_tot` of the first step, of the first two steps, and so on.
///
/// # Errors
/// Those of [`mu`], and rotating batches, because their cost does not grow at every step.
pub fn spent(plan: &Plan) -> Result<Vec<Mu>, AccountingError> {
    let mut total = 0.0;
    let mut spent = Vec::new();
    for entry in plan.entries() {
        if entry.exposures() != entry.steps().get() {
            return Err(unsupported(
                entry,
                "the mu after each step is computed for batches that do not rotate",
            ));
        }
        let step = squared_mu(entry)?;
        for _ in 0..entry.steps().get() {
            total += step;
            spent.push(checked(total.sqrt())?);
        }
    }
    Ok(spent)
}

/// What one step adds to the square of `mu_tot`.
fn squared_mu(entry: &Entry) -> Result<f64, AccountingError> {
    let mu = 1.0 / entry.effective_noise_multiplier();
    match entry.sampling() {
        Sampling::Stateful { .. } => Err(AccountingError::stateful(NAME, entry)),
        Sampling::Poisson { rate, cap: None } | Sampling::Rotating { rate, .. } if rate.get() < 1.0 => {
            Ok(rate.get().powi(2) * (mu * mu).exp_m1())
        }
        Sampling::Poisson { cap: None, .. } | Sampling::Rotating { .. } | Sampling::FullBatch => Ok(mu * mu),
        Sampling::Poisson { .. } | Sampling::FixedSize { .. } => {
            Err(unsupported(entry, "the theorem holds for Poisson sampling without a cap"))
        }
    }
}

fn unsupported(entry: &Entry, reason: &str) -> AccountingError {
    AccountingError::Unsupported {
        accountant: NAME,
        entry: entry.to_string(),
        reason: reason.to_owned(),
        instead: "use {accountant=rdp}",
    }
}

fn checked(mu: f64) -> Result<Mu, AccountingError> {
    Mu::new(mu).map_err(|_| AccountingError::OutOfReach {
        accountant: NAME,
        reason: "with so little noise its mu overflows".to_owned(),
        instead: "use {accountant=pld} or {accountant=rdp}",
    })
}

/// The `mu` of each of `T` equal steps that add up to `total` by the theorem: `sqrt(ln(total^2 / (q^2 T) + 1))`, equation 13 of Du et al.
///
/// # Errors
/// The result is not a number, for example because `total` is 0.
pub fn equal_mu(total: Mu, rate: SamplingRate, steps: Steps) -> Result<Mu, AccountingError> {
    checked((total.get().powi(2) / (rate.get().powi(2) * real(steps.get()))).ln_1p().sqrt())
}

/// The closed form of Corollary 2 of Du et al.: a `mu_0` with which the steps `mu_t = f_t mu_0` add up to less than `total` by the theorem.
///
/// Its equation 15 is `sigma = (q / mu_tot) sqrt(2 sum_t C_t^2 / s_t^2)` for noise `sigma s_t`. With `f_t = C_t / s_t` this is
///
/// ```text
/// mu_0 = mu_tot / (q sqrt(2 sum_t f_t^2)).
/// ```
///
/// It follows from `e^x - 1 < 2x`, which holds for `0 < x <= 1`. So **the result has to satisfy `f_t mu_0 <= 1` for every `t`**, which the
/// caller checks. The corollary needs up to `sqrt(2)` times the noise of the theorem, and like the theorem it is not a bound.
///
/// # Errors
/// The result is not a number, for example because there are no steps.
pub fn closed_form_mu(
    total: Mu,
    rate: SamplingRate,
    factors: impl IntoIterator<Item = f64>,
) -> Result<Mu, AccountingError> {
    let squares: f64 = factors.into_iter().map(|factor| factor * factor).sum();
    checked(total.get() / (rate.get() * (2.0 * squares).sqrt()))
}

/// The epsilon of the limiting Gaussian: an approximation, not a bound.
///
/// # Errors
/// As [`mu`].
pub fn epsilon(plan: &Plan, delta: Delta) -> Result<Epsilon, AccountingError> {
    Ok(gaussian::epsilon(mu(plan)?, delta))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_published_values() {
        // Bu et al. 2020, figure 4, MNIST with batch 256: mu and epsilon to two decimals.
        let rate = 256.0 / 60_000.0;
        assert!((mu(&Plan::of_numbers(0.638, rate, 16_406)).unwrap().get() - 1.78).abs() < 0.005);
        let delta = Delta::new(1e-5).unwrap();
        assert!((epsilon(&Plan::of_numbers(1.06, rate, 4_687), delta).unwrap().get() - 1.34).abs() < 0.005);
        // Opacus 1.6.0, accountants_test.py.
        assert!(
            (epsilon(&Plan::of_numbers(1.5, 0.04, 2249), delta).unwrap().get() - 6.599_820_769).abs() < 1e-6
        );
    }

    #[test]
    fn closed_forms_meet_their_total() {
        let (total, rate, steps) =
            (Mu::new(0.2).unwrap(), SamplingRate::new(250.0 / 60_000.0).unwrap(), Steps::new(5000).unwrap());
        // Equation 13 is exact.
        let equal = equal_mu(total, rate, steps).unwrap().get();
        let by_theorem = mu(&Plan::of_numbers(1.0 / equal, rate.get(), 5000)).unwrap().get();
        assert!((by_theorem / 0.2 - 1.0).abs() < 1e-12);
        // Corollary 2 has more noise, by a factor of at most the square root of 2.
        let closed = closed_form_mu(total, rate, vec![1.0; 5000]).unwrap().get();
        assert!(closed < equal && closed > equal / 2.0_f64.sqrt(), "{closed} {equal}");
        let factors = || (1..=5000).map(|t| 3.0_f64.powf(f64::from(t) / 5000.0));
        let mu_0 = closed_form_mu(total, rate, factors()).unwrap().get();
        assert!(3.0 * mu_0 <= 1.0);
        let plan: Plan = factors()
            .flat_map(|factor| Plan::of_numbers(1.0 / (factor * mu_0), rate.get(), 1).entries().to_vec())
            .collect();
        let spent = spent(&plan).unwrap();
        assert!(spent[4999].get() < 0.2 && spent[4999].get() > 0.2 / 2.0_f64.sqrt(), "{:?}", spent[4999]);
        assert!((spent[4999].get() / mu(&plan).unwrap().get() - 1.0).abs() < 1e-12);
        assert!((spent[99].get() / mu(&plan.first(100)).unwrap().get() - 1.0).abs() < 1e-12);
        assert!(closed_form_mu(total, rate, []).is_err());
    }

    #[test]
    fn entries_outside_of_the_theorem_are_refused() {
        let text =
            r#"[{"sampling":"fixed-size","noise_multiplier":1,"batch_size":1,"population":8,"steps":1}]"#;
        let plan: Plan = serde_json::from_str(text).unwrap();
        assert!(matches!(mu(&plan), Err(AccountingError::Unsupported { .. })));
        assert!(matches!(mu(&Plan::of_numbers(1e-3, 0.1, 1)), Err(AccountingError::OutOfReach { .. })));
    }
}
