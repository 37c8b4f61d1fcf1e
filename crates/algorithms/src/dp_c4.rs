//! DP-C4 with public clipping norms: a sound form of coupled clipping.
//!
//! `g = (1/B) [sum_S clip(g_i(x) - g_i(w), C_1k) + noise] + G`, where `G = (1/B_a) [sum_A clip(g_i(w), C_2j) + noise]` is released once for
//! each anchor and kept. Departs from Algorithm 3 in its clipping norms, which there come from raw gradients and set the noise: `C_1k` follows
//! the distance of the two points, and `C_2j` the length of the previous anchor's gradient, less the share of the noise. Both are public and stay
//! above a thousandth of `C`. The anchor's noise is drawn once and kept, instead of redrawn at every step. Routine 4 and `C_2 = 100` are the
//! defaults.

use sordino_accounting::{Accountant, ClipNorm, Plan, Sampling};
use sordino_optim::State;
use sordino_privacy::{Gradients, PrivacyError, Release, Round};

use crate::{
    About, Algorithm, AlgorithmError, Defaults, NoiseSource, RunFacts, Scale, Steps, Verdict,
    anchors::{AnchoredSteps, Anchoring, Estimate, anchor_gradient, anchor_state},
    clipping::{distance, noise_std, norm, rule},
    options,
    plans::tightest_accountant,
};

options! {
    /// Variance reduction with coupled clipping: differences of a record's gradients at a point and at an anchor are clipped together, to a norm
    /// that follows the distance of the two points.
    pub struct DpC4 {
        /// C_1: the clipping norm of differences, in units of the distance of the points.
        difference_scale: f64 = 1.0, in 1e-6..=1e6;
        /// C_2: the clipping norm at the anchor, in units of the length of its mean gradient; or a schedule such as 0:1/1:100.
        anchor_scale: Scale = Scale::Constant(100.0), in 1e-6..=1e6;
        /// Expected number of records of an anchor's batch.
        anchor_batch: Option<u64> = None, as "16 batches, at most all records", in 1..=1_000_000_000_000;
        /// Probability (routines 1, 3) or frequency (2, 4) with which the anchor moves.
        update_probability: Option<f64> = None, as "2 B / anchor_batch", in 1e-6..=1.0;
        /// Where the anchor moves: to the point before the step (1 at random, 2 regularly) or after it (3 at random, 4 regularly).
        routine: u8 = 4, in 1..=4;
        /// Epochs also count the records of anchors, as in the paper.
        epochs_count_anchors: bool = false;
    }
}

/// Clipping norms never fall below this part of `max_grad_norm`.
const LEAST: f64 = 1e-3;

impl DpC4 {
    fn anchoring(&self, facts: &RunFacts) -> Result<Anchoring, AlgorithmError> {
        Anchoring::new(self.anchor_batch, self.update_probability, Some(self.routine), facts)
    }
}

impl Algorithm for DpC4 {
    fn about(&self) -> About {
        About {
            name: "dp-c4",
            reference: "after the DP-C4 paper (under double-blind review), Algorithms 3 and 4",
            verdict: Verdict::Sound(
                "Sordino's form of DP-C4, with public clipping norms and anchors that are noised once",
            ),
        }
    }

    fn defaults(&self, max_grad_norm: Option<ClipNorm>) -> Result<Defaults, AlgorithmError> {
        // A difference and an anchor.
        let defaults = Defaults::clipped(max_grad_norm, 0.1)?;
        Ok(Defaults { contribution: Some(2.0 * defaults.max_grad_norm.get()), ..defaults })
    }

    fn accountant(&self, sampling: Sampling) -> Accountant {
        tightest_accountant(sampling)
    }

    /// An anchor, its packed weights, its gradient, and the previous point.
    fn kept_vectors(&self) -> u64 {
        4
    }

