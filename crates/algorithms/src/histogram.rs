//! DC-SGD: the clipping norm comes from a private histogram of gradient norms. Shared by its two forms.
//!
//! A histogram of the norms is released next to the clipped sum, and the next clipping norm is computed from it alone. Departs from Wei et al.
//! 2025 in the following points. The bin of a norm (Algorithm 2) is the smaller of `b - 1` and `floor(b G / R)`. The number of records in
//! equation (4) is the histogram's own sum, as in Algorithm 4. The loop of Algorithm 4 ends after 20 moves. Clipping norms and ranges are kept
//! within what single precision can use. Where a batch is too small for the histogram's noise, the clipping norm does not change: with `b`
//! bins of noise `sigma_H`, a batch needs `3 sigma_H sqrt(b)` records. A note says so before the run. With `freeze=false` the clipping
//! norm follows every histogram, as in the paper. With unit steps, which are the default, the sum is divided by the growth of the clipping
//! norm, so that one learning rate works for all clipping norms.
//!
//! Algorithm 4 halves the range if the right half of one noisy histogram has at most a share `1/b` of the records. If batches are not
//! much larger than the noise, noise alone soon causes this, and then most norms are in the last bin. With `steady=true`, the histograms of
//! recent steps are added up, and the range changes only if the counts differ from the threshold by at least two standard deviations of their
//! noise. Every step tests this, so noise can still change the range, but less often. After a resume, the sum starts empty.

use std::collections::BTreeMap;

use sordino_accounting::{ClipNorm, NoiseMultiplier, Plan, calibrate};
use sordino_optim::State;
use sordino_privacy::{Gradients, NormStatistic, PrivacyError, Release, Round};

use crate::{
    AlgorithmError, NoiseSource, RunFacts, Steps,
    clipping::{positive_number, rule, unit_step, usable},
    plans::{calibrated, equal_steps, split_releases},
};

/// The plan of both forms: a sum and a histogram in each step.
pub(crate) fn plan(
    facts: &RunFacts,
    noise: NoiseSource,
    histogram_noise: Option<f64>,
) -> Result<Plan, AlgorithmError> {
    split_releases(&calibrated(&equal_steps(facts)?, noise)?, |z| {
        let histogram = NoiseMultiplier::new(histogram_noise.unwrap_or_else(|| default_noise(z.get())))?;
        let gradients =
            calibrate::remaining_noise_multiplier(z, histogram).map_err(|_| AlgorithmError::Plan {
                problem: format!(
                    "histogram_noise must be above {z} to leave noise for the gradients, got {histogram}"
                ),
                hint: "leave it out for a value that suits the budget",
            })?;
        Ok(vec![gradients, histogram])
    })
}

/// The paper's rule for the noise of the histogram: 5, then 8 from a multiplier of 2 on, and 12 above 3. Beyond the range of the paper, the
/// noise that costs the gradients at most an eighth more noise.
fn default_noise(z: f64) -> f64 {
    let published = match z {
        z if z < 2.0 => 5.0,
        z if z <= 3.0 => 8.0,
        _ => 12.0,
    };
    (2.25 * z).max(published)
}

/// The smallest batch whose histogram is distinguishable from its noise: three standard deviations of the sum of its bins.
fn least_batch(noise_std: f64, bins: usize) -> f64 {
    3.0 * noise_std * (bins as f64).sqrt()
}

/// The note before a run whose batches are too small for the histogram. `together` is the largest number of histograms that are added up.
pub(crate) fn notes(facts: &RunFacts, plan: &Plan, bins: usize, freeze: bool, together: f64) -> Vec<String> {
    let Some(noise) = plan.entries().first().and_then(|entry| entry.releases().get(1)) else {
        return Vec::new();
    };
    let least = (least_batch(noise.get(), bins) / together.sqrt()).ceil();
    if facts.expected_batch_size >= least {
        return Vec::new();
    }
    let small = format!(
        "batches of {} records are too small for a histogram of {bins} bins with noise {:.4}, which needs {least} records",
        facts.expected_batch_size,
        noise.get()
    );
    let cure = "raise {batch_size}, or lower histogram_noise or bins";
    vec![if freeze {
        format!(
            "the clipping norm stays at {}: {small}; {cure}, or set freeze=false as in the paper",
            facts.max_grad_norm
        )
    } else {
        format!("the clipping norm follows the noise of its histogram: {small}; {cure}")
    }]
}

