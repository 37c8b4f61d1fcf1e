//! DP-C4 and DP-C4+ as published.

use sordino_accounting::{ClipNorm, NoiseMultiplier, Plan, calibrate::Budget};
use sordino_optim::State;
use sordino_privacy::{Gradients, PrivacyError, Release, Round};

use crate::{
    AlgorithmError, Setting,
    anchored::{Anchoring, Estimate, kept, taken},
    dice::norm,
    dice_published::{log_inverse, positive},
    dp_c4::distance,
    dp_sgd::rule,
};

/// Why there is no epsilon.
pub const THRESHOLDS_LEAK: &str = "DP-C4 as published: its thresholds come from raw gradients and set the scale of the noise, so that \
                                   the noise itself tells about records, and where gradients vanish there is none";

/// Thresholds below this count as none.
const NOTHING: f64 = 1e-11;

/// Algorithms 3 and 4 as printed, but that batches are Poisson with expected sizes `B` and `B_a`, and coins of routines 1 and 3 public.
///
/// `C_1k = min(C, C_1 |mean difference|)`, `C_2k = min(C, C_2 |mean gradient at w|)` from raw gradients; in the + form
/// `C_1k = min(C, C_1 |x - w|)` and `C_2k` from the anchor one step before. Noise on the anchor's gradient is drawn afresh in every
/// step, as printed.
pub(crate) struct DpC4Published {
    setting: Setting,
    plus: bool,
    scales: (f64, f64),
    batch: f64,
    anchor_batch: f64,
    /// `sigma_2`.
    anchor_noise: f64,
    /// The length of the mean gradient at the last anchor.
    length: Option<f64>,
    /// The sum that this step uses and its threshold; those that later steps use, if they differ.
    current: (Vec<f32>, f64),
    later: Option<(Vec<f32>, f64)>,
}

/// `(sigma_1, sigma_2)` of Theorem 3: what the paper claims to be enough, on means, in thresholds.
#[expect(clippy::cast_precision_loss, reason = "a count of steps")]
fn claimed_noise(setting: &Setting, anchoring: &Anchoring, claim: Budget) -> (f64, f64) {
    let (epsilon, steps) = (positive(claim.epsilon), setting.steps.get() as f64);
    let batch = setting.expected_batch_size;
    let variance = 4.0 * steps * (2.0 * log_inverse(claim.delta) + epsilon) / (batch * epsilon).powi(2);
    let (p, theta) = (anchoring.probability, (anchoring.batch / batch).powi(2));
    let (first, second) = match anchoring.routine {
        1 | 2 => (1.0 + (p / theta).sqrt(), p / theta + (p / theta).sqrt()),
        _ => {
            let mixed = (p * (1.0 - p) / theta).sqrt();
            (1.0 - p + mixed, p / theta + mixed)
        }
    };
    ((first * variance).sqrt(), (second * variance).sqrt())
}

/// The plan of its batches. Nobody prices it.
pub(crate) fn plan(setting: &Setting, anchoring: &Anchoring, claim: Budget) -> Result<Plan, AlgorithmError> {
    let (sigma_1, _) = claimed_noise(setting, anchoring, claim);
    let z = NoiseMultiplier::new(sigma_1 * setting.expected_batch_size)?;
    anchoring.plan(setting, &[z], z)
}

impl DpC4Published {
    pub(crate) fn new(
        setting: &Setting,
        anchoring: &Anchoring,
        scales: (f64, f64),
        claim: Budget,
        plus: bool,
    ) -> Self {
        let (_, anchor_noise) = claimed_noise(setting, anchoring, claim);
        Self {
            setting: *setting,
            plus,
            scales,
            batch: setting.expected_batch_size,
            anchor_batch: anchoring.batch,
            anchor_noise,
            length: None,
            current: (Vec::new(), 0.0),
            later: None,
        }
    }

    /// The sum of gradients, clipped to this norm and known to everybody.
    fn clipped<G: Gradients>(
        &self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        clip: f64,
    ) -> Result<(Vec<f32>, f64), PrivacyError> {
        if clip < NOTHING {
            return Ok((round.noise(0.0).into_inner(), 0.0));
        }
        // Without noise of its own: a release would be noised once, and the paper draws it in every step.
        let rule = rule(&self.setting, ClipNorm::new(clip)?)?;
        let sum = round.gradients(at).clipped_sum(&rule)?;
        let mut sum = round.disclose(sum.unbounded(), THRESHOLDS_LEAK)?.into_inner();
        #[expect(clippy::cast_possible_truncation, reason = "a ratio of batch sizes")]
        let scale = (self.batch / self.anchor_batch) as f32;
        sum.iter_mut().for_each(|value| *value *= scale);
        Ok((sum, clip))
    }
}

impl<G: Gradients> Estimate<G> for DpC4Published {
    fn anchor(&mut self, round: &mut Round<'_, G>, anchor: &G::Point) -> Result<(), PrivacyError> {
        let plain = round.gradients(anchor).plain_sum()?;
        let length = norm(&round.disclose(plain, THRESHOLDS_LEAK)?) / self.anchor_batch;
        let most = self.setting.clip.get();
        let own = most.min(self.scales.1 * length);
        let later = self.clipped(round, anchor, own)?;
        if self.plus {
            // The step that moves the anchor has the threshold of the one before; later steps have its own.
            let before = self.length.map_or(most, |length| most.min(self.scales.1 * length));
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
                    norm(&round.disclose(plain, THRESHOLDS_LEAK)?) / self.batch
                };
                let clip = self.setting.clip.get().min(self.scales.0 * wanted);
                match clip < NOTHING {
                    true => None,
                    false => {
                        let rule = rule(&self.setting, ClipNorm::new(clip)?)?;
                        let sum = round.gradients(at).minus(anchor).clipped_sum(&rule)?;
                        Some(round.release(sum)?)
                    }
                }
            }
        };
        let noise = round.noise(self.anchor_noise * self.current.1 * self.batch);
        let estimate = coupled.unwrap_or_else(|| round.noise(0.0)).plus(1.0, &self.current.0, 0.0).plus(
            1.0,
            &noise,
            noise.noise_std(),
        );
        if let Some(later) = self.later.take() {
            self.current = later;
        }
        Ok(estimate)
    }

    fn state(&self) -> State {
        let (sum, clip) = self.later.as_ref().unwrap_or(&self.current);
        let mut state = kept(sum, &[("anchor_clip", *clip)]);
        state.numbers.extend(self.length.map(|length| ("length".to_owned(), length)));
        state
    }

    fn restore(&mut self, state: &State) {
        if let (Some(sum), Some(&clip)) = (taken(state), state.numbers.get("anchor_clip")) {
            self.current = (sum, if clip >= 0.0 { clip.min(self.setting.clip.get()) } else { 0.0 });
        }
        self.length = state.numbers.get("length").copied().filter(|length| *length >= 0.0);
    }
}
