//! Properties of all plans, and comparisons with independent computations.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use sordino_accounting::{
    Accountant, AccountingError, Cap, Delta, Entry, Epsilon, Mu, NoiseMultiplier, Plan, Sampling,
    SamplingRate, Steps, gaussian, pld, rdp,
};

fn entry(noise_multiplier: f64, rate: f64, steps: u64) -> Entry {
    let rate = SamplingRate::new(rate).unwrap();
    Entry::poisson(NoiseMultiplier::new(noise_multiplier).unwrap(), rate, Steps::new(steps).unwrap())
}

fn dp_sgd(noise_multiplier: f64, rate: f64, steps: u64) -> Plan {
    Plan::new(vec![entry(noise_multiplier, rate, steps)])
}

fn delta(value: f64) -> Delta {
    Delta::new(value).unwrap()
}

fn bracket(plan: &Plan, d: f64) -> (f64, f64) {
    let bracket = pld::epsilon(plan, delta(d)).unwrap();
    (bracket.lower.get(), bracket.upper.get())
}

/// Realistic multipliers, rates, numbers of steps and deltas, on logarithmic scales.
fn settings() -> impl Strategy<Value = (f64, f64, u64, f64)> {
    (-0.7..1.5_f64, -4.0..-0.05_f64, 0.0..4.5_f64, 2.0..12.0_f64).prop_map(|(z, q, t, d)| {
        let steps = 10_f64.powf(t) as u64;
        (10_f64.powf(z), 10_f64.powf(q), steps.max(1), 10_f64.powf(-d))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(7), ..ProptestConfig::default() })]

    #[test]
    fn brackets_are_narrow_and_below_the_renyi_bound((z, q, t, d) in settings()) {
        let plan = dp_sgd(z, q, t);
        let (lower, upper) = bracket(&plan, d);
        let renyi = rdp::epsilon(&plan, delta(d)).unwrap().get();
        prop_assert!(lower <= upper);
        prop_assert!(upper - lower <= (0.002 * upper).max(1e-3), "[{lower}, {upper}]");
        prop_assert!(lower <= renyi, "{lower} > {renyi}");
        prop_assert!(upper <= renyi * 1.002 + 1e-6, "{upper} > {renyi}");
    }

    #[test]
    fn more_noise_lower_rates_and_fewer_steps_never_cost_more(
        (z, q, t, d) in settings(), less in 0.3..0.95_f64,
    ) {
        let (_, upper) = bracket(&dp_sgd(z, q, t), d);
        let fewer = ((t as f64 * less) as u64).max(1);
        for cheaper in [dp_sgd(z / less, q, t), dp_sgd(z, q * less, t), dp_sgd(z, q, fewer)] {
            let (lower, _) = bracket(&cheaper, d);
            prop_assert!(lower <= upper, "{cheaper:?}: {lower} > {upper}");
        }
        let more = bracket(&dp_sgd(z, q, t), (d * 3.0).min(0.5));
        prop_assert!(more.0 <= upper);
    }

    #[test]
    fn order_and_grouping_of_entries_do_not_matter(
        parts in prop::collection::vec((0.6..4.0_f64, 0.001..0.2_f64, 1..400_u64), 1..5), d in 3.0..9.0_f64,
    ) {
        let entries: Vec<Entry> = parts.iter().map(|&(z, q, t)| entry(z, q, t)).collect();
        let d = 10_f64.powf(-d);
        let whole = bracket(&Plan::new(entries.clone()), d);
        let reversed = bracket(&entries.iter().rev().cloned().collect(), d);
        prop_assert_eq!(whole, reversed);
        let split: Plan = parts.iter().flat_map(|&(z, q, t)| [entry(z, q, t.div_ceil(2)), entry(z, q, (t / 2).max(1))]).collect();
        if parts.iter().all(|(_, _, t)| *t > 1) {
            prop_assert_eq!(whole, bracket(&split, d));
        }
        let renyi = |plan: Plan| rdp::epsilon(&plan, delta(d)).unwrap().get();
        let (a, b) = (renyi(Plan::new(entries.clone())), renyi(entries.into_iter().rev().collect()));
        prop_assert!((a - b).abs() <= 1e-9 * a);
    }

    #[test]
    fn plans_survive_serialisation((z, q, t, _) in settings()) {
        let plan = dp_sgd(z, q, t);
        let text = serde_json::to_string(&plan).unwrap();
        prop_assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    }
}

