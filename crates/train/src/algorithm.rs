//! What a step releases.

use sordino_privacy::{ClipRule, Gradients, PrivacyError, Release, Round};

/// Why plain training is not private.
pub const PLAIN: &str = "plain training: gradients are used as they are, without clipping and without noise";

/// An algorithm for private training, or the plain one to compare with.
#[derive(Debug, Clone, PartialEq)]
pub enum Algorithm {
    /// DP-SGD: the sum of clipped gradients with Gaussian noise (Abadi et al. 2016, Algorithm 1).
    DpSgd {
        /// How gradients are clipped.
        rule: ClipRule,
    },
    /// Plain SGD on Poisson batches. Not private.
    Plain,
}

impl Algorithm {
    /// One step: the sum of gradients that the optimizer will see.
    ///
    /// # Errors
    /// As the trusted base has them.
    pub fn step<G: Gradients>(
        &self,
        round: &mut Round<'_, G>,
        at: &G::Point,
    ) -> Result<Release<Vec<f32>>, PrivacyError> {
        match self {
            Self::DpSgd { rule } => {
                let sum = round.gradients(at).clipped_sum(rule)?;
                round.release(sum)
            }
            Self::Plain => {
                let sum = round.gradients(at).plain_sum()?;
                round.disclose(sum, PLAIN)
            }
        }
    }
}
