//! Values from the test suites of other projects and from papers, quoted with their source.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use sordino_accounting::{
    Accountant, Delta, Entry, Epsilon, Mu, NoiseMultiplier, Plan, Sampling, SamplingRate, Steps, gaussian,
    pld::{self, GroupSize},
    rdp::{self, Order},
};

fn z(value: f64) -> NoiseMultiplier {
    NoiseMultiplier::new(value).unwrap()
}

fn delta(value: f64) -> Delta {
    Delta::new(value).unwrap()
}

fn steps(value: u64) -> Steps {
    Steps::new(value).unwrap()
}

fn dp_sgd(noise_multiplier: f64, rate: f64, t: u64) -> Plan {
    Plan::dp_sgd(z(noise_multiplier), SamplingRate::new(rate).unwrap(), steps(t))
}

fn full_batch(noise_multiplier: f64, t: u64) -> Plan {
    Plan::new(vec![Entry::full_batch(z(noise_multiplier), steps(t))])
}

/// The bracket is narrow and overlaps `[low, high]`.
fn assert_exact(plan: &Plan, d: f64, low: f64, high: f64) {
    let bracket = pld::epsilon(plan, delta(d)).unwrap();
    let (lower, upper) = (bracket.lower.get(), bracket.upper.get());
    assert!(lower <= high && upper >= low, "[{lower}, {upper}] misses [{low}, {high}] for {plan:?}");
    assert!(upper - lower <= (0.002 * upper).max(1e-3), "[{lower}, {upper}] is too wide for {plan:?}");
}

/// `(noise multiplier, rate, steps, delta, upper bound)`: Opacus 1.6.0, tests/prv_accountant.py and accountants_test.py, values
/// computed by prv_accountant with an error of at most 0.01 in epsilon in either direction.
const PRV_UPPER: &[(f64, f64, u64, f64, f64)] = &[
    (0.8, 0.001, 50000, 1e-06, 2.0345148077158663),
    (0.8, 0.05, 1000, 1e-06, 19.525842805383736),
    (0.8, 0.05, 50000, 1e-06, 291.3843254523965),
    (0.8, 0.2, 100, 1e-06, 24.333664177922564),
    (1.5, 0.001, 1000, 1e-06, 0.09982066023084749),
    (1.5, 0.001, 20000, 1e-06, 0.4370051086548608),
    (1.5, 0.001, 100000, 1e-06, 1.0152880750276079),
    (1.5, 0.04, 2249, 1e-05, 6.777395712150674),
    (1.5, 0.05, 100, 1e-06, 1.9538531356842002),
    (1.5, 0.05, 50000, 1e-06, 73.19017672383296),
    (1.5, 0.2, 100, 1e-06, 8.49897785912163),
    (2.0, 0.001, 50000, 1e-06, 0.4913549102114013),
    (2.0, 0.001, 100000, 1e-06, 0.7067199010818516),
    (2.0, 0.05, 1000, 1e-06, 4.172799866689319),
    (2.0, 0.2, 100, 1e-06, 5.6720556088237295),
    (3.0, 0.001, 1000, 1e-06, 0.04761593087135893),
    (3.0, 0.001, 20000, 1e-06, 0.1940310306860547),
    (3.0, 0.001, 100000, 1e-06, 0.4436717208808755),
    (3.0, 0.05, 100, 1e-06, 0.7679337896668256),
    (3.0, 0.2, 100, 1e-06, 3.3812205102218442),
];

#[test]
fn exact_values_agree_with_prv_accountant() {
    for &(noise_multiplier, rate, t, d, upper) in PRV_UPPER {
        assert_exact(&dp_sgd(noise_multiplier, rate, t), d, upper - 0.02, upper);
    }
}

#[test]
fn exact_values_agree_with_published_ones() {
    for (noise_multiplier, rate, t, d, printed, tolerance) in [
        // jax_privacy 2.0.0, tests/accounting/analysis_test.py.
        (4.0, 1024.0 / 50_000.0, 10_000, 1e-5, 2.09245, 3e-5),
        // tensorflow_privacy, compute_dp_sgd_privacy_test.py (microbatches double the sensitivity: 0.7 / 2).
        (0.35, 0.01, 120, 1e-5, 18.697_740_7, 1e-4),
        // Opacus 1.6.0, examples/mnist_README.md; Tramer and Boneh 2021; all priced by dp_accounting 0.6.0.
        (1.1, 0.004, 15_000, 1e-5, 2.295_467_9, 1e-3),
        (0.7, 0.004, 11_250, 1e-5, 5.431_222_7, 1e-3),
        (1.5, 0.04, 2249, 1e-5, 6.768_787_4, 1e-3),
        // tensorflow_privacy tutorial, 60 epochs of MNIST, priced by a PLD instead of the older Renyi conversion (3.01).
        (1.1, 256.0 / 60_000.0, 14_062, 1e-5, 2.3817, 1e-3),
    ] {
        assert_exact(&dp_sgd(noise_multiplier, rate, t), d, printed - tolerance, printed + tolerance);
    }
}

