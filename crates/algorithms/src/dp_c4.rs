//! DP-C4 made sound: differences to an anchor are clipped as one, to thresholds that are public.

use sordino_accounting::ClipNorm;
use sordino_optim::State;
use sordino_privacy::{Gradients, PrivacyError, Release, Round};

use crate::{
    Setting,
    anchored::{Anchoring, Estimate, kept, noise_of, taken},
    dice::norm,
    dp_sgd::rule,
};

/// Thresholds never fall below this part of `max_grad_norm`.
const LEAST: f64 = 1e-3;

/// `g = (1/B) [sum_S clip(g_i(x) - g_i(w), C_1k) + noise] + G`, where `G = (1/B_a) [sum_A clip(g_i(w), C_2j) + noise]` is released
/// once for each anchor and kept.
///
/// Departs from Alg. 3 in its thresholds, which there come from raw gradients and set the noise: `C_1k` follows the distance of the
/// two points, and `C_2j` the length of the anchor's gradient before, less what noise adds to it. Both are public and stay above a thousandth
/// of `C`. The anchor's noise is drawn once and kept, in place of anew at every step; routine 4 and `C_2 = 100` are the defaults.
///
/// **References.** The DP-C4 paper, Algorithms 3 and 4, for the estimate and the routines.
pub(crate) struct DpC4 {
    setting: Setting,
    /// `C_1` and `C_2`.
    scales: (f64, f64),
    /// `B / B_a`, and `B_a`.
    scale: f32,
    anchor_batch: f64,
    /// The threshold of the next anchor.
    anchor_clip: f64,
    anchor: Vec<f32>,
    anchor_noise: f64,
}

impl DpC4 {
    pub(crate) fn new(setting: &Setting, anchoring: &Anchoring, scales: (f64, f64)) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "a ratio of batch sizes")]
        let scale = (setting.expected_batch_size / anchoring.batch) as f32;
        Self {
            setting: *setting,
            scales,
            scale,
            anchor_batch: anchoring.batch,
            anchor_clip: setting.clip.get(),
            anchor: Vec::new(),
            anchor_noise: 0.0,
        }
    }

    fn threshold(&self, wanted: f64) -> f64 {
        let most = self.setting.clip.get();
        // Also for a NaN.
        if wanted >= LEAST * most { wanted.min(most) } else { LEAST * most }
    }
}

impl<G: Gradients> Estimate<G> for DpC4 {
    fn anchor(&mut self, round: &mut Round<'_, G>, anchor: &G::Point) -> Result<(), PrivacyError> {
        let rule = rule(&self.setting, ClipNorm::new(self.anchor_clip)?)?;
        let sum = round.gradients(anchor).clipped_sum(&rule)?;
        let sum = round.release(sum)?;
        // The mean gradient's length without the noise's share.
        #[expect(clippy::cast_precision_loss, reason = "a count of parameters")]
        let noise = self.setting.dimension as f64 * sum.noise_std().powi(2);
        let length = (norm(&sum).powi(2) - noise).max(0.0).sqrt() / self.anchor_batch;
        self.anchor_clip = self.threshold(self.scales.1 * length);
        let sum = sum.scaled(self.scale);
        self.anchor_noise = sum.noise_std();
        self.anchor = sum.into_inner();
        Ok(())
    }

    fn gradient(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        anchor: Option<&G::Point>,
    ) -> Result<Release<Vec<f32>>, PrivacyError> {
        let Some(anchor) = anchor else {
            return Ok(round.noise(0.0).plus(1.0, &self.anchor, self.anchor_noise));
        };
        let clip = self.threshold(self.scales.0 * distance(at.as_ref(), anchor.as_ref()));
        let rule = rule(&self.setting, ClipNorm::new(clip)?)?;
        let sum = round.gradients(at).minus(anchor).clipped_sum(&rule)?;
        Ok(round.release(sum)?.plus(1.0, &self.anchor, self.anchor_noise))
    }

    fn state(&self) -> State {
        kept(&self.anchor, &[("anchor_clip", self.anchor_clip), ("anchor_noise", self.anchor_noise)])
    }

    fn restore(&mut self, state: &State) {
        self.anchor = taken(state).unwrap_or_default();
        self.anchor_noise = noise_of(state, "anchor_noise");
        if let Some(&clip) = state.numbers.get("anchor_clip") {
            self.anchor_clip = self.threshold(clip);
        }
    }
}

/// The distance of two public points.
pub(crate) fn distance(one: &[f32], other: &[f32]) -> f64 {
    one.iter().zip(other).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>().sqrt()
}
