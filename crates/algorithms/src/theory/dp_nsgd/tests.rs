//! The formulas against direct computations.

use sordino_accounting::{Accountant, Delta, Epsilon, Plan, SamplingRate, calibrate::Budget};

use super::*;

const OBJECTIVE: Objective = Objective { l0: 2.0, l1: 0.5, tau0: 0.3, tau1: 0.2, gap: 1.7, dimension: 50.0 };

fn run(objective: &Objective, method: Method, multiplier: f64, steps: u64) -> Convergence {
    let z = NoiseMultiplier::new(multiplier).unwrap();
    convergence(objective, method, z, 100.0, Steps::new(steps).unwrap()).unwrap()
}

#[test]
fn step_sizes_are_those_of_the_theorems() {
    // Written out by hand: L = 0.5 (1 + 0.3) + 2 = 2.65 for r = c = 1; sigma = 1/100.
    let expected = (2.0 / (2.65 * 1e4 * 50.0 * 1e-4_f64)).sqrt();
    assert!(
        (run(&OBJECTIVE, Method::Normalised(1.0), 1.0, 10_000).learning_rate / expected - 1.0).abs() < 1e-12
    );
    assert!(
        (run(&OBJECTIVE, Method::Clipped(1.0), 1.0, 10_000).learning_rate / expected - 1.0).abs() < 1e-12
    );
    // c = 2: L = 0.5 (2.3) + 2 = 3.15, and c^2 = 4.
    let expected = (2.0 / (3.15 * 1e4 * 50.0 * 4e-4_f64)).sqrt();
    assert!(
        (run(&OBJECTIVE, Method::Clipped(2.0), 1.0, 10_000).learning_rate / expected - 1.0).abs() < 1e-12
    );
}

#[test]
fn the_bound_exists_from_the_least_number_of_steps_on() {
    for method in [Method::Normalised(1.0), Method::Clipped(1.0)] {
        let few = run(&OBJECTIVE, method, 1.0, 10);
        assert!(few.bound.is_none() && !few.conditions[1].holds);
        let least = few.least_steps as u64;
        assert!(run(&OBJECTIVE, method, 1.0, least).bound.is_some(), "{method:?}");
        assert!(run(&OBJECTIVE, method, 1.0, least * 99 / 100).bound.is_none(), "{method:?}");
        assert_eq!(run(&OBJECTIVE, method, 1.0, least).least_steps, least as f64);
    }
}

#[test]
fn no_number_of_steps_is_enough_for_a_regulariser_up_to_tau0() {
    let found = run(&OBJECTIVE, Method::Normalised(0.9 * OBJECTIVE.tau0), 1.0, 10_000);
    assert!(found.least_steps.is_infinite() && found.bound.is_none());
    assert!(found.conditions[1].text.contains("no learning rate is"), "{found:?}");
}

#[test]
fn thresholds_of_the_theorems_are_conditions() {
    for (method, holds) in [
        (Method::Normalised(0.3), false),
        (Method::Normalised(0.301), true),
        (Method::Clipped(0.749), false),
        (Method::Clipped(0.751), true),
    ] {
        let found = run(&OBJECTIVE, method, 1.0, 1 << 40);
        assert_eq!((found.conditions[0].holds, found.bound.is_some()), (holds, holds), "{method:?}");
    }
}

/// The floor of (5) is what the second term of (30) gives for many steps; a larger regulariser lowers it.
#[test]
fn the_floor_is_that_of_the_proof() {
    for r in [0.5, 1.0, 10.0] {
        let bias = 4.0 * 0.3_f64.powi(3) / (r * (r + 0.3) * 0.8_f64.powi(3));
        let second = 2.0 * (r + 0.6) / 0.3 * bias;
        let found = run(&OBJECTIVE, Method::Normalised(r), 1.0, 1 << 40);
        assert!((found.floor / second - 1.0).abs() < 1e-12);
        assert!(found.bound_floor > found.floor);
        let bound = found.bound.unwrap();
        assert!(
            bound >= found.bound_floor && bound < 1.05 * found.bound_floor,
            "{r}: {bound} {}",
            found.bound_floor
        );
    }
    assert!(bias_floor(&OBJECTIVE, 1.0) > bias_floor(&OBJECTIVE, 2.0));
    assert_eq!(run(&OBJECTIVE, Method::Clipped(1.0), 1.0, 100).floor, 0.0);
}

