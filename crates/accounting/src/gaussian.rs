//! The Gaussian mechanism in closed form: `delta_G(epsilon; mu)` and its inverses.
//!
//! The outputs of one release with noise multiplier `z = 1/mu` on neighbouring data sets are as hard to distinguish as N(0, 1) and N(mu, 1). For a composition,
//! `mu^2 = sum_t mu_t^2`.
//!
//! # References
//! Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy" (2018), Theorem 5;
//! Dong, Roth and Su, "Gaussian Differential Privacy" (2019), Corollary 2.13.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use crate::{Delta, Epsilon, Mu};

/// `Pr[N(0,1) <= x]`, with full relative accuracy in the lower tail.
pub(crate) fn cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

/// The density of N(0, 1).
pub(crate) fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * PI).sqrt()
}

/// `x` if it is positive and 0 otherwise. Unlike `f64::max`, this keeps a NaN.
pub(crate) fn positive_part(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}

/// Mills' ratio `Pr[N(0,1) > x] / density(x)` for `x >= 0`.
fn mills(x: f64) -> f64 {
    if x < 30.0 {
        return cdf(-x) / density(x);
    }
    // The asymptotic series. For these x its sixth term is below 2e-14.
    let r = 1.0 / (x * x);
    (1.0 - r * (1.0 - 3.0 * r * (1.0 - 5.0 * r * (1.0 - 7.0 * r * (1.0 - 9.0 * r))))) / x
}

/// The hockey-stick divergence of N(mu, 1) from N(0, 1) at `epsilon >= 0`, as a logarithm, so that a tiny delta
/// does not underflow and a huge epsilon does not overflow.
///
/// `delta = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2)`; with `x = epsilon/mu - mu/2 > 0` this is
/// `density(x) (M(x) - M(x + mu))` for Mills' ratio `M`.
pub(crate) fn ln_delta(epsilon: f64, mu: f64) -> f64 {
    if mu <= 0.0 {
        return f64::NEG_INFINITY;
    }
    let x = epsilon / mu - mu / 2.0;
    let ln_density = -0.5 * x * x - 0.5 * (2.0 * PI).ln();
    if x <= 0.0 {
        return positive_part(cdf(-x) - ln_density.exp() * mills(x + mu)).ln();
    }
    ln_density + mills_difference(x, mu).ln()
}

/// `M(x) - M(x + mu)` for Mills' ratio `M` and `x >= 0`, without cancellation for small `mu`.
fn mills_difference(x: f64, mu: f64) -> f64 {
    if mu * (1.0 + x) > 1e-3 {
        return positive_part(mills(x) - mills(x + mu));
    }
    // A Taylor series with M' = x M - 1. That difference cancels for large x, where -M' = x^-2 - 3 x^-4 + 15 x^-6 - ...
    let m = mills(x);
    let first = if x < 30.0 {
        1.0 - x * m
    } else {
        let r = 1.0 / (x * x);
        r * (1.0 - 3.0 * r * (1.0 - 5.0 * r * (1.0 - 7.0 * r)))
    };
    let second = m - x * first;
    let third = x * second - 2.0 * first;
    mu * (first - mu / 2.0 * (second + mu / 3.0 * third))
}

/// `delta_G(epsilon; mu)`, and `Phi(-epsilon/mu - mu/2)`, which is minus its derivative by `e^epsilon`, for `epsilon >= 0`.
pub(crate) fn delta_and_slope(epsilon: f64, mu: f64) -> (f64, f64) {
    let x = epsilon / mu - mu / 2.0;
    let slope = cdf(-x - mu);
    // The plain difference cancels when both terms are nearly equal.
    let delta = if mu * (1.0 + x.max(0.0)) > 1e-2 {
        cdf(-x) - epsilon.exp() * slope
    } else {
        ln_delta(epsilon, mu).exp()
    };
    (positive_part(delta), slope)
}

