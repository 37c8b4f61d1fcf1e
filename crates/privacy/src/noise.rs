//! Gaussian noise on a lattice, so that the low-order digits of a released number reveal nothing.
//!
//! Floating-point noise has gaps: which results can occur depends on the sum, and attacks have read sums from the last bits of
//! released numbers. Here the sum is rounded to multiples of a step `g`, a power of two at least 2^22 times smaller than the noise.
//! The noise is rounded to multiples of `g` as well, and the two are added as integers. For `x` on the lattice
//! `x + round(n) = round(x + n)`, so this is the Gaussian mechanism followed by rounding: every multiple of `g` is possible for every
//! sum, with the correct probability.

use std::ops::Range;

use rayon::prelude::*;

use crate::{normal::for_each_with_normal, randomness::Streams};

/// The step of the lattice is at most the smaller of the standard deviation and the sensitivity, divided by 2 to this power.
const FINENESS: i32 = 22;

/// The number of coordinates that share a stream of randomness.
const BLOCK: usize = 1 << 12;

/// The largest magnitude of a sum, in steps: 2^61, so that integers do not overflow when noise is added.
const MAX_STEPS: f64 = 2_305_843_009_213_693_952.0;

/// Noise of one standard deviation, and the lattice it is added on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GaussianNoise {
    /// The step of the lattice.
    step: f64,
    /// One over the step, which is exact for a power of two.
    per_step: f64,
    /// The standard deviation in steps.
    steps: f64,
    /// The standard deviation.
    pub(crate) std: f64,
}

impl GaussianNoise {
    /// Noise of `multiplier` times the sensitivity of a sum in `dimension` coordinates, counted over all releases that share the
    /// sensitivity.
    ///
    /// Rounding each of `d` coordinates moves a sum by at most `g sqrt(d) / 2`, so two neighbouring sums move at most
    /// `g sqrt(d)` further apart. The noise is scaled to that distance.
    pub(crate) fn new(multiplier: f64, sensitivity: f64, dimension: u64) -> Self {
        // Small compared with the noise and with the sensitivity, but not so small that integers overflow.
        let scale = multiplier.min(1.0).max(multiplier * 2.0_f64.powi(-24)) * sensitivity;
        #[expect(clippy::cast_possible_truncation, reason = "the exponent of a positive number")]
        let step = 2.0_f64.powi(scale.log2().floor() as i32 - FINENESS);
        #[expect(clippy::cast_precision_loss, reason = "a count, rounded")]
        let std = multiplier * (sensitivity + step * (dimension as f64).sqrt());
        Self { step, per_step: 1.0 / step, steps: std / step, std }
    }

    /// Rounds the sum to the lattice and adds noise in the trainable ranges. All other coordinates become zero. The result is written
    /// to `out`.
    pub(crate) fn add(&self, sum: &[f64], trainable: &[Range<usize>], streams: &Streams, out: &mut Vec<f32>) {
        out.resize(sum.len(), 0.0);
        let mut blocks: Vec<(&[f64], &mut [f32])> = Vec::new();
        let (mut rest, mut begun) = (&mut out[..], 0);
        for range in trainable {
            let (frozen, tail) = rest.split_at_mut(range.start - begun);
            frozen.fill(0.0);
            let (trained, tail) = tail.split_at_mut(range.len());
            blocks.extend(sum[range.clone()].chunks(BLOCK).zip(trained.chunks_mut(BLOCK)));
            (rest, begun) = (tail, range.end);
        }
        rest.fill(0.0);
        blocks.into_par_iter().enumerate().for_each(|(number, (sum, out))| {
            let mut rng = streams.number(number as u64);
            for_each_with_normal(sum.iter().zip(out), &mut rng, |(sum, out), normal| {
                *out = self.noised(*sum, normal);
            });
        });
    }

    /// One coordinate, given a standard normal number.
    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "as explained above")]
    fn noised(&self, value: f64, normal: f64) -> f32 {
        let sum = rounded((value * self.per_step).clamp(-MAX_STEPS, MAX_STEPS));
        let noise = rounded(normal * self.steps);
        ((sum + noise) as f64 * self.step) as f32
    }
}

