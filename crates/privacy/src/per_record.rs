//! The per-record gradients of a round, and the sums that can be made of them.

use crate::{
    Bounded, ClipRule, Gradients, NormStatistic, PrivacyError, RecordGradient, Round, Sensitive,
    clip::total_norm, sensitive::Brand,
};

/// The gradients of a round's batch, record by record. They are computed when a sum is asked for, chunk by chunk, and
/// never leave the engine.
#[must_use = "ask for a sum"]
pub struct PerRecord<'a, 'r, G: Gradients> {
    pub(crate) round: &'a mut Round<'r, G>,
    pub(crate) at: &'a G::Point,
    pub(crate) anchor: Option<&'a G::Point>,
}

impl<'a, 'r, G: Gradients> PerRecord<'a, 'r, G> {
    /// Each record's gradient minus its gradient at the anchor. It is this difference that a rule bounds.
    pub fn minus(self, anchor: &'a G::Point) -> Self {
        Self { anchor: Some(anchor), ..self }
    }

    /// The sum of all gradients, each bounded by the rule: a sum, never divided by the size of the batch.
    ///
    /// **Guarantees.** Adding or removing one record moves it by at most [`ClipRule::sensitivity`].
    ///
    /// **Edge cases.** An empty batch sums to zero. A record whose gradient is not finite adds nothing.
    ///
    /// # Errors
    /// A rule with norms for another number of layers; the engine's own.
    pub fn clipped_sum(self, rule: &ClipRule) -> Result<Bounded<'r>, PrivacyError> {
        let layers = self.round.layers();
        rule.fits(layers)?;
        let value = self.pass(Some(&|record: &mut dyn RecordGradient| rule.weigh(record, layers)))?;
        Ok(Bounded { value, sensitivity: rule.sensitivity(), of_parameters: true })
    }

    /// The same sum, and in the same pass a statistic of the norms before they are bounded. Each is a release of its own: the
    /// plan has a multiplier for both.
    ///
    /// # Errors
    /// As [`clipped_sum`](Self::clipped_sum); more records than counts are exact for.
    pub fn clipped_sum_and(
        self,
        rule: &ClipRule,
        statistic: &NormStatistic,
    ) -> Result<(Bounded<'r>, Bounded<'r>), PrivacyError> {
        let layers = self.round.layers();
        rule.fits(layers)?;
        statistic.fits(self.round.records())?;
        let counters = statistic.begin();
        let value = self.pass(Some(&|record: &mut dyn RecordGradient| {
            statistic.count(total_norm(record, layers), &counters);
            rule.weigh(record, layers);
        }))?;
        let counted = Sensitive { value: statistic.end(&counters), brand: Brand::default() };
        Ok((
            Bounded { value, sensitivity: rule.sensitivity(), of_parameters: true },
            Bounded { value: counted, sensitivity: statistic.sensitivity(), of_parameters: false },
        ))
    }

    /// The sum of all gradients as they are. No bound is known, so it can only be [disclosed](Round::disclose).
    ///
    /// # Errors
    /// The engine's own.
    pub fn plain_sum(self) -> Result<Sensitive<'r, Vec<f32>>, PrivacyError> {
        self.pass(None)
    }

    fn pass(self, weigh: Option<&crate::Weigh<'_>>) -> Result<Sensitive<'r, Vec<f32>>, PrivacyError> {
        let value = self.round.pass(self.at, self.anchor, weigh)?;
        Ok(Sensitive { value, brand: Brand::default() })
    }
}
