//! DP-SVRG: variance reduction with gradients that are clipped separately.
//!
//! `g = (1/B) sum_S clip(g_i(x), C) - (1/B) sum_S clip(g_i(w), C) + (1/B_a) sum_A clip(g_i(w), C)`, each with noise. The two sums over the
//! batch are two releases of one step. Departs from Algorithm 2 of the DP-C4 paper in the anchor: its gradient comes from a batch and not from all
//! records, it is released once and kept instead of being noised again at every step, and it moves by routine 4 by default.
//!
//! With a `clip_schedule` it is DP-SVRG^TD of the paper's appendix B: `C_k` decays along the run by a public schedule. The paper has no
//! formula for `C_k` and states only that it tends to 0. An anchor is clipped to the `C_k` of the step that evaluates it.

use sordino_accounting::{Accountant, ClipNorm, NoiseMultiplier, Plan, Sampling};
use sordino_optim::State;
use sordino_privacy::{ClipRule, Gradients, PrivacyError, Release, Round};

use crate::{
    About, Algorithm, AlgorithmError, Defaults, FactorSchedule, NoiseChoice, NoiseSource, PublishedNoise,
    RunFacts, Steps, Verdict,
    anchors::{AnchoredSteps, Anchoring, Estimate, anchor_gradient, anchor_state},
    clipping::{noise_std, rule},
    options,
    plans::tightest_accountant,
    published_noise,
};

options! {
    /// Variance reduction: gradients at a point and at an anchor, clipped separately, plus the anchor's gradient from a large batch.
    pub struct DpSvrg {
        /// Expected number of records of an anchor's batch.
        anchor_batch: Option<u64> = None, as "16 batches, at most all records", in 1..=1_000_000_000_000;
        /// Probability (routines 1, 3) or frequency (2, 4) with which the anchor moves.
        update_probability: Option<f64> = None, as "2 B / anchor_batch", in 1e-6..=1.0;
        /// Where the anchor moves: to the point before the step (1 at random, 2 regularly) or after it (3 at random, 4 regularly).
        routine: u8 = 4, in 1..=4;
        /// Schedule of C_k / max_grad_norm, as fractions of the run and factors, such as 0:1/1:0.01 (DP-SVRG^TD).
        clip_schedule: Option<FactorSchedule> = None;
        /// Epochs also count the records of anchors, as in the paper.
        epochs_count_anchors: bool = false;
        /// exact: the least noise for the budget; dp-c4-paper: the noise of equation 73 of the DP-C4 paper for a claimed epsilon.
        noise: NoiseChoice = NoiseChoice::Exact;
    }
}

impl DpSvrg {
    fn anchoring(&self, facts: &RunFacts) -> Result<Anchoring, AlgorithmError> {
        Anchoring::new(self.anchor_batch, self.update_probability, Some(self.routine), facts)
    }
}

impl Algorithm for DpSvrg {
    fn about(&self) -> About {
        About {
            name: "dp-svrg",
            reference: "Lee 2017; Algorithm 2 of the DP-C4 paper (under double-blind review)",
            verdict: Verdict::Sound("with two releases in each step and anchors that are noised once"),
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
        if let Some(schedule) = &self.clip_schedule {
            schedule.check_steps("clip_schedule", facts.steps)?;
            for factor in schedule.range() {
                rule(facts, ClipNorm::new(facts.max_grad_norm.get() * factor)?)?;
            }
        }
        let anchoring = self.anchoring(facts)?;
        match &self.published_noise(facts)?[..] {
            [here, there, anchor] => {
                // With p = 1 in routines 3 and 4 there are no differences, and their noise is 0.
                let positive = [here, there].into_iter().filter(|noise| noise.noise_multiplier > 0.0);
                let differences: Result<Vec<_>, _> =
                    positive.map(|noise| NoiseMultiplier::new(noise.noise_multiplier)).collect();
                anchoring.plan_with(facts, &differences?, NoiseMultiplier::new(anchor.noise_multiplier)?)
            }
            _ => anchoring.plan(facts, noise, 2),
        }
    }

    fn noise_formula(&self) -> Option<&'static str> {
        (self.noise == NoiseChoice::DpC4Paper).then_some("equation 73 of the DP-C4 paper")
    }

