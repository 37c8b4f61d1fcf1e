//! One run with many canaries: the bound of Steinke, Nasr and Jagielski.

use sordino_accounting::Delta;

use super::{
    Confidence, Guesses, LowerBound, Scored,
    binomial::{Binomial, real},
    guesses::{Ranking, Tally},
    search::{FINE, largest_refuted},
};

/// A lower bound on epsilon from one run with `m` canaries, each of which was a member with probability 1/2, independently of the others.
///
/// Let `v` of `r` guesses be correct. If training is (epsilon, delta)-private, then with `q = e^epsilon / (1 + e^epsilon)` at least `v` correct
/// guesses have a probability of at most
///
/// ```text
/// p = Pr[Bin(r, q) >= v] + 2 m delta max_{1 <= i <= v} Pr[v - i <= Bin(r, q) < v] / i.
/// ```
///
/// The bound is the largest epsilon with `p <= 1 - confidence`. If there are several guesses in the list, each of them has an equal share of
/// `1 - confidence`, and the bound is the largest of theirs.
///
/// **Guarantees.** Holds for any mechanism and any scores, if the list of guesses was fixed before the scores were known.
/// It assumes nothing about the trade-off curve, and it is far from tight: see [`one_run_ceiling`](super::one_run_ceiling).
///
/// **Edge cases.** Ties and NaN count as wrong guesses. An empty list of scores or of guesses gives 0. A `2 m delta` near 1 or above gives 0.
/// A confidence below 3/4 is raised to 3/4.
///
/// **References.** Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run" (2023).
pub fn one_run(scores: &[Scored], guesses: &[Guesses], delta: Delta, confidence: Confidence) -> LowerBound {
    let ranking = Ranking::new(scores);
    let level = confidence.level(guesses.len());
    let bounds = guesses.iter().map(|&guess| epsilon(ranking.tally(guess), delta, level));
    LowerBound {
        estimator: "one run".to_owned(),
        assumption: None,
        confidence,
        epsilon: bounds.fold(0.0, f64::max),
        points: ranking.points(guesses),
    }
}

/// The largest epsilon that is refuted at a level.
///
/// The refuted epsilons are a range that starts at 0 if the level is at most 1/4. Let `X = Bin(r, q)`, `c = 2 m delta`, and let `i` attain the
/// maximum, which is the mean of `Pr[X = j]` over a window `v - i <= j < v`. From `d/dq Pr[X >= k] = (k/q) Pr[X = k]`,
///
/// ```text
/// q dp/dq = v Pr[X = v] (1 - c/i) + (c/i) (v - i) Pr[X = v - i],
/// ```
///
/// which is at least 0 if `c <= i`. Otherwise the window contains the mode, because a mean over a window that ends short of the mode grows with the window; so
/// `p >= Pr[X >= v] + Pr[v - i <= X < v] >= Pr[X >= mode] > 1/4` (if `v` is at or below the mode, this is already so for the first term). So
/// wherever `p <= 1/4`, it does not fall.
/// (`Pr[X >= rq] > 1/4` is the theorem of Greenberg and Mohri, 2014, for `q > 1/r`. The case `r = 1` is `Pr[X = 1] = q >= 1/2`.)
pub(super) fn epsilon(tally: Tally, delta: Delta, level: f64) -> f64 {
    let level = level.min(0.25);
    largest_refuted(FINE, |epsilon| p_value(tally, epsilon, delta.get()) <= level)
}

/// The probability of at least this many correct guesses, at most, under (epsilon, delta)-privacy.
fn p_value(tally: Tally, epsilon: f64, delta: f64) -> f64 {
    let Tally { canaries, guesses, correct } = tally;
    if correct == 0 {
        return 1.0;
    }
    let complement = 1.0 / (1.0 + epsilon.exp());
    if complement == 0.0 {
        return 1.0;
    }
    let binomial = Binomial { n: guesses, p: 1.0 - complement, complement };
    let excess = 2.0 * real(canaries) * delta * largest_mean(binomial.downward(correct - 1));
    (binomial.upper_tail(correct) + excess).min(1.0)
}

