//! Many runs with one canary each: bounds from rates of errors.

use crate::TradeOffPoint;

use super::{
    Confidence, Family, LowerBound, Scored, binomial::real, clopper_pearson::rate_upper_bound,
    guesses::worst_if_nan,
};

/// A lower bound on epsilon from many independent runs, in each of which the canary was a member or not, with one score per run.
///
/// A canary is guessed to be a member if its score is at least the threshold. From the errors among `n_0` non-members and
/// `n_1` members follow upper bounds `FPR_u` and `FNR_u` by Clopper and Pearson, each at half of `1 - confidence`. An epsilon is refuted if its curve
/// in the [`Family`] is above this point, `FNR_u < f(FPR_u)`. In closed form the bound is
///
/// ```text
/// (epsilon, delta) curve:   max( ln((1 - FNR_u - delta) / FPR_u), ln((1 - FPR_u - delta) / FNR_u), 0 )
/// Gaussian curve:           the epsilon of mu = max( Phi^-1(1 - FPR_u) - Phi^-1(FNR_u), 0 ).
/// ```
///
/// Both logarithms use the same two rates, so using both does not reduce the confidence. If there are several thresholds, each of them has an
/// equal share of `1 - confidence`, and the bound is the largest of theirs.
///
/// **Guarantees.** Holds if the runs are independent, the mechanism's curve is in the family, and the thresholds were fixed before the scores were known,
/// for example by [`best_threshold`] on other runs. Canaries of a *single* run are not independent; use [`one_run`](super::one_run) for them.
///
/// **Edge cases.** NaN scores count as errors. An empty list of scores or of thresholds gives 0, as does a NaN threshold.
///
/// **References.** Jagielski, Ullman and Oprea, "Auditing Differentially Private Machine Learning" (2020); Nasr et al., "Tight Auditing of
/// Differentially Private Machine Learning" (2023).
pub fn many_runs(
    scores: &[Scored],
    thresholds: &[f64],
    family: &Family,
    confidence: Confidence,
) -> LowerBound {
    let level = confidence.level(thresholds.len());
    let errors: Vec<_> = thresholds.iter().map(|&threshold| Errors::at(scores, threshold)).collect();
    LowerBound {
        estimator: format!("many runs, {}", family.name),
        assumption: family.assumption.clone(),
        confidence,
        epsilon: errors.iter().map(|errors| errors.epsilon(family, level)).fold(0.0, f64::max),
        points: errors.iter().filter_map(Errors::point).collect(),
    }
}

/// The threshold with the largest bound among at most 50 scores of a pilot sample, evenly spaced in rank.
///
/// The scores that [`many_runs`] gets afterwards must come from other runs. None if no score is finite.
pub fn best_threshold(pilot: &[Scored], family: &Family, confidence: Confidence) -> Option<f64> {
    let mut candidates: Vec<f64> = pilot.iter().map(|s| s.score).filter(|s| s.is_finite()).collect();
    candidates.sort_unstable_by(f64::total_cmp);
    let stride = candidates.len().div_ceil(50).max(1);
    let bound = |threshold: f64| Errors::at(pilot, threshold).epsilon(family, confidence.level(1));
    let bounds = candidates.into_iter().skip(stride / 2).step_by(stride).map(|t| (bound(t), t));
    // Without any evidence this is the highest threshold, which is as good as any other.
    bounds.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, threshold)| threshold)
}

/// The errors of guesses at one threshold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Errors {
    pub(super) false_positives: u64,
    pub(super) non_members: u64,
    pub(super) false_negatives: u64,
    pub(super) members: u64,
}

impl Errors {
    fn at(scores: &[Scored], threshold: f64) -> Self {
        let count = |member: bool, guess: bool| {
            let hits =
                scores.iter().filter(|s| s.member == member && (worst_if_nan(**s) >= threshold) == guess);
            hits.count() as u64
        };
        let (false_positives, false_negatives) = (count(false, true), count(true, false));
        Self {
            false_positives,
            non_members: false_positives + count(false, false),
            false_negatives,
            members: false_negatives + count(true, true),
        }
    }

    pub(super) fn epsilon(&self, family: &Family, level: f64) -> f64 {
        let false_positive_rate = rate_upper_bound(self.false_positives, self.non_members, level / 2.0);
        let false_negative_rate = rate_upper_bound(self.false_negatives, self.members, level / 2.0);
        family.largest_above(false_positive_rate, false_negative_rate)
    }

