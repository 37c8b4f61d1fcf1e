//! A link of the chain from a noisy mean gradient to an update.

use std::fmt::Debug;

use crate::{OptimError, State};

/// Turns a gradient, in place, into the direction that is subtracted from the parameters.
///
/// # Guarantees
/// Works element by element, so the result does not depend on the number of threads.
pub(crate) trait Transform: Debug + Send + Sync {
    /// Remembers `update` and replaces it. `noise_std` is the standard deviation of the noise in each of its elements.
    fn apply(&mut self, update: &mut [f32], noise_std: f64);

    /// Writes the memory.
    fn save(&self, state: &mut State);

    /// Takes its own memory out of `state`.
    fn load(&mut self, state: &mut State) -> Result<(), OptimError>;
}