    fn published_noise(&self, facts: &RunFacts) -> Result<Vec<PublishedNoise>, AlgorithmError> {
        if self.noise == NoiseChoice::Exact {
            return Ok(Vec::new());
        }
        let anchoring = self.anchoring(facts)?;
        let [here, there, anchor] = published_noise::dp_svrg(facts, facts.claimed()?, &anchoring);
        let batch = facts.expected_batch_size;
        Ok(vec![
            PublishedNoise::new("sigma_1", here, here * batch),
            PublishedNoise::new("sigma_2", there, there * batch),
            PublishedNoise::new("sigma_3", anchor, anchor * anchoring.batch),
        ])
    }

    fn notes(&self, _facts: &RunFacts, _plan: &Plan) -> Vec<String> {
        let published = (self.noise == NoiseChoice::DpC4Paper).then(|| {
            "the proved epsilon is for Sordino's dp-svrg, which draws the noise of an anchor once; it is not proved for the paper's form, which draws \
             this noise at every step"
                .to_owned()
        });
        published.into_iter().collect()
    }

    fn start<G: Gradients>(&self, facts: &RunFacts, plan: &Plan) -> Result<Box<dyn Steps<G>>, AlgorithmError>
    where
        G::Point: 'static,
    {
        let anchoring = self.anchoring(facts)?;
        let estimate = SvrgEstimate {
            facts: *facts,
            clip_schedule: self.clip_schedule.clone(),
            clip: facts.max_grad_norm.get(),
            scale: (facts.expected_batch_size / anchoring.batch) as f32,
            anchor: Vec::new(),
            anchor_noise: 0.0,
        };
        Ok(Box::new(AnchoredSteps::new(facts, plan, &anchoring, estimate)?))
    }
}

struct SvrgEstimate {
    facts: RunFacts,
    clip_schedule: Option<FactorSchedule>,
    /// The clipping norm of this step.
    clip: f64,
    /// `B / B_a`.
    scale: f32,
    anchor: Vec<f32>,
    anchor_noise: f64,
}

impl SvrgEstimate {
    fn rule(&self) -> Result<ClipRule, PrivacyError> {
        rule(&self.facts, ClipNorm::new(self.clip)?)
    }
}

impl<G: Gradients> Estimate<G> for SvrgEstimate {
    fn begin(&mut self, part: f64) {
        let factor = self.clip_schedule.as_ref().map_or(1.0, |schedule| schedule.at(part));
        self.clip = self.facts.max_grad_norm.get() * factor;
    }

    fn anchor(&mut self, round: &mut Round<'_, G>, anchor: &G::Point) -> Result<(), PrivacyError> {
        let sum = round.gradients(anchor).clipped_sum(&self.rule()?)?;
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
            return Ok(round.noise(0.0)?.plus(1.0, &self.anchor, self.anchor_noise));
        };
        let rule = self.rule()?;
        let here = round.gradients(at).clipped_sum(&rule)?;
        let here = round.release(here)?;
        let there = round.gradients(anchor).clipped_sum(&rule)?;
        let there = round.release(there)?;
        Ok(here.plus(-1.0, &there, there.noise_std()).plus(1.0, &self.anchor, self.anchor_noise))
    }

    fn state(&self) -> State {
        anchor_state(&self.anchor, &[("anchor_noise", self.anchor_noise)])
    }

    fn restore(&mut self, state: &State) {
        self.anchor = anchor_gradient(state).unwrap_or_default();
        self.anchor_noise = noise_std(state, "anchor_noise");
    }
}
