//! Tests of what canaries add to releases of gradients.

use std::ops::Range;

use super::{Observations, period, rate, test_statistics::Normal};
use crate::{
    Check, Content, ObservedStep,
    regression::{Coefficients, Regression},
};

/// A test is too weak if the square of the jump has a larger standard deviation than this.
const WEAK: f64 = 1.0;

/// What the strongest canaries add to a release.
pub(super) struct Jump {
    /// The number of the release within its step.
    pub(super) release: usize,
    /// What one canary adds to the release of the step that draws it, and to those of the next steps, in units of the sensitivity.
    pub(super) response: Vec<f64>,
    /// The least length of this response that the observations permit.
    pub(super) least: f64,
}

impl Observations<'_> {
    /// Tests of what canaries add to each gradient release, and the response of each to the strongest canaries.
    pub(super) fn jumps(&self, tests: &Normal, quantile: f64) -> (Vec<Check>, Vec<Jump>, Vec<String>) {
        // If batches are not random, what a step adds cannot be distinguished from what the steps before it add.
        let random = self.planned().any(|(planned, _)| rate(planned.entry.sampling()) < 1.0);
        let (lags, extra) = if random { (period(self.plan), 2) } else { (1, 0) };
        let counts: Vec<Vec<f64>> = self.steps.iter().map(|step| self.counts(step)).collect();
        let releases = self.steps.iter().map(|step| step.releases.len()).max().unwrap_or(0);
        let (mut checks, mut responses, mut untested) = (Vec::new(), Vec::new(), Vec::new());
        let numbered = |release: usize| match releases {
            1 => String::new(),
            _ => format!(", release {}", release + 1),
        };
        for release in 0..releases {
            let mut first = 0;
            for (index, kind) in self.kinds.iter().enumerate() {
                let range = first..first + kind.coordinates;
                first = range.end;
                let Some(solved) = self.response(release, range.clone(), lags, &counts) else {
                    if self.has_gradients(release) {
                        let which = numbered(release);
                        untested.push(format!("jump of a canary of norm {}{which}", kind.name));
                    }
                    continue;
                };
                let (squared, deviation) = solved.squared_length(lags);
                let which = numbered(release);
                let name = format!("jump of a canary of norm {}{which}", kind.name);
                if deviation > WEAK {
                    untested.push(name.clone());
                }
                checks.push(tests.at_most(
                    &name,
                    "What one canary adds to the releases, in units of the sensitivity that the noise is scaled to.",
                    squared.max(0.0).sqrt(),
                    1.0,
                    // The standard deviation of a length near 1, from that of its square.
                    0.5 * deviation,
                ));
                if index + 1 < self.kinds.len() {
                    continue;
                }
                // The next steps, and the same shift in all steps.
                let later = match extra {
                    0 => Vec::new(),
                    _ => self.later_response(release, range, lags + extra, &counts),
                };
                let later = later.into_iter().skip(lags - 1);
                if let Some(worst) = later.max_by(|a, b| a.abs().total_cmp(&b.abs())) {
                    let single = Normal { rate: tests.rate / (extra + 1) as f64 };
                    checks.push(single.two_sided(
                        &format!("jump after its steps{which}"),
                        "What one canary adds to later releases that must not depend on it, in standard deviations of the estimate.",
                        worst,
                        0.0,
                        1.0,
                    ));
                }
                let least = (squared - quantile * deviation).max(0.0).sqrt();
                responses.push(Jump { release, response: solved.values[..lags].to_vec(), least });
            }
        }
        (checks, responses, untested)
    }

    /// Whether a release of a step is a sum of gradients.
    fn has_gradients(&self, release: usize) -> bool {
        let is_sum = |step: &ObservedStep| {
            step.releases.get(release).is_some_and(|release| matches!(release.content, Content::Gradients(_)))
        };
        self.steps.iter().any(is_sum)
    }

    /// What the canaries of these coordinates add to a release, and to the same release of later steps. None if it is not a sum of gradients.
    fn response(
        &self,
        release: usize,
        coordinates: Range<usize>,
        lags: usize,
        counts: &[Vec<f64>],
    ) -> Option<Coefficients> {
        let mut regression = Regression::new(lags);
        let mut x = vec![0.0; lags];
        for (number, multiplier, _, values) in self.sums(release).filter(|(number, ..)| *number >= lags - 1) {
            for coordinate in coordinates.clone() {
                for (lag, x) in x.iter_mut().enumerate() {
                    *x = counts[number - lag][coordinate] / multiplier;
                }
                regression.observe(&x, values(coordinate));
            }
        }
        regression.solve()
    }

    /// What the canaries of these coordinates add to the release of the next steps, and a shift of all releases, each in standard deviations of
    /// the estimate. What they add to the release of their own step may depend on the sampling rate: sums of differences have more rounding.
    fn later_response(
        &self,
        release: usize,
        coordinates: Range<usize>,
        lags: usize,
        counts: &[Vec<f64>],
    ) -> Vec<f64> {
        let mut rates: Vec<f64> = self.sums(release).map(|(_, _, rate, _)| rate).collect();
        rates.sort_unstable_by(f64::total_cmp);
        rates.dedup();
        let own = rates.len();
        let columns = own + lags;
        let mut regression = Regression::new(columns);
        let mut x = vec![0.0; columns];
        for (number, multiplier, rate, values) in
            self.sums(release).filter(|(number, ..)| *number >= lags - 1)
        {
            for coordinate in coordinates.clone() {
                x.fill(0.0);
                let class = rates.iter().position(|other| *other == rate).unwrap_or(0);
                x[class] = counts[number][coordinate] / multiplier;
                for lag in 1..lags {
                    x[own + lag - 1] = counts[number - lag][coordinate] / multiplier;
                }
                x[columns - 1] = 1.0 / multiplier;
                regression.observe(&x, values(coordinate));
            }
        }
        let Some(solved) = regression.solve() else { return Vec::new() };
        (own..columns).map(|index| solved.values[index] / solved.deviation(index)).collect()
    }

    /// The sums of gradients among the releases with this number: the number of the step, the multiplier, the sampling rate, and the
    /// values in units of the noise.
    fn sums(&self, release: usize) -> impl Iterator<Item = (usize, f64, f64, impl Fn(usize) -> f64)> {
        self.planned().enumerate().filter_map(move |(number, (planned, step))| {
            let (observed, multiplier) =
                (step.releases.get(release)?, planned.entry.releases().get(release)?);
            let Content::Gradients(projections) = &observed.content else { return None };
            let values =
                move |coordinate: usize| f64::from(projections.canaries[coordinate]) / observed.noise_std;
            Some((number, multiplier.get(), rate(planned.entry.sampling()), values))
        })
    }
}
