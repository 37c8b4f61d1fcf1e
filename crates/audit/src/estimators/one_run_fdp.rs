//! One run with many canaries: the bound of Mahloujifar, Melis and Chaudhuri, from a whole trade-off curve.

use super::{
    Confidence, Curve, Family, Guesses, LowerBound, Scored,
    binomial::real,
    guesses::{Ranking, Tally},
};

/// A lower bound on epsilon from one run with `m` canaries, each of which was a member with probability 1/2, independently of the others.
///
/// It refutes every epsilon whose curve in the [`Family`] permits this many correct guesses only with a probability below
/// `1 - confidence`. The larger `1 - confidence`, the more curves are refuted. If there are several guesses in the list, each of them has an equal share of
/// `1 - confidence`, and the bound is the largest of theirs.
///
/// # Why it holds
/// Let `p_j` be the probability of exactly `j` correct guesses out of `g`, and
///
/// ```text
/// S_i = sum_{j >= i} p_j,      r_i = sum_{j >= i} (j/m) p_j,      h_i = sum_{j >= i} ((g-j)/m) p_j,      r_i + h_i = (g/m) S_i.
/// ```
///
/// Draw a canary at random. `r_{i+1}` is the probability that its guess is correct and that at least `i + 1` guesses are. If the membership of this canary
/// alone is changed, the same event reads: its guess is wrong, and at least `i` guesses are correct. This has probability `h_i`.
/// By the trade-off curve, and because it is convex, `h_i >= f(1 - r_{i+1})` for a symmetric `f`.
///
/// Suppose that `S_v >= a`. The recursion
///
/// ```text
/// R = a v/m,  H = a (g-v)/m;    for i = v-1, ..., 0:   H' = max(H, f(1 - R)),   R <- R + i/(g-i) (H' - H),   H <- H'
/// ```
///
/// follows the case in which all mass is as low as the inequality permits. By induction `r_i - R_i >= (i/m)(S_i - A_i)` and
/// `S_i >= A_i`, where `R_i + H_i = (g/m) A_i`. At `v` this holds because `j >= v` in every term. For the step, the inequality reads
/// `(g - i) S_i >= m f(1 - r_{i+1}) + m r_{i+1} - i S_{i+1}`. By the induction hypothesis the right side is at least
/// `m f(1 - R_{i+1}) + m R_{i+1} - i A_{i+1} = (g - i) A_i`, which gives `S_i >= A_i`; and
/// `r_i - R_i = r_{i+1} - R_{i+1} + (i/m) (S_i - A_i - S_{i+1} + A_{i+1}) >= (i/m)(S_i - A_i)`.
/// At the end `A_0 <= S_0 = 1`. So if `R + H > g/m`, the supposition is false, and `v` correct guesses have a probability below `a`.
///
/// **Guarantees.** Holds for any scores if the mechanism's curve is in the family and the list of guesses was fixed before the scores were known.
///
/// **Edge cases.** Ties and NaN count as wrong guesses. An empty list of scores or of guesses gives 0.
///
/// **References.** Mahloujifar, Melis and Chaudhuri, "Auditing f-Differential Privacy in One Run" (2024). The argument above covers guesses of
/// members and of non-members together, which need fewer canaries than guesses of members alone.
pub fn one_run_fdp(
    scores: &[Scored],
    guesses: &[Guesses],
    family: &Family,
    confidence: Confidence,
) -> LowerBound {
    let ranking = Ranking::new(scores);
    let level = confidence.level(guesses.len());
    let bounds = guesses.iter().map(|&guess| epsilon(ranking.tally(guess), family, level));
    LowerBound {
        estimator: format!("one run, f-DP, {}", family.name),
        assumption: family.assumption.clone(),
        confidence,
        epsilon: bounds.fold(0.0, f64::max),
        points: ranking.points(guesses),
    }
}