/// `Pr[N(0,1) <= x]`.
fn phi(x: f64) -> f64 {
    0.5 * libm::erfc(-x / std::f64::consts::SQRT_2)
}

/// The textbook delta of one sampled Gaussian; the first hypothesis is the data set with the record (remove) or without it (add).
fn textbook_delta(z: f64, q: f64, epsilon: f64, remove: bool) -> f64 {
    let x = |l: f64| z * z * ((l.exp() - 1.0 + q) / q).ln() + 0.5;
    if remove {
        if epsilon <= (1.0 - q).ln() {
            return 1.0 - epsilon.exp();
        }
        let x = x(epsilon);
        q * phi(-(x - 1.0) / z) + (1.0 - q - epsilon.exp()) * phi(-x / z)
    } else {
        if epsilon >= -(1.0 - q).ln() {
            return 0.0;
        }
        let x = x(-epsilon);
        (1.0 - (1.0 - q) * epsilon.exp()) * phi(x / z) - q * epsilon.exp() * phi((x - 1.0) / z)
    }
}

/// The delta of two steps, by integrating the delta of the second step over the observations of the first.
fn two_steps_delta(first: (f64, f64), second: (f64, f64), epsilon: f64, remove: bool) -> f64 {
    let (z, q) = first;
    let density = |x: f64, mean: f64| {
        (-0.5 * ((x - mean) / z).powi(2)).exp() / (z * (2.0 * std::f64::consts::PI).sqrt())
    };
    let h = z / 200.0;
    (-2400_i32..=2600)
        .map(|i| {
            let x = f64::from(i) * h;
            let (absent, mixed) = (density(x, 0.0), (1.0 - q) * density(x, 0.0) + q * density(x, 1.0));
            let loss = (1.0 - q + q * ((2.0 * x - 1.0) / (2.0 * z * z)).exp()).ln();
            let (weight, loss) = if remove { (mixed, loss) } else { (absent, -loss) };
            h * weight * textbook_delta(second.0, second.1, epsilon - loss, remove)
        })
        .sum()
}

#[test]
fn one_and_two_steps_match_numerical_integration() {
    for (first, second) in [((1.0, 0.2), (0.7, 0.1)), ((2.0, 0.5), (2.0, 0.5)), ((0.6, 0.05), (3.0, 0.9))] {
        for epsilon in [0.05, 0.3, 1.0, 2.5] {
            let one = dp_sgd(first.0, first.1, 1);
            let two = Plan::new(vec![entry(first.0, first.1, 1), entry(second.0, second.1, 1)]);
            let worst = |f: &dyn Fn(bool) -> f64| f(true).max(f(false));
            let exact_one = worst(&|remove| textbook_delta(first.0, first.1, epsilon, remove));
            let exact_two = worst(&|remove| two_steps_delta(first, second, epsilon, remove));
            for (plan, exact) in [(one, exact_one), (two, exact_two)] {
                let bracket = pld::delta(&plan, Epsilon::new(epsilon).unwrap()).unwrap();
                let rounding = 1e-6 * exact + 1e-14;
                assert!(
                    bracket.lower <= exact + rounding && exact <= bracket.upper + rounding,
                    "{plan:?} at {epsilon}: {bracket:?} misses {exact}"
                );
                assert!(
                    bracket.upper - bracket.lower <= 0.02 * exact + 1e-14,
                    "{plan:?} at {epsilon}: {bracket:?}"
                );
            }
        }
    }
}