/// How the next clipping norm is found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Search {
    /// This share of gradients is not clipped (DC-SGD-P).
    Percentile(f64),
    /// The expected squared error of clipping and noise is least (DC-SGD-E).
    LeastError {
        /// Use the sum of recent histograms, and change the range only if the counts stand out from their noise.
        steady: bool,
    },
}

/// The sum of the noisy histograms of recent steps, all with the same range. It begins anew after a public number of steps.
#[derive(Debug, Clone, PartialEq, Default)]
struct Recent {
    counts: Vec<f64>,
    steps: f64,
}

impl Recent {
    /// Adds a histogram. If the sum already has this many steps or is not finite, a new sum begins with this histogram.
    fn add(&mut self, counts: &[f64], most_steps: f64) {
        let is_full = self.steps >= most_steps || !self.counts.iter().all(|sum| sum.is_finite());
        if is_full || self.counts.is_empty() {
            *self = Self { counts: vec![0.0; counts.len()], steps: 0.0 };
        }
        self.steps += 1.0;
        for (sum, count) in self.counts.iter_mut().zip(counts) {
            *sum += count;
        }
    }
}

/// The steps of both forms.
pub(crate) struct DcSgd {
    facts: RunFacts,
    /// The multiplier of the gradients.
    multiplier: f64,
    search: Search,
    bins: usize,
    /// Keep the clipping norm if a batch is too small for the histogram.
    freeze: bool,
    unit_steps: bool,
    clip: f64,
    range: f64,
    recent: Recent,
}

/// How often the candidates may be moved.
const MOST_MOVES: usize = 20;

/// A steady search changes the range only if the counts differ from the threshold by this many standard deviations of their noise.
const CLEAR: f64 = 2.0;

impl DcSgd {
    pub(crate) fn new(
        facts: &RunFacts,
        plan: &Plan,
        search: Search,
        bins: usize,
        freeze: bool,
        unit_steps: bool,
    ) -> Self {
        let clip = facts.max_grad_norm.get();
        let multiplier = plan.entries().first().map_or(1.0, |entry| entry.releases()[0].get());
        let range = match search {
            Search::Percentile(_) => clip,
            Search::LeastError { .. } => clip * bins as f64,
        };
        Self {
            facts: *facts,
            multiplier,
            search,
            bins,
            freeze,
            unit_steps,
            clip,
            range,
            recent: Recent::default(),
        }
    }

    /// Computes the next clipping norm and range from a noisy histogram whose noise has this standard deviation.
    fn follow(&mut self, histogram: &[f32], noise_std: f64) {
        let counts: Vec<f64> = histogram.iter().copied().map(f64::from).collect();
        let total: f64 = counts.iter().sum();
        let bins = self.bins as f64;
        // The test for whether the counts stand out from their noise uses public numbers only. A test of the noisy sum would be biased by its noise.
        let readable = self.facts.expected_batch_size >= least_batch(noise_std, self.bins);
        if self.freeze && !readable {
            return;
        }
        let width = self.range / bins;
        let middle = |bin: usize| (bin as f64 + 0.5) * width;
        match self.search {
            // A sum that is not positive has no percentiles and no mean.
            Search::Percentile(_) if !(total > 0.0) => return,
            Search::Percentile(share) => {
                let mut sum = 0.0;
                let reached = counts.iter().position(|count| {
                    sum += count;
                    sum >= share * total
                });
                self.clip = middle(reached.unwrap_or(self.bins - 1));
                self.range = 2.0 * self.clip;
            }
            Search::LeastError { steady } => {
                let (most_steps, clear) = if steady { (self.window(noise_std), CLEAR) } else { (1.0, 0.0) };
                self.recent.add(&counts, most_steps);
                let Recent { counts, steps } = &self.recent;
                let total = counts.iter().sum::<f64>();
                if !(total > 0.0) {
                    return;
                }
                self.clip = self.least_error(counts, total, middle);
                let right = &counts[self.bins / 2..];
                // Standard deviations of noise: exact for last - total / 2, approximate for right - total / b.
                let noise = noise_std * (steps * bins).sqrt();
                let [doubling, halving] = [0.5, 0.5_f64.sqrt()].map(|share| clear * share * noise);
                let wanted = if counts[self.bins - 1] - doubling >= 0.5 * total {
                    2.0 * self.range
                } else if right.iter().sum::<f64>() + halving <= total / bins {
                    0.5 * self.range
                } else {
                    self.range
                };
                // Only histograms with one range can be added up.
                if usable(wanted, &self.facts) != self.range {
                    self.range = wanted;
                    self.recent = Recent::default();
                }
            }
        }
        self.clip = usable(self.clip, &self.facts);
        self.range = usable(self.range, &self.facts);
    }