/// The DP-NSGD paper prints 2, 4 and 8; under Poisson sampling and zero-out the exact values are smaller.
#[test]
fn exact_values_of_the_dp_nsgd_paper() {
    for (noise_multiplier, exact) in [(3.6, 1.569), (2.0, 3.209), (1.2, 6.756)] {
        assert_exact(&dp_sgd(noise_multiplier, 0.02, 5000), 1e-5, exact - 2e-3, exact + 2e-3);
    }
}

/// Releases from the same batch are one release. Composing them as if each had a batch of its own would report 3.118.
#[test]
fn releases_from_one_batch_are_priced_as_one() {
    let pairs = [(1.0, 6.0), (2.0, 3.0)];
    for (a, b) in pairs {
        let sampling = Sampling::Poisson { rate: SamplingRate::new(0.01).unwrap(), cap: None };
        let both = Plan::new(vec![Entry::new(sampling, vec![z(a), z(b)], steps(1000)).unwrap()]);
        let one = dp_sgd((a.powi(-2) + b.powi(-2)).powf(-0.5), 0.01, 1000);
        assert_eq!(pld::epsilon(&both, delta(1e-5)).unwrap(), pld::epsilon(&one, delta(1e-5)).unwrap());
        let separate: Plan = [a, b].iter().flat_map(|m| dp_sgd(*m, 0.01, 1000).entries().to_vec()).collect();
        let (truth, wrong) =
            (pld::epsilon(&both, delta(1e-5)).unwrap(), pld::epsilon(&separate, delta(1e-5)).unwrap());
        assert!(wrong.upper < truth.lower);
    }
}

#[test]
fn gaussian_deltas_match_closed_forms() {
    // prv_accountant, tests/test_accountant.py.
    for (phases, epsilon, expected) in [
        (vec![(100.0, 9999)], 1.0, 0.126_919_134_130_299_48),
        (vec![(100.0, 10_000)], 10.0, 9.812_705_826_846_956e-23),
        (vec![(100.0, 9999)], 10.0, 9.762_440_353_227_572e-23),
        (vec![(10.0, 50), (5.0, 50)], 4.0, 0.016_455_672_864_108_956),
    ] {
        let plan: Plan = phases.iter().flat_map(|(m, t)| full_batch(*m, *t).entries().to_vec()).collect();
        let bracket = pld::delta(&plan, Epsilon::new(epsilon).unwrap()).unwrap();
        assert!(
            bracket.lower <= expected * (1.0 + 1e-9) && expected <= bracket.upper * (1.0 + 1e-9),
            "{bracket:?}"
        );
    }
    // tensorflow_privacy: two full batches at 0.7.
    let bracket = pld::epsilon(&full_batch(0.7, 2), delta(1e-5)).unwrap();
    assert!((bracket.upper.get() - 10.122_494_6).abs() < 1e-4);
    // The value without sampling that it prints: five epochs at multiplier 1.
    assert!((pld::epsilon(&full_batch(1.0, 5), delta(1e-6)).unwrap().upper.get() - 12.595).abs() < 1e-3);
}

#[test]
fn delta_at_epsilon_matches() {
    // dp_accounting 0.6.0, pld_privacy_accountant_test.py.
    let bracket = pld::delta(&dp_sgd(0.5, 0.2, 3), Epsilon::new(1.0).unwrap()).unwrap();
    assert!(
        bracket.lower <= 0.155_95 && 0.155_93 <= bracket.upper && bracket.upper < 1.01 * bracket.lower,
        "{bracket:?}"
    );
}

