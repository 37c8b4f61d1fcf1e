//! DP-C4+ as published.

use sordino_accounting::{Accountant, ClipNorm, Plan, Sampling};
use sordino_privacy::Gradients;

use crate::{
    About, Algorithm, AlgorithmError, Defaults, NoiseSource, PublishedNoise, RunFacts, Scale, Steps, Verdict,
    anchors::{AnchoredSteps, Anchoring},
    coupled::{self, PROBLEM, PublishedEstimate, Scales},
    options,
    plans::tightest_accountant,
};

options! {
    /// DP-C4+ as published: the clipping norm of differences follows the distance of the points, and that of the anchor follows its previous raw gradient.
    pub struct DpC4PlusPublished {
        /// C_1: the clipping norm of differences, in units of the distance of the points.
        difference_scale: f64 = 1.0, in 1e-6..=1e6;
        /// C_2: the clipping norm at the anchor, in units of the length of its mean gradient; or a schedule such as 0:1/1:4.
        anchor_scale: Scale = Scale::Constant(1.0), in 1e-6..=1e6;
        /// Expected number of records of an anchor's batch.
        anchor_batch: Option<u64> = None, as "16 batches, at most all records", in 1..=1_000_000_000_000;
        /// Probability (routines 1, 3) or frequency (2, 4) with which the anchor moves.
        update_probability: Option<f64> = None, as "2 B / anchor_batch", in 1e-6..=1.0;
        /// Where the anchor moves: to the point before the step (1 at random, 2 regularly) or after it (3 at random, 4 regularly).
        routine: u8 = 1, in 1..=4;
        /// Epochs also count the records of anchors, as in the paper.
        epochs_count_anchors: bool = false;
    }
}

impl DpC4PlusPublished {
    fn anchoring(&self, facts: &RunFacts) -> Result<Anchoring, AlgorithmError> {
        Anchoring::new(self.anchor_batch, self.update_probability, Some(self.routine), facts)
    }
}

impl Algorithm for DpC4PlusPublished {
    fn about(&self) -> About {
        About {
            name: "dp-c4-plus-published",
            reference: "the DP-C4 paper (under double-blind review), Algorithm 4, noise from Theorem 3",
            verdict: Verdict::AsPublished { problem: PROBLEM, instead: "dp-c4" },
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

    fn plan(&self, facts: &RunFacts, _: NoiseSource) -> Result<Plan, AlgorithmError> {
        self.anchor_scale.check_steps("anchor_scale", facts.steps)?;
        coupled::plan(facts, &self.anchoring(facts)?)
    }

    fn noise_formula(&self) -> Option<&'static str> {
        Some(coupled::FORMULA)
    }

    fn published_noise(&self, facts: &RunFacts) -> Result<Vec<PublishedNoise>, AlgorithmError> {
        coupled::noise(facts, &self.anchoring(facts)?)
    }

    fn start<G: Gradients>(&self, facts: &RunFacts, plan: &Plan) -> Result<Box<dyn Steps<G>>, AlgorithmError>
    where
        G::Point: 'static,
    {
        let anchoring = self.anchoring(facts)?;
        let scales = Scales { difference: self.difference_scale, anchor: self.anchor_scale.clone() };
        let estimate = PublishedEstimate::new(facts, &anchoring, scales, true)?;
        Ok(Box::new(AnchoredSteps::new(facts, plan, &anchoring, estimate)?))
    }
}