/// `delta_G(epsilon; mu)` for `epsilon >= 0`.
///
/// Edge cases: `mu = 0` gives 0; a delta below 1e-308 gives 0.
///
/// ```
/// use sordino_accounting::{Epsilon, Mu, gaussian};
///
/// let delta = gaussian::delta(Epsilon::new(1.0)?, Mu::new(3.0)?);
/// assert!((delta - 0.787_600_74).abs() < 1e-8);
/// # Ok::<(), sordino_accounting::AccountingError>(())
/// ```
pub fn delta(epsilon: Epsilon, mu: Mu) -> f64 {
    ln_delta(epsilon.get(), mu.get()).exp()
}

/// The smallest `epsilon >= 0` with `delta_G(epsilon; mu) <= delta`, rounded up.
pub fn epsilon(mu: Mu, delta: Delta) -> Epsilon {
    let (mu, target) = (mu.get(), delta.get().ln());
    if ln_delta(0.0, mu) <= target {
        return Epsilon::new(0.0).expect("zero is an epsilon");
    }
    // delta_G(epsilon) <= Phi(-epsilon/mu + mu/2) <= exp(-(epsilon/mu - mu/2)^2 / 2).
    let (mut low, mut high) = (0.0, mu * (mu / 2.0 + (-2.0 * target).sqrt()));
    for _ in 0..200 {
        let mid = 0.5 * (low + high);
        if mid <= low || mid >= high {
            break;
        }
        if ln_delta(mid, mu) > target { low = mid } else { high = mid }
    }
    Epsilon::new(high * (1.0 + 1e-10)).expect("a finite mu has a finite epsilon")
}

/// The largest `mu` with `delta_G(epsilon; mu) <= delta`, rounded down: the Gaussian mechanism with exactly this privacy budget.
pub fn mu(epsilon: Epsilon, delta: Delta) -> Mu {
    let (epsilon, target) = (epsilon.get(), delta.get().ln());
    let (mut low, mut high) = (0.0, 1.0);
    while ln_delta(epsilon, high) <= target {
        low = high;
        high *= 2.0;
    }
    for _ in 0..200 {
        let mid = 0.5 * (low + high);
        if mid <= low || mid >= high {
            break;
        }
        if ln_delta(epsilon, mid) <= target { low = mid } else { high = mid }
    }
    Mu::new(low * (1.0 - 1e-10)).expect("bisection stays finite")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn d(epsilon: f64, mu_: f64) -> f64 {
        ln_delta(epsilon, mu_).exp()
    }

    /// Values of the closed form in 50-digit arithmetic (mpmath), see `bench/multiprecision.py`.
    #[test]
    fn delta_matches_multiprecision() {
        for (epsilon, mu_, ln_expected) in crate::golden::LN_DELTA_GAUSSIAN {
            let got = ln_delta(*epsilon, *mu_);
            let error = (got - ln_expected).abs() / ln_expected.abs().max(1.0);
            assert!(error < 1e-11, "epsilon {epsilon}, mu {mu_}: {got} against {ln_expected}");
        }
    }

    #[test]
    fn delta_at_zero_is_the_total_variation() {
        for mu_ in [1e-6, 0.1, 1.0, 4.0] {
            assert!((d(0.0, mu_) / (2.0 * cdf(mu_ / 2.0) - 1.0) - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn inverses_are_rounded_to_the_safe_side() {
        for mu_ in [1e-4, 0.03, 0.5, 2.0, 12.0] {
            for delta_ in [0.3, 1e-3, 1e-9, 1e-30] {
                let delta_ = Delta::new(delta_).unwrap();
                let e = epsilon(Mu::new(mu_).unwrap(), delta_);
                assert!(delta(e, Mu::new(mu_).unwrap()) <= delta_.get());
                if e.get() > 0.0 {
                    let back = mu(e, delta_).get();
                    assert!((back / mu_ - 1.0).abs() < 1e-8, "{mu_} {delta_}: {back}");
                }
            }
        }
    }
}
