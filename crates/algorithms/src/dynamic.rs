//! Dynamic DP-SGD: thresholds that decay along the run, beside multipliers that fall in the plan.

use sordino_accounting::ClipNorm;
use sordino_privacy::{Gradients, PrivacyError, Release, Round};

use crate::{Algorithm, Setting, dp_sgd::rule};

/// `C_t = C_0 rho_c^(-t / T)` for `t = 1 .. T`; the plan has `z_t = 1 / mu_t`, `mu_t = mu_0 rho_mu^(t / T)`.
///
/// Departs from Alg. 2: sums are divided by the expected batch size, and `mu_0` comes from the accountant's exact price in place of
/// the central limit theorem.
///
/// **References.** Du et al. 2021, Algorithm 2.
pub(crate) struct Dynamic {
    setting: Setting,
    clip_decay: f64,
}

impl Dynamic {
    pub(crate) fn new(setting: &Setting, clip_decay: f64) -> Self {
        Self { setting: *setting, clip_decay }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of steps")]
    pub(crate) fn threshold(&self, number: u64) -> f64 {
        let part = (number + 1) as f64 / self.setting.steps.get() as f64;
        self.setting.clip.get() * self.clip_decay.powf(-part)
    }
}

impl<G: Gradients> Algorithm<G> for Dynamic {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        number: u64,
    ) -> Result<Release<Vec<f32>>, PrivacyError> {
        let clip = ClipNorm::new(self.threshold(number))?;
        let sum = round.gradients(at).clipped_sum(&rule(&self.setting, clip)?)?;
        round.release(sum)
    }
}
