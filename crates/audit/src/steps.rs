//! The step audit: does every part of the mechanism do what the plan states?
//!
//! The attacker sees every release and knows which canaries each batch drew. Several canaries share a coordinate, so that a coordinate has
//! about ten of them in every batch. Let `n` be their number, `z` the planned multiplier and `s` the stated standard deviation of the noise.
//! A sound release `v` in this coordinate satisfies
//!
//! ```text
//! v / s = k n / z + N(0, 1),    k <= 1,
//! ```
//!
//! where `k` is what one canary adds, in units of the sensitivity. The audit estimates the variance of the noise from free coordinates, `k` by
//! regression, and the sampling rate from the coins. The three estimates, each at the end of its confidence interval that is in favour of the
//! mechanism, give a plan. Its price by the exact accountant is a lower bound on epsilon.

use sordino_accounting::{Accountant, Delta, Entry, NoiseMultiplier, Plan, Sampling, SamplingRate};

use crate::{
    AuditError, Check, Content, Mechanism, ObservedStep,
    estimators::normal::quantile,
    regression::{Coefficients, Regression},
};

/// Canaries whose gradients have the same norm.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    /// What it is called, such as `10 C`.
    pub name: &'static str,
    /// The norm of a gradient, in units of the clipping norm.
    pub norm: f64,
    /// The number of coordinates.
    pub coordinates: usize,
}

/// The rates of false alarms of this many tests add up to the level of an audit.
const MOST_TESTS: f64 = 40.0;

/// The expected number of canaries that a batch draws in each coordinate, where the sampling rate permits.
const DRAWN: f64 = 10.0;

/// The norm of the strongest canaries, in units of the clipping norm. It exceeds every threshold that an algorithm may choose.
pub(crate) const STRONGEST: f64 = 1e12;

/// The kinds of canaries for this number of coordinates. The last kind has most of them; the bound is computed from it.
pub fn kinds(coordinates: usize) -> Vec<Kind> {
    let few = (coordinates / 10).max(1);
    let kind = |name, norm, coordinates| Kind { name, norm, coordinates };
    vec![
        kind("0.1 C", 0.1, few),
        kind("C", 1.0, few),
        kind("10 C", 10.0, few),
        kind("1e12 C", STRONGEST, coordinates.saturating_sub(3 * few).max(1)),
    ]
}

/// The kinds of canaries for releases of counts: half of them are below every threshold, and half are above.
pub fn counted_kinds(coordinates: usize) -> Vec<Kind> {
    let kind = |name, norm| Kind { name, norm, coordinates: (coordinates / 2).max(1) };
    vec![kind("0", 0.0), kind("1e12 C", STRONGEST)]
}

/// How many canaries share a coordinate, so that every batch has about ten of them.
pub fn copies(plan: &Plan) -> usize {
    let share = |entry: &Entry| match entry.sampling() {
        Sampling::Rotating { rate, groups } => rate.get() / groups as f64,
        sampling => rate(sampling),
    };
    let least = plan.entries().iter().map(share).fold(1.0, f64::min);
    (DRAWN / least).ceil().min(1e6) as usize
}

/// What is measured of one release of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Measured {
    /// The least jump that the observations permit, in units of the sensitivity.
    jump: f64,
    /// The largest standard deviation of the noise that they permit, in units of the stated one.
    noise: f64,
}

/// What a step audit found.
#[derive(Debug, Clone, PartialEq)]
pub struct StepEvidence {
    /// Tests of the parts of the mechanism.
    pub checks: Vec<Check>,
    /// The least of what a canary adds to each gradient release of a step, and to those of the steps after it, in units of the sensitivity.
    pub response: Vec<Vec<f64>>,
    /// For each release of a step, in the order of the plan.
    measured: Vec<Option<Measured>>,
    /// The least sampling rate that the observations permit, relative to the planned one.
    rate: f64,
}

/// What the strongest canaries add to a release.
struct Jump {
    /// The number of the release within its step.
    release: usize,
    /// What one canary adds to the release of the step that draws it, and to those of the next steps, in units of the sensitivity.
    response: Vec<f64>,
    /// The least length of this response that the observations permit.
    least: f64,
}

/// One step of a plan.
#[derive(Debug, Clone)]
pub(crate) struct PlannedStep<'a> {
    pub(crate) entry: &'a Entry,
    /// The number of the step within the entry.
    pub(crate) turn: u64,
}

