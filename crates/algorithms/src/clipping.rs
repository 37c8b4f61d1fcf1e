//! Clipping rules and small pieces of vector arithmetic that several algorithms share.

use sordino_accounting::ClipNorm;
use sordino_optim::State;
use sordino_privacy::{ClipRule, Gradients, PrivacyError, Release, Round};

use crate::{RunFacts, Steps};

/// Clips the whole gradient to this norm, or each of `L` layers to `C / sqrt(L)`.
pub(crate) fn rule(facts: &RunFacts, clip: ClipNorm) -> Result<ClipRule, PrivacyError> {
    match facts.layers {
        None => ClipRule::flat(clip),
        Some(layers) => {
            let share = ClipNorm::new(clip.get() / (layers as f64).sqrt())?;
            ClipRule::per_layer(&vec![share; layers])
        }
    }
}

/// Steps that release one sum by the same rule: `sum_i w(|g_i|) g_i + z C N`.
pub(crate) struct OneSum(pub(crate) ClipRule);

impl<G: Gradients> Steps<G> for OneSum {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        _: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        let sum = round.gradients(at).clipped_sum(&self.0)?;
        round.release(sum).map(Some)
    }

    fn state(&self) -> State {
        State::default()
    }

    fn restore(&mut self, _: &State) {}
}

/// Rescales a sum that was clipped to `clip` to the first clipping norm, so that steps keep their length when the norm adapts.
pub(crate) fn unit_step(sum: Release<Vec<f32>>, clip: f64, facts: &RunFacts) -> Release<Vec<f32>> {
    sum.scaled((facts.max_grad_norm.get() / clip) as f32)
}

/// Keeps an adaptive clipping norm within a factor of a million of the first one, and within the range of single precision.
pub(crate) fn usable(clip: f64, facts: &RunFacts) -> f64 {
    let unit = facts.max_grad_norm.get();
    clip.clamp(1e-6 * unit, 1e6 * unit).clamp(1e-9, 1e9)
}

/// The norm of a public vector.
pub(crate) fn norm(vector: &[f32]) -> f64 {
    vector.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt()
}

/// The distance of two public points.
pub(crate) fn distance(one: &[f32], other: &[f32]) -> f64 {
    one.iter().zip(other).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>().sqrt()
}

/// A positive finite number of a checkpoint; none if there is no such number.
pub(crate) fn positive_number(state: &State, name: &str) -> Option<f64> {
    state.numbers.get(name).copied().filter(|value| value.is_finite() && *value > 0.0)
}

/// A standard deviation of a checkpoint; 0 if there is no usable one.
pub(crate) fn noise_std(state: &State, name: &str) -> f64 {
    positive_number(state, name).unwrap_or(0.0)
}

/// A vector of a checkpoint; none if it is missing or not finite.
pub(crate) fn finite_vector(state: &State, name: &str) -> Option<Vec<f32>> {
    state.vectors.get(name).filter(|vector| vector.iter().all(|value| value.is_finite())).cloned()
}