/// Lemma B.3, and Lemma B.5 as corrected, on two-point distributions of deviations along the gradient.
#[test]
fn the_descent_is_at_least_what_the_lemmas_say() {
    let (tau0, tau1) = (OBJECTIVE.tau0, OBJECTIVE.tau1);
    let rest = 1.0 - tau1;
    for s in (1..400).map(|i| 0.01 * f64::from(i)) {
        for share in [0.1_f64, 0.5, 0.9] {
            // Deviations a and -b with mean 0 and size at most tau0 + tau1 s, along the gradient.
            let most = tau0 + tau1 * s;
            let (a, b) = (most * ((1.0 - share) / share).min(1.0), most * (share / (1.0 - share)).min(1.0));
            let mean = |weight: &dyn Fn(f64) -> f64, value: &dyn Fn(f64) -> f64| {
                [(1.0 - share, s + b), (share, s - a)]
                    .map(|(p, g)| p * weight(g.abs()) * value(g))
                    .iter()
                    .sum::<f64>()
            };
            let p = [(1.0 - share) * b, share * a];
            assert!((p[0] - p[1]).abs() < 1e-9, "mean zero");
            for size in [0.8, 1.5, 5.0] {
                let alpha = tau0 * rest / (2.0 * size * rest + 4.0 * tau0);
                let normalise = |g: f64| 1.0 / (size + g);
                let left = mean(&normalise, &|g| s * g) - alpha * mean(&normalise, &|_| s * s);
                let right = if s >= tau0 / rest {
                    (tau0 / (size * rest + 2.0 * tau0) - alpha / rest) * s
                } else {
                    (1.0 - alpha) * rest / (size * rest + 2.0 * tau0) * s * s
                        - 4.0 * tau0.powi(3) / (size * (size + tau0) * rest.powi(3))
                };
                assert!(left >= right - 1e-12, "normalised {size} {s} {share}: {left} {right}");
                let clip = |g: f64| (size / g).min(1.0);
                let quarter = tau0 * rest / (4.0 * (size * rest + 2.0 * tau0));
                let right = if s >= tau0 / rest {
                    tau0 * size / (2.0 * (size * rest + 2.0 * tau0)) * s
                } else {
                    0.5 * s * s
                };
                let left = mean(&clip, &|g| s * g) - quarter * mean(&clip, &|_| s * s);
                assert!(left >= right - 1e-12, "clipped {size} {s} {share}");
            }
        }
    }
}

#[test]
fn the_lemma_has_the_noise_of_its_proof() {
    let (records, batch, steps) = (50_000.0, 1000.0, Steps::new(5000).unwrap());
    for epsilon in [0.5, 2.0, 8.0] {
        let budget = Budget { epsilon: Epsilon::new(epsilon).unwrap(), delta: Delta::new(1e-5).unwrap() };
        let found = lemma_noise(budget, records, batch, steps).unwrap();
        let (z, log) = (found.noise_multiplier, 1e5_f64.ln());
        let alpha = 4.0 * log / epsilon;
        assert!((7.0 * 5000.0 * 4e-4 * alpha / (z * z) / (epsilon / 2.0) - 1.0).abs() < 1e-9);
        assert!((-(alpha - 1.0) * epsilon / 2.0).exp() <= 1e-5);
        assert!(alpha <= z * z * 50_f64.ln() / 2.0);
        assert!(found.conditions.iter().all(|condition| condition.holds), "{found:?}");
        // Much more noise than is needed: the exact epsilon is far below.
        let plan = Plan::dp_sgd(NoiseMultiplier::new(z).unwrap(), SamplingRate::new(0.02).unwrap(), steps);
        let exact = Accountant::Pld.price(&plan, budget.delta).unwrap().epsilon.get();
        assert!(exact < 0.4 * epsilon, "{epsilon}: {z} {exact}");
    }
    let large = Budget { epsilon: Epsilon::new(40.0).unwrap(), delta: Delta::new(1e-5).unwrap() };
    let found = lemma_noise(large, records, 6000.0, steps).unwrap();
    let holds: Vec<bool> = found.conditions.iter().map(|condition| condition.holds).collect();
    assert_eq!(holds, [false, true, false, true, true], "{found:?}");
    assert!((LEMMA_C2 * LEMMA_C2 - 56.0).abs() < 1e-12);
}

/// Section 4.2 states a noise multiplier of 0.635 for epsilon 8, by Renyi accounting. SST-2 has 67,349 records, the batch size is 1000, and
/// there are 10 epochs.
#[test]
fn the_noise_for_sst2_costs_less_exactly_and_more_by_renyi() {
    let rate = SamplingRate::new(1000.0 / 67_349.0).unwrap();
    let plan = Plan::dp_sgd(NoiseMultiplier::new(0.635).unwrap(), rate, Steps::new(673).unwrap());
    let price =
        |accountant: Accountant| accountant.price(&plan, Delta::new(1e-5).unwrap()).unwrap().epsilon.get();
    assert!((price(Accountant::Pld) - 7.56).abs() < 0.01, "{}", price(Accountant::Pld));
    assert!((price(Accountant::Rdp) - 8.75).abs() < 0.01, "{}", price(Accountant::Rdp));
}

