//! The normal distribution, and the non-central t distribution that follows from it.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// `Pr[N(0,1) <= x]`, with full relative accuracy in the lower tail.
pub(super) fn cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

/// The `x` with `Pr[N(0,1) <= x] = p`.
///
/// Newton's method on `ln Phi`, which is concave and increasing: from a point below the solution it never passes the solution. The start
/// is below it because `Phi(-t) <= exp(-t^2/2) / 2`.
///
/// Edge cases: 0 and below give minus infinity, 1 and above give infinity, NaN gives NaN.
pub(crate) fn quantile(p: f64) -> f64 {
    if p.is_nan() {
        return f64::NAN;
    }
    if p <= 0.0 {
        return f64::NEG_INFINITY;
    }
    if p > 0.5 {
        return -quantile(1.0 - p);
    }
    let target = p.ln();
    let mut x = -(-2.0 * target).sqrt();
    for _ in 0..60 {
        let below = cdf(x);
        if below == 0.0 {
            // Only a p near the smallest positive number gets here.
            return x;
        }
        let density = (-0.5 * x * x).exp() / (2.0 * PI).sqrt();
        let step = (target - below.ln()) * below / density;
        x += step;
        if step <= 1e-14 * (1.0 - x) {
            break;
        }
    }
    x
}

/// The tail of the non-central t distribution with a fixed number of degrees of freedom `n`:
///
/// ```text
/// Pr[T >= t] = integral of Phi(c - t s) f(s) ds,     f the density of s = sqrt(chi^2_n / n),
/// ```
///
/// for the non-centrality `c`, by the midpoint rule.
pub(super) struct NonCentralT {
    /// Values of `s`, with the probability of each.
    spread: Vec<(f64, f64)>,
}

impl NonCentralT {
    pub(super) fn new(freedom: f64) -> Self {
        const POINTS: u32 = 1000;
        // The standard deviation of s is below 1 / sqrt(2 n); its tails decrease at least like those of a normal distribution.
        let reach = 12.0 / (2.0 * freedom).sqrt();
        let low = (1.0 - reach).max(0.0);
        let step = (1.0 + reach - low) / f64::from(POINTS);
        let points = (0..POINTS).map(|i| low + (f64::from(i) + 0.5) * step);
        // The density without its constant, which the sum below replaces.
        let weight = |s: f64| ((freedom - 1.0) * s.ln() - 0.5 * freedom * (s * s - 1.0)).exp();
        let mut spread: Vec<_> = points.map(|s| (s, weight(s))).collect();
        let total: f64 = spread.iter().map(|(_, w)| w).sum();
        for (_, w) in &mut spread {
            *w /= total;
        }
        Self { spread }
    }

    /// `Pr[T >= t]`.
    pub(super) fn upper_tail(&self, t: f64, non_centrality: f64) -> f64 {
        self.spread.iter().map(|(s, w)| w * cdf(non_centrality - t * s)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_match_scipy() {
        // scipy 1.17.1: [scipy.stats.norm.ppf(p) for p in (1e-300, 1e-12, 1e-3, 0.025, 0.31, 0.5, 0.975)]
        for (p, expected) in [
            (1e-300, -37.047_096_299_361_2),
            (1e-12, -7.034_483_825_301_131),
            (1e-3, -3.090_232_306_167_813),
            (0.025, -1.959_963_984_540_054_5),
            (0.31, -0.495_850_347_347_453_3),
            (0.5, 0.0),
            (0.975, 1.959_963_984_540_054),
        ] {
            assert!((quantile(p) - expected).abs() < 1e-12, "{p}: {}", quantile(p));
        }
    }

    #[test]
    fn quantile_inverts_the_distribution() {
        for i in -60..=60 {
            let x = f64::from(i) / 10.0;
            assert!((quantile(cdf(x)) - x).abs() < 1e-7, "{x}");
        }
        assert_eq!(quantile(0.0), f64::NEG_INFINITY);
        assert_eq!(quantile(1.0), f64::INFINITY);
        assert!(quantile(f64::NAN).is_nan());
        assert!(quantile(f64::MIN_POSITIVE).is_finite());
    }

    #[test]
    fn non_central_t_matches_scipy() {
        // scipy 1.17.1: scipy.stats.nct.sf(t, n, c)
        for (n, t, c, expected) in [
            (1.0, 2.0, 0.5, 0.251_514_415_760_709_8),
            (2.0, 3.0, 1.0, 0.166_440_573_662_865_1),
            (5.0, 2.0, 0.0, 0.050_969_739_414_929_17),
            (5.0, 4.0, 1.5, 0.068_138_724_769_886_61),
            (48.0, 3.0, 1.2, 0.043_870_471_896_453_11),
            (998.0, 9.0, 7.3, 0.048_019_180_747_955_98),
            (998.0, 17.5, 15.8, 0.057_155_010_840_407_99),
            (4998.0, 40.0, 38.2, 0.047_507_897_404_854_09),
            (198.0, 30.0, 25.0, 0.002_739_410_891_389_245),
        ] {
            let got = NonCentralT::new(n).upper_tail(t, c);
            assert!((got / expected - 1.0).abs() < 1e-4, "{n} {t} {c}: {got} against {expected}");
        }
    }
}