/// A rate just below 1 is composed on the grid; the full batch has a closed form.
#[test]
fn composed_gaussians_match_their_closed_form() {
    for (z, steps, d) in
        [(10.0, 50, 1e-5), (1.0, 1, 1e-6), (3.0, 200, 1e-8), (50.0, 4, 1e-3), (0.8, 30, 1e-10)]
    {
        let (lower, upper) = bracket(&dp_sgd(z, 1.0 - 1e-15, steps), d);
        let exact = gaussian::epsilon(Mu::new((steps as f64).sqrt() / z).unwrap(), delta(d)).get();
        assert!(
            lower <= exact * (1.0 + 1e-8) && exact <= upper * (1.0 + 1e-8),
            "{z} {steps}: [{lower}, {upper}] {exact}"
        );
    }
}

#[test]
fn full_batches_and_sampled_batches_compose() {
    let full = Entry::full_batch(NoiseMultiplier::new(20.0).unwrap(), Steps::new(100).unwrap());
    let mixed = Plan::new(vec![entry(1.0, 0.01, 500), full.clone()]);
    let (lower, upper) = bracket(&mixed, 1e-5);
    let parts = [dp_sgd(1.0, 0.01, 500), Plan::new(vec![full])].map(|plan| bracket(&plan, 5e-6).1);
    assert!(
        upper - lower < 0.002 * upper && upper < parts[0] + parts[1] && lower > parts[0].max(parts[1]) * 0.9
    );
}

/// Thousands of different multipliers: the bracket is narrow and agrees with brackets without mixtures.
#[test]
fn dynamic_schedules_are_enclosed() {
    let schedule = |n: u32, first: f64, last: f64| -> Plan {
        let z = |i: u32| first * (last / first).powf(f64::from(i) / f64::from(n - 1));
        (0..n).map(|i| entry(z(i), 250.0 / 60_000.0, 1)).collect()
    };
    for (first, last) in [(1.5, 1.0), (7.9, 0.79), (3.0, 0.7)] {
        let (lower, upper) = bracket(&schedule(3000, first, last), 1.0 / 600_000.0);
        assert!(upper - lower <= 0.002 * upper, "{first} {last}: [{lower}, {upper}]");
        // Twenty different multipliers have a rung each, without mixtures.
        let coarse = |n: u32, outward: f64| -> Plan {
            let z = |i: u32| first * (last / first).powf((f64::from(i) + outward) / f64::from(n));
            (0..n).map(|i| entry(z(i), 250.0 / 60_000.0, 3000 / u64::from(n))).collect()
        };
        // All steps of a section with its largest or with its smallest multiplier: a lower and an upper bound without mixtures.
        let (below, above) =
            (bracket(&coarse(20, 0.0), 1.0 / 600_000.0).0, bracket(&coarse(20, 1.0), 1.0 / 600_000.0).1);
        assert!(below <= upper && lower <= above, "{below} {above}: [{lower}, {upper}]");
    }
}

/// Mixtures of rungs must agree with a rung for every multiplier. The latter is forced by a second sampling rate that differs in the
/// last digit. The second range is so wide that the steps with the most noise are inside a single cell.
#[test]
fn mixtures_agree_with_exact_rungs() {
    for (first, last) in [(2.0, 0.6), (300.0, 0.6)] {
        let z = |i: u32| first * f64::powf(last / first, f64::from(i) / 47.0);
        let mixed: Plan = (0..48).map(|i| entry(z(i), 0.01, 20)).collect();
        let rate = |i: u32| if i % 4 < 2 { 0.01 } else { 0.010_000_000_000_001 };
        let exact: Plan = (0..48).map(|i| entry(z(i), rate(i), 20)).collect();
        let rates = exact.entries().iter().map(|e| e.sampling().to_string());
        assert_eq!(rates.collect::<std::collections::BTreeSet<_>>().len(), 2);
        let (mixed, exact) = (bracket(&mixed, 1e-6), bracket(&exact, 1e-6));
        assert!(mixed.0 <= exact.1 && exact.0 <= mixed.1, "{mixed:?} {exact:?}");
        assert!(
            (mixed.1 / exact.1 - 1.0).abs() < 2e-3 && (mixed.0 / exact.0 - 1.0).abs() < 2e-3,
            "{mixed:?} {exact:?}"
        );
    }
}