/// The first steps of a plan, one by one.
pub(crate) fn planned(plan: &Plan, count: u64) -> impl Iterator<Item = PlannedStep<'_>> {
    let steps =
        |entry| (0..Entry::steps(entry).get()).map(move |turn| PlannedStep { entry, turn });
    plan.entries().iter().flat_map(steps).take(usize::try_from(count).unwrap_or(usize::MAX))
}

/// The probability with which a slot that can be drawn is drawn.
pub(crate) fn rate(sampling: Sampling) -> f64 {
    match sampling {
        Sampling::Poisson { rate, .. } | Sampling::Rotating { rate, .. } | Sampling::Stateful { rate, .. } => {
            rate.get()
        }
        Sampling::FixedSize { batch_size, population } => batch_size as f64 / population as f64,
        Sampling::FullBatch => 1.0,
    }
}

/// The number of steps after which records can be drawn again.
fn period(plan: &Plan) -> usize {
    let groups = |entry: &Entry| match entry.sampling() {
        Sampling::Rotating { groups, .. } => groups as usize,
        _ => 1,
    };
    plan.entries().iter().map(groups).max().unwrap_or(1)
}

/// A test with a normal statistic: `measured` has standard deviation `deviation` around `expected`.
struct Normal {
    /// The probability of a false alarm.
    rate: f64,
}

impl Normal {
    fn two_sided(&self, name: &str, meaning: &str, measured: f64, expected: f64, deviation: f64) -> Check {
        let margin = -quantile(0.5 * self.rate) * deviation;
        Check {
            name: name.to_owned(),
            meaning: meaning.to_owned(),
            measured,
            low: expected - margin,
            high: expected + margin,
            false_alarm_rate: self.rate,
        }
    }

    fn at_most(&self, name: &str, meaning: &str, measured: f64, most: f64, deviation: f64) -> Check {
        let check = self.two_sided(name, meaning, measured, most, deviation);
        Check { low: 0.0, high: most - quantile(self.rate) * deviation, ..check }
    }

    /// A test that a sound mechanism always passes.
    fn certain(name: &str, meaning: &str, measured: f64, low: f64, high: f64) -> Check {
        let (name, meaning) = (name.to_owned(), meaning.to_owned());
        Check { name, meaning, measured, low, high, false_alarm_rate: 0.0 }
    }
}

/// Observed steps of a mechanism.
#[derive(Debug, Clone)]
pub struct Observations<'a> {
    plan: &'a Plan,
    kinds: &'a [Kind],
    copies: usize,
    /// The slots of the real records come first: the group of a slot depends on its place among all slots.
    records: usize,
    steps: Vec<ObservedStep>,
    /// The least difference between the steps that the ledger had charged and those that were taken; none without a ledger.
    charged: Option<i64>,
}

impl<'a> Observations<'a> {
    /// Observes the first steps of a mechanism. `progress` is called after every step and returns false to stop.
    ///
    /// # Errors
    /// Those of the mechanism; [`AuditError::Stopped`].
    pub fn gather(
        mechanism: &mut dyn Mechanism,
        plan: &'a Plan,
        kinds: &'a [Kind],
        copies: usize,
        records: usize,
        count: u64,
        progress: &mut dyn FnMut() -> bool,
    ) -> Result<Self, AuditError> {
        let mut observed = Self { plan, kinds, copies, records, steps: Vec::new(), charged: None };
        while (observed.steps.len() as u64) < count {
            let Some(step) = mechanism.step()? else { break };
            observed.steps.push(step);
            // Reading the ledger takes longer than a step.
            if observed.steps.len().is_power_of_two()
                && let Some(charged) = mechanism.charged()?
            {
                let ahead = charged as i64 - observed.steps.len() as i64;
                observed.charged = Some(observed.charged.map_or(ahead, |least| least.min(ahead)));
            }
            if !progress() {
                return Err(AuditError::Stopped);
            }
        }
        Ok(observed)
    }

