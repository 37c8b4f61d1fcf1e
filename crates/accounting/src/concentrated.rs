//! Concentrated differential privacy, which the two noise-decay baselines of the dynamic DP-SGD paper use.
//!
//! - **zCDP**: a Gaussian release with multiplier `z` costs `rho = 1/(2 z^2)`. The `rho`s of a composition add up. There is no
//!   amplification by sampling. Disjoint batches compose in parallel: a record is exposed only in the batch that contains it. So an entry
//!   counts its [exposures](crate::Entry::exposures) and not its steps.
//! - **tCDP**: the divergence is bounded up to an order `omega`. Sampling `n` of `N` records without replacement, `q = n/N`, turns
//!   `(rho, infinity)` into `(13 q^2 rho, ln(1/q) / (4 rho))`, provided that `q <= 0.1`, `rho <= 0.1` and
//!   `ln(1/q) >= 3 rho (2 + log2(1/rho))`. A step that violates these conditions is refused.
//!
//! Both mean that `rho(alpha) <= rho alpha` for orders `alpha` up to `omega`, and epsilon follows as for any Renyi divergence.
//!
//! # The sampling of the tCDP theorem
//!
//! The theorem is about sampling without replacement, and its neighbours differ by one replaced record. A replaced record shifts a clipped
//! sum by two clipping norms, so fixed-size batches have `rho = 2/z^2`, and the condition `rho <= 0.1` is `z >= 4.48`.
//!
//! Poisson sampling under zero-out is a different mechanism, and the theorem does not cover it. For it, epsilon is the larger of two
//! numbers: the theorem's value for `rho = 1/(2 z^2)`, as the noise-decay baselines are published, and the proved epsilon of the
//! accountant `pld`. So the printed epsilon is never below a proved one. (In all settings that were tried, the first number is larger.)
//!
//! Proposition E.3 of the DP-NSGD paper states the theorem for the Gaussian mechanism as `7 q^2 alpha / sigma^2` for
//! `alpha <= sigma^2 ln(1/q) / 2`. It leaves out the conditions on `rho` (that is, `sigma^2 >= 5`) and uses a sensitivity of 1,
//! although that of a replaced record is 2. Lemma 3.1 uses the proposition only up to an unnamed constant, so this factor does not matter
//! for the lemma.
//!
//! # References
//! Bun and Steinke, "Concentrated Differential Privacy" (2016), Proposition 1.6 and Lemma 1.7; Bun, Dwork, Rothblum and
//! Steinke, "Composable and Versatile Privacy via Truncated CDP" (2018), Theorem 11. The noise-decay algorithms: Yu, Liu, Pu, Gursoy and
//! Truex, "Differentially Private Model Publishing for Deep Learning" (2019); Zhang, Ding, Wu, Wong, Nguyen and Pan, "Adaptive Privacy
//! Preserving Deep Learning Algorithms for Medical Data" (2021).

use crate::{AccountingError, Delta, Entry, Epsilon, Plan, Relation, Sampling, number::real, pld, rdp};

/// The factor `13` of `13 q^2 rho`.
const AMPLIFICATION: f64 = 13.0;

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

/// The epsilon of a plan by tCDP. For Poisson batches it is at least the epsilon of [`pld`].
///
/// # Errors
/// The plan has a step that violates the conditions of the theorem on sampling; it mixes Poisson and fixed-size batches; [`pld`] cannot
/// price it.
pub fn tcdp_epsilon(plan: &Plan, delta: Delta) -> Result<Epsilon, AccountingError> {
    tcdp_with(AMPLIFICATION, plan, delta)
}

/// The epsilon by a theorem with this factor in place of 13.
fn tcdp_with(amplification: f64, plan: &Plan, delta: Delta) -> Result<Epsilon, AccountingError> {
    let (mut rho, mut omega) = (0.0, f64::INFINITY);
    for entry in plan.entries() {
        let (step_rho, step_omega) = tcdp_step(amplification, entry, plan.relation())?;
        rho += real(entry.exposures()) * step_rho;
        omega = step_omega.min(omega);
    }
    let theorem = plan.with_cap(delta, |e| *e, |delta| to_epsilon(rho, omega, delta))?;
    if plan.relation() == Relation::ReplaceOne || !plan.entries().iter().any(is_sampled) {
        return Ok(theorem);
    }
    // The theorem is about sampling without replacement. For Poisson batches only the exact price is proved.
    let exact = pld::epsilon(plan, delta)?.upper;
    Ok(if exact > theorem { exact } else { theorem })
}

/// Whether each record joins the batch at random, independently of the others.
fn is_sampled(entry: &Entry) -> bool {
    matches!(entry.sampling(), Sampling::Poisson { rate, .. } | Sampling::Rotating { rate, .. } if rate.get() < 1.0)
}

fn gaussian_rho(entry: &Entry, relation: Relation) -> f64 {
    let sensitivity = if relation == Relation::ReplaceOne { 2.0 } else { 1.0 };
    0.5 * (sensitivity / entry.effective_noise_multiplier()).powi(2)
}