#[test]
fn the_linear_model_never_satisfies_the_assumption() {
    let found = linear_deviation(1.0, 2.0, 3.0, 0.5).unwrap();
    assert_eq!((found.tau0, found.tau1), (14.0, 8.0));
    // The best possible eigenvalue in one dimension.
    assert_eq!(linear_deviation(1.0, 2.0, 0.0, 4.0).unwrap().tau1, 1.0);
    assert!(linear_deviation(1.0, 2.0, 3.0, 4.1).is_err() && linear_deviation(1.0, 2.0, 3.0, 0.0).is_err());
    assert!(linear_deviation(f64::NAN, 2.0, 3.0, 1.0).is_err());
}

#[test]
fn steps_at_small_gradients_of_the_example_increase_the_loss() {
    let (r, tau0) = (2.0, 0.5);
    for s in [0.001, 0.01, 0.1, 0.2] {
        let term = |p: f64, g: f64| p * s * g / (r + g.abs());
        let direct = term(1.0 / 3.0, s + tau0) + term(2.0 / 3.0, s - tau0 / 2.0);
        assert!((example_descent(s, r, tau0) - direct).abs() < 1e-12);
    }
    // The paper: negative up to tau0^2 / (10 r).
    assert!(example_descent(tau0 * tau0 / (10.0 * r), r, tau0) < 0.0 && example_descent(0.1, r, tau0) > 0.0);
}

#[test]
fn numbers_out_of_range_are_refused() {
    let z = NoiseMultiplier::new(1.0).unwrap();
    let steps = Steps::new(10).unwrap();
    for wrong in [
        Objective { tau1: 1.0, ..OBJECTIVE },
        Objective { tau0: 0.0, ..OBJECTIVE },
        Objective { l0: 0.0, l1: 0.0, ..OBJECTIVE },
        Objective { l0: f64::NAN, ..OBJECTIVE },
        Objective { gap: -1.0, ..OBJECTIVE },
        Objective { dimension: 0.0, ..OBJECTIVE },
    ] {
        assert!(convergence(&wrong, Method::Normalised(1.0), z, 10.0, steps).is_err(), "{wrong:?}");
    }
    assert!(convergence(&OBJECTIVE, Method::Normalised(0.0), z, 10.0, steps).is_err());
    assert!(convergence(&OBJECTIVE, Method::Clipped(f64::NAN), z, 10.0, steps).is_err());
    assert!(convergence(&OBJECTIVE, Method::Clipped(1.0), z, 0.5, steps).is_err());
    // Without L1, only L0 limits the step size.
    let plain = Objective { l1: 0.0, ..OBJECTIVE };
    assert!(convergence(&plain, Method::Normalised(1.0), z, 10.0, steps).unwrap().least_steps.is_finite());
}

/// The conditions of the corollaries are those of the theorems with the noise of the lemma.
#[test]
fn corollaries_agree_with_the_theorems() {
    let budget = Budget { epsilon: Epsilon::new(1.0).unwrap(), delta: Delta::new(1e-5).unwrap() };
    for method in [Method::Normalised(1.5), Method::Clipped(1.5)] {
        let found = corollary(&OBJECTIVE, method, budget, 1e5).unwrap();
        let holds = |records: f64, steps: f64| {
            let steps = Steps::new(steps as u64).unwrap();
            let z = lemma_noise(budget, records, 100.0, steps).unwrap().noise_multiplier;
            convergence(&OBJECTIVE, method, NoiseMultiplier::new(z).unwrap(), 100.0, steps)
                .unwrap()
                .bound
                .is_some()
        };
        let steps = |records: f64| corollary(&OBJECTIVE, method, budget, records).unwrap().least_steps;
        let (few, many) = (0.99 * found.least_records, 1.01 * found.least_records);
        assert!(
            !holds(few, 10.0 * steps(few))
                && holds(many, 1.01 * steps(many))
                && !holds(many, 0.99 * steps(many)),
            "{method:?}"
        );
        assert!((found.decaying.powi(4) * found.order_of_steps - 1.0).abs() < 1e-9);
    }
    assert!(corollary(&OBJECTIVE, Method::Clipped(0.0), budget, 1e5).is_err());
}
