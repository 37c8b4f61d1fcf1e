//! Coupled clipping as the DP-C4 paper prints it. Shared by `dp-c4-published` and `dp-c4-plus-published`.
//!
//! Algorithms 3 and 4, except that batches are Poisson with expected sizes `B` and `B_a` and that the random numbers of routines 1 and 3
//! are public. `C_1k = min(C, C_1 |mean difference|)`, `C_2k = min(C, C_2 |mean gradient at w|)` from raw gradients; in the + form
//! `C_1k = min(C, C_1 |x - w|)` and `C_2k` comes from the anchor of the previous step. Noise on the anchor's gradient is drawn afresh in every step, as
//! printed.

use sordino_accounting::{ClipNorm, NoiseMultiplier, Plan};
use sordino_optim::State;
use sordino_privacy::{Gradients, PrivacyError, Release, Round};

use crate::{
    AlgorithmError, PublishedNoise, RunFacts, Scale,
    anchors::{Anchoring, Estimate, anchor_gradient, anchor_state},
    clipping::{distance, norm, rule},
    published_noise::dp_c4,
};

/// Why there is no epsilon.
pub(crate) const PROBLEM: &str = "the clipping norms of DP-C4 as published come from raw gradients and set the scale of the noise, so the \
                                  noise reveals records, and where gradients vanish there is none";

/// Clipping norms below this count as zero.
const ZERO: f64 = 1e-11;

/// The options that both forms have.
#[derive(Debug, Clone)]
pub(crate) struct Scales {
    pub(crate) difference: f64,
    pub(crate) anchor: Scale,
}

/// The formula that sets the noise.
pub(crate) const FORMULA: &str = "Theorem 3 of the DP-C4 paper";

/// `sigma_1` for differences and `sigma_2` for anchors.
pub(crate) fn noise(facts: &RunFacts, anchoring: &Anchoring) -> Result<Vec<PublishedNoise>, AlgorithmError> {
    let [difference, anchor] = dp_c4(facts, facts.claimed()?, anchoring);
    Ok(vec![
        PublishedNoise::new("sigma_1", difference, difference * facts.expected_batch_size),
        PublishedNoise::new("sigma_2", anchor, anchor * anchoring.batch),
    ])
}

/// The plan of its batches, which is not priced.
pub(crate) fn plan(facts: &RunFacts, anchoring: &Anchoring) -> Result<Plan, AlgorithmError> {
    let [sigma_1, sigma_2] = dp_c4(facts, facts.claimed()?, anchoring);
    let anchor = NoiseMultiplier::new(sigma_2 * anchoring.batch)?;
    // With p = 1 in routines 3 and 4 every step moves the anchor to its own point: there are no differences, and sigma_1 is 0.
    let difference = match sigma_1 > 0.0 {
        true => vec![NoiseMultiplier::new(sigma_1 * facts.expected_batch_size)?],
        false => Vec::new(),
    };
    anchoring.plan_with(facts, &difference, anchor)
}

/// The estimate of both forms.
pub(crate) struct PublishedEstimate {
    facts: RunFacts,
    /// Whether it is the + form.
    plus: bool,
    scales: Scales,
    batch: f64,
    anchor_batch: f64,
    /// `sigma_2`.
    anchor_noise: f64,
    /// The fraction of the run that is complete after this step.
    part: f64,
    /// The length of the mean gradient at the last anchor.
    length: Option<f64>,
    /// The anchor's sum that this step uses, with its clipping norm.
    current: (Vec<f32>, f64),
    /// The anchor's sum that later steps use, if it differs.
    later: Option<(Vec<f32>, f64)>,
}

impl PublishedEstimate {
    pub(crate) fn new(
        facts: &RunFacts,
        anchoring: &Anchoring,
        scales: Scales,
        plus: bool,
    ) -> Result<Self, AlgorithmError> {
        let [_, anchor_noise] = dp_c4(facts, facts.claimed()?, anchoring);
        Ok(Self {
            facts: *facts,
            plus,
            scales,
            batch: facts.expected_batch_size,
            anchor_batch: anchoring.batch,
            anchor_noise,
            part: 0.0,
            length: None,
            current: (Vec::new(), 0.0),
            later: None,
        })
    }

