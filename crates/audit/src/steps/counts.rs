//! Tests of releases of counts of records, such as histograms of norms.

use super::{Observations, bound::Measured, test_statistics::Normal};
use crate::{Check, Content, regression::Regression};

impl Observations<'_> {
    /// Tests of releases of counts, for mechanisms without records. Canaries of the [first kind](counted_kinds) are counted in the first
    /// place and those of the second in the last.
    pub(super) fn counted(&self, tests: &Normal, quantile: f64) -> (Vec<Check>, Vec<(usize, Measured)>) {
        let releases = self.steps.iter().map(|step| step.releases.len()).max().unwrap_or(0);
        let (mut checks, mut measured) = (Vec::new(), Vec::new());
        let [below, _] = self.kinds else { return (checks, measured) };
        if self.records > 0 {
            return (checks, measured);
        }
        for release in 0..releases {
            let seen: Vec<([f64; 2], Vec<f64>)> = self
                .planned()
                .filter_map(|(planned, step)| {
                    let observed = step.releases.get(release)?;
                    let Content::Counts(counts) = &observed.content else { return None };
                    let multiplier = planned.entry.releases().get(release)?.get();
                    let drawn = self.counts(step);
                    let (below, above) = drawn.split_at(below.coordinates);
                    let drawn = [below, above].map(|drawn| drawn.iter().sum::<f64>() / multiplier);
                    Some((drawn, counts.iter().map(|count| f64::from(*count) / observed.noise_std).collect()))
                })
                .collect();
            let mut regression = Regression::new(2);
            let last = |counts: &[f64]| counts.last().copied().unwrap_or(0.0);
            seen.iter().for_each(|(drawn, counts)| regression.observe(drawn, last(counts)));
            let Some(solved) = regression.solve() else { continue };
            let jump = solved.values.iter().fold(0.0_f64, |most, jump| most.max(jump.abs()));
            let deviation = solved.deviation(0).max(solved.deviation(1));
            let noise: Vec<f64> = match seen.iter().any(|(_, counts)| counts.len() > 2) {
                true => seen.iter().flat_map(|(_, counts)| &counts[1..counts.len() - 1]).copied().collect(),
                false => seen
                    .iter()
                    .map(|(drawn, counts)| {
                        last(counts) - drawn[0] * solved.values[0] - drawn[1] * solved.values[1]
                    })
                    .collect(),
            };
            let count = noise.len() as f64;
            let variance = noise.iter().map(|v| v * v).sum::<f64>() / count;
            checks.push(tests.at_most(
                "jump of the counts",
                "What one canary adds to the released counts of records, in units of the sensitivity.",
                jump,
                1.0,
                deviation,
            ));
            checks.push(tests.two_sided(
                "noise variance of the counts",
                "The variance of the noise of the released counts, in units of the stated variance.",
                variance,
                1.0,
                (2.0 / count).sqrt(),
            ));
            let noise = (variance / (1.0 - quantile * (2.0 / count).sqrt()).max(1e-3)).sqrt();
            measured.push((release, Measured { jump: (jump - quantile * deviation).max(0.0), noise }));
        }
        (checks, measured)
    }
}