#[test]
fn the_empty_plan_costs_nothing() {
    for accountant in Accountant::ALL {
        let guarantee = accountant.price(&Plan::default(), delta(1e-9)).unwrap();
        assert_eq!(guarantee.epsilon.get(), 0.0, "{accountant}");
    }
}

#[test]
fn extreme_settings_are_answered_or_refused_by_name() {
    // Very little noise: refused, and the hint names the accountant that can compute it.
    let refused = pld::epsilon(&dp_sgd(1e-3, 0.1, 10), delta(1e-5)).unwrap_err();
    assert!(
        matches!(refused, AccountingError::OutOfReach { .. }) && refused.hint().contains("rdp"),
        "{refused}"
    );
    assert!(rdp::epsilon(&dp_sgd(1e-2, 0.1, 10), delta(1e-5)).unwrap().get() > 1e3);
    // A tiny sampling rate, and a huge multiplier.
    assert!(bracket(&dp_sgd(1.0, 1e-9, 1000), 1e-5).1 < 1e-6);
    assert!(bracket(&dp_sgd(1e7, 0.5, 1000), 1e-5).1 < 1e-3);
    // A rate of 1 is the full batch.
    let full = Plan::new(vec![Entry::full_batch(NoiseMultiplier::new(4.0).unwrap(), Steps::new(9).unwrap())]);
    assert_eq!(bracket(&dp_sgd(4.0, 1.0, 9), 1e-5), bracket(&full, 1e-5));
    // Tiny deltas and large epsilons keep the bracket narrow: errors are relative to delta.
    for (plan, d) in
        [(dp_sgd(2.0, 0.01, 1000), 1e-12), (dp_sgd(1.0, 0.01, 1000), 1e-30), (dp_sgd(0.5, 0.1, 2000), 1e-6)]
    {
        let (lower, upper) = bracket(&plan, d);
        assert!(upper - lower < 0.002 * upper, "{plan:?}: [{lower}, {upper}]");
        assert!(lower <= rdp::epsilon(&plan, delta(d)).unwrap().get());
    }
    let (lower, upper) = bracket(&dp_sgd(0.8, 0.05, 12_000), 1e-6);
    assert!(lower > 90.0 && upper < 120.0, "[{lower}, {upper}]");
    // A million and a billion steps.
    assert!(bracket(&dp_sgd(1.0, 1e-3, 1_000_000), 1e-5).1 < 6.04);
    assert!(bracket(&dp_sgd(30.0, 1e-4, 1_000_000_000), 1e-5).1 < 1.0);
}

/// Capped batches cost additional delta.
#[test]
fn caps_cost_delta() {
    let sampling = |max_batch_size| Sampling::Poisson {
        rate: SamplingRate::new(1024.0 / 50_000.0).unwrap(),
        cap: Some(Cap { max_batch_size, population: 50_000 }),
    };
    let plan = |max| {
        let z = NoiseMultiplier::new(4.0).unwrap();
        Plan::new(vec![Entry::new(sampling(max), vec![z], Steps::new(10_000).unwrap()).unwrap()])
    };
    let plain = bracket(&dp_sgd(4.0, 1024.0 / 50_000.0, 10_000), 1e-5);
    let (lower, loose) = bracket(&plan(1400), 1e-5);
    assert!(lower == 0.0 && loose >= plain.0 && loose < plain.1 * 1.01, "{loose} {plain:?}");
    // The total delta at the returned epsilon is within delta.
    let spent = pld::delta(&plan(1260), Epsilon::new(bracket(&plan(1260), 1e-5).1).unwrap()).unwrap();
    assert!(spent.upper <= 1e-5 * 1.02, "{spent:?}");
    assert!(bracket(&plan(1260), 1e-5).1 > loose);
    let refused = pld::epsilon(&plan(1100), delta(1e-5)).unwrap_err();
    assert!(refused.to_string().contains("max_batch_size"), "{refused}");
    assert!(rdp::epsilon(&plan(1400), delta(1e-5)).unwrap().get() > loose);
}

