//! Upper bounds on the privacy profile of one run.

use crate::{AccountingError, Delta, Epsilon, Plan, number::real_length, pld};

/// The number of epsilons at which the profile of a plan is computed.
const POINTS: usize = 96;

/// An upper bound on the privacy profile: `delta(epsilon) = sup_S P(S) - e^epsilon Q(S)` over both directions of all neighbours.
///
/// It is stored at a few epsilons. The exact profile falls, and it is a convex function of `e^epsilon`, so the chord between two
/// upper bounds is an upper bound.
#[derive(Debug, Clone)]
pub(super) struct Curve {
    /// Epsilon ascending from 0, delta falling.
    points: Vec<(f64, f64)>,
}

impl Curve {
    /// The curve through these points, which are upper bounds. The first epsilon is 0.
    pub(super) fn through(mut points: Vec<(f64, f64)>) -> Self {
        // The exact profile falls, so an earlier bound holds for later epsilons.
        let mut least = 1.0_f64;
        for (_, delta) in &mut points {
            least = least.min(*delta);
            *delta = least;
        }
        Self { points }
    }

    /// The largest profile of these plans, as far as a delta of `floor`.
    ///
    /// A run whose plan is drawn at random from a list has the mean of their profiles at most.
    ///
    /// # Errors
    /// No privacy loss distribution: fixed-size batches and stateful entries, or a setting out of reach.
    pub(super) fn of(plans: &[Plan], floor: Delta) -> Result<Self, AccountingError> {
        let mut last = 0.0_f64;
        for plan in plans {
            last = last.max(pld::epsilon(plan, floor)?.upper.get());
        }
        // Evenly spaced epsilons, twice as dense where delta is large.
        let epsilons = (0..POINTS)
            .map(|i| real_length(i) / real_length(POINTS - 1))
            .map(|share| Epsilon::new(last * 0.5 * share * (1.0 + share)))
            .collect::<Result<Vec<_>, _>>()?;
        let mut worst = vec![0.0_f64; epsilons.len()];
        for plan in plans {
            for (worst, delta) in worst.iter_mut().zip(pld::upper_profile(plan, &epsilons)?) {
                // A NaN counts as 1.
                *worst = worst.max(if delta <= 1.0 { delta } else { 1.0 });
            }
        }
        Ok(Self::through(epsilons.into_iter().map(Epsilon::get).zip(worst).collect()))
    }

    /// The largest profile of any `(epsilon, 0)`-DP mechanism, that of randomised response: `(e^epsilon - e^x) / (1 + e^epsilon)` at
    /// `x <= epsilon`.
    ///
    /// *Proof.* Let `r = dP/dQ`, which is in `[e^-epsilon, e^epsilon]` and has mean 1 under Q. `delta(x) = E_Q[(r - e^x)_+]` is the mean
    /// of a convex function of `r`. On that interval the function is at most its chord, whose value at the mean of `r` is that of
    /// the distribution of `r` on the two ends with mean 1. That distribution is randomised response.
    pub(super) fn pure(epsilon: Epsilon) -> Self {
        let epsilon = epsilon.get();
        Self::through(vec![(0.0, (0.5 * epsilon).tanh()), (epsilon, 0.0)])
    }

    /// Delta at an epsilon, which may be negative.
    ///
    /// `delta(-x) = 1 - e^-x + e^-x delta(x)`, where the right side is for the other direction (take complements of `S`).
    pub(super) fn delta(&self, epsilon: f64) -> f64 {
        if epsilon < 0.0 {
            return -epsilon.exp_m1() + epsilon.exp() * self.delta(-epsilon);
        }
        let after = self.points.partition_point(|(e, _)| *e <= epsilon);
        let Some(&(e, delta)) = after.checked_sub(1).and_then(|before| self.points.get(before)) else {
            return 1.0;
        };
        let Some(&(next, least)) = self.points.get(after) else { return delta };
        let share = (epsilon - e).exp_m1() / (next - e).exp_m1();
        delta + share * (least - delta)
    }

    /// The largest probability of an event under one data set whose probability is `c` under a neighbour:
    /// `min over epsilon of e^epsilon c + delta(epsilon)`, at most 1.
    pub(super) fn reach(&self, c: f64) -> f64 {
        // The bound is linear in `e^epsilon` between points, so the minimum is at a point.
        self.points.iter().fold(1.0, |least, (epsilon, delta)| least.min(epsilon.exp() * c + delta))
    }
}

