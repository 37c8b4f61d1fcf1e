//! The Renyi divergence of fixed-size batches without replacement, under replace-one.
//!
//! With `gamma = batch / population` and `mu` the Gaussian's sensitivity over noise *under replace-one*, for whole
//! orders
//!
//! ```text
//! A(alpha) <= 1 + sum_{j=2}^{alpha} C(alpha, j) gamma^j
//!                  min(4 sqrt(B(2 floor(j/2)) B(2 ceil(j/2))),  2 e^{j(j-1) mu^2/2}),     B(l) = E[(w - 1)^l],
//! ```
//!
//! where `w` is the likelihood ratio of N(mu, 1) to N(0, 1). Between whole orders `ln A` is below its chord, because it is convex.
//! The bound is loose, which is why Poisson sampling is the default.
//!
//! # References
//! Wang, Balle and Kasiviswanathan, "Subsampled Renyi Differential Privacy and Analytical Moments Accountant"
//! (2019), Theorems 9 and 27.

use std::f64::consts::PI;

use crate::{binomial, number::real};

/// The moments `B` are used up to this order, and the simpler bound beyond it.
const MAX_MOMENT: u64 = 256;
/// Moments whose integrals would need more points count as infinite, so that the simpler bound is used.
const MAX_POINTS: f64 = 2e5;
/// The divergence at larger orders counts as infinite.
const MAX_ORDER: f64 = 2048.0;

pub(super) struct FixedSize {
    rate: f64,
    mu: f64,
    /// `ln B(2i)`.
    ln_even_moments: Vec<f64>,
}

impl FixedSize {
    pub(super) fn new(rate: f64, mu: f64) -> Self {
        let ln_even_moments = (0..=MAX_MOMENT / 2).map(|i| ln_central_moment(mu, 2 * i)).collect();
        Self { rate, mu, ln_even_moments }
    }

    /// `rho(alpha)`, by the chord of `ln A` between the neighbouring whole orders.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most MAX_ORDER")]
    pub(super) fn divergence(&self, alpha: f64) -> f64 {
        if alpha > MAX_ORDER {
            return f64::INFINITY;
        }
        let (below, above) = (alpha.floor(), alpha.ceil());
        let part = alpha - below;
        let mut ln_moment = self.ln_moment(below as u64);
        if part > 0.0 {
            ln_moment += part * (self.ln_moment(above as u64) - ln_moment);
        }
        ln_moment / (alpha - 1.0)
    }

    /// The bound on `ln A(alpha)` at a whole order.
    fn ln_moment(&self, alpha: u64) -> f64 {
        let even_moment = |i: u64| usize::try_from(i).ok().and_then(|i| self.ln_even_moments.get(i));
        let ln_terms = (2..=alpha).map(|j| {
            let simple = 2.0_f64.ln() + 0.5 * real(j * (j - 1)) * self.mu * self.mu;
            let moments = even_moment(j / 2).zip(even_moment(j.div_ceil(2)));
            let tight = moments.map_or(f64::INFINITY, |(low, high)| 4.0_f64.ln() + 0.5 * (low + high));
            binomial::ln_choose(alpha, j) + real(j) * self.rate.ln() + simple.min(tight)
        });
        ln_terms.fold(0.0, |sum: f64, term| sum.max(term) + (-(sum - term).abs()).exp().ln_1p())
    }
}

/// `ln E[(w(x) - 1)^order]` for an even order, by the trapezoidal rule. The integrand is an entire function.
fn ln_central_moment(mu: f64, order: u64) -> f64 {
    let step = (0.25_f64).min(0.3 / mu);
    // For small mu the integrand is about (mu x)^order times the density, which has its maximum at the root of the order.
    let margin = 10.0 + 1.5 * real(order).sqrt();
    let points = ((real(order) * mu + 2.0 * margin) / step).ceil();
    if !(points <= MAX_POINTS) {
        return f64::INFINITY;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most MAX_POINTS")]
    let points = points as u32;
    let terms: Vec<f64> = (0..=points)
        .map(|i| f64::from(i) * step - margin)
        .map(|x| {
            let ln_w = mu * x - 0.5 * mu * mu;
            // ln |w - 1| without overflow.
            let ln_distance =
                if ln_w > 0.0 { ln_w + (-(-ln_w).exp_m1()).ln() } else { (-ln_w.exp_m1()).ln() };
            let power = if order == 0 { 0.0 } else { real(order) * ln_distance };
            power - 0.5 * x * x
        })
        .collect();
    let peak = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    peak + (terms.iter().map(|t| (t - peak).exp()).sum::<f64>() * step / (2.0 * PI).sqrt()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn central_moments_match_their_alternating_sums() {
        // E[(w-1)^2] = e^{mu^2} - 1; E[(w-1)^4] = e^{6 mu^2} - 4 e^{3 mu^2} + 6 e^{mu^2} - 3.
        for mu in [0.5_f64, 1.0, 2.0] {
            let s = mu * mu;
            assert!((ln_central_moment(mu, 0)).abs() < 1e-12);
            assert!((ln_central_moment(mu, 2) - s.exp_m1().ln()).abs() < 1e-11);
            let fourth = (6.0 * s).exp() - 4.0 * (3.0 * s).exp() + 6.0 * s.exp() - 3.0;
            assert!((ln_central_moment(mu, 4) - fourth.ln()).abs() < 1e-11);
        }
    }

    #[test]
    fn cost_grows_without_limit_as_the_noise_vanishes() {
        // Where the moments are infinite the simpler bound is used. The cost must not fall as the noise decreases.
        let mut last = 0.0;
        for z in [1.0, 0.1, 0.01, 5e-3, 1e-3, 1e-5] {
            let cost = FixedSize::new(0.01, 1.0 / z).divergence(2.0);
            assert!(cost > last, "{z}: {cost}");
            last = cost;
        }
    }

    #[test]
    fn high_moments_of_small_shifts_are_those_of_a_gaussian() {
        // E[(w-1)^l] is about mu^l E[x^l] = mu^l (l-1)!! for small l mu^2.
        let ln_double_factorial: f64 = (1..100_u32).step_by(2).map(|k| f64::from(k).ln()).sum();
        let expected = 100.0 * 1e-4_f64.ln() + ln_double_factorial;
        assert!((ln_central_moment(1e-4, 100) - expected).abs() < 1e-2);
    }

    #[test]
    fn a_smaller_batch_costs_less() {
        let cost = |rate| FixedSize::new(rate, 0.5).divergence(8.5);
        assert!(cost(0.01) < cost(0.02) && cost(0.02) < 0.5 * 8.5 * 0.25);
    }
}
