//! Statistics of the gradient norms of a batch, released in addition to a sum of gradients.

use std::sync::atomic::{AtomicU64, Ordering};

use sordino_accounting::ClipNorm;

use crate::PrivacyError;

/// A count over the gradient norms of a batch. Like a clip rule, it is data, not code.
///
/// | statistic | what a record with norm `n` adds | sensitivity |
/// | --- | --- | --- |
/// | [`histogram`](Self::histogram) | 1 to bin `min(b - 1, floor(b n / R))` | 1 |
/// | [`balance`](Self::balance) | 1/2 if `n <= C`, otherwise -1/2 | 1/2 |
///
/// A record adds exactly nothing if it is absent or its gradient is not finite: it is counted neither in a bin nor on a side of the balance.
///
/// **References.** Wei et al. 2025 (DC-SGD, the histogram; the bin is the smaller of the two, where their text has the larger);
/// Andrew et al. 2021 (the balance).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NormStatistic(StatisticKind);

#[derive(Debug, Clone, Copy, PartialEq)]
enum StatisticKind {
    Histogram { range: f64, bins: usize },
    Balance { threshold: f64 },
}

impl NormStatistic {
    /// The number of norms in each of `bins` bins of equal width from 0 to `range`. Larger norms are counted in the last bin.
    ///
    /// # Errors
    /// No bins, or more than 65,536.
    pub fn histogram(range: ClipNorm, bins: usize) -> Result<Self, PrivacyError> {
        match (1..=1 << 16).contains(&bins) {
            true => Ok(Self(StatisticKind::Histogram { range: range.get(), bins })),
            false => Err(PrivacyError::Rule(format!("a histogram has 1 to 65536 bins, got {bins}"))),
        }
    }

    /// Half of the difference between the number of norms at or below the clipping norm and the number above it.
    pub fn balance(threshold: ClipNorm) -> Self {
        Self(StatisticKind::Balance { threshold: threshold.get() })
    }

    /// The L2 sensitivity: how far the statistic can move when one record is removed.
    pub fn sensitivity(&self) -> f64 {
        match self.0 {
            StatisticKind::Histogram { .. } => 1.0,
            StatisticKind::Balance { .. } => 0.5,
        }
    }

    /// The counters of a batch, all 0.
    pub(crate) fn begin(&self) -> Vec<AtomicU64> {
        let counters = match self.0 {
            StatisticKind::Histogram { bins, .. } => bins,
            StatisticKind::Balance { .. } => 2,
        };
        (0..counters).map(|_| AtomicU64::new(0)).collect()
    }

    /// Counts one record.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; never negative")]
    #[expect(clippy::cast_precision_loss, reason = "at most 65536")]
    pub(crate) fn count(&self, norm: f64, counters: &[AtomicU64]) {
        let place = match self.0 {
            StatisticKind::Histogram { range, bins } => ((norm / range * bins as f64) as usize).min(bins - 1),
            StatisticKind::Balance { threshold } => usize::from(!(norm <= threshold)),
        };
        counters[place].fetch_add(1, Ordering::Relaxed);
    }

    /// The statistic, from its counters.
    #[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
    pub(crate) fn end(&self, counters: &[AtomicU64]) -> Vec<f64> {
        let counts: Vec<f64> =
            counters.iter().map(|counter| counter.load(Ordering::Relaxed) as f64).collect();
        match self.0 {
            StatisticKind::Histogram { .. } => counts,
            StatisticKind::Balance { .. } => vec![0.5 * (counts[0] - counts[1])],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(statistic: NormStatistic, norms: &[f64]) -> Vec<f64> {
        let counters = statistic.begin();
        norms.iter().for_each(|&norm| statistic.count(norm, &counters));
        statistic.end(&counters)
    }

    fn norm(value: f64) -> ClipNorm {
        ClipNorm::new(value).unwrap()
    }

    #[test]
    fn norms_are_counted_in_their_bins_and_large_ones_in_the_last() {
        let histogram = NormStatistic::histogram(norm(2.0), 4).unwrap();
        let norms = [0.0, 0.49, 0.5, 0.99, 1.2, 1.99, 2.0, 1e300, f64::MAX];
        assert_eq!(of(histogram, &norms), [2.0, 2.0, 1.0, 4.0]);
        assert_eq!(of(histogram, &[]), [0.0; 4]);
        assert!(NormStatistic::histogram(norm(2.0), 0).is_err());
    }

    #[test]
    fn the_balance_is_half_of_the_difference() {
        let balance = NormStatistic::balance(norm(1.0));
        assert_eq!(of(balance, &[0.5, 1.0, 1.5]), [0.5]);
        assert_eq!(of(balance, &[]), [0.0]);
    }

    #[test]
    fn one_record_moves_a_statistic_by_its_sensitivity() {
        for statistic in [NormStatistic::histogram(norm(3.0), 7).unwrap(), NormStatistic::balance(norm(1.5))]
        {
            for extra in [0.0, 1.5, 2.9, 3.0, 1e18] {
                let (without, with) = (of(statistic, &[1.0, 2.0]), of(statistic, &[1.0, 2.0, extra]));
                let moved = with.iter().zip(&without).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                assert_eq!(moved, statistic.sensitivity());
            }
        }
    }
}
