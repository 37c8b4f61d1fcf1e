//! What an estimator reaches at best: its bound for the ideal attack on the Gaussian mechanism.
//!
//! Scores are N(0, 1) for non-members and N(mu, 1) for members, which is the most that the mechanism reveals. Counts are the expected ones, rounded
//! to whole numbers. Single audits vary around the result.

use sordino_accounting::{Delta, Epsilon, gaussian};

use super::{
    Confidence, Family, Guesses,
    binomial::real,
    guesses::Tally,
    many_runs::Errors,
    normal::{cdf, quantile},
    one_run, one_run_fdp, one_run_gaussian,
};

/// The largest bound that can be expected from an estimator, and the guesses that lead to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ceiling {
    /// The bound.
    pub epsilon: f64,
    /// The guesses. They depend on public numbers only, so they may be used in an audit without a correction for multiple tests.
    pub guesses: Guesses,
}

/// The ceiling of [`one_run`](super::one_run) for a mechanism with this epsilon and delta.
pub fn one_run_ceiling(canaries: u64, claim: Epsilon, delta: Delta, confidence: Confidence) -> Ceiling {
    let level = confidence.level(1);
    best_guesses(canaries, gaussian::mu(claim, delta).get(), |tally| one_run::epsilon(tally, delta, level))
}

/// The ceiling of [`one_run_fdp`](super::one_run_fdp) with a Gaussian curve, for a mechanism with this epsilon and delta.
pub fn one_run_fdp_ceiling(canaries: u64, claim: Epsilon, delta: Delta, confidence: Confidence) -> Ceiling {
    let (family, level) = (Family::gaussian(delta), confidence.level(1));
    best_guesses(canaries, gaussian::mu(claim, delta).get(), |tally| {
        one_run_fdp::epsilon(tally, &family, level)
    })
}

/// The ceiling of [`one_run_gaussian`](super::one_run_gaussian) with a known spread, for a mechanism with this epsilon and delta.
pub fn one_run_gaussian_ceiling(canaries: u64, claim: Epsilon, delta: Delta, confidence: Confidence) -> f64 {
    let width = (4.0 / real(canaries)).sqrt();
    one_run_gaussian::epsilon(gaussian::mu(claim, delta).get() + quantile(confidence.level(1)) * width, delta)
}

/// The ceiling of [`many_runs`](super::many_runs) at the best threshold, if the canary is a member in half of the runs, for a mechanism with this
/// epsilon and delta.
pub fn many_runs_ceiling(
    runs: u64,
    claim: Epsilon,
    delta: Delta,
    family: &Family,
    confidence: Confidence,
) -> f64 {
    let mu = gaussian::mu(claim, delta).get();
    let half = runs / 2;
    let expected = |rate: f64| (real(half) * rate).round() as u64;
    let bound = |threshold: f64| {
        let errors = Errors {
            false_positives: expected(cdf(-threshold)),
            non_members: half,
            false_negatives: expected(cdf(threshold - mu)),
            members: half,
        };
        errors.epsilon(family, confidence.level(1))
    };
    (0..80).map(|i| bound(-1.0 + (mu + 5.0) * f64::from(i) / 80.0)).fold(0.0, f64::max)
}

/// Searches numbers of guesses from 1 at each end to all canaries, in steps of at most 4 %.
fn best_guesses(canaries: u64, mu: f64, bound: impl Fn(Tally) -> f64) -> Ceiling {
    let mut best = Ceiling { epsilon: 0.0, guesses: Guesses::both(canaries / 4) };
    let mut smoothest = 0.0;
    let mut count = 1;
    while 2 * count <= canaries {
        let expected = 2.0 * expected_members(canaries, mu, count);
        let at = |correct: f64| bound(Tally { canaries, guesses: 2 * count, correct: correct as u64 });
        let (below, above, rest) = (at(expected.floor()), at(expected.ceil()), expected.fract());
        // Rounding favours some numbers of guesses by chance. The choice is between means of both neighbours.
        let smooth = below + rest * (above - below);
        if smooth > smoothest {
            smoothest = smooth;
            best.guesses = Guesses::both(count);
        }
        best.epsilon = best.epsilon.max(if rest < 0.5 { below } else { above });
        count += 1 + count / 25;
    }
    best
}

/// The expected number of members among the `count` highest of `m` scores, half of which are expected to be members.
fn expected_members(m: u64, mu: f64, count: u64) -> f64 {
    let share = real(count) / real(m);
    let (mut low, mut high) = (-40.0, mu + 40.0);
    for _ in 0..100 {
        let mid = 0.5 * (low + high);
        if 0.5 * (cdf(-mid) + cdf(mu - mid)) > share { low = mid } else { high = mid }
    }
    0.5 * real(m) * cdf(mu - low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(epsilon: f64) -> (Epsilon, Delta, Confidence) {
        (Epsilon::new(epsilon).unwrap(), Delta::new(1e-5).unwrap(), Confidence::new(0.95).unwrap())
    }

    #[test]
    fn no_ceiling_is_above_the_claim() {
        for epsilon in [0.1, 1.0, 4.0, 12.0] {
            let (claim, delta, confidence) = numbers(epsilon);
            for canaries in [0, 1, 2, 10, 200] {
                let plain = one_run_ceiling(canaries, claim, delta, confidence).epsilon;
                let fdp = one_run_fdp_ceiling(canaries, claim, delta, confidence).epsilon;
                let means = one_run_gaussian_ceiling(canaries, claim, delta, confidence);
                assert!(plain < epsilon && fdp < epsilon && means < epsilon, "{epsilon} {canaries}");
                for family in [Family::approximate(delta), Family::gaussian(delta)] {
                    assert!(many_runs_ceiling(canaries, claim, delta, &family, confidence) < epsilon);
                }
            }
        }
    }

    #[test]
    fn the_expected_number_of_members_is_that_of_a_threshold() {
        // At the threshold mu/2, half of all scores are above, among them Phi(mu/2) of the members.
        assert!((expected_members(1000, 2.0, 500) - 500.0 * cdf(1.0)).abs() < 1e-9);
        assert!((expected_members(1000, 0.0, 120) - 60.0).abs() < 1e-9);
        assert!((expected_members(1000, 30.0, 120) - 120.0).abs() < 1e-9);
    }

    /// With guesses of members alone the f-DP form reaches 0.17, 0.73, 1.87 and 3.93 at epsilon 1, 2, 4 and 8.
    #[test]
    fn guesses_at_both_ends_are_better_than_guesses_of_members_alone() {
        for (epsilon, expected) in [(2.0, 0.73), (4.0, 1.865)] {
            let (claim, delta, confidence) = numbers(epsilon);
            let (mu, family) = (gaussian::mu(claim, delta).get(), Family::gaussian(delta));
            let bound = |count: u64| {
                let members = expected_members(1000, mu, count);
                let at = |correct: f64| {
                    let tally = Tally { canaries: 1000, guesses: count, correct: correct as u64 };
                    one_run_fdp::epsilon(tally, &family, confidence.level(1))
                };
                at(members.floor()) + members.fract() * (at(members.ceil()) - at(members.floor()))
            };
            let one_sided = (60..160).step_by(10).map(bound).fold(0.0, f64::max);
            assert!((one_sided - expected).abs() < 0.02, "{one_sided}");
            assert!(one_run_fdp_ceiling(1000, claim, delta, confidence).epsilon > 1.2 * one_sided);
        }
    }
}
