//! The dominating pair of one step, and its hockey-stick curve.
//!
//! A dominating pair consists of two distributions that are at least as easy to distinguish as the outputs of the step on any two
//! neighbouring data sets. For Poisson sampling at rate `q` and noise multiplier `1/mu` these are `Q = N(0, 1)` (the record is absent)
//! and `P = (1-q) N(0, 1) + q N(mu, 1)`. For a group of `k` records `P` is the mixture of `N(j mu, 1)` with binomial weights. The
//! privacy loss `L = ln(P/Q)` grows with the observation. The pair is characterised by
//!
//! ```text
//! h(y) = sup_S P(S) - y Q(S) = E_P[(1 - y e^-L)_+],      h'(y) = -Q(L > ln y),
//! ```
//!
//! a convex curve with `h(e^epsilon) = delta(epsilon)`. For one record it is the curve of the Gaussian without sampling in other
//! coordinates: `h(y) = q delta_G(e; mu)` with `y - 1 = q (e^e - 1)`.
//!
//! # References
//! Zhu, Dong and Wang, "Optimal Accounting of Differential Privacy via Characteristic Function" (2022),
//! Theorem 11; Ganesh, "Tight Group-Level DP Guarantees for DP-SGD with Sampling via Mixture of Gaussians
//! Mechanisms" (2024), Theorem 1.1 (groups).

use crate::{binomial, gaussian};

/// The dominating pair of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pair {
    /// The sampling rate; 1 for the full batch.
    pub rate: f64,
    /// One over the noise multiplier.
    pub mu: f64,
    /// The number of records that are protected together.
    pub group: u32,
}

/// The curve at one `y`, in two forms, so that the relative accuracy is high at both of its ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    /// `h(y)`, which vanishes at the right end.
    pub right: f64,
    /// `h(y) - (1 - y)`, which vanishes at the left end.
    pub left: f64,
    /// `Q(L > ln y) = -h'(y)`.
    pub above: f64,
    /// `Q(L <= ln y) = 1 + h'(y)`.
    pub below: f64,
}

impl Pair {
    /// `u(to) - u(from)` for the total variation distance `u(mu)` of N(0, 1) and N(mu, 1), without cancellation where `u` is
    /// nearly 1.
    pub(super) fn total_variation_between(from: f64, to: f64) -> f64 {
        let tail = |mu: f64| libm::erfc(mu / 8.0_f64.sqrt());
        let head = |mu: f64| libm::erf(mu / 8.0_f64.sqrt());
        if from > 1.0 { tail(from) - tail(to) } else { head(to) - head(from) }
    }

    /// The curve at `y = e^loss`.
    pub(super) fn at(&self, loss: f64) -> Point {
        if self.group > 1 { self.at_for_group(loss) } else { self.at_for_one(loss) }
    }

    fn at_for_one(&self, loss: f64) -> Point {
        let excess = loss.exp_m1();
        let Some(e) = self.gaussian_loss(excess) else {
            return Point { right: -excess, left: 0.0, above: 1.0, below: 0.0 };
        };
        if e >= 0.0 {
            let (delta, above) = gaussian::delta_and_slope(e, self.mu);
            let right = self.rate * delta;
            Point { right, left: right + excess, above, below: 1.0 - above }
        } else {
            // By symmetry delta_G(e) - (1 - e^e) = e^e delta_G(-e).
            let (delta, _) = gaussian::delta_and_slope(-e, self.mu);
            let left = self.rate * e.exp() * delta;
            let below = gaussian::cdf(e / self.mu + self.mu / 2.0);
            Point { right: left - excess, left, above: 1.0 - below, below }
        }
    }

    /// The loss `e` of the Gaussian without sampling at which `y - 1 = q (e^e - 1)`, or `None` below the support.
    fn gaussian_loss(&self, excess: f64) -> Option<f64> {
        let e = (excess / self.rate).ln_1p();
        (e > f64::NEG_INFINITY).then_some(e)
    }

