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
                let Some(solved) = self.response(release, range.clone(), lags, false, &counts) else {
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
                let with_shift = match extra {
                    0 => None,
                    _ => self.response(release, range, lags + extra, true, &counts),
                };
                let later = with_shift.into_iter().flat_map(|solved| {
                    let all = lags..solved.values.len();
                    all.map(|index| solved.values[index] / solved.deviation(index)).collect::<Vec<f64>>()
                });
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

    /// What the canaries of these coordinates add to a release, and to the same release of later steps; with a last coefficient for a shift
    /// of all releases, if there is one. None if it is not a sum of gradients.
    fn response(
        &self,
        release: usize,
        coordinates: Range<usize>,
        lags: usize,
        with_shift: bool,
        counts: &[Vec<f64>],
    ) -> Option<Coefficients> {
        let columns = lags + usize::from(with_shift);
        let mut regression = Regression::new(columns);
        let mut x = vec![0.0; columns];
        for (number, (planned, step)) in self.planned().enumerate().skip(lags - 1) {
            let (Some(observed), Some(multiplier)) =
                (step.releases.get(release), planned.entry.releases().get(release))
            else {
                continue;
            };
            let Content::Gradients(projections) = &observed.content else { return None };
            for coordinate in coordinates.clone() {
                x.fill(1.0 / multiplier.get());
                for (lag, x) in x.iter_mut().enumerate().take(lags) {
                    *x *= counts[number - lag][coordinate];
                }
                regression.observe(&x, f64::from(projections.canaries[coordinate]) / observed.noise_std);
            }
        }
        regression.solve()
    }
}