#[test]
fn poisson_and_fixed_size_batches_cannot_be_combined() {
    let sampling = Sampling::FixedSize { batch_size: 6, population: 600 };
    let fixed =
        Entry::new(sampling, vec![NoiseMultiplier::new(2.0).unwrap()], Steps::new(3).unwrap()).unwrap();
    let plan = Plan::new(vec![fixed, entry(1.0, 0.01, 5)]);
    assert!(matches!(rdp::epsilon(&plan, delta(1e-5)), Err(AccountingError::Unsupported { .. })));
}

/// A single step has a closed form, which holds for losses down to a billionth.
#[test]
fn tiny_losses_are_bracketed() {
    for (z, q, d) in [
        (1_611.145_453_546_135_7, 1.276_613_808_402_877_8e-8, 5.550_003_241_575_792e-13),
        (20_591.19, 1.0125e-8, 4.62e-14),
        (1e4, 1e-3, 1e-9),
        (1e6, 0.1, 1e-9),
    ] {
        let exact = |epsilon: f64| q * gaussian_delta((epsilon.exp_m1() / q).ln_1p(), 1.0 / z);
        match pld::epsilon(&dp_sgd(z, q, 1), delta(d)) {
            Ok(bracket) => {
                let (lower, upper) = (bracket.lower.get(), bracket.upper.get());
                assert!(exact(upper) <= d * (1.0 + 1e-9), "{z} {q}: {upper} {}", exact(upper));
                assert!(
                    lower <= 0.0 || exact(lower) >= d * (1.0 - 1e-9),
                    "{z} {q}: {lower} {}",
                    exact(lower)
                );
            }
            Err(refused) => assert!(matches!(refused, AccountingError::OutOfReach { .. }), "{refused}"),
        }
    }
}

fn gaussian_delta(epsilon: f64, mu: f64) -> f64 {
    gaussian::delta(Epsilon::new(epsilon).unwrap(), Mu::new(mu).unwrap())
}

/// Extreme numbers must not overflow and give a small epsilon.
#[test]
fn extreme_entries_are_expensive_or_refused() {
    let read = |text: &str| serde_json::from_str::<Plan>(text);
    for refused in [
        r#"[{"noise_multiplier":[1e-170,1.0],"sample_rate":0.01,"steps":100}]"#,
        r#"[{"noise_multiplier":1e-310,"sample_rate":0.5,"steps":1}]"#,
        r#"[{"noise_multiplier":1,"sample_rate":0.01,"steps":6148914691236517206}]"#,
        r#"[{"noise_multiplier":1,"sample_rate":0.01,"max_batch_size":5,"population":18446744073709551615,"steps":1}]"#,
    ] {
        assert!(read(refused).is_err(), "{refused}");
    }
    let fixed = |z: f64| {
        let text = format!(
            r#"[{{"sampling":"fixed-size","noise_multiplier":{z},"batch_size":100,"population":10000,"steps":1}}]"#
        );
        rdp::epsilon(&read(&text).unwrap(), delta(1e-5)).unwrap().get()
    };
    assert!(fixed(0.01) > 3e4 && fixed(0.005) > 1.5e5 && fixed(0.001) > 3.9e6 && fixed(1e-6) > 1e12);
    for z in [1e-6, 1e-5, 1e-3, 0.02] {
        assert!(
            matches!(pld::epsilon(&dp_sgd(z, 0.5, 1), delta(1e-5)), Err(AccountingError::OutOfReach { .. })),
            "{z}"
        );
    }
    // Very small multipliers: mixtures agree with a rung for every multiplier.
    let steep: Plan = (0..30).map(|i| entry(0.065 * (1.0 - 1e-3 * f64::from(i)), 0.01, 1)).collect();
    let (lower, upper) = bracket(&steep, 1e-5);
    let apart: Plan = (0..30)
        .map(|i| entry(0.065 * (1.0 - 1e-3 * f64::from(i)), 0.01 + 1e-13 * f64::from(i % 2), 1))
        .collect();
    let (exact_lower, exact_upper) = bracket(&apart, 1e-5);
    assert!(
        lower <= exact_upper && exact_lower <= upper && upper - lower < 0.002 * upper,
        "[{lower}, {upper}] [{exact_lower}, {exact_upper}]"
    );
}