    /// The `point` of the curve at this loss after a first-order change of `mu` by `stretch`: for one record
    /// `dh/dmu = q phi(e/mu - mu/2)`.
    pub(super) fn stretched(&self, point: Point, loss: f64, stretch: f64) -> Point {
        let Some(e) = self.gaussian_loss(loss.exp_m1()) else { return point };
        let a = e / self.mu - self.mu / 2.0;
        let rise = stretch * gaussian::density(a);
        let turn = rise * a * (-e).exp() / self.mu;
        Point {
            right: point.right + self.rate * rise,
            left: point.left + self.rate * rise,
            above: point.above + turn,
            below: point.below - turn,
        }
    }

    fn at_for_group(&self, loss: f64) -> Point {
        let y = loss.exp();
        let weights: Vec<f64> = (0..=self.group)
            .map(|j| binomial::ln_pmf(self.group.into(), self.rate, j.into()).exp())
            .collect();
        if self.rate < 1.0 && loss <= weights[0].ln() {
            return Point { right: -loss.exp_m1(), left: 0.0, above: 1.0, below: 0.0 };
        }
        let x = self.observation(loss);
        let shifts = (0..).map(|j: u32| f64::from(j) * self.mu);
        let p = |sign: f64| -> f64 {
            weights.iter().zip(shifts.clone()).map(|(w, shift)| w * gaussian::cdf(sign * (x - shift))).sum()
        };
        let (above, below) = (gaussian::cdf(-x), gaussian::cdf(x));
        Point { right: p(-1.0) - y * above, left: y * below - p(1.0), above, below }
    }

    /// The loss `ln(P/Q)` of the observation `x`, and its derivative.
    fn loss_and_slope(&self, x: f64) -> (f64, f64) {
        let exponent = |j: u32| {
            let shift = f64::from(j) * self.mu;
            binomial::ln_pmf(self.group.into(), self.rate, j.into()) + shift * x - 0.5 * shift * shift
        };
        let top = (0..=self.group).map(exponent).fold(f64::NEG_INFINITY, f64::max);
        let (mut sum, mut slope) = (0.0, 0.0);
        for j in 0..=self.group {
            let weight = (exponent(j) - top).exp();
            sum += weight;
            slope += weight * f64::from(j) * self.mu;
        }
        (top + sum.ln(), slope / sum)
    }

    /// The loss `ln(P/Q)` of the observation `x`.
    pub(super) fn loss(&self, x: f64) -> f64 {
        self.loss_and_slope(x).0
    }

    /// The observation with this loss. The loss is convex and increasing in the observation, so Newton's method from the right never
    /// overshoots.
    fn observation(&self, loss: f64) -> f64 {
        let mut x = 50.0;
        while self.loss(x) < loss {
            x *= 2.0;
        }
        for _ in 0..200 {
            let (value, slope) = self.loss_and_slope(x);
            let step = (value - loss) / slope;
            x -= step;
            if step.abs() <= 1e-14 * x.abs().max(1.0) {
                break;
            }
        }
        x
    }

    /// An interval of losses: at most `tail` of the mass of `Q` is below it, and at most `tail` of the mass of `P` above it.
    pub(super) fn support(&self, tail: f64) -> (f64, f64) {
        let quantile = gaussian_quantile(tail);
        let shift = f64::from(self.group) * self.mu;
        // The upper tail of P is at most that of N(shift, 1).
        (self.loss(-quantile), self.loss(shift + quantile))
    }
}

