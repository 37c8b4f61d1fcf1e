//! The threshold follows a quantile of the gradient norms.

use std::collections::BTreeMap;

use sordino_accounting::ClipNorm;
use sordino_optim::State;
use sordino_privacy::{Gradients, NormStatistic, PrivacyError, Release, Round};

use crate::{
    Algorithm, Setting,
    dp_sgd::{rule, unit_step, usable},
};

/// With `b_i = 1` for `|g_i| <= C` and 0 otherwise, releases `sum_i (b_i - 1/2)` beside the clipped sum, estimates the share of
/// gradients that are not clipped as `b = 1/2 + (released sum) / B`, and moves `C <- C exp(-rate (b - quantile))`.
///
/// The -1/2 is taken for each record, so that a record moves the sum by 1/2 and not by 1. Departs from Alg. 1 in its unit of privacy, a
/// record, and in that the divisor is the expected size. With unit steps, which are the default, the sum is
/// divided by how much the threshold has grown, so that one learning rate serves all thresholds.
///
/// **References.** Andrew et al. 2021, Algorithm 1.
pub(crate) struct Quantile {
    setting: Setting,
    quantile: f64,
    rate: f64,
    unit_steps: bool,
    clip: f64,
}

impl Quantile {
    pub(crate) fn new(setting: &Setting, quantile: f64, rate: f64, unit_steps: bool) -> Self {
        Self { setting: *setting, quantile, rate, unit_steps, clip: setting.clip.get() }
    }

    /// Follows what was released: half of how many more norms lay below the threshold than above it.
    fn follow(&mut self, balance: f64) {
        let below = 0.5 + balance / self.setting.expected_batch_size;
        let moved = self.clip * (-self.rate * (below - self.quantile)).exp();
        // However unlucky the noise, the threshold stays a number that can be used.
        if moved.is_finite() {
            self.clip = usable(moved, &self.setting);
        }
    }
}

impl<G: Gradients> Algorithm<G> for Quantile {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        _: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        let clip = ClipNorm::new(self.clip)?;
        let (sum, balance) = round
            .gradients(at)
            .clipped_sum_and(&rule(&self.setting, clip)?, &NormStatistic::balance(clip))?;
        let sum = unit_step(round.release(sum)?, clip.get(), &self.setting, self.unit_steps);
        self.follow(f64::from(round.release(balance)?[0]));
        Ok(Some(sum))
    }

    fn state(&self) -> State {
        State { numbers: BTreeMap::from([("clip".to_owned(), self.clip)]), ..State::default() }
    }

    fn restore(&mut self, state: &State) {
        if let Some(&clip) = state.numbers.get("clip").filter(|clip| clip.is_finite() && **clip > 0.0) {
            self.clip = usable(clip, &self.setting);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::tests::setting;

    #[test]
    fn the_threshold_rises_while_too_many_are_clipped_and_falls_while_too_few_are() {
        let mut quantile = Quantile::new(&setting(), 0.5, 0.2, true);
        // All of a batch of 100 above the threshold: the balance is -50, the share 0.
        quantile.follow(-50.0);
        assert!((quantile.clip - (0.1_f64).exp()).abs() < 1e-12);
        quantile.follow(50.0);
        assert!((quantile.clip - 1.0).abs() < 1e-12);
        quantile.follow(0.0);
        assert!((quantile.clip - 1.0).abs() < 1e-12);
        for absurd in [1e300, -1e300, f64::NAN] {
            quantile.follow(absurd);
            assert!(quantile.clip.is_finite() && quantile.clip > 0.0);
        }
    }
}
