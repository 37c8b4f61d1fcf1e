//! A table of counts, and the error of sums over it.
//!
//! Each of `n` slots adds weights of at most 1 to the cells; independent noise of variance `v` is added to every cell. The error of a sum
//! `sum_c g_c x_c` has two parts. Noise: `v sum_c g_c^2`. Sampling: the slots are a sample of a population, so the variance is at most that of
//! a multinomial distribution, `sum_c x_c g_c^2 - (sum_c x_c g_c)^2 / n` (for slots that divide their weight over several cells it is
//! smaller, by Jensen's inequality).

use std::collections::BTreeMap;

use super::Estimate;

/// Standard deviations of sampling error in a 95 % interval.
const SAMPLING: f64 = 1.96;
/// Standard deviations of noise in a 95 % interval: Laplace noise of scale `b` exceeds `3 b` with probability 5 %, which is 2.12 standard
/// deviations. Sums of several cells exceed it less often.
const NOISE: f64 = 2.12;

/// A table of counts.
pub(crate) struct Table {
    pub(super) counts: Vec<f64>,
    pub(super) slots: f64,
    noise: f64,
    /// Whether the counts add up to the number of slots.
    complete: bool,
}

/// The variance of a sum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Variance {
    pub(super) noise: f64,
    pub(super) sampling: f64,
}

impl Variance {
    pub(super) fn total(self) -> f64 {
        self.noise + self.sampling
    }

    /// Half the length of a 95 % interval.
    pub(super) fn half(self) -> f64 {
        (NOISE * NOISE * self.noise + SAMPLING * SAMPLING * self.sampling).sqrt()
    }
}

impl Table {
    /// A table. If every slot adds exactly 1, the sum of the counts is known, and the noise in it is removed in equal parts from
    /// all cells.
    pub(crate) fn new(mut counts: Vec<f64>, slots: f64, noise: f64, complete: bool) -> Self {
        if complete && noise > 0.0 {
            let excess = (counts.iter().sum::<f64>() - slots) / counts.len() as f64;
            counts.iter_mut().for_each(|count| *count -= excess);
        }
        Self { counts, slots, noise, complete }
    }

    /// The sum of the counts with these weights.
    pub(super) fn sum(&self, weights: &[f64]) -> f64 {
        self.counts.iter().zip(weights).map(|(count, weight)| count * weight).sum()
    }

    pub(super) fn variance(&self, weights: &[f64]) -> Variance {
        let squares = |shift: f64| weights.iter().map(|weight| (weight - shift).powi(2)).sum::<f64>();
        // What is removed from all cells alike adds nothing to a sum with equal weights.
        let mean = weights.iter().sum::<f64>() / weights.len() as f64;
        let noise = self.noise * if self.complete { squares(mean) } else { squares(0.0) };
        let second: f64 =
            self.counts.iter().zip(weights).map(|(count, weight)| count * weight * weight).sum();
        let sampling = (second - self.sum(weights).powi(2) / self.slots).max(0.0);
        Variance { noise, sampling }
    }

    /// The mean over slots of a number that is large in some cells. Noise in cells that are nearly empty would dominate the sum. So cells with equal
    /// numbers are added up, and the nearest counts that are not negative are taken.
    pub(super) fn positive_mean(&self, weights: &[f64]) -> f64 {
        if self.noise == 0.0 || !self.complete {
            return self.sum(weights) / self.slots;
        }
        let mut groups = BTreeMap::<u64, f64>::new();
        for (count, weight) in self.counts.iter().zip(weights) {
            *groups.entry(weight.to_bits()).or_default() += count;
        }
        let counts: Vec<f64> = groups.values().copied().collect();
        let positive = nearest_positive(&counts, self.slots).into_iter().zip(groups.keys());
        positive.map(|(count, weight)| count * f64::from_bits(*weight)).sum::<f64>() / self.slots
    }

    /// The mean over slots of a number that is a sum with these weights.
    pub(super) fn mean(&self, weights: &[f64]) -> Estimate {
        let value = self.sum(weights) / self.slots;
        let half = self.variance(weights).half() / self.slots;
        Estimate { value, low: value - half, high: value + half }
    }

    /// A fraction of two sums, `part / whole`, where every slot adds at most as much to the part as to the whole, and at most 1. None if the
    /// whole is not clearly above its noise.
    pub(super) fn share(&self, part: &[f64], whole: &[f64]) -> Option<Estimate> {
        let of = self.sum(whole);
        if !(of > 2.0 * self.variance(whole).noise.sqrt()) || of <= 0.0 {
            return None;
        }
        let value = (self.sum(part) / of).clamp(0.0, 1.0);
        let gradient: Vec<f64> =
            part.iter().zip(whole).map(|(part, whole)| (part - value * whole) / of).collect();
        Some(self.fraction(value, &gradient, of))
    }

    /// The estimate of a number from 0 to 1 that has this gradient and follows from about `records` records. Near 0 and 1, where the
    /// linear approximation has no error, the interval is at least that of Agresti and Coull (1998) for a proportion.
    pub(super) fn fraction(&self, value: f64, gradient: &[f64], records: f64) -> Estimate {
        let squared = SAMPLING * SAMPLING;
        let centre = (value * records + 0.5 * squared) / (records + squared);
        let variance = self.variance(gradient);
        let sampling = variance.sampling.max(centre * (1.0 - centre) / (records + squared));
        let half = Variance { sampling, ..variance }.half();
        Estimate { value, low: (centre - half).clamp(0.0, value), high: (centre + half).clamp(value, 1.0) }
    }
}

/// The nearest counts, by their squared distance, that are not negative and have this sum: `max(x - t, 0)` for some `t`.
fn nearest_positive(counts: &[f64], sum: f64) -> Vec<f64> {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    let (mut total, mut shift) = (0.0, 0.0);
    for (number, count) in sorted.iter().enumerate() {
        total += count;
        let candidate = (total - sum) / (number as f64 + 1.0);
        if *count <= candidate {
            break;
        }
        shift = candidate;
    }
    counts.iter().map(|count| (count - shift).max(0.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_positive_table_has_the_sum() {
        assert_eq!(nearest_positive(&[3.0, 1.0, 0.0], 4.0), [3.0, 1.0, 0.0]);
        assert_eq!(nearest_positive(&[5.0, -1.0, 0.0], 4.0), [4.0, 0.0, 0.0]);
        assert_eq!(nearest_positive(&[4.0, 4.0, -9.0], 4.0), [2.0, 2.0, 0.0]);
        let far = nearest_positive(&[-5.0, -7.0], 1.0);
        assert!((far.iter().sum::<f64>() - 1.0).abs() < 1e-12 && far.iter().all(|count| *count >= 0.0));
    }
}