/// The smallest `x` with `Pr[N(0, 1) > x] <= tail`, rounded up by at most 1e-3.
fn gaussian_quantile(tail: f64) -> f64 {
    let (mut low, mut high) = (0.0, 40.0);
    while high - low > 1e-3 {
        let mid = 0.5 * (low + high);
        if gaussian::cdf(-mid) > tail { low = mid } else { high = mid }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The curve from its definition, by summation over a fine grid of observations.
    fn naive(pair: &Pair, loss: f64) -> (f64, f64) {
        let (mut right, mut above) = (0.0, 0.0);
        let step = 1e-4;
        for i in 0..200_000 {
            let x = -10.0 + (f64::from(i) + 0.5) * step;
            let q = gaussian::density(x) * step;
            let l = pair.loss(x);
            if l > loss {
                right += q * (l.exp() - loss.exp());
                above += q;
            }
        }
        (right, above)
    }

    #[test]
    fn curve_matches_its_definition() {
        for pair in [
            Pair { rate: 0.2, mu: 1.0, group: 1 },
            Pair { rate: 1.0, mu: 0.5, group: 1 },
            Pair { rate: 0.3, mu: 0.7, group: 3 },
        ] {
            for loss in [-0.15, -0.01, 0.0, 0.3, 1.0] {
                let (right, above) = naive(&pair, loss);
                let point = pair.at(loss);
                assert!((point.right - right).abs() < 1e-7, "{pair:?} {loss}: {point:?} {right}");
                assert!((point.above - above).abs() < 1e-3, "{pair:?} {loss}: {point:?} {above}");
                assert!((point.left - (point.right - 1.0 + loss.exp())).abs() < 1e-12);
                assert!((point.above + point.below - 1.0).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn a_group_of_one_is_one_record() {
        let one = Pair { rate: 0.1, mu: 0.8, group: 1 };
        for loss in [-0.08, 0.0, 0.4, 1.5] {
            let (a, b) = (one.at_for_one(loss), one.at_for_group(loss));
            assert!((a.right - b.right).abs() < 1e-13 && (a.above - b.above).abs() < 1e-12);
        }
    }

    #[test]
    fn stretched_is_the_derivative_in_mu() {
        let pair = Pair { rate: 0.1, mu: 0.8, group: 1 };
        let d = 1e-5;
        for loss in [-0.08, 0.01, 0.4, 1.5] {
            let (up, down) = (Pair { mu: 0.8 + d, ..pair }.at(loss), Pair { mu: 0.8 - d, ..pair }.at(loss));
            let (now, stretched) = (pair.at(loss), pair.stretched(pair.at(loss), loss, 1.0));
            let expected = (up.right - down.right) / (2.0 * d);
            assert!((stretched.right - now.right - expected).abs() < 1e-8);
            let expected = (up.above - down.above) / (2.0 * d);
            assert!((stretched.above - now.above - expected).abs() < 1e-8);
        }
    }

    /// The lemma of `ladder.rs`: as a function of the total variation, the curve is convex at every loss.
    #[test]
    fn curve_is_convex_in_the_total_variation() {
        for rate in [0.01, 0.3, 1.0] {
            for mu in [0.05, 0.5, 1.0, 3.0] {
                let ends = [mu, mu * 1.2];
                let tv = |mu| Pair::total_variation_between(0.0, mu);
                for k in 1..10 {
                    let mid = mu * (1.0 + 0.02 * f64::from(k));
                    let s = (tv(mid) - tv(ends[0])) / (tv(ends[1]) - tv(ends[0]));
                    for i in -20..60 {
                        let loss = f64::from(i) * 0.1;
                        let [a, m, b] =
                            [ends[0], mid, ends[1]].map(|mu| Pair { rate, mu, group: 1 }.at(loss).right);
                        assert!(m <= (1.0 - s) * a + s * b + 1e-15, "{rate} {mu} {mid} {loss}");
                        let pair = Pair { rate, mu: ends[0], group: 1 };
                        let stretch = (tv(mid) - tv(ends[0])) / gaussian::density(ends[0] / 2.0);
                        assert!(
                            pair.stretched(pair.at(loss), loss, stretch).right <= m + 1e-15,
                            "{rate} {mu} {mid} {loss}"
                        );
                    }
                }
            }
        }
    }
}
