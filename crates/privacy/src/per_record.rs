//! The per-record gradients of a round, and the sums that can be made of them.

use crate::{Bounded, ClipRule, Gradients, PrivacyError, Round, Sensitive, sensitive::Brand};

/// The gradients of a round's batch, record by record. They are computed when a sum is asked for, chunk by chunk, and
/// never leave the engine.
#[must_use = "ask for a sum"]
pub struct PerRecord<'a, 'r, G: Gradients> {
    pub(crate) round: &'a mut Round<'r, G>,
    pub(crate) at: &'a G::Point,
}

impl<'r, G: Gradients> PerRecord<'_, 'r, G> {
    /// The sum of all gradients, each bounded by the rule: a sum, never divided by the size of the batch.
    ///
    /// **Guarantees.** Adding or removing one record moves it by at most [`ClipRule::sensitivity`].
    ///
    /// **Edge cases.** An empty batch sums to zero. A record whose gradient is not finite adds nothing.
    ///
    /// # Errors
    /// A rule with norms for another number of layers; the engine's own.
    pub fn clipped_sum(self, rule: &ClipRule) -> Result<Bounded<'r, Vec<f32>>, PrivacyError> {
        let layers = self.round.layers();
        rule.fits(layers)?;
        let value = self.round.pass(self.at, Some(&|record| rule.weigh(record, layers)))?;
        let value = Sensitive { value, brand: Brand::default() };
        Ok(Bounded { value, sensitivity: rule.sensitivity() })
    }

    /// The sum of all gradients as they are. No bound is known, so it can only be [disclosed](Round::disclose).
    ///
    /// # Errors
    /// The engine's own.
    pub fn plain_sum(self) -> Result<Sensitive<'r, Vec<f32>>, PrivacyError> {
        let value = self.round.pass(self.at, None)?;
        Ok(Sensitive { value, brand: Brand::default() })
    }
}