#[test]
fn groups_match_mixtures_of_gaussians() {
    // dp_accounting 0.6.0, from above: on a grid of 0.001, and of 0.0002 (jax_privacy 2.0.0 prints 5.00008 from one of 0.01).
    let group =
        |plan: &Plan, k| pld::epsilon_for_group(plan, GroupSize::new(k).unwrap(), delta(1e-5)).unwrap();
    let three = group(&dp_sgd(2.0, 0.01, 500), 3);
    assert!(three.lower.get() <= 1.44482 && three.upper.get() >= 1.4398, "{three:?}");
    let two = group(&dp_sgd(4.0, 1024.0 / 50_000.0, 10_000), 2);
    assert!(two.lower.get() <= 4.604_67 && two.upper.get() >= 4.6037, "{two:?}");
    // Without sampling, a group of k records has k times the sensitivity.
    let full = group(&full_batch(6.0, 4), 3);
    assert!(
        (full.upper.get() / gaussian::epsilon(Mu::new(1.0).unwrap(), delta(1e-5)).get() - 1.0).abs() < 1e-9
    );
}

#[test]
fn renyi_values_match() {
    for (noise_multiplier, rate, t, d, expected) in [
        (1.1, 0.004, 15_000, 1e-5, 2.502_870_93),
        (0.7, 0.004, 11_250, 1e-5, 6.093_728_89),
        (4.0, 1024.0 / 50_000.0, 10_000, 1e-5, 2.274_615),
        (3.0, 0.2, 50, 2.083_333_333e-5, 2.169_040_58),
        // tensorflow_privacy, compute_dp_sgd_privacy_test.py.
        (0.35, 0.01, 120, 1e-5, 22.624_860_1),
        (1.1, 256.0 / 60_000.0, 14_062, 1e-5, 2.5966),
    ] {
        let epsilon = rdp::epsilon(&dp_sgd(noise_multiplier, rate, t), delta(d)).unwrap().get();
        // The other projects search a grid of orders and overestimate fractional ones, so this value may be slightly smaller.
        assert!(
            epsilon <= expected * (1.0 + 1e-5) && epsilon >= 0.98 * expected,
            "{noise_multiplier} {rate}: {epsilon}"
        );
    }
    let epsilon = rdp::epsilon(&full_batch(0.7, 2), delta(1e-5)).unwrap().get();
    assert!((epsilon - 10.860_203_6).abs() < 5e-3, "{epsilon}");
    // dp_accounting 0.6.0, rdp_privacy_accountant_test.py.
    assert!((rdp::epsilon(&full_batch(4.530_877_117, 1), delta(1e-6)).unwrap().get() - 1.0).abs() < 1e-6);
    assert!((rdp::to_epsilon(Order::new(32.0).unwrap(), 1.1, delta(1e-5)) - 1.327_838_061_76).abs() < 1e-9);
    let rho = rdp::divergence(&full_batch(std::f64::consts::E, 1), Order::new(3.25).unwrap()).unwrap();
    assert!((rho - 3.25 / (2.0 * std::f64::consts::E.powi(2))).abs() < 1e-12);
    // tensorflow_privacy: very little noise and a million steps. Its grid ends at order 1.25, which gives 5,907,982. The best order
    // gives far less, and the exact epsilon is slightly smaller still.
    let plan = dp_sgd(0.1, 1024.0 / 1e8, 976_563);
    let (renyi, exact) =
        (rdp::epsilon(&plan, delta(1e-7)).unwrap(), pld::epsilon(&plan, delta(1e-7)).unwrap());
    assert!(renyi.get() < 1300.0 && exact.upper < renyi && exact.lower.get() > 1000.0, "{renyi} {exact:?}");
    let at_the_end = rdp::divergence(&plan, Order::new(1.25).unwrap()).unwrap();
    let at_the_end = rdp::to_epsilon(Order::new(1.25).unwrap(), at_the_end, delta(1e-7));
    assert!((at_the_end / 5_907_982.31 - 1.0).abs() < 1e-2, "{at_the_end}");
}

#[test]
fn fixed_size_batches_match_under_replace_one() {
    // dp_accounting 0.6.0: multiplier 2 relative to the replace-one sensitivity, which is twice that of removal.
    let sampling = Sampling::FixedSize { batch_size: 600, population: 60_000 };
    let plan = Plan::new(vec![Entry::new(sampling, vec![z(4.0)], steps(1000)).unwrap()]);
    let epsilon = rdp::epsilon(&plan, delta(1e-5)).unwrap().get();
    assert!((epsilon / 1.445_298_242 - 1.0).abs() < 1e-3, "{epsilon}");
    let refused = Accountant::Pld.price(&plan, delta(1e-5)).unwrap_err();
    assert!(refused.to_string().contains("fixed-size") && refused.hint().contains("rdp"));
}