/// The Renyi divergence of order `alpha` of any `(epsilon, 0)`-DP mechanism is at most that of randomised response:
///
/// ```text
/// ln[(e^(alpha epsilon) + e^((1 - alpha) epsilon)) / (1 + e^epsilon)] / (alpha - 1)
/// ```
///
/// *Proof.* As for [`Curve::pure`], with the convex function `r^alpha`.
pub(super) fn pure_divergence(epsilon: Epsilon, alpha: f64) -> f64 {
    let epsilon = epsilon.get();
    let excess = ((1.0 - 2.0 * alpha) * epsilon).exp().ln_1p() - (-epsilon).exp().ln_1p();
    // Rounding must not make the bound negative near alpha = 1.
    (epsilon + excess / (alpha - 1.0)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epsilon(value: f64) -> Epsilon {
        Epsilon::new(value).unwrap()
    }

    /// Randomised response with two outputs, from its probabilities.
    #[test]
    fn pure_bounds_are_those_of_randomised_response() {
        for e in [0.1_f64, 1.0, 4.0] {
            let p = e.exp() / (1.0 + e.exp());
            let curve = Curve::pure(epsilon(e));
            for x in [-5.0_f64, -0.3, 0.0, 0.05, 0.7, 3.9, 6.0] {
                let exact = (p - x.exp() * (1.0 - p)).max(0.0) + (1.0 - p - x.exp() * p).max(0.0);
                assert!((curve.delta(x) - exact).abs() < 1e-12, "{e} {x}: {} {exact}", curve.delta(x));
            }
            for alpha in [1.001_f64, 2.0, 17.5, 500.0] {
                let moment =
                    p * (p / (1.0 - p)).powf(alpha - 1.0) + (1.0 - p) * ((1.0 - p) / p).powf(alpha - 1.0);
                let exact = moment.ln() / (alpha - 1.0);
                let got = pure_divergence(epsilon(e), alpha);
                assert!((got - exact).abs() < 1e-9 || !exact.is_finite(), "{e} {alpha}: {got} {exact}");
                assert!(got <= e);
            }
        }
    }

    /// The Laplace mechanism is `epsilon`-DP; its profile is `1 - e^((x - epsilon)/2)`.
    #[test]
    fn the_laplace_mechanism_is_below_the_pure_bounds() {
        for e in [0.2_f64, 1.0, 3.0] {
            let curve = Curve::pure(epsilon(e));
            for i in 0..20 {
                let x = e * f64::from(i) / 20.0;
                assert!(1.0 - (0.5 * (x - e)).exp() <= curve.delta(x) + 1e-12, "{e} {x}");
            }
            for alpha in [1.5_f64, 3.0, 20.0] {
                let (a, b) = (alpha / (2.0 * alpha - 1.0), (alpha - 1.0) / (2.0 * alpha - 1.0));
                let laplace = (a * ((alpha - 1.0) * e).exp() + b * (-alpha * e).exp()).ln() / (alpha - 1.0);
                assert!(laplace <= pure_divergence(epsilon(e), alpha) + 1e-12, "{e} {alpha}");
            }
        }
    }

    /// Between its points, the curve of a plan is at most 3 % above the profile.
    #[test]
    fn the_curve_of_a_plan_is_close_above_its_profile() {
        let plan = Plan::of_numbers(1.0, 0.01, 1000);
        let curve = Curve::of(std::slice::from_ref(&plan), Delta::new(1e-9).unwrap()).unwrap();
        for x in [0.0, 0.013, 0.21, 0.777, 1.5, 2.1] {
            let exact = pld::delta(&plan, epsilon(x)).unwrap();
            let got = curve.delta(x);
            assert!(got >= exact.lower && got <= 1.03 * exact.upper, "{x}: {got} {exact:?}");
        }
        // The largest probability of an event on a neighbour: nearly 0 for an impossible event, at most 1, and above that of the event itself.
        assert!(curve.reach(0.0) <= 1.1e-9 && curve.reach(1.0) <= 1.0 && curve.reach(0.01) > 0.01);
    }
}
