//! The Renyi divergence of one Poisson-sampled Gaussian release, exact at every order.
//!
//! With `w(x) = e^(mu x - mu^2/2)`, the likelihood ratio of N(mu, 1) to N(0, 1),
//!
//! ```text
//! A(alpha) = E[(1 - q + q w(x))^alpha],  x ~ N(0, 1);      rho(alpha) = ln A(alpha) / (alpha - 1).
//! ```
//!
//! The integrand is analytic in a strip around the real line (its nearest singularities are at distance
//! `pi/mu`), so the trapezoidal rule converges exponentially. There is no series to truncate, and fractional orders are as exact
//! as whole ones. Because `E[w] = 1`, `A - 1` is the integral of `(1+u)^alpha - 1 - alpha u >= 0` with `u = q(w - 1)`, which has
//! full relative accuracy even if `A` is 1 + 1e-15.
//!
//! # References
//! Mironov, Talwar and Zhang (2019), Theorems 4 and 5 (this direction is the worse of the two);
//! Trefethen and Weideman, "The Exponentially Convergent Trapezoidal Rule" (2014), Theorem 5.1.

use std::f64::consts::PI;

use super::Order;
use crate::{NoiseMultiplier, SamplingRate};

/// If more points are needed, the noise is so small that sampling hardly helps, and the bound without sampling is used.
const MAX_POINTS: f64 = 1e5;
/// A margin for the rounding of a sum of positive terms and for the tails outside the grid.
const ROUNDING: f64 = 1.0 + 1e-9;

/// `rho(alpha)` of one release with Poisson sampling.
pub fn sampled_gaussian(rate: SamplingRate, noise_multiplier: NoiseMultiplier, order: Order) -> f64 {
    divergence(rate.get(), 1.0 / noise_multiplier.get(), order.get())
}

pub(super) fn divergence(rate: f64, mu: f64, alpha: f64) -> f64 {
    if rate >= 1.0 {
        return 0.5 * alpha * mu * mu;
    }
    ln_moment(rate, mu, alpha) / (alpha - 1.0) * ROUNDING
}

/// `ln A(alpha)`.
fn ln_moment(rate: f64, mu: f64, alpha: f64) -> f64 {
    let step = (0.25_f64).min(0.45 / mu);
    // Ten standard deviations beyond both ends leave out less than 1e-22 of the mass of every power of w involved.
    let (low, high) = (-10.0, alpha.max(2.0) * mu + 10.0);
    let points = ((high - low) / step).ceil();
    if !(points <= MAX_POINTS) {
        // P is a mixture of Q and N(mu, 1), and divergences are convex.
        return 0.5 * alpha * (alpha - 1.0) * mu * mu;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most MAX_POINTS")]
    let points = points as u32;
    let grid = (0..=points).map(|i| low + f64::from(i) * step);
    let ln_term = |x: f64| {
        let ln_w = mu * x - 0.5 * mu * mu;
        // ln(1 - q + q w). Where w would overflow, 1 - q is negligible.
        let ln_mix = if ln_w < 700.0 { (rate * ln_w.exp_m1()).ln_1p() } else { rate.ln() + ln_w };
        (ln_w, alpha * ln_mix - 0.5 * x * x)
    };
    let peak = grid.clone().map(|x| ln_term(x).1).fold(f64::NEG_INFINITY, f64::max);
    let scale = step / (2.0 * PI).sqrt();
    if peak > 3.0 {
        return peak + (grid.map(|x| (ln_term(x).1 - peak).exp()).sum::<f64>() * scale).ln();
    }
    let excess = grid.map(|x| {
        let (ln_w, ln_power) = ln_term(x);
        let u = rate * ln_w.exp_m1();
        let ln_density = -0.5 * x * x;
        if (alpha * u).abs() > 1e-2 {
            // Each summand is multiplied by the density before the subtraction, so that all are finite.
            let linear = (ln_w + ln_density).exp() - ln_density.exp();
            ln_power.exp() - ln_density.exp() - alpha * rate * linear
        } else {
            binomial_remainder(u, alpha) * ln_density.exp()
        }
    });
    (excess.sum::<f64>() * scale).ln_1p()
}

/// `(1+u)^alpha - 1 - alpha u` for small `u` and `alpha u`: the binomial series from its third term on. Its tenth term is below
/// 1e-16.
fn binomial_remainder(u: f64, alpha: f64) -> f64 {
    let mut term = alpha * u;
    let mut sum = 0.0;
    for k in 2..10 {
        term *= (alpha - f64::from(k - 1)) * u / f64::from(k);
        sum += term;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{binomial, golden};

    /// Whole orders have a closed form: `A = sum_k C(alpha, k) (1-q)^(alpha-k) q^k e^(k(k-1) mu^2/2)`.
    fn binomial_sum(rate: f64, mu: f64, alpha: u32) -> f64 {
        let terms: Vec<f64> = (0..=alpha)
            .map(|k| {
                binomial::ln_pmf(alpha.into(), rate, k.into())
                    + 0.5 * f64::from(k) * (f64::from(k) - 1.0) * mu * mu
            })
            .collect();
        let top = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (top + terms.iter().map(|t| (t - top).exp()).sum::<f64>().ln()) / f64::from(alpha - 1)
    }

    #[test]
    fn whole_orders_match_the_binomial_sum() {
        for rate in [1e-4, 0.01, 0.2, 0.9] {
            for z in [0.1, 0.5, 1.0, 3.0, 20.0] {
                for alpha in [2_u32, 3, 8, 64, 300] {
                    let (got, expected) =
                        (divergence(rate, 1.0 / z, f64::from(alpha)), binomial_sum(rate, 1.0 / z, alpha));
                    let tolerance = 2e-9 * expected + 1e-12;
                    assert!((got - expected).abs() < tolerance, "{rate} {z} {alpha}: {got} {expected}");
                }
            }
        }
    }

    #[test]
    fn fractional_orders_match_multiprecision() {
        for &(rate, z, alpha, ln_a) in golden::LN_MOMENT {
            let got = ln_moment(rate, 1.0 / z, alpha);
            assert!((got / ln_a - 1.0).abs() < 1e-10, "{rate} {z} {alpha}: {got:e} against {ln_a:e}");
        }
    }

    #[test]
    fn matches_the_values_of_other_projects() {
        for &(rate, z, alpha, steps, expected) in golden::RDP_SAMPLED_GAUSSIAN {
            let got = steps * divergence(rate, 1.0 / z, alpha);
            assert!((got / expected - 1.0).abs() < 1e-4, "{rate} {z} {alpha}: {got} against {expected}");
        }
        for &(rate, z, alpha, steps, above) in golden::RDP_SAMPLED_GAUSSIAN_FROM_ABOVE {
            let got = steps * divergence(rate, 1.0 / z, alpha);
            assert!(
                got <= above * (1.0 + 1e-6) && got >= above * 0.9,
                "{rate} {z} {alpha}: {got} against {above}"
            );
        }
    }

    #[test]
    fn huge_orders_use_the_bound_without_sampling() {
        let unsampled = 0.5 * 1e9 * 100.0;
        assert!((divergence(0.01, 10.0, 1e9) / unsampled - 1.0).abs() < 1e-8);
        assert!(divergence(0.01, 10.0, 50.0) < 0.5 * 50.0 * 100.0);
    }
}
