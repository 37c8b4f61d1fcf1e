//! Tests of the noise.

use super::{Observations, rate, test_statistics::Normal};
use crate::{Check, Content, ObservedRelease};

impl Observations<'_> {
    /// Tests of the noise in free coordinates, and the largest standard deviation that the observations permit.
    pub(super) fn noise(&self, tests: &Normal, quantile: f64) -> (Vec<Check>, f64) {
        // For each step and release, the free coordinates in units of the stated standard deviation.
        let free: Vec<Vec<Vec<f64>>> = self
            .steps
            .iter()
            .map(|step| {
                let scaled = |values: &[f32], std: f64| values.iter().map(|v| f64::from(*v) / std).collect();
                let one = |release: &ObservedRelease| match &release.content {
                    Content::Gradients(projections) => Some(scaled(&projections.free, release.noise_std)),
                    Content::Counts(_) => None,
                };
                step.releases.iter().filter_map(one).collect()
            })
            .collect();
        let all: Vec<&Vec<f64>> = free.iter().flatten().collect();
        let count = all.iter().map(|values| values.len()).sum::<usize>() as f64;
        if count == 0.0 {
            return (Vec::new(), f64::INFINITY);
        }
        let mean_square = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64;
        let variance =
            all.iter().map(|values| values.iter().map(|v| v * v).sum::<f64>()).sum::<f64>() / count;
        let width = all[0].len() as f64;
        let releases = all.len() as f64;
        let dispersion = all.iter().map(|values| (mean_square(values) - 1.0).powi(2)).sum::<f64>() / releases
            * width
            / 2.0;
        let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let (mut serial, mut pairs) = (0.0, 0.0);
        for lag in 1..=2 {
            for (earlier, later) in free.iter().zip(free.iter().skip(lag)) {
                for (before, after) in earlier.iter().zip(later) {
                    serial += product(before, after);
                    pairs += before.len() as f64;
                }
            }
        }
        let (mut within, mut within_pairs) = (0.0, 0.0);
        for releases in &free {
            for (first, second) in releases.iter().zip(releases.iter().skip(1)) {
                within += product(first, second);
                within_pairs += first.len() as f64;
            }
        }
        let neighbours: f64 = all.iter().map(|values| product(values, &values[1..])).sum();
        let neighbour_pairs = releases * (width - 1.0);
        let mut checks = vec![
            tests.two_sided(
                "noise variance",
                "The variance of the noise along free directions, in units of the stated variance.",
                variance,
                1.0,
                (2.0 / count).sqrt(),
            ),
            tests.mean_square(
                "noise between steps",
                "The spread of the noise variance between steps. It is 1 if the noise does not depend on the batch, for example if a sum is \
                 divided by a public constant.",
                dispersion,
                // The squares of chi-squared variates have heavier tails than those of normal ones.
                releases * 2.0 / (2.0 + 24.0 / width),
            ),
            self.noise_and_batch_size(tests, &free),
            tests.two_sided(
                "noise of consecutive steps",
                "The correlation of the noise of a step with that of the next two steps.",
                serial / pairs.max(1.0),
                0.0,
                1.0 / pairs.max(1.0).sqrt(),
            ),
            tests.two_sided(
                "noise of neighbouring coordinates",
                "The correlation of the noise in neighbouring coordinates.",
                neighbours / neighbour_pairs.max(1.0),
                0.0,
                1.0 / neighbour_pairs.max(1.0).sqrt(),
            ),
        ];
        if within_pairs > 0.0 {
            checks.push(tests.two_sided(
                "noise of one step's releases",
                "The correlation of the noise of the releases of one step.",
                within / within_pairs,
                0.0,
                1.0 / within_pairs.sqrt(),
            ));
        }
        let noise = (variance / (1.0 - quantile * (2.0 / count).sqrt()).max(1e-3)).sqrt();
        (checks, noise)
    }

    /// A test of whether steps that draw more canaries have less noise, for example because a sum is divided by the size of its batch: the
    /// correlation of the noise variance of a step with the number of canaries that it draws.
    fn noise_and_batch_size(&self, tests: &Normal, free: &[Vec<Vec<f64>>]) -> Check {
        let sizes = self.planned().map(|(planned, step)| {
            let expected = self.eligible(&planned) * rate(planned.entry.sampling());
            step.drawn.len() as f64 - expected
        });
        let variances = free.iter().map(|releases| {
            let (sum, count) =
                releases.iter().flatten().fold((0.0, 0.0), |(sum, count), v| (sum + v * v, count + 1.0));
            if count > 0.0 { sum / count - 1.0 } else { 0.0 }
        });
        let (mut products, mut size_squares, mut variance_squares, mut count) = (0.0, 0.0, 0.0, 0.0_f64);
        for (size, variance) in sizes.zip(variances) {
            products += size * variance;
            size_squares += size * size;
            variance_squares += variance * variance;
            count += 1.0;
        }
        let correlation = products / (size_squares * variance_squares).sqrt().max(f64::MIN_POSITIVE);
        tests.two_sided(
            "noise and batch size",
            "The correlation of the noise variance of a step with the number of canaries in its batch.",
            correlation,
            0.0,
            1.0 / count.max(1.0).sqrt(),
        )
    }
}
