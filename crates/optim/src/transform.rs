//! One transform of the chain from a noisy mean gradient to an update.

use std::fmt::Debug;

use crate::{OptimError, State};

/// Turns a gradient, in place, into the direction that is subtracted from the parameters.
///
/// # Guarantees
/// Transforms are element-wise, so the result does not depend on the number of threads.
pub(crate) trait Transform: Debug + Send + Sync {
    /// Updates the transform's state with the gradient in `update` and replaces it by the transformed one. `noise_std` is the standard
    /// deviation of the noise in each element.
    fn apply(&mut self, update: &mut [f32], noise_std: f64);

    /// Writes its state.
    fn save(&self, state: &mut State);

    /// Takes its own state out of `state`.
    fn load(&mut self, state: &mut State) -> Result<(), OptimError>;
}