    fn point(&self) -> Option<TradeOffPoint> {
        (self.members > 0 && self.non_members > 0).then(|| TradeOffPoint {
            false_positive_rate: real(self.false_positives) / real(self.non_members),
            true_positive_rate: real(self.members - self.false_negatives) / real(self.members),
        })
    }
}

#[cfg(test)]
mod tests {
    use sordino_accounting::Delta;

    use super::*;

    fn families() -> [Family; 2] {
        let delta = Delta::new(1e-5).unwrap();
        [Family::approximate(delta), Family::gaussian(delta)]
    }

    #[test]
    fn matches_scipy() {
        // scipy 1.17.1 and the closed forms above, at a confidence of 95 % and delta 1e-5, with
        // u = scipy.stats.beta.isf(0.025, k + 1, n - k) for both rates.
        for (fp, n0, fn_, n1, plain, gaussian) in [
            (0, 250, 30, 250, 4.040943321, 17.738050401),
            (12, 1000, 400, 1000, 3.305447674, 11.311308227),
            (300, 1000, 5, 900, 3.949533894, 14.357861893),
            (40, 100, 50, 100, 0.000000000, 0.000000000),
            (1500, 5000, 20, 5000, 4.712589376, 16.602275896),
        ] {
            let errors = Errors { false_positives: fp, non_members: n0, false_negatives: fn_, members: n1 };
            for (family, expected) in families().iter().zip([plain, gaussian]) {
                let got = errors.epsilon(family, 0.05);
                assert!((got - expected).abs() < 1e-5, "{errors:?}: {got} against {expected}");
            }
        }
    }

    #[test]
    fn fewer_errors_give_larger_bounds() {
        for family in families() {
            let bound = |k: u64| {
                let errors =
                    Errors { false_positives: k, non_members: 100, false_negatives: k, members: 100 };
                errors.epsilon(&family, 0.05)
            };
            let bounds: Vec<f64> = (0..=100).rev().map(bound).collect();
            assert!(bounds.is_sorted() && bounds[50] == 0.0 && bounds[100] > 3.0, "{bounds:?}");
        }
    }

    #[test]
    fn scores_are_members_from_the_threshold_on() {
        let list = [(2.0, true), (1.0, false), (1.0, true), (0.0, false), (0.0, true), (f64::NAN, true)];
        let mut scores = list.map(|(score, member)| Scored { score, member }).to_vec();
        scores.push(Scored { score: f64::NAN, member: false });
        let errors = Errors::at(&scores, 1.0);
        let counts = (errors.false_positives, errors.non_members, errors.false_negatives, errors.members);
        assert_eq!(counts, (2, 3, 2, 4));
    }

    #[test]
    fn there_is_no_evidence_without_scores_or_thresholds() {
        let confidence = Confidence::new(0.95).unwrap();
        let scores: Vec<_> = (0..100).map(|i| Scored { score: f64::from(i), member: i >= 50 }).collect();
        for family in families() {
            assert!(many_runs(&scores, &[50.0], &family, confidence).epsilon > 2.0);
            assert!(many_runs(&scores, &[f64::NAN], &family, confidence).epsilon == 0.0);
            assert!(many_runs(&scores, &[], &family, confidence).epsilon == 0.0);
            assert!(many_runs(&[], &[50.0], &family, confidence).epsilon == 0.0);
            assert!(many_runs(&scores[..50], &[50.0], &family, confidence).points.is_empty());
            let several = many_runs(&scores, &[10.0, 50.0], &family, confidence);
            assert!(several.epsilon < many_runs(&scores, &[50.0], &family, confidence).epsilon);
            assert_eq!(several.points.len(), 2);
        }
    }

    #[test]
    fn the_best_threshold_separates_the_pilot_sample() {
        let confidence = Confidence::new(0.95).unwrap();
        let scores: Vec<_> = (0..100).map(|i| Scored { score: f64::from(i), member: i >= 50 }).collect();
        for family in families() {
            let threshold = best_threshold(&scores, &family, confidence).unwrap();
            assert!((48.0..=52.0).contains(&threshold), "{threshold}");
            assert_eq!(best_threshold(&[], &family, confidence), None);
        }
    }
}