    /// The number of observed steps.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether no step was observed.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    fn planned(&self) -> impl Iterator<Item = (PlannedStep<'_>, &ObservedStep)> {
        planned(self.plan, self.steps.len() as u64).zip(&self.steps)
    }

    fn slots(&self) -> usize {
        self.copies * self.kinds.iter().map(|kind| kind.coordinates).sum::<usize>()
    }

    /// The number of canary slots that a step can draw.
    fn eligible(&self, step: &PlannedStep<'_>) -> f64 {
        match step.entry.sampling() {
            Sampling::Rotating { groups, .. } => {
                let (groups, group) = (groups as usize, (step.turn % groups) as usize);
                let of_group = |slots: usize| slots.saturating_sub(group).div_ceil(groups);
                (of_group(self.records + self.slots()) - of_group(self.records)) as f64
            }
            _ => self.slots() as f64,
        }
    }

    /// The number of canaries in each coordinate that a step drew.
    fn counts(&self, step: &ObservedStep) -> Vec<f64> {
        let mut counts = vec![0.0; self.slots() / self.copies];
        step.drawn.iter().for_each(|&slot| counts[slot as usize / self.copies] += 1.0);
        counts
    }

    /// Tests everything at these rates of false alarms and error: `level` is the probability that any test fails by chance, and also that the
    /// bound does not hold.
    pub fn evidence(&self, level: f64) -> StepEvidence {
        let tests = Normal { rate: level / MOST_TESTS };
        let quantile = -quantile(level / 3.0);
        let mut checks = self.checks_of_releases();
        let (noise_checks, noise) = self.noise(&tests, quantile);
        checks.extend(noise_checks);
        let (jump_checks, jumps) = self.jumps(&tests, quantile);
        checks.extend(jump_checks);
        let (count_checks, counted) = self.counted(&tests, quantile);
        checks.extend(count_checks);
        let (coin_checks, rate) = self.coins(&tests, quantile);
        checks.extend(coin_checks);
        let releases = self.steps.iter().map(|step| step.releases.len()).max().unwrap_or(0);
        let measured = (0..releases)
            .map(|release| {
                let jump = jumps.iter().find(|jump| jump.release == release);
                let counted = counted.iter().find(|(index, _)| *index == release);
                jump.map(|jump| Measured { jump: jump.least, noise })
                    .or(counted.map(|(_, measured)| *measured))
            })
            .collect();
        let response = jumps.into_iter().map(|jump| jump.response).collect();
        StepEvidence { checks, response, measured, rate }
    }

    /// Tests the releases and their noise alone.
    pub fn noise_evidence(&self, level: f64) -> StepEvidence {
        let tests = Normal { rate: level / MOST_TESTS };
        let mut checks = self.checks_of_releases();
        checks.extend(self.noise(&tests, 0.0).0);
        StepEvidence { checks, response: Vec::new(), measured: Vec::new(), rate: 1.0 }
    }

    /// Every planned release was made, and was charged before.
    fn checks_of_releases(&self) -> Vec<Check> {
        let missing: usize = self
            .planned()
            .map(|(planned, step)| planned.entry.releases().len().abs_diff(step.releases.len()))
            .sum();
        let mut checks = vec![Normal::certain(
            "missing releases",
            "Every step makes all releases of the plan, whatever its batch.",
            missing as f64,
            0.0,
            0.0,
        )];
        checks.extend(self.charged.map(|ahead| {
            Normal::certain(
                "ledger",
                "The ledger has charged every step before it is taken: steps charged minus steps taken.",
                ahead as f64,
                0.0,
                self.plan.steps() as f64,
            )
        }));
        checks
    }

    /// Tests of the noise in free coordinates, and the largest standard deviation that the observations permit.
    fn noise(&self, tests: &Normal, quantile: f64) -> (Vec<Check>, f64) {
        // For each step and release, the free coordinates in units of the stated standard deviation.
        let free: Vec<Vec<Vec<f64>>> = self
            .steps
            .iter()
            .map(|step| {
                let scaled = |values: &[f32], std: f64| values.iter().map(|v| f64::from(*v) / std).collect();
                let one = |release: &crate::ObservedRelease| match &release.content {
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
        let variance = all.iter().map(|values| values.iter().map(|v| v * v).sum::<f64>()).sum::<f64>() / count;
        let width = all[0].len() as f64;
        let releases = all.len() as f64;
        let dispersion = all.iter().map(|values| (mean_square(values) - 1.0).powi(2)).sum::<f64>()
            / releases
            * width
            / 2.0;
        let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let (mut serial, mut pairs) = (0.0, 0.0);
        for window in free.windows(2) {
            for (before, after) in window[0].iter().zip(&window[1]) {
                serial += product(before, after);
                pairs += before.len() as f64;
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
            tests.at_most(
                "noise between steps",
                "The spread of the noise variance between steps. It is 1 if the noise does not depend on the batch, as when a sum is \
                 divided by a public constant.",
                dispersion,
                1.0,
                ((2.0 + 12.0 / width) / releases).sqrt() * 1.2,
            ),
            self.noise_and_batch_size(tests, &free),
            tests.two_sided(
                "noise of consecutive steps",
                "The correlation of the noise of consecutive steps.",
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

    /// A test of whether steps that draw more canaries have less noise, as when a sum is divided by the size of its batch: the correlation of
    /// the noise variance of a step with the number of canaries that it draws.
    fn noise_and_batch_size(&self, tests: &Normal, free: &[Vec<Vec<f64>>]) -> Check {
        let sizes = self.planned().map(|(planned, step)| {
            let expected = self.eligible(&planned) * rate(planned.entry.sampling());
            step.drawn.len() as f64 - expected
        });
        let variances = free.iter().map(|releases| {
            let (sum, count) = releases.iter().flatten().fold((0.0, 0.0), |(sum, count), v| (sum + v * v, count + 1.0));
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

    /// Tests of what canaries add to each gradient release, and the response of each to the strongest canaries.
    fn jumps(&self, tests: &Normal, quantile: f64) -> (Vec<Check>, Vec<Jump>) {
        // Batches that are not random do not tell a step from the steps before it.
        let random = self.planned().any(|(planned, _)| rate(planned.entry.sampling()) < 1.0);
        let (lags, extra) = if random { (period(self.plan), 2) } else { (1, 0) };
        let counts: Vec<Vec<f64>> = self.steps.iter().map(|step| self.counts(step)).collect();
        let releases = self.steps.iter().map(|step| step.releases.len()).max().unwrap_or(0);
        let (mut checks, mut responses) = (Vec::new(), Vec::new());
        let numbered = |release: usize| match releases {
            1 => String::new(),
            _ => format!(", release {}", release + 1),
        };
        for release in 0..releases {
            let mut first = 0;
            for (index, kind) in self.kinds.iter().enumerate() {
                let range = first..first + kind.coordinates;
                first = range.end;
                let Some(solved) = self.response(release, range, lags + extra, &counts) else { continue };
                let (squared, deviation) = solved.squared_length(lags);
                let which = numbered(release);
                checks.push(tests.at_most(
                    &format!("jump of a canary of norm {}{which}", kind.name),
                    "What one canary adds to the releases, in units of the sensitivity that the noise is scaled to.",
                    squared.max(0.0).sqrt(),
                    1.0,
                    // Near a length of 1, where the test decides.
                    0.5 * deviation,
                ));
                if index + 1 < self.kinds.len() {
                    continue;
                }
                let later = (lags..lags + extra).map(|lag| solved.values[lag] / solved.deviation(lag));
                if let Some(worst) = later.max_by(|a, b| a.abs().total_cmp(&b.abs())) {
                    let single = Normal { rate: tests.rate / extra as f64 };
                    checks.push(single.two_sided(
                        &format!("jump after its steps{which}"),
                        "What one canary adds to releases that must not depend on it any more, in standard deviations of the estimate.",
                        worst,
                        0.0,
                        1.0,
                    ));
                }
                let least = (squared - quantile * deviation).max(0.0).sqrt();
                responses.push(Jump { release, response: solved.values[..lags].to_vec(), least });
            }
        }
        (checks, responses)
    }

    /// Tests of releases of counts, for mechanisms without records. Canaries of the [first kind](counted_kinds) are counted in the first
    /// place and those of the second in the last.
    fn counted(&self, tests: &Normal, quantile: f64) -> (Vec<Check>, Vec<(usize, Measured)>) {
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
                    .map(|(drawn, counts)| last(counts) - drawn[0] * solved.values[0] - drawn[1] * solved.values[1])
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

    /// What the canaries of these coordinates add to a release, and to the same release of later steps. None if it is not a sum of gradients.
    fn response(
        &self,
        release: usize,
        coordinates: std::ops::Range<usize>,
        lags: usize,
        counts: &[Vec<f64>],
    ) -> Option<Coefficients> {
        let mut regression = Regression::new(lags);
        let mut x = vec![0.0; lags];
        for (number, (planned, step)) in self.planned().enumerate().skip(lags - 1) {
            let (Some(observed), Some(multiplier)) =
                (step.releases.get(release), planned.entry.releases().get(release))
            else {
                continue;
            };
            let Content::Gradients(projections) = &observed.content else { return None };
            for coordinate in coordinates.clone() {
                for (lag, x) in x.iter_mut().enumerate() {
                    *x = counts[number - lag][coordinate] / multiplier.get();
                }
                regression.observe(&x, f64::from(projections.canaries[coordinate]) / observed.noise_std);
            }
        }
        regression.solve()
    }

    /// Tests of the coins, and the least sampling rate that the observations permit, relative to the planned one.
    fn coins(&self, tests: &Normal, quantile: f64) -> (Vec<Check>, f64) {
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
            if let (Some(later), Some(&(_, later_rate, _))) = (self.steps.get(number + lag), rates.get(number + lag))
                && rate < 1.0
            {
                overlap += common(&step.drawn, &later.drawn) as f64;
                overlap_expected += eligible * rate * later_rate;
            }
        }
        if expected == 0.0 || variance == 0.0 {
            let all = Normal::certain(
                "inclusion",
                "The share of canaries that a batch contains, relative to the planned rate.",
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
            checks.push(tests.two_sided(
                "coins of different records",
                "The variance of the number of canaries in a batch, relative to independent coins.",
                spread / spread_of,
                1.0,
                (2.0 / spread_of).sqrt() * 1.1,
            ));
        }
        if overlap_expected > 25.0 {
            checks.push(tests.two_sided(
                "coins of different steps",
                "The number of canaries that are drawn again at the next opportunity, relative to independent coins.",
                overlap / overlap_expected,
                1.0,
                1.1 / overlap_expected.sqrt(),
            ));
        }
        (checks, (drawn / expected - quantile * deviation).clamp(0.0, 1.0))
    }
}

/// The number of common elements of two ascending lists.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().filter(|slot| b.binary_search(slot).is_ok()).count()
}

impl StepEvidence {
    /// The same evidence with that of the same releases from another audit, for what was not measured here.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.checks.extend(other.checks);
        self.measured.resize(self.measured.len().max(other.measured.len()), None);
        for (here, there) in self.measured.iter_mut().zip(other.measured) {
            *here = here.or(there);
        }
        self
    }

    /// The same evidence, with a remark after the name of each test.
    #[must_use]
    pub fn renamed(mut self, remark: &str) -> Self {
        self.checks.iter_mut().for_each(|check| check.name = format!("{} ({remark})", check.name));
        self
    }

    /// Whether all tests passed.
    pub fn passed(&self) -> bool {
        self.checks.iter().all(Check::passed)
    }

    /// The lower bound on epsilon for a plan, if all of its steps are like those that were observed.
    ///
    /// # Errors
    /// A plan that the accountant cannot price.
    pub fn lower_bound(&self, plan: &Plan, delta: Delta) -> Result<f64, AuditError> {
        let entries: Option<Vec<Entry>> = plan.entries().iter().map(|entry| self.measured_entry(entry)).collect();
        let Some(entries) = entries else { return Ok(0.0) };
        let guarantee = Accountant::Pld.price(&Plan::new(entries), delta)?;
        Ok(guarantee.epsilon_lower.unwrap_or(guarantee.epsilon).get())
    }

    /// An entry with the noise and the rate that the observations permit; none if they permit that it reveals nothing.
    fn measured_entry(&self, entry: &Entry) -> Option<Entry> {
        let scaled = |rate: f64| SamplingRate::new(rate * self.rate).ok();
        let sampling = match entry.sampling() {
            Sampling::Poisson { rate, .. } => Sampling::Poisson { rate: scaled(rate.get())?, cap: None },
            Sampling::Rotating { rate, groups } => Sampling::Rotating { rate: scaled(rate.get())?, groups },
            // Whether a batch of fixed size contains a given record is a coin with this probability.
            sampling @ Sampling::FixedSize { .. } => {
                Sampling::Poisson { rate: scaled(rate(sampling))?, cap: None }
            }
            other => other,
        };
        let releases: Vec<NoiseMultiplier> = entry
            .releases()
            .iter()
            .enumerate()
            .filter_map(|(release, multiplier)| {
                let Measured { jump, noise } = (*self.measured.get(release)?)?;
                NoiseMultiplier::new(multiplier.get() * noise / jump).ok()
            })
            .collect();
        Entry::new(sampling, releases, entry.steps()).ok()
    }
}