    /// The largest number of histograms that are added up: four times as many as are needed to distinguish an empty right half from its
    /// noise. With `k` histograms of `b` bins, the paper's threshold for the right half is `k B / b`, and the noise of the right half has the
    /// standard deviation `sigma_H sqrt(k b / 2)`.
    fn window(&self, noise_std: f64) -> f64 {
        let bins = self.bins as f64;
        let needed =
            (CLEAR * noise_std * (bins / 2.0).sqrt() * bins / self.facts.expected_batch_size).powi(2);
        (4.0 * needed).ceil()
    }

    /// The best of the candidates `0.1 C .. 2 C`, which are moved while the best is the first or the last of them.
    fn least_error(&self, counts: &[f64], total: f64, middle: impl Fn(usize) -> f64) -> f64 {
        let dimension = self.facts.dimension as f64;
        let error = |clip: f64| {
            let variance = (self.multiplier * clip / self.facts.expected_batch_size).powi(2) * dimension;
            let bias: f64 = counts
                .iter()
                .enumerate()
                .map(|(bin, count)| count * (middle(bin) - clip).max(0.0).powi(2))
                .sum();
            variance + bias / total
        };
        let mut clip = self.clip;
        for _ in 0..MOST_MOVES {
            let candidates = (1..=20).map(|i| (i, f64::from(i) * clip / 10.0));
            let best = candidates.min_by(|(_, a), (_, b)| error(*a).total_cmp(&error(*b)));
            let Some((place, value)) = best else { break };
            clip = value;
            if place != 1 && place != 20 {
                break;
            }
        }
        clip
    }
}

