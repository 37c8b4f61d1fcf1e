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
    feedback: ClipRule,
}

impl DicePublishedOptions {
    /// `C_1`, which equals `C_2`.
    fn clip(self, setting: &Setting) -> f64 {
        match self.thresholds {
            Thresholds::Experiments => setting.clip.get(),
            Thresholds::Theorem => setting.clip.get() / setting.expected_batch_size,
        }
    }

    /// The rules of the clipped sum and of the fed back error, in the scale of a sum.
    pub(crate) fn rules(self, setting: &Setting) -> Result<(ClipRule, ClipRule), AlgorithmError> {
        let clip = self.clip(setting);
        let gradients = rule(setting, ClipNorm::new(clip)?)?;
        let error = ClipRule::flat(ClipNorm::new(clip * setting.expected_batch_size)?)?;
        Ok(match self.automatic {
            false => (gradients, error),
            true => (gradients.normalising(0.0)?, error.normalising(0.0)?),
        })
    }

    /// The plan whose noise the paper claims to be enough.
    pub(crate) fn plan(self, setting: &Setting, claim: Budget) -> Result<Plan, AlgorithmError> {
        let (clip, batch) = (self.clip(setting), setting.expected_batch_size);
        let sigma = claimed_noise(setting, claim, clip);
        let z = NoiseMultiplier::new(sigma * batch / clip)?;
        let sampling = Sampling::Stateful {
            rate: poisson_rate(setting, "dice-published")?,
            later_shift: (clip + 2.0 * batch * clip) / clip,
        };
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
        let (rule, feedback) = options.rules(setting)?;
        Ok(Self { rule, feedback })
    }
}

impl<G: Gradients> Algorithm<G> for DicePublished {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        _: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        let sum = round.gradients(at).fed_back_sum(&self.rule, &self.feedback)?;
        round.release(sum).map(Some)
    }
}