    /// The sum of gradients, clipped to this norm and disclosed.
    fn clipped<G: Gradients>(
        &self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        clip: f64,
    ) -> Result<(Vec<f32>, f64), PrivacyError> {
        if clip < ZERO {
            return Ok((round.noise(0.0)?.into_inner(), 0.0));
        }
        // Without noise: the paper draws the noise of this sum in every step, and a release draws it once.
        let rule = rule(&self.facts, ClipNorm::new(clip)?)?;
        let sum = round.gradients(at).clipped_sum(&rule)?;
        let mut sum = round.disclose(sum.unbounded(), PROBLEM)?.into_inner();
        let scale = (self.batch / self.anchor_batch) as f32;
        sum.iter_mut().for_each(|value| *value *= scale);
        Ok((sum, clip))
    }
}

impl<G: Gradients> Estimate<G> for PublishedEstimate {
    fn begin(&mut self, part: f64) {
        self.part = part;
    }

    fn anchor(&mut self, round: &mut Round<'_, G>, anchor: &G::Point) -> Result<(), PrivacyError> {
        let plain = round.gradients(anchor).plain_sum()?;
        let length = norm(&round.disclose(plain, PROBLEM)?) / self.anchor_batch;
        let most = self.facts.max_grad_norm.get();
        // Where C_2 follows a schedule, an anchor keeps the C_2 of the step that evaluates it.
        let scale = self.scales.anchor.at(self.part);
        let own = most.min(scale * length);
        let later = self.clipped(round, anchor, own)?;
        if self.plus {
            // The step that moves the anchor uses the clipping norm of the previous anchor; later steps use that of the new one.
            let before = self.length.map_or(most, |length| most.min(scale * length));
            self.current = self.clipped(round, anchor, before)?;
            self.later = Some(later);
        } else {
            self.current = later;
        }
        self.length = Some(length);
        Ok(())
    }

    fn gradient(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        anchor: Option<&G::Point>,
    ) -> Result<Release<Vec<f32>>, PrivacyError> {
        let coupled = match anchor {
            None => None,
            Some(anchor) => {
                let wanted = if self.plus {
                    distance(at.as_ref(), anchor.as_ref())
                } else {
                    let plain = round.gradients(at).minus(anchor).plain_sum()?;
                    norm(&round.disclose(plain, PROBLEM)?) / self.batch
                };
                let clip = self.facts.max_grad_norm.get().min(self.scales.difference * wanted);
                match clip < ZERO {
                    true => None,
                    false => {
                        let rule = rule(&self.facts, ClipNorm::new(clip)?)?;
                        let sum = round.gradients(at).minus(anchor).clipped_sum(&rule)?;
                        Some(round.release(sum)?)
                    }
                }
            }
        };
        let noise = round.noise(self.anchor_noise * self.current.1 * self.batch)?;
        let coupled = coupled.map_or_else(|| round.noise(0.0), Ok)?;
        let estimate = coupled.plus(1.0, &self.current.0, 0.0).plus(1.0, &noise, noise.noise_std());
        if let Some(later) = self.later.take() {
            self.current = later;
        }
        Ok(estimate)
    }

    fn state(&self) -> State {
        let (sum, clip) = self.later.as_ref().unwrap_or(&self.current);
        let mut state = anchor_state(sum, &[("anchor_clip", *clip)]);
        state.numbers.extend(self.length.map(|length| ("length".to_owned(), length)));
        state
    }

    fn restore(&mut self, state: &State) {
        if let (Some(sum), Some(&clip)) = (anchor_gradient(state), state.numbers.get("anchor_clip")) {
            self.current = (sum, if clip >= 0.0 { clip.min(self.facts.max_grad_norm.get()) } else { 0.0 });
        }
        self.length = state.numbers.get("length").copied().filter(|length| *length >= 0.0);
    }
}
