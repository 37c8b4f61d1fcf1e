//! DP-SGD, and DP-NSGD: the same release with weights that normalise.

use sordino_accounting::ClipNorm;
use sordino_privacy::{ClipRule, Gradients, PrivacyError, Release, Round};

use crate::{Algorithm, AlgorithmError, Setting};

/// `sum_i clip(g_i, C) + z C N`; with a regulariser `r`, `sum_i C g_i / (r + |g_i|) + z C N`.
/// Departs from Yang et al. in that batches are Poisson and the divisor is their expected size.
///
/// **References.** Abadi et al. 2016, Algorithm 1; Yang et al. 2022, Algorithm 1 (DP-NSGD), with `C` in place of their 1.
pub(crate) struct DpSgd {
    rule: ClipRule,
}

impl DpSgd {
    pub(crate) fn new(setting: &Setting, regulariser: Option<f64>) -> Result<Self, AlgorithmError> {
        let rule = rule(setting, setting.clip)?;
        Ok(Self { rule: regulariser.map_or(Ok(rule.clone()), |r| rule.normalising(r))? })
    }
}

impl<G: Gradients> Algorithm<G> for DpSgd {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        _: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        let sum = round.gradients(at).clipped_sum(&self.rule)?;
        round.release(sum).map(Some)
    }
}

/// The whole gradient to this norm, or each of `L` layers to `C / sqrt(L)`.
pub(crate) fn rule(setting: &Setting, clip: ClipNorm) -> Result<ClipRule, PrivacyError> {
    match setting.layers {
        None => ClipRule::flat(clip),
        Some(layers) => {
            #[expect(clippy::cast_precision_loss, reason = "a count")]
            let share = ClipNorm::new(clip.get() / (layers as f64).sqrt())?;
            ClipRule::per_layer(&vec![share; layers])
        }
    }
}

/// A sum that was clipped to this threshold, in the scale of the first: steps keep their length when the threshold moves.
pub(crate) fn unit_step(
    sum: Release<Vec<f32>>,
    clip: f64,
    setting: &Setting,
    wanted: bool,
) -> Release<Vec<f32>> {
    #[expect(clippy::cast_possible_truncation, reason = "a factor")]
    let factor = (setting.clip.get() / clip) as f32;
    if wanted { sum.scaled(factor) } else { sum }
}

/// A threshold that adapts stays within a million times where it began, and within what single precision can use.
pub(crate) fn usable(clip: f64, setting: &Setting) -> f64 {
    let unit = setting.clip.get();
    clip.clamp(1e-6 * unit, 1e6 * unit).clamp(1e-9, 1e9)
}
