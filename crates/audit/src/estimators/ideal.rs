//! What an estimator reaches at best: its bound for the ideal attack on the Gaussian mechanism.
//!
//! Scores are N(0, 1) for non-members and N(mu, 1) for members, which is the most that the mechanism reveals. Counts are the expected ones, rounded
//! to whole numbers. An audit with a better bound was lucky, or the mechanism is not as private as claimed.

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
    /// The guesses. They depend on public numbers only, so they may be used in an audit without a correction for search.
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

/// Searches numbers of guesses from 1 at each end to all canaries, in steps of about 4 %.
fn best_guesses(canaries: u64, mu: f64, bound: impl Fn(Tally) -> f64) -> Ceiling {
    let mut best = Ceiling { epsilon: 0.0, guesses: Guesses::both(canaries / 4) };
    let mut smoothest = 0.0;
    let mut count = 1;
    while 2 * count <= canaries {
        let correct = 2.0 * expected_members(canaries, mu, count);
        let at = |correct: f64| bound(Tally { canaries, guesses: 2 * count, correct: correct as u64 });
        // A rounded count favours some numbers of guesses by chance. The choice is by the mean of both neighbours.
        let smooth =
            at(correct.floor()) + (correct - correct.floor()) * (at(correct.ceil()) - at(correct.floor()));
        if smooth > smoothest {
            smoothest = smooth;
            best.guesses = Guesses::both(count);
        }
        best.epsilon = best.epsilon.max(at(correct.round()));
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
