//! Plain SGD, to compare with.

use sordino_privacy::{Gradients, PrivacyError, Release, Round};

use crate::Algorithm;

/// Why plain training is not private.
pub const PLAIN: &str = "plain training: gradients are used as they are, without clipping and without noise";

/// The sum of gradients as they are.
pub(crate) struct Plain;

impl<G: Gradients> Algorithm<G> for Plain {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        _: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        let sum = round.gradients(at).plain_sum()?;
        round.disclose(sum, PLAIN).map(Some)
    }
}
