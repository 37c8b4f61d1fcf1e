//! Concentrated differential privacy, which the two noise-decay baselines of the dynamic DP-SGD paper use.
//!
//! - **zCDP**: a Gaussian release with multiplier `z` costs `rho = 1/(2 z^2)`. The `rho`s of a composition add up. There is no
//!   amplification by sampling.
//! - **tCDP**: the divergence is bounded up to an order `omega`. Sampling at rate `q` turns `(rho, infinity)` into
//!   `(13 q^2 rho, ln(1/q) / (4 rho))`, provided that `q <= 0.1`, `rho <= 0.1` and `ln(1/q) >= 3 rho (2 + log2(1/rho))`.
//!   A step that violates these conditions is refused.
//!
//! Both mean that `rho(alpha) <= rho alpha` for orders `alpha` up to `omega`, and epsilon follows as for any Renyi divergence.
//!
//! # References
//! Bun and Steinke, "Concentrated Differential Privacy" (2016), Proposition 1.6 and Lemma 1.7; Bun, Dwork, Rothblum and
//! Steinke, "Composable and Versatile Privacy via Truncated CDP" (2018), Theorem 11; Yu, Liu, Pu, Gursoy and Truex (2019)
//! and Zhang, Zhao, Zhang et al. (2021) for the noise-decay algorithms.

use crate::{AccountingError, Delta, Entry, Epsilon, Plan, Relation, Sampling, number::real, rdp};

/// The epsilon of a plan by zCDP, without amplification by sampling.
///
/// # Errors
/// The plan has a stateful entry, or its epsilon is not a finite number.
pub fn zcdp_epsilon(plan: &Plan, delta: Delta) -> Result<Epsilon, AccountingError> {
    if let Some(entry) = plan.entries().iter().find(|e| matches!(e.sampling(), Sampling::Stateful { .. })) {
        return Err(AccountingError::stateful("zcdp", entry));
    }
    let rho: f64 = plan
        .entries()
        .iter()
        .map(|entry| real(entry.exposures()) * gaussian_rho(entry, plan.relation()))
        .sum();
    plan.with_cap(delta, |e| *e, |delta| to_epsilon(rho, f64::INFINITY, delta))
}

/// The epsilon of a plan by tCDP.
///
/// # Errors
/// The plan has a step that violates the conditions of the theorem on sampling, or fixed-size batches.
pub fn tcdp_epsilon(plan: &Plan, delta: Delta) -> Result<Epsilon, AccountingError> {
    let (mut rho, mut omega) = (0.0, f64::INFINITY);
    for entry in plan.entries() {
        let (step_rho, step_omega) = tcdp_step(entry, plan.relation())?;
        rho += real(entry.exposures()) * step_rho;
        omega = step_omega.min(omega);
    }
    plan.with_cap(delta, |e| *e, |delta| to_epsilon(rho, omega, delta))
}

fn gaussian_rho(entry: &Entry, relation: Relation) -> f64 {
    let sensitivity = if relation == Relation::ReplaceOne { 2.0 } else { 1.0 };
    0.5 * (sensitivity / entry.effective_noise_multiplier()).powi(2)
}

fn tcdp_step(entry: &Entry, relation: Relation) -> Result<(f64, f64), AccountingError> {
    let rho = gaussian_rho(entry, relation);
    let refused = |reason: String| AccountingError::Unsupported {
        accountant: "tcdp",
        entry: entry.to_string(),
        reason,
        instead: "use {accountant=pld} or {accountant=rdp}, which have no such conditions, or more noise",
    };
    match entry.sampling() {
        Sampling::FullBatch => Ok((rho, f64::INFINITY)),
        Sampling::Stateful { .. } => Err(AccountingError::stateful("tcdp", entry)),
        Sampling::Poisson { rate, .. } | Sampling::Rotating { rate, .. } => {
            let q = rate.get();
            if q > 0.1 || rho > 0.1 || -q.ln() < 3.0 * rho * (2.0 - rho.log2()) {
                return Err(refused(format!(
                    "its theorem needs a sampling rate of at most 0.1 and a noise multiplier of at least 2.24, got {q} and {:.4}",
                    entry.effective_noise_multiplier()
                )));
            }
            Ok((13.0 * q * q * rho, -q.ln() / (4.0 * rho)))
        }
        Sampling::FixedSize { .. } => Err(refused("its theorem is about Poisson sampling".to_owned())),
    }
}

fn to_epsilon(rho: f64, omega: f64, delta: Delta) -> Result<Epsilon, AccountingError> {
    if rho <= 0.0 {
        return Epsilon::new(0.0);
    }
    rdp::minimise(|order| {
        let divergence = if order.get() <= omega { rho * order.get() } else { f64::INFINITY };
        rdp::to_epsilon(order, divergence, delta)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdp::Order;

    #[test]
    fn zcdp_is_at_least_as_tight_as_its_textbook_conversion() {
        let delta = Delta::new(1e-5).unwrap();
        for (z, steps) in [(10.0, 100), (1.0, 1), (50.0, 10_000)] {
            let rho = 0.5 * real(steps) / (z * z);
            let textbook = rho + 2.0 * (rho * 1e5_f64.ln()).sqrt();
            let epsilon = zcdp_epsilon(&Plan::of_numbers(z, 0.01, steps), delta).unwrap().get();
            assert!(epsilon <= textbook && epsilon > 0.8 * textbook, "{epsilon} {textbook}");
        }
    }

    /// The bound of the theorem must exceed the exact divergence wherever it applies.
    #[test]
    fn tcdp_is_above_the_exact_divergence() {
        for rate in [0.1, 0.03, 0.004, 1e-4] {
            for z in [2.3, 3.0, 5.0, 20.0] {
                let one = Plan::of_numbers(z, rate, 1);
                let Ok((rho, omega)) = tcdp_step(&one.entries()[0], Relation::ZeroOut) else { continue };
                for part in [0.001, 0.1, 0.5, 0.9, 1.0] {
                    let order = Order::new(1.0 + part * (omega.min(1e4) - 1.0)).unwrap();
                    let exact = rdp::divergence(&one, order).unwrap();
                    assert!(
                        rho * order.get() >= exact,
                        "{rate} {z} {order:?}: {} {exact}",
                        rho * order.get()
                    );
                }
            }
        }
    }

    #[test]
    fn tcdp_refuses_steps_that_violate_its_conditions() {
        let delta = Delta::new(1e-5).unwrap();
        assert!(matches!(
            tcdp_epsilon(&Plan::of_numbers(1.0, 0.01, 10), delta),
            Err(AccountingError::Unsupported { .. })
        ));
        assert!(matches!(
            tcdp_epsilon(&Plan::of_numbers(4.0, 0.2, 10), delta),
            Err(AccountingError::Unsupported { .. })
        ));
        assert!(tcdp_epsilon(&Plan::of_numbers(4.0, 0.01, 10), delta).is_ok());
    }
}
