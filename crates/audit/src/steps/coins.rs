//! Tests of the random draws of batches.

use sordino_accounting::Sampling;

use super::{Observations, period, rate, test_statistics::Normal};
use crate::Check;

impl Observations<'_> {
    /// Tests of the draws, and the least sampling rate that the observations permit, relative to the planned one.
    pub(super) fn coins(&self, tests: &Normal, quantile: f64) -> (Vec<Check>, f64) {
        let lag = period(self.plan);
        let (mut drawn, mut expected, mut variance) = (0.0, 0.0, 0.0);
        let (mut spread, mut spread_of) = (0.0, 0.0);
        let (mut overlap, mut overlap_expected) = (0.0, 0.0);
        let rates: Vec<(f64, f64, bool)> = self
            .planned()
            .map(|(planned, _)| {
                let fixed = matches!(planned.entry.sampling(), Sampling::FixedSize { .. });
                (self.eligible(&planned), rate(planned.entry.sampling()), fixed)
            })
            .collect();
        for (number, (step, &(eligible, rate, fixed))) in self.steps.iter().zip(&rates).enumerate() {
            let here = step.drawn.len() as f64;
            drawn += here;
            expected += eligible * rate;
            variance += eligible * rate * (1.0 - rate);
            if rate < 1.0 && !fixed && eligible > 0.0 {
                spread += (here - eligible * rate).powi(2) / (eligible * rate * (1.0 - rate));
                spread_of += 1.0;
            }
            for later in [number + lag, number + 2 * lag] {
                if let (Some(later), Some(&(_, later_rate, _))) = (self.steps.get(later), rates.get(later))
                    && rate < 1.0
                {
                    overlap += common(&step.drawn, &later.drawn) as f64;
                    overlap_expected += eligible * rate * later_rate;
                }
            }
        }
        if expected == 0.0 || variance == 0.0 {
            let all = Normal::certain(
                "inclusion",
                "How often canaries are drawn, relative to the planned rate.",
                if expected > 0.0 { drawn / expected } else { 1.0 },
                1.0,
                1.0,
            );
            return (vec![all], 1.0);
        }
        let deviation = variance.sqrt() / expected;
        let mut checks = vec![tests.two_sided(
            "inclusion",
            "How often canaries are drawn, relative to the planned rate.",
            drawn / expected,
            1.0,
            deviation,
        )];
        if spread_of > 0.0 {
            checks.push(tests.mean_square(
                "coins of different records",
                "The variance of the number of canaries in a batch, relative to independent draws.",
                spread / spread_of,
                spread_of,
            ));
        }
        if overlap_expected > 25.0 {
            checks.push(tests.two_sided(
                "coins of different steps",
                "The number of canaries that are drawn again in the next two steps that can draw them, relative to independent draws.",
                overlap / overlap_expected,
                1.0,
                1.5 / overlap_expected.sqrt(),
            ));
        }
        (checks, (drawn / expected - quantile * deviation).clamp(0.0, 1.0))
    }
}

/// The number of common elements of two ascending lists.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().filter(|slot| b.binary_search(slot).is_ok()).count()
}
