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
//! Bu, Dong, Long and Su, "Deep Learning with Gaussian Differential Privacy" (2020), Theorem 5; Du, Li, Feng and Chen,
//! "Dynamic Differential-Privacy Preserving SGD" (2021), equation 7 (steps of unequal noise).

use crate::{AccountingError, Delta, Epsilon, Mu, Plan, Sampling, gaussian, number::real};

const NAME: &str = "gdp-clt";

/// `mu_tot` of a plan. Full-batch releases add their exact `mu_t^2`.
///
/// # Errors
/// The plan has fixed-size, capped or stateful batches, or so little noise that the formula overflows.
pub fn mu(plan: &Plan) -> Result<Mu, AccountingError> {
    let mut total = 0.0;
    for entry in plan.entries() {
        let steps = real(entry.exposures());
        let mu = 1.0 / entry.effective_noise_multiplier();
        total += steps
            * match entry.sampling() {
                Sampling::Stateful { .. } => return Err(AccountingError::stateful(NAME, entry)),
                Sampling::Poisson { rate, cap: None } | Sampling::Rotating { rate, .. }
                    if rate.get() < 1.0 =>
                {
                    rate.get().powi(2) * (mu * mu).exp_m1()
                }
                Sampling::Poisson { cap: None, .. } | Sampling::Rotating { .. } | Sampling::FullBatch => {
                    mu * mu
                }
                Sampling::Poisson { .. } | Sampling::FixedSize { .. } => {
                    return Err(AccountingError::Unsupported {
                        accountant: NAME,
                        entry: entry.to_string(),
                        reason: "the theorem holds for Poisson sampling without a cap".to_owned(),
                        instead: "use {accountant=rdp}",
                    });
                }
            };
    }
    Mu::new(total.sqrt()).map_err(|_| AccountingError::OutOfReach {
        accountant: NAME,
        reason: "with so little noise its mu overflows".to_owned(),
        instead: "use {accountant=pld} or {accountant=rdp}",
    })
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
    fn entries_outside_of_the_theorem_are_refused() {
        let text =
            r#"[{"sampling":"fixed-size","noise_multiplier":1,"batch_size":1,"population":8,"steps":1}]"#;
        let plan: Plan = serde_json::from_str(text).unwrap();
        assert!(matches!(mu(&plan), Err(AccountingError::Unsupported { .. })));
        assert!(matches!(mu(&Plan::of_numbers(1e-3, 0.1, 1)), Err(AccountingError::OutOfReach { .. })));
    }
}
