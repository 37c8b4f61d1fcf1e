//! DP-SVRG: variance reduction with gradients that are clipped separately.

use sordino_privacy::{ClipRule, Gradients, PrivacyError, Release, Round};
use sordino_optim::State;

use crate::{
    AlgorithmError, Setting,
    anchored::{Anchoring, Estimate, kept, taken},
    dp_sgd::rule,
};

/// `g = (1/B) sum_S clip(g_i(x), C) - (1/B) sum_S clip(g_i(w), C) + (1/B_a) sum_A clip(g_i(w), C)`, each with noise.
///
/// The two sums over the batch are two releases of one step. The sum over the anchor's batch is released once and kept.
///
/// **References.** Lee 2017; Algorithm 2 of the DP-C4 paper.
pub(crate) struct DpSvrg {
    rule: ClipRule,
    /// `B / B_a`.
    scale: f32,
    anchor: Vec<f32>,
}

impl DpSvrg {
    pub(crate) fn new(setting: &Setting, anchoring: &Anchoring) -> Result<Self, AlgorithmError> {
        #[expect(clippy::cast_possible_truncation, reason = "a ratio of batch sizes")]
        let scale = (setting.expected_batch_size / anchoring.batch) as f32;
        Ok(Self { rule: rule(setting, setting.clip)?, scale, anchor: Vec::new() })
    }
}

impl<G: Gradients> Estimate<G> for DpSvrg {
    fn anchor(&mut self, round: &mut Round<'_, G>, anchor: &G::Point) -> Result<(), PrivacyError> {
        let sum = round.gradients(anchor).clipped_sum(&self.rule)?;
        self.anchor = round.release(sum)?.scaled(self.scale).into_inner();
        Ok(())
    }

    fn gradient(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        anchor: Option<&G::Point>,
    ) -> Result<Release<Vec<f32>>, PrivacyError> {
        let Some(anchor) = anchor else { return Ok(round.noise(0.0).plus(1.0, &self.anchor)) };
        let here = round.gradients(at).clipped_sum(&self.rule)?;
        let here = round.release(here)?;
        let there = round.gradients(anchor).clipped_sum(&self.rule)?;
        let there = round.release(there)?;
        Ok(here.plus(-1.0, &there).plus(1.0, &self.anchor))
    }

    fn state(&self) -> State {
        kept(&self.anchor, &[])
    }

    fn restore(&mut self, state: &State) {
        self.anchor = taken(state).unwrap_or_default();
    }
}