/// The largest mean of the first `i` terms, over all `i`, of terms that first rise and then fall.
fn largest_mean(terms: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut count, mut largest) = (0.0, 0.0, 0.0);
    for term in terms {
        // Once a term is below the mean it is on the falling side, and so are all later ones.
        if term < largest {
            break;
        }
        sum += term;
        count += 1.0;
        largest = sum / count;
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(value: f64) -> Delta {
        Delta::new(value).unwrap()
    }

    /// The formula as printed, term by term.
    fn naive_p_value(m: u64, r: u64, v: u64, epsilon: f64, delta: f64) -> f64 {
        let q = epsilon.exp() / (1.0 + epsilon.exp());
        let pmf: Vec<f64> = (0..=r).map(|k| Binomial::new(r, q).pmf(k)).collect();
        let between = |low: u64, high: u64| -> f64 { (low..high).map(|k| pmf[k as usize]).sum() };
        let alpha = (1..=v).map(|i| between(v - i, v) / real(i)).fold(0.0, f64::max);
        (between(v, r + 1) + 2.0 * real(m) * delta * alpha).min(1.0)
    }

    #[test]
    fn p_values_equal_the_formula_as_printed() {
        for (m, r) in [(1, 1), (10, 7), (100, 100), (1000, 80)] {
            for v in 0..=r {
                for epsilon in [0.0, 0.5, 2.0, 6.0] {
                    for delta in [1e-9, 1e-4, 0.01] {
                        let tally = Tally { canaries: m, guesses: r, correct: v };
                        let (got, naive) =
                            (p_value(tally, epsilon, delta), naive_p_value(m, r, v, epsilon, delta));
                        let naive = if v == 0 { 1.0 } else { naive };
                        assert!((got - naive).abs() < 1e-9, "{tally:?} {epsilon}: {got} {naive}");
                    }
                }
            }
        }
    }

    #[test]
    fn refuted_epsilons_are_a_range_that_starts_at_0() {
        for (m, r) in [(50, 1), (50, 9), (50, 50), (1000, 80), (1000, 1000)] {
            for v in (0..=r).step_by(1 + r as usize / 50) {
                for delta in [1e-9, 1e-4, 1e-3, 1e-2, 0.1] {
                    let tally = Tally { canaries: m, guesses: r, correct: v };
                    let values: Vec<f64> =
                        (0..400).map(|i| p_value(tally, f64::from(i) * 0.02, delta)).collect();
                    let refuted = values.iter().take_while(|p| **p <= 0.25).count();
                    assert!(values[..refuted].is_sorted(), "{tally:?} {delta}");
                    assert!(values[refuted..].iter().all(|p| *p > 0.25), "{tally:?} {delta}");
                }
            }
        }
    }

    #[test]
    fn without_delta_all_correct_is_a_power() {
        // q^r = level, so epsilon = ln(q / (1 - q)).
        let tally = Tally { canaries: 100, guesses: 100, correct: 100 };
        let q = 0.05_f64.powf(0.01);
        let found = epsilon(tally, delta(1e-300), 0.05);
        assert!((found - (q / (1.0 - q)).ln()).abs() < 1e-6, "{found}");
    }

    #[test]
    fn the_bound_grows_with_the_correct_guesses() {
        let bound =
            |correct, d, level| epsilon(Tally { canaries: 200, guesses: 100, correct }, delta(d), level);
        let bounds: Vec<f64> = (0..=100).map(|v| bound(v, 1e-5, 0.05)).collect();
        assert!(bounds.is_sorted() && bounds[50] == 0.0 && bounds[100] > 2.5, "{bounds:?}");
        assert!(bound(90, 1e-5, 0.01) < bound(90, 1e-5, 0.05));
        assert!(bound(90, 1e-4, 0.05) < bound(90, 1e-5, 0.05));
        assert_eq!(bound(100, 0.1, 0.05), 0.0);
    }

    #[test]
    fn there_is_no_evidence_without_canaries_or_guesses() {
        let confidence = Confidence::new(0.95).unwrap();
        let scores = [Scored { score: 1.0, member: true }; 40];
        for (scores, guesses) in [(&scores[..0], &[Guesses::both(9)][..]), (&scores, &[])] {
            let bound = one_run(scores, guesses, delta(1e-5), confidence);
            assert_eq!((bound.epsilon, bound.points.len()), (0.0, 0));
        }
        let nan = [Scored { score: f64::NAN, member: true }; 40];
        assert_eq!(one_run(&nan, &[Guesses::both(20)], delta(1e-5), confidence).epsilon, 0.0);
    }
}
