//! What the estimators reach at best, and that ideal attacks reach it.

use crate::simulation::{canaries, claim, confidence, delta, gaussian_mechanism, seeded};
use sordino_audit::estimators::{
    Family, LowerBound, Scored, Spread, many_runs_ceiling, one_run, one_run_ceiling, one_run_fdp,
    one_run_fdp_ceiling, one_run_gaussian, one_run_gaussian_ceiling,
};

/// Epsilon, and the ceilings at 1,000 canaries of `one_run`, `one_run_fdp` and `one_run_gaussian`, computed with scipy 1.17.1 by an independent
/// program: the best of `k` = 1, 2, ..., 25, 27, ... guesses at each end (steps of `1 + k // 25`), with the expected number of correct guesses
/// rounded to the nearest whole number, and tails by `scipy.stats.binom.sf`.
const ONE_RUN: [(f64, [f64; 3]); 4] = [
    (1.0, [0.2321, 0.3503, 0.584]),
    (2.0, [0.6852, 1.0046, 1.544]),
    (4.0, [1.5677, 2.2876, 3.488]),
    (8.0, [2.9820, 4.7565, 7.402]),
];

/// Epsilon, and the ceilings at 2,000 runs of `many_runs` with an (epsilon, delta) curve and with a Gaussian curve, computed with scipy 1.17.1 from
/// `scipy.stats.beta.ppf(0.975, k + 1, 1000 - k)` at the best of 300 thresholds.
const MANY_RUNS: [(f64, [f64; 2]); 4] =
    [(1.0, [0.123, 0.382]), (2.0, [0.495, 1.312]), (4.0, [1.301, 3.210]), (8.0, [2.675, 6.979])];

#[test]
fn ceilings_of_one_run_equal_those_of_an_independent_program() {
    for (epsilon, expected) in ONE_RUN {
        let (m, claim, delta, confidence) = (1000, claim(epsilon), delta(), confidence());
        let got = [
            one_run_ceiling(m, claim, delta, confidence).epsilon,
            one_run_fdp_ceiling(m, claim, delta, confidence).epsilon,
            one_run_gaussian_ceiling(m, claim, delta, confidence),
        ];
        for (got, expected) in got.into_iter().zip(expected) {
            assert!((got - expected).abs() < 1e-3, "epsilon {epsilon}: {got} against {expected}");
        }
    }
}

#[test]
fn ceilings_of_many_runs_equal_those_of_an_independent_program() {
    for (epsilon, expected) in MANY_RUNS {
        for (family, expected) in
            [Family::approximate(delta()), Family::gaussian(delta())].iter().zip(expected)
        {
            let got = many_runs_ceiling(2000, claim(epsilon), delta(), family, confidence());
            // The grids of thresholds differ.
            assert!((got - expected).abs() < 0.03, "epsilon {epsilon}: {got} against {expected}");
        }
    }
}

/// The mean bound of simulated runs.
fn mean(epsilon: f64, runs: u32, bound: impl Fn(&[Scored]) -> LowerBound) -> f64 {
    let mut rng = seeded(1);
    let score = gaussian_mechanism(epsilon);
    (0..runs).map(|_| bound(&canaries(1000, &mut rng, &score)).epsilon).sum::<f64>() / f64::from(runs)
}

#[test]
fn ideal_attacks_reach_nine_tenths_of_the_ceilings() {
    for epsilon in [1.0, 2.0, 4.0, 8.0] {
        let (m, claim, delta, confidence) = (1000, claim(epsilon), delta(), confidence());
        let ceiling = one_run_ceiling(m, claim, delta, confidence);
        let got = mean(epsilon, 400, |scores| one_run(scores, &[ceiling.guesses], delta, confidence));
        assert!(got >= 0.9 * ceiling.epsilon, "one run, {epsilon}: {got} of {}", ceiling.epsilon);
        let ceiling = one_run_fdp_ceiling(m, claim, delta, confidence);
        let family = Family::gaussian(delta);
        let got = mean(epsilon, 100, |scores| one_run_fdp(scores, &[ceiling.guesses], &family, confidence));
        assert!(got >= 0.9 * ceiling.epsilon, "f-DP, {epsilon}: {got} of {}", ceiling.epsilon);
        let ceiling = one_run_gaussian_ceiling(m, claim, delta, confidence);
        for spread in [Spread::Known(1.0), Spread::Estimated] {
            let got = mean(epsilon, 100, |scores| one_run_gaussian(scores, spread, delta, confidence));
            assert!(got >= 0.9 * ceiling, "{spread:?}, {epsilon}: {got} of {ceiling}");
        }
    }
}
