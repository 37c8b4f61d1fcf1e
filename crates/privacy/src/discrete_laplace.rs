//! Discrete Laplace noise, exact: whole numbers `n` with probability proportional to `exp(-|n| / scale)`.
//!
//! Canonne, Kamath and Steinke (2020), Algorithms 1 and 2, for a whole scale. Every comparison is between integers, so the distribution
//! is exact for ideal random bits: nothing is rounded, and no possible value is missing.

use rand_chacha::rand_core::Rng;

/// A whole number with discrete Laplace distribution.
#[expect(
    clippy::cast_possible_wrap,
    reason = "at most 2^50 * 2^12; more has a probability of exp(-4096) and saturates"
)]
pub(crate) fn discrete_laplace(scale: u64, rng: &mut impl Rng) -> i64 {
    loop {
        // The magnitude is u + scale * v: u is below the scale, with probability proportional to exp(-u / scale), and v is geometric.
        let u = below(scale, rng);
        if !decays(u, scale, rng) {
            continue;
        }
        let mut v = 0;
        while decays(1, 1, rng) {
            v += 1;
        }
        let magnitude = (scale as i64).saturating_mul(v).saturating_add(u as i64);
        let negative = rng.next_u64() & 1 == 1;
        // Zero is accepted with one sign only.
        match (negative, magnitude) {
            (true, 0) => {}
            (true, _) => return -magnitude,
            (false, _) => return magnitude,
        }
    }
}

/// The variance of discrete Laplace noise.
pub(crate) fn variance(scale: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "below 2^52")]
    let x = (scale as f64).recip();
    // 2 e^-x / (1 - e^-x)^2
    0.5 / (0.5 * x).sinh().powi(2)
}

/// True with probability `exp(-u / scale)`, for `u <= scale`: the first `k` for which a coin with probability `u / (scale k)` fails is odd.
fn decays(u: u64, scale: u64, rng: &mut impl Rng) -> bool {
    let mut k = 1;
    while below(scale, rng) < u && below(k, rng) == 0 {
        k += 1;
    }
    k % 2 == 1
}

/// A uniform whole number below `limit`, which is at least 1.
fn below(limit: u64, rng: &mut impl Rng) -> u64 {
    let mask = u64::MAX.checked_shr((limit - 1).leading_zeros()).unwrap_or(0);
    loop {
        let drawn = rng.next_u64() & mask;
        if drawn < limit {
            return drawn;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Randomness;

    /// The exact probability of `n`.
    fn probability(n: i64, scale: u64) -> f64 {
        let decay = (-1.0 / scale as f64).exp();
        (1.0 - decay) / (1.0 + decay) * decay.powf(n.unsigned_abs() as f64)
    }

    /// A chi-square statistic over all values with at least 20 expected draws, and the rest as one. It exceeds its mean by six of its
    /// standard deviations with a probability below 1e-6 (its tail is that of a sum of hundreds of squares or, for scale 1, of 27).
    #[test]
    fn noise_has_the_exact_distribution() {
        for scale in [1, 2, 3, 7, 64] {
            let mut rng = Randomness::seeded(scale).streams().number(0);
            let draws = 200_000;
            let mut counts = std::collections::BTreeMap::new();
            for _ in 0..draws {
                *counts.entry(discrete_laplace(scale, &mut rng)).or_insert(0_u32) += 1;
            }
            let (mut statistic, mut cells, mut seen, mut expected_sum) = (0.0, 0.0, 0.0, 0.0);
            for n in -2000..=2000_i64 {
                let expected = f64::from(draws) * probability(n, scale);
                if expected >= 20.0 {
                    let count = f64::from(counts.get(&n).copied().unwrap_or(0));
                    statistic += (count - expected).powi(2) / expected;
                    cells += 1.0;
                    seen += count;
                    expected_sum += expected;
                }
            }
            let rest = f64::from(draws) - expected_sum;
            statistic += (f64::from(draws) - seen - rest).powi(2) / rest;
            assert!(
                statistic < cells + 6.0 * f64::sqrt(2.0 * cells) + 6.0,
                "{scale}: {statistic} for {cells}"
            );
            let square = |(n, count): (&i64, &u32)| (*n as f64).powi(2) * f64::from(*count);
            let measured = counts.iter().map(square).sum::<f64>() / f64::from(draws);
            // The square of Laplace noise has a standard deviation of sqrt(5) times its mean, and more for small scales.
            assert!(
                (measured / variance(scale) - 1.0).abs() < 6.0 * (6.0 / f64::from(draws)).sqrt(),
                "{scale}"
            );
        }
    }

    /// With scale 2^40, the empirical distribution function stays within 2.2 / sqrt(n) of the exact one; the probability of more is 1.3e-4.
    #[test]
    fn large_scales_are_exact_too() {
        let (scale, n) = (1_u64 << 40, 20_000);
        let mut rng = Randomness::seeded(5).streams().number(0);
        let mut drawn: Vec<f64> = (0..n).map(|_| discrete_laplace(scale, &mut rng) as f64).collect();
        drawn.sort_unstable_by(f64::total_cmp);
        let cumulative = |x: f64| {
            let tail = 0.5 * (-x.abs() / scale as f64).exp();
            if x < 0.0 { tail } else { 1.0 - tail }
        };
        let distance = drawn
            .iter()
            .enumerate()
            .map(|(i, &x)| (cumulative(x) - i as f64 / f64::from(n)).abs())
            .fold(0.0, f64::max);
        assert!(distance < 2.2 / f64::from(n).sqrt(), "{distance}");
        // The variance of the continuous distribution.
        assert!((variance(scale) / (2.0 * (scale as f64).powi(2)) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn numbers_below_a_limit_are_uniform() {
        let mut rng = Randomness::seeded(9).streams().number(0);
        assert_eq!(below(1, &mut rng), 0);
        for limit in [2_u64, 3, 5, 8] {
            let mut counts = vec![0_u32; usize::try_from(limit).unwrap()];
            for _ in 0..80_000 {
                counts[usize::try_from(below(limit, &mut rng)).unwrap()] += 1;
            }
            let expected = 80_000.0 / limit as f64;
            // Five standard deviations.
            assert!(
                counts.iter().all(|&count| (f64::from(count) - expected).abs() < 5.0 * expected.sqrt()),
                "{counts:?}"
            );
        }
        let large = (1_u64 << 63) + 1;
        assert!((0..100).all(|_| below(large, &mut rng) < large));
    }
}
