//! Binomial probabilities, as logarithms where they would underflow.

use crate::number::real;

/// `ln C(n, k)`.
pub(crate) fn ln_choose(n: u64, k: u64) -> f64 {
    let (n, k) = (real(n), real(k));
    libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0)
}

/// `ln Pr[Bin(n, p) = k]` for `p` in (0, 1].
pub(crate) fn ln_pmf(n: u64, p: f64, k: u64) -> f64 {
    let missing = if k == n { 0.0 } else { real(n - k) * (-p).ln_1p() };
    ln_choose(n, k) + real(k) * p.ln() + missing
}

/// `Pr[Bin(n, p) > k]`, rounded up.
///
/// Above the mean, successive probabilities decrease at least geometrically, which bounds the terms that the sum leaves out.
/// At or below the mean the result is the trivial bound 1.
pub(crate) fn upper_tail(n: u64, p: f64, k: u64) -> f64 {
    if k >= n {
        return 0.0;
    }
    if real(k) <= real(n) * p {
        return 1.0;
    }
    let odds = p / (1.0 - p);
    let mut term = ln_pmf(n, p, k + 1).exp();
    let mut sum = 0.0;
    for j in k + 1..=n {
        sum += term;
        let ratio = real(n - j) / real(j + 1) * odds;
        let rest = term * ratio / (1.0 - ratio);
        if rest <= sum * 1e-12 {
            sum += rest;
            break;
        }
        term *= ratio;
    }
    // lgamma(n) is about n ln n and has an error of one or two ulps, which is an error in the exponent of the probability.
    let n = real(n);
    (sum * (1e-9 + 1e-15 * n * n.ln()).exp()).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum over all outcomes.
    fn naive(n: u64, p: f64, k: u64) -> f64 {
        (k + 1..=n).map(|j| ln_pmf(n, p, j).exp()).sum()
    }

    #[test]
    fn upper_tail_is_slightly_above_the_full_sum() {
        for (n, p, k) in [(50, 0.3, 20), (1000, 0.01, 25), (51, 0.5, 50), (10, 0.8, 9)] {
            let (exact, tail) = (naive(n, p, k), upper_tail(n, p, k));
            assert!(
                tail >= exact * (1.0 - 1e-9) && tail <= exact * (1.0 + 1e-6),
                "{n} {p} {k}: {tail} {exact}"
            );
        }
        assert!((upper_tail(10, 0.5, 9) - 0.5_f64.powi(10)).abs() < 1e-9);
    }

    #[test]
    fn edge_cases() {
        assert_eq!(upper_tail(10, 0.5, 10), 0.0);
        assert_eq!(upper_tail(10, 0.5, 3), 1.0);
        assert_eq!(upper_tail(10, 1.0, 9), 1.0);
    }
}
