//! DiceSGD as published.

use serde::{Deserialize, Serialize};
use sordino_accounting::{
    ClipNorm, Delta, Entry, Epsilon, NoiseMultiplier, Plan, Sampling, calibrate::Budget,
};
use sordino_privacy::{ClipRule, Gradients, PrivacyError, Release, Round};

use crate::{Algorithm, AlgorithmError, Setting, dp_sgd::rule, plan::poisson_rate};

/// The options of `dice-published`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DicePublishedOptions {
    /// Which thresholds go with the claimed epsilon.
    #[serde(default)]
    pub thresholds: Thresholds,
    /// Whether gradients and error are normalised in place of clipped (Algorithm 4).
    #[serde(default)]
    pub automatic: bool,
}

/// Thresholds of DiceSGD, given `C`, which is `max_grad_norm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Thresholds {
    /// `C_1 = C_2 = C`, as in the paper's experiments.
    #[default]
    Experiments,
    /// `C_1 = C_2 = C / B`, as its theorem asks for.
    Theorem,
}

/// `v = (1/B) sum_i clip(g_i, C_1) + clip(e, C_2)`, `x <- x - eta (v + noise)`, `e <- e + (1/B) sum_i g_i - v`.
///
/// The error is hidden and has no noise, and one record can move it for ever: the claimed epsilon is false. Departs from Alg. 2 in that
/// batches are Poisson and `B` is their expected size.
///
/// **References.** Zhang et al. 2023, Algorithms 2, 3 (any optimizer of ours takes the place of its Adam) and 4; noise from
/// Theorem 3.8 and, for the thresholds of the experiments, from its automatic form.
pub(crate) struct DicePublished {
    rule: ClipRule,
    /// The threshold of the error, in the scale of a sum.
    threshold: f64,
    automatic: bool,
    noise_std: f64,
    error: Vec<f64>,
}

/// Why a run states no guarantee.
pub(crate) const ERROR_LEAKS: &str =
    "DiceSGD as published adds noise to what it releases but not to the error it feeds back";

/// What the trusted base keeps free for rounding; kept free here too, so that gradients and errors are clipped alike.
const ROOM: f64 = 1.0 / 1024.0;

impl DicePublishedOptions {
    /// `C_1`, which equals `C_2`.
    fn clip(self, setting: &Setting) -> f64 {
        match self.thresholds {
            Thresholds::Experiments => setting.clip.get(),
            Thresholds::Theorem => setting.clip.get() / setting.expected_batch_size,
        }
    }

    /// The rule of the clipped sum.
    pub(crate) fn rule(self, setting: &Setting) -> Result<ClipRule, AlgorithmError> {
        let gradients = rule(setting, ClipNorm::new(self.clip(setting))?)?;
        Ok(if self.automatic { gradients.normalising(0.0)? } else { gradients })
    }

    /// The plan whose noise the paper claims to be enough.
    pub(crate) fn plan(self, setting: &Setting, claim: Budget) -> Result<Plan, AlgorithmError> {
        let (clip, batch) = (self.clip(setting), setting.expected_batch_size);
        let sigma = claimed_noise(setting, claim, clip);
        let z = NoiseMultiplier::new(sigma * batch / clip)?;
        let sampling = Sampling::Poisson { rate: poisson_rate(setting, "dice-published")?, cap: None };
        Ok(Plan::new(vec![Entry::new(sampling, vec![z], setting.steps)?]))
    }
}

/// `sigma_1^2 = 32 T (C_1^2 + 2 C^2) ln(1/delta) / (N epsilon)^2`, on the mean.
#[expect(clippy::cast_precision_loss, reason = "counts")]
fn claimed_noise(setting: &Setting, Budget { epsilon, delta }: Budget, clip: f64) -> f64 {
    let (steps, records) = (setting.steps.get() as f64, setting.records as f64);
    let squares = clip * clip + 2.0 * setting.clip.get().powi(2);
    (32.0 * steps * squares * log_inverse(delta)).sqrt() / (records * positive(epsilon))
}

/// `ln(1 / delta)`.
pub(crate) fn log_inverse(delta: Delta) -> f64 {
    -delta.get().ln()
}

/// An epsilon to divide by.
pub(crate) fn positive(epsilon: Epsilon) -> f64 {
    epsilon.get().max(1e-9)
}

impl DicePublished {
    pub(crate) fn new(setting: &Setting, options: DicePublishedOptions) -> Result<Self, AlgorithmError> {
        let (clip, batch) = (options.clip(setting), setting.expected_batch_size);
        Ok(Self {
            rule: options.rule(setting)?,
            threshold: clip * batch,
            automatic: options.automatic,
            noise_std: claimed_noise(setting, setting.claimed()?, clip) * batch,
            error: Vec::new(),
        })
    }
}

impl<G: Gradients> Algorithm<G> for DicePublished {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        _: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        let clipped = round.gradients(at).clipped_sum(&self.rule)?.unbounded();
        let clipped = round.disclose(clipped, ERROR_LEAKS)?;
        let plain = round.gradients(at).plain_sum()?;
        let plain = round.disclose(plain, ERROR_LEAKS)?;
        let sum = self.feed_back(&clipped, &plain);
        let noise = round.noise(self.noise_std);
        Ok(Some(noise.plus(1.0, &sum, 0.0)))
    }
}

impl DicePublished {
    /// `y = s + clip(e)` and `e <- e + g - y`, where `s` is the clipped sum and `g` the plain one.
    #[expect(clippy::cast_possible_truncation, reason = "rounded")]
    fn feed_back(&mut self, clipped: &[f32], plain: &[f32]) -> Vec<f32> {
        self.error.resize(clipped.len(), 0.0);
        let norm = self.error.iter().map(|e| e.powi(2)).sum::<f64>().sqrt();
        let most = self.threshold * (1.0 - ROOM) / norm;
        // An error of 0 has no direction to be scaled in.
        let weight = match norm > 0.0 {
            true => most.min(if self.automatic { f64::INFINITY } else { 1.0 }),
            false => 0.0,
        };
        let mut sum = Vec::with_capacity(clipped.len());
        for ((clipped, plain), error) in clipped.iter().zip(plain).zip(&mut self.error) {
            let fed = f64::from(*clipped) + weight * *error;
            *error += f64::from(*plain) - fed;
            sum.push(fed as f32);
        }
        sum
    }
}
