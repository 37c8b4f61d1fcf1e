//! DC-SGD: the threshold comes from a private histogram of gradient norms.

use std::collections::BTreeMap;

use sordino_accounting::ClipNorm;
use sordino_optim::State;
use sordino_privacy::{Gradients, NormStatistic, PrivacyError, Release, Round};

use crate::{
    Algorithm, Setting,
    dp_sgd::{rule, unit_step, usable},
};

/// How the next threshold is found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Search {
    /// So that this share of gradients is not clipped (DC-SGD-P).
    Percentile(f64),
    /// So that the expected squared error of clipping and noise is least (DC-SGD-E).
    LeastError,
}

/// Releases a histogram of the norms beside the clipped sum, and takes the next threshold from it alone.
///
/// Departs from Alg. 2 in the bin of a norm, which is the smaller of `b - 1` and `floor(b G / R)`; from equation (4) in that the
/// number of records is the histogram's own sum, as in Alg. 4, whose loop ends after 20 moves here; thresholds and ranges are kept within
/// what can be used. Where a batch is too small for the histogram's noise, the threshold stays: with `b` bins of noise
/// `sigma_H`, less than `3 sigma_H sqrt(b)` records. With unit steps, which are the default, the sum is divided by how much the threshold
/// has grown, so that one learning rate serves all thresholds.
///
/// **References.** Wei et al. 2025, Algorithms 1 to 4.
pub(crate) struct DcSgd {
    setting: Setting,
    search: Search,
    bins: usize,
    unit_steps: bool,
    clip: f64,
    range: f64,
}

/// How often the candidates may be moved along.
const MOST_MOVES: usize = 20;

impl DcSgd {
    pub(crate) fn new(setting: &Setting, search: Search, bins: usize, unit_steps: bool) -> Self {
        let clip = setting.clip.get();
        #[expect(clippy::cast_precision_loss, reason = "at most 4096")]
        let range = match search {
            Search::Percentile(_) => clip,
            Search::LeastError => clip * bins as f64,
        };
        Self { setting: *setting, search, bins, unit_steps, clip, range }
    }

    /// Takes the next threshold and range from a noisy histogram whose noise has this deviation.
    fn follow(&mut self, histogram: &[f32], noise_std: f64) {
        let counts: Vec<f64> = histogram.iter().copied().map(f64::from).collect();
        let total: f64 = counts.iter().sum();
        #[expect(clippy::cast_precision_loss, reason = "at most 4096")]
        let bins = self.bins as f64;
        // Whether the counts can be told from their noise is decided by public numbers: to look at the noisy sum would be to wait
        // for lucky noise.
        if !(self.setting.expected_batch_size >= 3.0 * noise_std * bins.sqrt() && total > 0.0) {
            return;
        }
        let width = self.range / bins;
        #[expect(clippy::cast_precision_loss, reason = "at most 4096")]
        let middle = |bin: usize| (bin as f64 + 0.5) * width;
        match self.search {
            Search::Percentile(share) => {
                let mut sum = 0.0;
                let reached = counts.iter().position(|count| {
                    sum += count;
                    sum >= share * total
                });
                self.clip = middle(reached.unwrap_or(self.bins - 1));
                self.range = 2.0 * self.clip;
            }
            Search::LeastError => {
                self.clip = self.least_error(&counts, total, middle);
                let (last, right): (f64, f64) = (counts[self.bins - 1], counts[self.bins / 2..].iter().sum());
                if last >= 0.5 * total {
                    self.range *= 2.0;
                } else if right <= total / bins {
                    self.range *= 0.5;
                }
            }
        }
        self.clip = usable(self.clip, &self.setting);
        self.range = usable(self.range, &self.setting);
    }

    /// The best of `0.1 C .. 2 C`, moved along while the best is the first or the last of them.
    fn least_error(&self, counts: &[f64], total: f64, middle: impl Fn(usize) -> f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a count of parameters")]
        let dimension = self.setting.dimension as f64;
        let noise = self.setting.noise_multiplier.map_or(1.0, |z| z.get());
        let error = |clip: f64| {
            let variance = (noise * clip / self.setting.expected_batch_size).powi(2) * dimension;
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

impl<G: Gradients> Algorithm<G> for DcSgd {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        _: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        let rule = rule(&self.setting, ClipNorm::new(self.clip)?)?;
        let histogram = NormStatistic::histogram(ClipNorm::new(self.range)?, self.bins)?;
        let (sum, histogram) = round.gradients(at).clipped_sum_and(&rule, &histogram)?;
        let sum = unit_step(round.release(sum)?, self.clip, &self.setting, self.unit_steps);
        let histogram = round.release(histogram)?;
        self.follow(&histogram, histogram.noise_std());
        Ok(Some(sum))
    }

    fn state(&self) -> State {
        let numbers = BTreeMap::from([("clip".to_owned(), self.clip), ("range".to_owned(), self.range)]);
        State { numbers, ..State::default() }
    }

    fn restore(&mut self, state: &State) {
        let kept =
            |name: &str| state.numbers.get(name).copied().filter(|value| value.is_finite() && *value > 0.0);
        if let (Some(clip), Some(range)) = (kept("clip"), kept("range")) {
            (self.clip, self.range) = (usable(clip, &self.setting), usable(range, &self.setting));
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::{ChaCha20Rng, rand_core::SeedableRng};
    use rand_distr::{Distribution, Normal};
    use sordino_accounting::{ClipNorm, NoiseMultiplier};

    use super::*;
    use crate::registry::tests::setting;

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
        let setting = Setting {
            clip: ClipNorm::new(clip).unwrap(),
            expected_batch_size: 256.0,
            dimension: 100_000,
            noise_multiplier: Some(NoiseMultiplier::new(1.0).unwrap()),
            ..setting()
        };
        DcSgd { range, ..DcSgd::new(&setting, search, 20, true) }
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
            let mut dc = example(Search::LeastError, start, 160.0);
            dc.follow(&histogram(&norms, 160.0, 20), 0.0);
            assert!(error(dc.clip) < 1.05 * error(best), "{start}: {} for {best}", dc.clip);
        }
    }

    #[test]
    fn a_histogram_that_is_lost_in_noise_changes_nothing() {
        let mut dc = example(Search::Percentile(0.5), 75.0, 150.0);
        // 3 * 20 * sqrt(20) is more than a batch of 256 has, whatever the counts say.
        dc.follow(&histogram(&norms(), 150.0, 20), 20.0);
        dc.follow(&[1e6; 20], 20.0);
        dc.follow(&[f32::NAN; 20], 1.0);
        dc.follow(&[-5.0; 20], 0.0);
        assert_eq!((dc.clip, dc.range), (75.0, 150.0));
    }

    #[test]
    fn the_range_follows_the_norms() {
        let mut dc = example(Search::LeastError, 10.0, 40.0);
        dc.follow(&histogram(&norms(), 40.0, 20), 0.0);
        assert_eq!(dc.range, 80.0);
        let mut dc = example(Search::LeastError, 10.0, 1000.0);
        dc.follow(&histogram(&norms(), 1000.0, 20), 0.0);
        assert_eq!(dc.range, 500.0);
    }
}
