//! DP-SVRG: variance reduction with gradients that are clipped separately.

use sordino_optim::State;
use sordino_privacy::{ClipRule, Gradients, PrivacyError, Release, Round};

use crate::{
    AlgorithmError, Setting,
    anchored::{Anchoring, Estimate, kept, noise_of, taken},
    dp_sgd::rule,
};

/// `g = (1/B) sum_S clip(g_i(x), C) - (1/B) sum_S clip(g_i(w), C) + (1/B_a) sum_A clip(g_i(w), C)`, each with noise.
///
/// The two sums over the batch are two releases of one step. Departs from Alg. 2 in the anchor: its gradient comes from a batch, not from
/// all records, is released once and kept in place of noised anew at every step, and moves by routine 4 unless told otherwise.
///
/// **References.** Lee 2017; Algorithm 2 of the DP-C4 paper.
pub(crate) struct DpSvrg {
    rule: ClipRule,
    /// `B / B_a`.
    scale: f32,
    anchor: Vec<f32>,
    anchor_noise: f64,
}

impl DpSvrg {
    pub(crate) fn new(setting: &Setting, anchoring: &Anchoring) -> Result<Self, AlgorithmError> {
        #[expect(clippy::cast_possible_truncation, reason = "a ratio of batch sizes")]
        let scale = (setting.expected_batch_size / anchoring.batch) as f32;
        Ok(Self { rule: rule(setting, setting.clip)?, scale, anchor: Vec::new(), anchor_noise: 0.0 })
    }
}

impl<G: Gradients> Estimate<G> for DpSvrg {
    fn anchor(&mut self, round: &mut Round<'_, G>, anchor: &G::Point) -> Result<(), PrivacyError> {
        let sum = round.gradients(anchor).clipped_sum(&self.rule)?;
        let sum = round.release(sum)?.scaled(self.scale);
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
        let here = round.gradients(at).clipped_sum(&self.rule)?;
        let here = round.release(here)?;
        let there = round.gradients(anchor).clipped_sum(&self.rule)?;
        let there = round.release(there)?;
        Ok(here.plus(-1.0, &there, there.noise_std()).plus(1.0, &self.anchor, self.anchor_noise))
    }

    fn state(&self) -> State {
        kept(&self.anchor, &[("anchor_noise", self.anchor_noise)])
    }

    fn restore(&mut self, state: &State) {
        self.anchor = taken(state).unwrap_or_default();
        self.anchor_noise = noise_of(state, "anchor_noise");
    }
}