impl<G: Gradients> Steps<G> for DcSgd {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        _: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        let rule = rule(&self.facts, ClipNorm::new(self.clip)?)?;
        let histogram = NormStatistic::histogram(ClipNorm::new(self.range)?, self.bins)?;
        let (sum, histogram) = round.gradients(at).clipped_sum_and(&rule, &histogram)?;
        let mut sum = round.release(sum)?;
        if self.unit_steps {
            sum = unit_step(sum, self.clip, &self.facts);
        }
        let histogram = round.release(histogram)?;
        self.follow(&histogram, histogram.noise_std());
        Ok(Some(sum))
    }

    fn state(&self) -> State {
        let numbers = BTreeMap::from([("clip".to_owned(), self.clip), ("range".to_owned(), self.range)]);
        State { numbers, ..State::default() }
    }

    fn restore(&mut self, state: &State) {
        if let (Some(clip), Some(range)) = (positive_number(state, "clip"), positive_number(state, "range")) {
            (self.clip, self.range) = (usable(clip, &self.facts), usable(range, &self.facts));
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::{ChaCha20Rng, rand_core::SeedableRng};
    use rand_distr::{Distribution, Normal};

    use super::*;
    use crate::test_facts;

    /// The synthetic example of figures 2 and 3: 256 norms from N(100, 20^2).
    fn norms() -> Vec<f64> {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let normal = Normal::new(100.0, 20.0).unwrap();
        (0..256).map(|_| normal.sample(&mut rng)).collect()
    }

    fn histogram(norms: &[f64], range: f64, bins: usize) -> Vec<f32> {
        let mut counts = vec![0.0; bins];
        for norm in norms {
            counts[((norm / range * bins as f64) as usize).min(bins - 1)] += 1.0;
        }
        counts
    }

    fn example(search: Search, clip: f64, range: f64) -> DcSgd {
        let facts = RunFacts {
            max_grad_norm: ClipNorm::new(clip).unwrap(),
            expected_batch_size: 256.0,
            dimension: 100_000,
            ..test_facts()
        };
        let plan = equal_steps(&facts).unwrap();
        DcSgd { range, ..DcSgd::new(&facts, &plan, search, 20, true, true) }
    }

    #[test]
    fn percentiles_are_found_to_half_a_bin() {
        let mut sorted = norms();
        sorted.sort_unstable_by(f64::total_cmp);
        for share in [0.1, 0.3, 0.5, 0.7, 0.9] {
            let mut dc = example(Search::Percentile(share), 75.0, 150.0);
            dc.follow(&histogram(&sorted, 150.0, 20), 0.0);
            let exact = sorted[(share * 256.0).ceil() as usize - 1];
            assert!((dc.clip - exact).abs() <= 150.0 / 40.0 + 1e-9, "{share}: {} for {exact}", dc.clip);
            assert_eq!(dc.range, 2.0 * dc.clip);
        }
    }

    #[test]
    fn the_least_error_is_found_among_the_candidates() {
        let norms = norms();
        let error = |clip: f64| {
            let bias: f64 = norms.iter().map(|norm| (norm - clip).max(0.0).powi(2)).sum::<f64>() / 256.0;
            (clip / 256.0).powi(2) * 1e5 + bias
        };
        let best =
            (1..400).map(|i| f64::from(i) / 2.0).min_by(|a, b| error(*a).total_cmp(&error(*b))).unwrap();
        for start in [1.0, 30.0, 500.0] {
            let mut dc = example(Search::LeastError { steady: true }, start, 160.0);
            dc.follow(&histogram(&norms, 160.0, 20), 0.0);
            assert!(error(dc.clip) < 1.05 * error(best), "{start}: {} for {best}", dc.clip);
        }
    }

    #[test]
    fn a_histogram_that_is_lost_in_noise_changes_nothing() {
        let mut dc = example(Search::Percentile(0.5), 75.0, 150.0);
        // 3 * 20 * sqrt(20) is more than a batch of 256 records, whatever the counts are.
        dc.follow(&histogram(&norms(), 150.0, 20), 20.0);
        dc.follow(&[1e6; 20], 20.0);
        dc.follow(&[f32::NAN; 20], 1.0);
        dc.follow(&[-5.0; 20], 0.0);
        assert_eq!((dc.clip, dc.range), (75.0, 150.0));
    }

    #[test]
    fn without_the_freeze_every_histogram_is_followed() {
        let mut dc = DcSgd { freeze: false, ..example(Search::Percentile(0.5), 75.0, 150.0) };
        dc.follow(&histogram(&norms(), 150.0, 20), 20.0);
        assert!((dc.clip - 100.0).abs() < 8.0, "{}", dc.clip);
        let before = dc.clip;
        dc.follow(&[-5.0; 20], 20.0);
        dc.follow(&[f32::NAN; 20], 20.0);
        assert_eq!(dc.clip, before);
    }

    #[test]
    fn a_note_says_that_batches_are_too_small() {
        let multiplier = NoiseSource::Multiplier(NoiseMultiplier::new(1.5).unwrap());
        // 3 * 5 * sqrt(20) is 67.1.
        for (batch, freeze, expected) in [
            (
                67.0,
                true,
                Some(
                    "the clipping norm stays at 1: batches of 67 records are too small for a histogram of 20 bins with noise 5.0000, which needs 68",
                ),
            ),
            (67.0, false, Some("the clipping norm follows the noise")),
            (68.0, true, None),
            (68.0, false, None),
        ] {
            let facts = RunFacts {
                expected_batch_size: batch,
                max_grad_norm: ClipNorm::new(1.0).unwrap(),
                ..test_facts()
            };
            let found = notes(&facts, &plan(&facts, multiplier, None).unwrap(), 20, freeze, 1.0);
            match expected {
                None => assert!(found.is_empty(), "{found:?}"),
                Some(start) => assert!(found.len() == 1 && found[0].starts_with(start), "{found:?}"),
            }
        }
        // Four histograms together need batches of half the size.
        let facts = RunFacts { expected_batch_size: 33.0, ..test_facts() };
        let found = notes(&facts, &plan(&facts, multiplier, None).unwrap(), 20, false, 4.0);
        assert!(found[0].contains("which needs 34 records"), "{found:?}");
    }

    #[test]
    fn the_range_follows_the_norms() {
        for steady in [false, true] {
            let mut dc = example(Search::LeastError { steady }, 10.0, 40.0);
            dc.follow(&histogram(&norms(), 40.0, 20), 0.0);
            assert_eq!(dc.range, 80.0);
            let mut dc = example(Search::LeastError { steady }, 10.0, 1000.0);
            dc.follow(&histogram(&norms(), 1000.0, 20), 0.0);
            assert_eq!(dc.range, 500.0);
        }
    }

    /// The range after 500 noisy histograms of 256 norms, of which `large` are 35 and the others are 5.
    fn last_range(steady: bool, large: usize, start: f64, seed: u64) -> f64 {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let noise = Normal::new(0.0, 5.0).unwrap();
        let mut dc = example(Search::LeastError { steady }, start / 20.0, start);
        let norms: Vec<f64> = (0..256).map(|i| if i < large { 35.0 } else { 5.0 }).collect();
        for _ in 0..500 {
            let exact = histogram(&norms, dc.range, 20);
            let noisy: Vec<f32> = exact.iter().map(|count| count + noise.sample(&mut rng) as f32).collect();
            dc.follow(&noisy, 5.0);
        }
        dc.range
    }

    #[test]
    fn noise_shrinks_a_steady_range_less_often_than_that_of_the_paper() {
        // A tenth of the norms are in the right half, twice the share at which the range is halved.
        let shrunk = |steady| (0..30).filter(|seed| last_range(steady, 26, 40.0, *seed) < 40.0).count();
        assert_eq!(shrunk(false), 30);
        // A steady range shrinks in about one of 25 runs of this length.
        assert!(shrunk(true) <= 4, "{}", shrunk(true));
        // It still shrinks if it is too large, and grows if it is too small.
        assert_eq!(last_range(true, 0, 640.0, 2), 10.0);
        assert_eq!(last_range(true, 256, 2.5, 2), 40.0);
    }

    #[test]
    fn the_histogram_has_the_noise_of_its_paper_and_leaves_enough_for_the_gradients() {
        for (z, noise) in
            [(0.5, 5.0), (1.99, 5.0), (2.0, 8.0), (3.0, 8.0), (3.01, 12.0), (5.0, 12.0), (40.0, 90.0)]
        {
            assert_eq!(default_noise(z), noise);
            let gradients = calibrate::remaining_noise_multiplier(
                NoiseMultiplier::new(z).unwrap(),
                NoiseMultiplier::new(noise).unwrap(),
            );
            assert!(gradients.unwrap().get() <= 1.125 * z);
        }
        let multiplier = NoiseSource::Multiplier(NoiseMultiplier::new(1.5).unwrap());
        let entry = plan(&test_facts(), multiplier, None).unwrap().entries()[0].clone();
        assert!((entry.effective_noise_multiplier() / 1.5 - 1.0).abs() < 1e-12);
        // As in the paper, the histogram costs the gradients only a few per cent more noise.
        assert!(entry.releases().len() == 2 && entry.releases()[0].get() < 1.08 * 1.5);
        assert!(plan(&test_facts(), multiplier, Some(1.2)).unwrap_err().to_string().contains("above 1.5"));
    }
}