/// The largest epsilon that is refuted at a level.
///
/// If a curve is refuted, so is every higher curve, because a higher curve permits less. So the refuted epsilons are a range that starts at 0.
pub(super) fn epsilon(tally: Tally, family: &Family, level: f64) -> f64 {
    family.largest_refuted(|curve| refutes(tally, curve, level))
}

/// Whether this many correct guesses have a probability below `level` under the curve.
fn refutes(tally: Tally, curve: &Curve, level: f64) -> bool {
    if tally.correct == 0 {
        return false;
    }
    let (m, g, v) = (real(tally.canaries), real(tally.guesses), real(tally.correct));
    let (mut right, mut wrong) = (level * v / m, level * (g - v) / m);
    for i in (0..tally.correct).rev().map(real) {
        let more = wrong.max(curve(1.0 - right));
        // If nothing grows in this step, nothing grows later. To stop early can only make the bound smaller.
        if more <= wrong * (1.0 + 1e-9) {
            break;
        }
        // The cap keeps the recursion below the true values.
        right = (right + i / (g - i) * (more - wrong)).min(1.0);
        wrong = more;
        if right + wrong > g / m {
            return true;
        }
    }
    right + wrong > g / m
}

#[cfg(test)]
mod tests {
    use sordino_accounting::Delta;

    use super::*;

    fn gaussian() -> Family {
        Family::gaussian(Delta::new(1e-5).unwrap())
    }

    /// The probability of at least `v` correct guesses for independent guesses that are correct with probability `q`.
    fn tail(g: u64, q: f64, v: u64) -> f64 {
        super::super::binomial::Binomial::new(g, q).upper_tail(v)
    }

    #[test]
    fn a_curve_never_refutes_its_own_mechanism() {
        // With one canary, the best guess at epsilon is correct with probability q. For m independent ones the number is binomial.
        let family = Family::approximate(Delta::new(1e-12).unwrap());
        for epsilon in [0.1_f64, 1.0, 3.0] {
            let q = 1.0 / (1.0 + (-epsilon).exp());
            for m in [1, 5, 40, 300] {
                for v in 0..=m {
                    // The last level at which this outcome is not evidence.
                    let level = tail(m, q, v) * (1.0 - 1e-9);
                    let tally = Tally { canaries: m, guesses: m, correct: v };
                    assert!(!refutes(tally, &family.at(epsilon), level), "{epsilon} {tally:?}");
                }
            }
        }
    }

    #[test]
    fn the_bound_grows_with_the_correct_guesses() {
        let bound =
            |correct, level| epsilon(Tally { canaries: 200, guesses: 100, correct }, &gaussian(), level);
        let bounds: Vec<f64> = (0..=100).map(|v| bound(v, 0.05)).collect();
        assert!(bounds.is_sorted() && bounds[50] == 0.0 && bounds[100] > 2.0, "{bounds:?}");
        assert!(bound(90, 0.01) < bound(90, 0.05));
    }

    #[test]
    fn a_longer_list_of_guesses_costs_confidence() {
        let confidence = Confidence::new(0.95).unwrap();
        let scores: Vec<_> = (0..100).map(|i| Scored { score: f64::from(i), member: i >= 50 }).collect();
        let bound = |list: &[Guesses]| one_run_fdp(&scores, list, &gaussian(), confidence).epsilon;
        let (best, poor) = (Guesses::both(50), Guesses::both(2));
        assert!(bound(&[poor]) < bound(&[best, poor]) && bound(&[best, poor]) < 0.99 * bound(&[best]));
    }

    #[test]
    fn there_is_no_evidence_without_canaries_or_guesses() {
        let confidence = Confidence::new(0.95).unwrap();
        let scores = [Scored { score: f64::NAN, member: false }; 40];
        for (scores, guesses) in
            [(&scores[..0], &[Guesses::both(9)][..]), (&scores, &[]), (&scores, &[Guesses::both(20)])]
        {
            assert_eq!(one_run_fdp(scores, guesses, &gaussian(), confidence).epsilon, 0.0);
        }
    }
}