/// `(rho, omega)` of one exposure.
fn tcdp_step(amplification: f64, entry: &Entry, relation: Relation) -> Result<(f64, f64), AccountingError> {
    let rho = gaussian_rho(entry, relation);
    let refused = |reason: String| AccountingError::Unsupported {
        accountant: "tcdp",
        entry: entry.to_string(),
        reason,
        instead: "use {accountant=pld} or {accountant=rdp}, which have no such conditions, or more noise",
    };
    let q = match entry.sampling() {
        Sampling::Stateful { .. } => return Err(AccountingError::stateful("tcdp", entry)),
        Sampling::FullBatch => 1.0,
        Sampling::FixedSize { batch_size, population } => real(batch_size) / real(population),
        Sampling::Poisson { .. } | Sampling::Rotating { .. } if relation == Relation::ReplaceOne => {
            return Err(refused(
                "the plan also has fixed-size batches, which are priced under replace-one".to_owned(),
            ));
        }
        Sampling::Poisson { rate, .. } | Sampling::Rotating { rate, .. } => rate.get(),
    };
    if q >= 1.0 {
        return Ok((rho, f64::INFINITY));
    }
    // Written so that a NaN is refused.
    if !(q <= 0.1 && rho <= 0.1 && -q.ln() >= 3.0 * rho * (2.0 - rho.log2())) {
        let least = if relation == Relation::ReplaceOne { 4.48 } else { 2.24 };
        return Err(refused(format!(
            "its theorem needs a sampling rate of at most 0.1 and a noise multiplier of at least {least}, got {q} and {:.4}",
            entry.effective_noise_multiplier()
        )));
    }
    Ok((amplification * q * q * rho, -q.ln() / (4.0 * rho)))
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
    use crate::{Accountant, NoiseMultiplier, SamplingRate, Steps, rdp::Order};

    fn plan(sampling: Sampling, z: f64, steps: u64) -> Plan {
        let releases = vec![NoiseMultiplier::new(z).unwrap()];
        Plan::new(vec![Entry::new(sampling, releases, Steps::new(steps).unwrap()).unwrap()])
    }

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
                let Ok((rho, omega)) = tcdp_step(AMPLIFICATION, &one.entries()[0], Relation::ZeroOut) else {
                    continue;
                };
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

    /// A theorem that does not hold for Poisson batches, here one with a factor of 0.01, cannot lower epsilon below the exact price.
    #[test]
    fn tcdp_of_poisson_batches_is_never_below_the_exact_price() {
        let delta = Delta::new(1e-6).unwrap();
        let rotating = Sampling::Rotating { rate: SamplingRate::new(0.05).unwrap(), groups: 3 };
        for plan in [Plan::of_numbers(3.0, 0.01, 2000), plan(rotating, 4.0, 301)] {
            let exact = pld::epsilon(&plan, delta).unwrap().upper;
            assert_eq!(tcdp_with(0.01, &plan, delta).unwrap(), exact);
            assert!(tcdp_epsilon(&plan, delta).unwrap() > exact);
        }
    }

    /// The theorem as Bun et al. state it, with the sensitivity of a replaced record.
    #[test]
    fn tcdp_of_fixed_size_batches_has_sensitivity_two() {
        let delta = Delta::new(1e-5).unwrap();
        let fixed = plan(Sampling::FixedSize { batch_size: 10, population: 1000 }, 8.0, 500);
        let (rho, omega) = (500.0 * 13.0 * 1e-4 * 2.0 / 64.0, 100.0_f64.ln() / (4.0 * 2.0 / 64.0));
        let by_hand = to_epsilon(rho, omega, delta).unwrap().get();
        let guarantee = Accountant::Tcdp.price(&fixed, delta).unwrap();
        assert!((guarantee.epsilon.get() / by_hand - 1.0).abs() < 1e-9, "{guarantee:?} {by_hand}");
        assert_eq!(guarantee.relation, Relation::ReplaceOne);
        // The bound of Wang, Balle and Kasiviswanathan for the same batches is proved independently, and is smaller.
        assert!(rdp::epsilon(&fixed, delta).unwrap() < guarantee.epsilon);
        let refused =
            |plan: &Plan| matches!(tcdp_epsilon(plan, delta), Err(AccountingError::Unsupported { .. }));
        assert!(refused(&plan(Sampling::FixedSize { batch_size: 10, population: 1000 }, 4.4, 500)));
        assert!(refused(&plan(Sampling::FixedSize { batch_size: 101, population: 1000 }, 8.0, 500)));
        let mixed = [fixed.entries(), Plan::of_numbers(8.0, 0.01, 5).entries()].concat();
        assert!(refused(&Plan::new(mixed)));
    }

    /// A record is in one batch of each rotation, so disjoint batches cost as much as one full batch in each rotation.
    #[test]
    fn disjoint_batches_compose_in_parallel() {
        let delta = Delta::new(1.0 / 600_000.0).unwrap();
        let disjoint = Sampling::Rotating { rate: SamplingRate::new(1.0).unwrap(), groups: 240 };
        for accountant in [Accountant::Zcdp, Accountant::Tcdp, Accountant::Rdp, Accountant::Pld] {
            // 21 rotations, the last of which is not complete.
            let parallel = accountant.price(&plan(disjoint, 17.1, 5000), delta).unwrap().epsilon;
            let full = accountant.price(&plan(Sampling::FullBatch, 17.1, 21), delta).unwrap().epsilon;
            assert_eq!(parallel, full, "{accountant}");
        }
        let epsilon = |plan: &Plan| zcdp_epsilon(plan, delta).unwrap().get();
        // The multipliers of an epsilon of 1.2 with and without parallel composition.
        assert!((epsilon(&plan(disjoint, 17.1, 5000)) - 1.2).abs() < 1e-2);
        assert!((epsilon(&Plan::of_numbers(264.0, 250.0 / 60_000.0, 5000)) - 1.2).abs() < 1e-2);
    }
}
