//! One run with many canaries: the difference between the mean scores of members and of non-members.

use sordino_accounting::{Delta, Mu, gaussian};

use super::{
    Confidence, Guesses, LowerBound, Scored,
    guesses::Ranking,
    normal::{NonCentralT, quantile},
    search::{FINE, largest_refuted},
    trade_off::GAUSSIAN,
};

/// What is known about the standard deviation of scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Spread {
    /// It is this number, for example 1 for observations in units of the noise.
    Known(f64),
    /// It is estimated from the scores. The bound is then lower, because it includes the error of the estimate.
    Estimated,
}

/// A lower bound on epsilon from one run with many canaries, if scores are normal.
///
/// Let the scores of `n_0` non-members be N(b, s^2) and those of `n_1` members N(b + s mu_i, s^2), all independent, with `mu_i <= mu` for a run that is as
/// private as the Gaussian mechanism with `mu`. With `w = sqrt(1/n_0 + 1/n_1)`:
///
/// - With a known spread `s`, `mu >= (mean_1 - mean_0) / s - z w`, where `z` is the normal quantile of the confidence.
/// - Otherwise `t = (mean_1 - mean_0) / (s_p w)`, with the pooled estimate `s_p` of `n_0 + n_1 - 2` degrees of freedom, has a non-central t
///   distribution. The bound is `c w` for the largest non-centrality `c` at which a `t` this large has a probability of at most `1 - confidence`.
///
/// Epsilon then follows from `mu` and delta as for the Gaussian mechanism.
///
/// **Guarantees.** Holds with the given confidence under the assumption above only. Scores with heavier tails, members with a
/// larger variance, or dependent scores void it. Use [`one_run`](super::one_run) for a bound without assumptions.
///
/// **Edge cases.** 0 if there are no members or no non-members, if a score is not finite, if the scores have no spread or fewer than three scores are given
/// (estimated), or if the known spread is not a positive number.
///
/// **References.** Dong, Roth and Su, "Gaussian Differential Privacy" (2019), Corollary 2.13, for epsilon from mu; Nasr et al., "Tight
/// Auditing of Differentially Private Machine Learning" (2023), for audits by mu.
pub fn one_run_gaussian(
    scores: &[Scored],
    spread: Spread,
    delta: Delta,
    confidence: Confidence,
) -> LowerBound {
    let ninths = |i: u64| Guesses { members: scores.len() as u64 * i / 10, non_members: 0 };
    let points = Ranking::new(scores).points(&(1..10).map(ninths).collect::<Vec<_>>());
    LowerBound {
        estimator: "one run, difference of means".to_owned(),
        assumption: Some(format!("{GAUSSIAN} and the scores are independent and normal")),
        confidence,
        epsilon: lowest_mu(scores, spread, confidence).map_or(0.0, |mu| epsilon(mu, delta)),
        points,
    }
}

/// The epsilon of the Gaussian mechanism with `mu`, rounded down; 0 if `mu` is negative or NaN.
pub(super) fn epsilon(mu: f64, delta: Delta) -> f64 {
    let mu = if mu > 0.0 { mu.min(1e3) } else { 0.0 };
    Mu::new(mu).map_or(0.0, |mu| gaussian::epsilon(mu, delta).get() * (1.0 - 1e-9))
}

/// The lower bound on `mu`, if there is one.
fn lowest_mu(scores: &[Scored], spread: Spread, confidence: Confidence) -> Option<f64> {
    let members = Moments::of(scores, true)?;
    let others = Moments::of(scores, false)?;
    let width = (1.0 / members.count + 1.0 / others.count).sqrt();
    let difference = members.mean - others.mean;
    let level = confidence.level(1);
    let mu = match spread {
        Spread::Known(s) if s > 0.0 && s.is_finite() => difference / s + quantile(level) * width,
        Spread::Known(_) => return None,
        Spread::Estimated => {
            let freedom = members.count + others.count - 2.0;
            let s = ((members.squares + others.squares) / freedom).sqrt();
            let scale = members.mean.abs().max(others.mean.abs());
            // Below this the spread is that of rounding errors.
            if !(freedom >= 1.0 && s > 1e-9 * scale) {
                return None;
            }
            let (tail, t) = (NonCentralT::new(freedom), difference / (s * width));
            largest_refuted(FINE, |c| tail.upper_tail(t, c) <= level) * width
        }
    };
    mu.is_finite().then_some(mu)
}

