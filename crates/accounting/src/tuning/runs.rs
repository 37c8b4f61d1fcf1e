//! The random number of runs of a search.

use serde::{Deserialize, Serialize};

use super::out_of_range;
use crate::{AccountingError, number::real};

/// The distribution of the number of runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Runs {
    /// A negative binomial conditioned on at least one run.
    TruncatedNegativeBinomial {
        /// The shape: 1 is the geometric distribution, 0 the logarithmic. A smaller shape costs less and varies more.
        eta: f64,
        /// The probability parameter in (0, 1). A smaller one means more runs.
        gamma: f64,
    },
    /// A Poisson distribution. There may be no run at all.
    Poisson {
        /// The mean.
        mean: f64,
    },
}

impl Runs {
    /// The truncated negative binomial of this shape with this mean.
    ///
    /// # Errors
    /// The shape is -1 or less, or the mean is 1 or less.
    pub fn negative_binomial(eta: f64, mean: f64) -> Result<Self, AccountingError> {
        if !(eta.is_finite() && eta > -1.0) {
            return Err(out_of_range("eta", "a finite number above -1", eta, "use -0.5, 0 or 1"));
        }
        if !(mean.is_finite() && mean > 1.0) {
            return Err(out_of_range("mean number of runs", "a finite number above 1", mean, "try 20"));
        }
        let (mut low, mut high) = (-700.0_f64, -1e-12_f64);
        // The mean falls from infinity to 1 as gamma grows from 0 to 1.
        for _ in 0..200 {
            let mid = 0.5 * (low + high);
            if truncated_mean(eta, mid.exp()) > mean { low = mid } else { high = mid }
        }
        Ok(Self::TruncatedNegativeBinomial { eta, gamma: high.exp() })
    }

    /// A Poisson number of runs.
    ///
    /// # Errors
    /// The mean is not positive.
    pub fn poisson(mean: f64) -> Result<Self, AccountingError> {
        if mean.is_finite() && mean > 0.0 {
            return Ok(Self::Poisson { mean });
        }
        Err(out_of_range("mean number of runs", "a finite number above 0", mean, "try 20"))
    }

    /// The expected number of runs.
    pub fn mean(&self) -> f64 {
        match *self {
            Self::TruncatedNegativeBinomial { eta, gamma } => truncated_mean(eta, gamma),
            Self::Poisson { mean } => mean,
        }
    }

    /// The number of runs at a quantile: the smallest `k` with `P(K <= k) >= probability`, at most `2^32`.
    ///
    /// For a uniform probability in [0, 1) this is a draw of `K`. Rounding changes the probability of any set of numbers by less than
    /// [`ROUNDING`](Self::ROUNDING) for means up to 100 and shapes from -0.5 on: at most half a million probabilities above `2^-60` are
    /// added up. The errors of the ratios accumulate, up to about `2^-53` for each of them, relative to the probability. (Computed in higher precision for a mean of 300 and a
    /// shape of -0.5: 8e-11; for a mean of 1,000 and a shape of 0: 3e-12.)
    pub fn quantile(&self, probability: f64) -> u64 {
        // Ratios of successive probabilities.
        let (mut k, mut mass) = match *self {
            Self::TruncatedNegativeBinomial { eta, gamma } if eta.abs() < 1e-9 => {
                (1, (1.0 - gamma) / -gamma.ln())
            }
            Self::TruncatedNegativeBinomial { eta, gamma } => {
                (1, eta * (1.0 - gamma) / (-eta * gamma.ln()).exp_m1())
            }
            Self::Poisson { mean } => (0, (-mean).exp()),
        };
        let mut sum = mass;
        while sum < probability && k < 1 << 32 {
            mass *= match *self {
                Self::TruncatedNegativeBinomial { eta, gamma } => {
                    (1.0 - gamma) * (real(k) + eta) / (real(k) + 1.0)
                }
                Self::Poisson { mean } => mean / (real(k) + 1.0),
            };
            k += 1;
            // Beyond the tail, the sum no longer grows.
            if sum + mass <= sum && real(k) > self.mean() {
                break;
            }
            sum += mass;
        }
        k
    }

    /// A bound on the effect of rounding on a draw of `K`. A search with this `K` instead of the exact one is
    /// `(epsilon, delta + (1 + e^epsilon) ROUNDING)`-DP.
    pub const ROUNDING: f64 = 1e-10;

    /// `f'(x) / f'(1)` at `x = 1 - c`, where `f(x) = E[x^K]`: how much less likely a run is selected if a share `c` of runs is better
    /// than it. It falls as `c` grows.
    pub(super) fn weight(&self, c: f64) -> f64 {
        match *self {
            Self::TruncatedNegativeBinomial { eta, gamma } => {
                (-(1.0 + eta) * (c * (1.0 - gamma) / gamma).ln_1p()).exp()
            }
            Self::Poisson { mean } => (-mean * c).exp(),
        }
    }
}

/// `E[K] = eta (1-gamma) / (gamma (1 - gamma^eta))`, and its limit `(1/gamma - 1) / ln(1/gamma)` at `eta = 0`.
fn truncated_mean(eta: f64, gamma: f64) -> f64 {
    let odds = (1.0 - gamma) / gamma;
    if eta.abs() < 1e-9 { odds / -gamma.ln() } else { eta * odds / -(eta * gamma.ln()).exp_m1() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_distributions_are_refused() {
        assert!(Runs::negative_binomial(-1.0, 20.0).is_err() && Runs::negative_binomial(0.0, 1.0).is_err());
        assert!(Runs::poisson(0.0).is_err() && Runs::poisson(f64::NAN).is_err());
    }

    /// The mean over evenly spaced quantiles, which is a sum over the distribution.
    #[test]
    fn draws_have_the_mean_of_the_distribution() {
        let families = [-0.5, 0.0, 1.0, 3.0].map(|eta| Runs::negative_binomial(eta, 12.0).unwrap());
        for runs in families.into_iter().chain([Runs::poisson(12.0).unwrap()]) {
            let n = 20_000;
            let mean = (0..n).map(|i| real(runs.quantile((f64::from(i) + 0.5) / f64::from(n)))).sum::<f64>()
                / f64::from(n);
            assert!((mean / 12.0 - 1.0).abs() < 0.01, "{runs:?}: {mean}");
        }
        let geometric = Runs::negative_binomial(1.0, 4.0).unwrap();
        assert_eq!([0.0, 0.25, 0.26, 0.43].map(|p| geometric.quantile(p)), [1, 1, 2, 2]);
        assert!(geometric.quantile(1.0) > 100);
    }

    /// The weight is the derivative of the generating function, here by differences of its series.
    #[test]
    fn the_weight_is_the_derivative_of_the_generating_function() {
        for eta in [-0.5, 0.5, 1.0, 2.0] {
            let runs = Runs::negative_binomial(eta, 7.0).unwrap();
            let Runs::TruncatedNegativeBinomial { gamma, .. } = runs else { unreachable!() };
            let f = |x: f64| ((1.0 - (1.0 - gamma) * x).powf(-eta) - 1.0) / (gamma.powf(-eta) - 1.0);
            for c in [0.1, 0.5, 0.9] {
                let slope = (f(1.0 - c + 1e-6) - f(1.0 - c - 1e-6)) / 2e-6;
                assert!((runs.weight(c) * runs.mean() / slope - 1.0).abs() < 1e-5, "{eta} {c}");
            }
        }
    }
}
