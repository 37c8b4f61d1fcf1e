//! Tails of the binomial distribution.

/// A count as a floating-point number.
pub(super) fn real(count: u64) -> f64 {
    count as f64
}

/// The binomial distribution `Bin(n, p)` for `0 < p < 1`. The complement `1 - p` is kept because it can be too small to be computed from `p`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Binomial {
    pub(super) n: u64,
    pub(super) p: f64,
    pub(super) complement: f64,
}

impl Binomial {
    pub(super) fn new(n: u64, p: f64) -> Self {
        Self { n, p, complement: 1.0 - p }
    }

    /// `Pr[X = k]` for `k <= n`.
    pub(super) fn pmf(&self, k: u64) -> f64 {
        let (n, k) = (real(self.n), real(k));
        let choose = libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0);
        let term = |count: f64, ln: f64| if count == 0.0 { 0.0 } else { count * ln };
        (choose + term(k, self.p.ln()) + term(n - k, self.complement.ln())).exp()
    }

    /// The probabilities of `k`, `k - 1`, ..., 0, by the ratio of successive ones.
    pub(super) fn downward(self, k: u64) -> impl Iterator<Item = f64> {
        let odds = self.complement / self.p;
        (0..=k).rev().scan(self.pmf(k), move |next, j| {
            let this = *next;
            *next *= real(j) / real(self.n - j + 1) * odds;
            Some(this)
        })
    }

    /// `Pr[X <= k]`, with a relative error of at most about `1e-15 n ln n`.
    pub(super) fn lower_tail(&self, k: u64) -> f64 {
        if k >= self.n {
            return 1.0;
        }
        // Away from the mean the terms decrease at least geometrically, so that few are needed.
        if real(k) <= real(self.n) * self.p {
            sum(self.downward(k))
        } else {
            1.0 - sum(self.mirrored().downward(self.n - k - 1))
        }
    }

    /// `Pr[X >= k]`.
    pub(super) fn upper_tail(&self, k: u64) -> f64 {
        if k == 0 {
            return 1.0;
        }
        if k > self.n {
            return 0.0;
        }
        self.mirrored().lower_tail(self.n - k)
    }

    /// The distribution of `n - X`.
    fn mirrored(&self) -> Self {
        Self { n: self.n, p: self.complement, complement: self.p }
    }
}

/// The sum of decreasing terms, until they no longer change it.
fn sum(terms: impl Iterator<Item = f64>) -> f64 {
    let mut total = 0.0;
    for term in terms {
        total += term;
        if term <= total * 1e-18 {
            break;
        }
    }
    total.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_are_sums_over_all_outcomes() {
        for (n, p) in [(1, 0.3), (7, 0.5), (60, 0.02), (200, 0.9), (1000, 0.5)] {
            let binomial = Binomial::new(n, p);
            for k in 0..=n {
                let below: f64 = (0..=k).map(|j| binomial.pmf(j)).sum();
                let above: f64 = (k..=n).map(|j| binomial.pmf(j)).sum();
                assert!((binomial.lower_tail(k) - below).abs() < 1e-10, "{n} {p} {k}");
                assert!((binomial.upper_tail(k) - above).abs() < 1e-10, "{n} {p} {k}");
            }
            assert_eq!(binomial.upper_tail(n + 1), 0.0);
        }
    }

    #[test]
    fn small_tails_keep_their_relative_accuracy() {
        let binomial = Binomial::new(100, 0.5);
        assert!((binomial.upper_tail(100) / 0.5_f64.powi(100) - 1.0).abs() < 1e-12);
        assert!((binomial.lower_tail(0) / 0.5_f64.powi(100) - 1.0).abs() < 1e-12);
    }
}