/// The central limit theorem for `T` sampled Gaussians: `mu^2 = q^2 T (e^(1/z^2) - 1)`. With a noise multiplier of 1000 its error is
/// far below the width of a bracket.
#[test]
fn very_many_steps_are_bracketed() {
    for rate in [1.0 - 1e-9, 0.5, 0.01, 1e-4] {
        for steps in [1_000_000_u64, 1_000_000_000, Steps::MAX] {
            for d in [1e-5, 1e-12] {
                let mu = rate * (steps as f64 * 1e-6_f64.exp_m1()).sqrt();
                let limit = gaussian::epsilon(Mu::new(mu).unwrap(), delta(d)).get();
                let (lower, upper) = bracket(&dp_sgd(1000.0, rate, steps), d);
                assert!(
                    lower <= limit * (1.0 + 1e-4) && limit * (1.0 - 1e-4) <= upper,
                    "{rate} {steps} {d}: [{lower}, {upper}] {limit}"
                );
                assert!(upper <= 1.01 * lower, "{rate} {steps} {d}: [{lower}, {upper}]");
            }
        }
    }
}

/// Full-batch steps have a closed form, `mu = sqrt(T) / z`. A rate just below 1 is composed step by step and must agree with it.
#[test]
fn a_billion_nearly_full_batches_are_a_gaussian() {
    for (z, steps) in
        [(1000.0, 1_000_000_000_u64), (1e5, 1_000_000_000), (1e6, Steps::MAX), (30.0, 1_000_000)]
    {
        let exact = gaussian::epsilon(Mu::new((steps as f64).sqrt() / z).unwrap(), delta(1e-6)).get();
        let (lower, upper) = bracket(&dp_sgd(z, 1.0 - 1e-12, steps), 1e-6);
        assert!(lower <= exact * (1.0 + 1e-9) && exact * (1.0 - 1e-9) <= upper, "[{lower}, {upper}] {exact}");
        assert!(upper <= 1.01 * lower, "[{lower}, {upper}]");
    }
}

/// Many steps together with a few of another kind cost more than each part, and less than the Renyi bound.
#[test]
fn a_billion_steps_compose_with_other_steps() {
    let many = entry(2000.0, 0.02, 1_000_000_000);
    let both = bracket(&Plan::new(vec![many.clone(), entry(2.0, 0.1, 50)]), 1e-6);
    let (alone, others) =
        (bracket(&Plan::new(vec![many.clone()]), 1e-6), bracket(&dp_sgd(2.0, 0.1, 50), 1e-6));
    assert!(both.1 >= alone.0.max(others.0) && both.0 <= alone.1 + others.1, "{both:?} {alone:?} {others:?}");
    let renyi = rdp::epsilon(&Plan::new(vec![many, entry(2.0, 0.1, 50)]), delta(1e-6)).unwrap().get();
    assert!(both.1 <= 1.002 * renyi, "{both:?} {renyi}");
}