/// The number, the mean and the sum of squared deviations of scores.
struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    /// None without scores, or with a score that is not finite.
    fn of(scores: &[Scored], member: bool) -> Option<Self> {
        let chosen = || scores.iter().filter(|s| s.member == member).map(|s| s.score);
        let count = chosen().count() as f64;
        let mean = chosen().sum::<f64>() / count;
        let squares: f64 = chosen().map(|score| (score - mean).powi(2)).sum();
        (count > 0.0 && squares.is_finite()).then_some(Self { count, mean, squares })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(scores: &[Scored], spread: Spread) -> f64 {
        let (delta, confidence) = (Delta::new(1e-5).unwrap(), Confidence::new(0.95).unwrap());
        one_run_gaussian(scores, spread, delta, confidence).epsilon
    }

    /// Scores with mean 0 or `mu` and variance 1, exactly.
    fn scores(pairs: usize, mu: f64) -> Vec<Scored> {
        let up = ((2 * pairs - 1) as f64 / (2 * pairs) as f64).sqrt();
        let score = |i: usize, member| Scored {
            score: if i.is_multiple_of(2) { up } else { -up } + if member { mu } else { 0.0 },
            member,
        };
        (0..2 * pairs).flat_map(|i| [score(i, false), score(i, true)]).collect()
    }

    #[test]
    fn a_known_spread_is_a_z_test() {
        // mu_L = 2 - 1.6449 sqrt(2/100)
        let expected = epsilon(2.0 - 1.644_853_626_951_472_7 * 0.02_f64.sqrt(), Delta::new(1e-5).unwrap());
        assert!((bound(&scores(50, 2.0), Spread::Known(1.0)) - expected).abs() < 1e-9);
        let wider: Vec<_> =
            scores(50, 2.0).iter().map(|s| Scored { score: 7.0 + 3.0 * s.score, ..*s }).collect();
        assert!((bound(&wider, Spread::Known(3.0)) - expected).abs() < 1e-9);
    }

    #[test]
    fn an_estimated_spread_costs_and_ignores_the_scale() {
        let plain = scores(50, 2.0);
        let (known, estimated) = (bound(&plain, Spread::Known(1.0)), bound(&plain, Spread::Estimated));
        assert!(estimated < known && estimated > 0.9 * known, "{estimated} {known}");
        let moved: Vec<_> =
            plain.iter().map(|s| Scored { score: 1e3 - 0.01 * s.score, member: !s.member }).collect();
        assert!((bound(&moved, Spread::Estimated) - estimated).abs() < 1e-6);
        let few = bound(&scores(2, 2.0), Spread::Estimated);
        assert!(few < bound(&scores(2, 2.0), Spread::Known(1.0)));
    }

    #[test]
    fn an_estimated_spread_matches_scipy() {
        let members = [1.7, 3.1, 2.2, 4.0, 2.9, 3.3].map(|score| Scored { score, member: true });
        let others = [0.3, -0.8, 1.1, 0.2, -0.4].map(|score| Scored { score, member: false });
        // scipy 1.17.1: t = 5.91859 and 9 degrees of freedom; scipy.stats.nct.sf(t, 9, c) = 0.05 at c = 3.02716; mu = c sqrt(1/5 + 1/6).
        // With a known spread of the same size it would be 13.80.
        let got = bound(&[&members[..], &others].concat(), Spread::Estimated);
        assert!((got - 8.983_959_6).abs() < 1e-3, "{got}");
    }

    #[test]
    fn the_bound_grows_with_the_difference() {
        for spread in [Spread::Known(1.0), Spread::Estimated] {
            let bounds: Vec<f64> =
                (-20..40).map(|i| bound(&scores(20, f64::from(i) / 10.0), spread)).collect();
            assert!(bounds.is_sorted() && bounds[0] == 0.0 && bounds[59] > 5.0, "{bounds:?}");
        }
    }

    #[test]
    fn there_is_no_evidence_in_scores_that_cannot_be_normal() {
        let with = |score| {
            let mut list = scores(50, 5.0);
            list[3].score = score;
            list
        };
        let flat: Vec<_> =
            (0..9).map(|i| Scored { score: f64::from(i % 2) / 10.0, member: i % 2 == 1 }).collect();
        let cases =
            [with(f64::NAN), with(f64::INFINITY), with(f64::NEG_INFINITY), with(1e300), Vec::new(), flat];
        for list in &cases[..5] {
            assert_eq!(bound(list, Spread::Known(1.0)), 0.0);
        }
        for list in &cases {
            assert_eq!(bound(list, Spread::Estimated), 0.0);
        }
        for spread in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(bound(&scores(50, 5.0), Spread::Known(spread)), 0.0);
        }
        assert_eq!(bound(&scores(1, 5.0)[..2], Spread::Estimated), 0.0);
        let members = [Scored { score: 1.0, member: true }; 9];
        assert_eq!(bound(&members, Spread::Known(1.0)), 0.0);
    }
}
