//! DiceSGD made sound: what clipping takes away is fed back in later steps.

use std::collections::BTreeMap;

use sordino_accounting::ClipNorm;
use sordino_optim::State;
use sordino_privacy::{ClipRule, Gradients, PrivacyError, Release, Round};

use crate::{Algorithm, AlgorithmError, Setting, anchored::noise_of, dp_sgd::rule};

/// Banded error feedback (Dice-C): `y_t = sum_i clip(g_i, C_1) + (1/W) sum_{l=1..W} R_{t-l} + noise`, where `R_s` is the hidden sum
/// of what was clipped away in step `s`, itself clipped to `C_r` for each record.
///
/// Departs from DiceSGD, whose hidden error has no bound on what one record does to it, in three places: residuals are clipped for
/// each record, they are forgotten after `W` steps, and a record can be sampled only in every `W + 1`-th step. So the
/// `W + 1` steps that a record touches are one release with sensitivity `sqrt(C_1^2 + C_r^2 / W)`.
///
/// **References.** Zhang et al. 2023, Algorithm 2, for error feedback; the banded form is Sordino's (`docs/algorithms.md`).
pub(crate) struct Dice {
    rule: ClipRule,
    residual: ClipRule,
}

impl Dice {
    pub(crate) fn new(setting: &Setting, residual_clip: ClipNorm) -> Result<Self, AlgorithmError> {
        Ok(Self { rule: rule(setting, setting.clip)?, residual: rule(setting, residual_clip)? })
    }
}

impl<G: Gradients> Algorithm<G> for Dice {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        _: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        let sum = round.gradients(at).banded_sum(&self.rule, &self.residual)?;
        round.release(sum).map(Some)
    }
}

/// Error feedback from releases (Dice-A): both the clipped sum and the sum of residuals are released with noise, so that the error is
/// public, and anything may be done with it: `v = a + clip(e, C_2)`, `e <- e + r - clip(e, C_2)`. Departs from DiceSGD in that residuals
/// are clipped for each record and have noise.
///
/// **References.** Zhang et al. 2023, Algorithm 2, for the update.
pub(crate) struct DiceTwoRelease {
    rule: ClipRule,
    residual: ClipRule,
    /// `C_2`, in the scale of a sum.
    feedback: f64,
    error: Vec<f32>,
    /// The standard deviation of the noise in it.
    error_noise: f64,
}

impl DiceTwoRelease {
    pub(crate) fn new(
        setting: &Setting,
        residual_clip: ClipNorm,
        feedback_clip: ClipNorm,
    ) -> Result<Self, AlgorithmError> {
        Ok(Self {
            rule: rule(setting, setting.clip)?,
            residual: rule(setting, residual_clip)?,
            feedback: feedback_clip.get() * setting.expected_batch_size,
            error: Vec::new(),
            error_noise: 0.0,
        })
    }
}

impl<G: Gradients> Algorithm<G> for DiceTwoRelease {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        _: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        let (sum, left) = round.gradients(at).clipped_and_residual_sums(&self.rule, &self.residual)?;
        let sum = round.release(sum)?;
        let left = round.release(left)?;
        self.error.resize(sum.len(), 0.0);
        let share = share(&self.error, self.feedback);
        let update = sum.plus(share, &self.error, self.error_noise);
        self.error_noise = left.noise_std().hypot(f64::from(1.0 - share) * self.error_noise);
        for (error, left) in self.error.iter_mut().zip(left.iter()) {
            *error += left - share * *error;
        }
        Ok(Some(update))
    }

    fn state(&self) -> State {
        let vectors = BTreeMap::from([("error".to_owned(), self.error.clone())]);
        State { vectors, numbers: BTreeMap::from([("error_noise".to_owned(), self.error_noise)]) }
    }

    fn restore(&mut self, state: &State) {
        if let Some(error) = state.vectors.get("error").filter(|error| error.iter().all(|e| e.is_finite())) {
            self.error.clone_from(error);
            self.error_noise = noise_of(state, "error_noise");
        }
    }
}

/// The factor that clips a public vector to this norm.
#[expect(clippy::cast_possible_truncation, reason = "a factor of at most 1")]
fn share(vector: &[f32], bound: f64) -> f32 {
    (bound / norm(vector)).min(1.0) as f32
}

/// The norm of a public vector.
pub(crate) fn norm(vector: &[f32]) -> f64 {
    vector.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt()
}