    fn records_per_step(&self, batch_size: f64, records: u64) -> Result<f64, AlgorithmError> {
        if !self.epochs_count_anchors {
            return Ok(batch_size);
        }
        let (batch, probability) = (self.anchor_batch, self.update_probability);
        let anchoring = Anchoring::for_batches(batch, probability, Some(self.routine), batch_size, records)?;
        Ok(anchoring.records_per_step(batch_size))
    }

    fn plan(&self, facts: &RunFacts, noise: NoiseSource) -> Result<Plan, AlgorithmError> {
        rule(facts, ClipNorm::new(LEAST * facts.max_grad_norm.get())?)?;
        self.anchor_scale.check_steps("anchor_scale", facts.steps)?;
        self.anchoring(facts)?.plan(facts, noise, 1)
    }

    fn start<G: Gradients>(&self, facts: &RunFacts, plan: &Plan) -> Result<Box<dyn Steps<G>>, AlgorithmError>
    where
        G::Point: 'static,
    {
        let anchoring = self.anchoring(facts)?;
        let estimate = CoupledEstimate {
            facts: *facts,
            difference_scale: self.difference_scale,
            anchor_scale: self.anchor_scale.clone(),
            scale: (facts.expected_batch_size / anchoring.batch) as f32,
            anchor_batch: anchoring.batch,
            part: 0.0,
            length: None,
            anchor: Vec::new(),
            anchor_noise: 0.0,
        };
        Ok(Box::new(AnchoredSteps::new(facts, plan, &anchoring, estimate)?))
    }
}

struct CoupledEstimate {
    facts: RunFacts,
    difference_scale: f64,
    anchor_scale: Scale,
    /// `B / B_a`.
    scale: f32,
    /// `B_a`.
    anchor_batch: f64,
    /// The fraction of the run that is complete after this step.
    part: f64,
    /// The length of the last anchor's mean gradient, without the part that is due to noise.
    length: Option<f64>,
    anchor: Vec<f32>,
    anchor_noise: f64,
}

impl CoupledEstimate {
    /// A clipping norm within its permitted range. A NaN becomes the least.
    fn bounded(&self, clip: f64) -> f64 {
        let most = self.facts.max_grad_norm.get();
        if clip >= LEAST * most { clip.min(most) } else { LEAST * most }
    }
}

impl<G: Gradients> Estimate<G> for CoupledEstimate {
    fn begin(&mut self, part: f64) {
        self.part = part;
    }

    fn anchor(&mut self, round: &mut Round<'_, G>, anchor: &G::Point) -> Result<(), PrivacyError> {
        let clip = match self.length {
            Some(length) => ClipNorm::new(self.bounded(self.anchor_scale.at(self.part) * length))?,
            None => self.facts.max_grad_norm,
        };
        let rule = rule(&self.facts, clip)?;
        let sum = round.gradients(anchor).clipped_sum(&rule)?;
        let sum = round.release(sum)?;
        let noise = self.facts.dimension as f64 * sum.noise_std().powi(2);
        self.length = Some((norm(&sum).powi(2) - noise).max(0.0).sqrt() / self.anchor_batch);
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
            return Ok(round.noise(0.0)?.plus(1.0, &self.anchor, self.anchor_noise));
        };
        let clip = self.bounded(self.difference_scale * distance(at.as_ref(), anchor.as_ref()));
        let rule = rule(&self.facts, ClipNorm::new(clip)?)?;
        let sum = round.gradients(at).minus(anchor).clipped_sum(&rule)?;
        Ok(round.release(sum)?.plus(1.0, &self.anchor, self.anchor_noise))
    }

    fn state(&self) -> State {
        let mut state = anchor_state(&self.anchor, &[("anchor_noise", self.anchor_noise)]);
        state.numbers.extend(self.length.map(|length| ("length".to_owned(), length)));
        state
    }

    fn restore(&mut self, state: &State) {
        self.anchor = anchor_gradient(state).unwrap_or_default();
        self.anchor_noise = noise_std(state, "anchor_noise");
        self.length = state.numbers.get("length").copied().filter(|length| *length >= 0.0);
    }
}