/// The nearest integer; a NaN gives 0. (`f64::round` is a library call on most processors.)
#[expect(clippy::cast_possible_truncation, reason = "within 2^62, or saturated")]
pub(crate) fn rounded(x: f64) -> i64 {
    (x + 0.5_f64.copysign(x)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Randomness;

    fn cumulative(x: f64) -> f64 {
        0.5 * libm::erfc(-x / std::f64::consts::SQRT_2)
    }

    fn sample(count: usize, seed: u64) -> (GaussianNoise, Vec<f64>) {
        let noise = GaussianNoise::new(1.5, 2.0, count as u64);
        let streams = Randomness::seeded(seed).streams();
        let mut released = Vec::new();
        noise.add(&vec![0.0; count], std::slice::from_ref(&(0..count)), &streams, &mut released);
        (noise, released.into_iter().map(f64::from).collect())
    }

    /// Fixed seed. The Kolmogorov-Smirnov statistic exceeds 2.2 / sqrt(n) with probability 1.3e-4, the variance leaves 5
    /// standard deviations with probability 6e-7.
    #[test]
    fn noise_is_normal_with_the_planned_deviation() {
        let (noise, mut values) = sample(1_000_000, 3);
        let n = values.len() as f64;
        // A million coordinates: 2^-22 * 1000 more.
        assert!((noise.std / 3.0 - 1.0).abs() < 1e-3 && noise.std >= 3.0);
        let variance = values.iter().map(|v| v * v).sum::<f64>() / n / noise.std.powi(2);
        assert!((variance - 1.0).abs() < 5.0 * (2.0 / n).sqrt(), "{variance}");
        values.sort_unstable_by(f64::total_cmp);
        let distance = values.iter().enumerate().fold(0.0_f64, |worst, (i, v)| {
            let expected = cumulative(v / noise.std);
            worst.max((expected - i as f64 / n).abs()).max(((i + 1) as f64 / n - expected).abs())
        });
        assert!(distance < 2.2 / n.sqrt(), "{distance}");
        let tails = values.iter().filter(|v| v.abs() > 4.0 * noise.std).count() as f64;
        // 63.3 are expected.
        assert!((tails - 63.3).abs() < 5.0 * 8.0, "{tails}");
    }

    #[test]
    fn coordinates_are_independent_across_blocks_and_draws() {
        let (noise, values) = sample(100_000, 5);
        for lag in [1, 7, BLOCK] {
            let n = (values.len() - lag) as f64;
            let product: f64 = values.iter().zip(&values[lag..]).map(|(a, b)| a * b).sum();
            let correlation = product / n / noise.std.powi(2);
            assert!(correlation.abs() < 5.0 / n.sqrt(), "lag {lag}: {correlation}");
        }
        let mut randomness = Randomness::seeded(5);
        let mut twice = [vec![], vec![]];
        for released in &mut twice {
            noise.add(&[0.0; 8], std::slice::from_ref(&(0..8)), &randomness.streams(), released);
        }
        assert_ne!(twice[0], twice[1]);
    }

    #[test]
    fn releases_are_on_the_lattice_for_every_sum() {
        let noise = GaussianNoise::new(1.0, 1.0, 1);
        assert_eq!(noise.step, 2.0_f64.powi(-22));
        for value in [0.0, 0.1, -0.3, 1.0 / 3.0, 5e-9] {
            for normal in [0.0, 1e-30, 0.123_456_789, -2.5] {
                // Before the last rounding to single precision, which is the same for all.
                let sum = (value / noise.step).round();
                let expected = ((sum + (normal * noise.std / noise.step).round()) * noise.step) as f32;
                assert_eq!(noise.noised(value, normal), expected);
            }
        }
        // The least significant bits of an unrounded sum do not survive: half a step apart, both become the same number.
        assert_eq!(noise.noised(1e-10, 0.1), noise.noised(0.0, 0.1));
    }

    #[test]
    fn sums_beyond_the_range_of_integers_are_clamped() {
        let noise = GaussianNoise::new(1.0, 1.0, 1);
        for (value, expected) in [(1e300, 2.0_f32.powi(39)), (-1e30, -(2.0_f32.powi(39)))] {
            assert_eq!([0.0, 1.0, -1.0].map(|normal| noise.noised(value, normal)), [expected; 3]);
        }
        assert_eq!(noise.noised(1e9, 0.0), 1e9);
    }

    #[test]
    fn extreme_scales_do_not_overflow() {
        for (multiplier, sensitivity) in [(1e-6, 1e-12), (1e-6, 1e12), (1e12, 1e12), (1.0, 1e-12)] {
            let noise = GaussianNoise::new(multiplier, sensitivity, 1 << 30);
            assert!(noise.std >= multiplier * sensitivity && noise.std.is_finite() && noise.step > 0.0);
            assert!(noise.noised(f64::from(f32::MAX), 12.0).is_finite() || multiplier * sensitivity > 1e20);
        }
    }

    #[test]
    fn frozen_coordinates_are_zero_without_noise() {
        let noise = GaussianNoise::new(1.0, 1.0, 3);
        // Whatever the buffer contained before.
        let mut released = vec![7.0; 9];
        noise.add(&[1.0; 6], &[1..2, 3..5], &Randomness::seeded(1).streams(), &mut released);
        assert_eq!([released[0], released[2], released[5]], [0.0; 3]);
        assert!(released.len() == 6 && [1, 3, 4].iter().all(|&i| released[i] != 1.0 && released[i] != 0.0));
    }
}
