//! The per-record gradients of a round, and the sums that can be made of them.

use crate::{
    Bounded, ClipRule, Gradients, NormStatistic, PrivacyError, Round, Sensitive, Sum, WeightRule,
    clip::total_norm,
    sensitive::{Brand, Kind},
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
    /// **Guarantees.** Adding or removing one record moves it by at most [`ClipRule::sensitivity`] plus the effect of rounding
    /// ([`Gradients::rounding`]); [`Bounded::sensitivity`] includes both.
    ///
    /// **Edge cases.** An empty batch sums to zero. A record whose gradient is not finite adds nothing.
    ///
    /// # Errors
    /// A rule with norms for another number of layers; the engine's own.
    pub fn clipped_sum(mut self, rule: &ClipRule) -> Result<Bounded<'r>, PrivacyError> {
        let ([sum], [moved]) = self.pass([rule], &|norms, weights| rule.weigh(norms, weights))?;
        Ok(bounded(sum.values, moved, Kind::Gradients))
    }

    /// The same sum, and in the same pass a statistic of the norms before they are bounded. Each is a release of its own: the
    /// plan has a multiplier for both.
    ///
    /// # Errors
    /// As [`clipped_sum`](Self::clipped_sum).
    pub fn clipped_sum_and(
        mut self,
        rule: &ClipRule,
        statistic: &NormStatistic,
    ) -> Result<(Bounded<'r>, Bounded<'r>), PrivacyError> {
        let counters = statistic.begin();
        let ([sum], [moved]) = self.pass([rule], &|norms, weights| {
            statistic.count(total_norm(norms), &counters);
            rule.weigh(norms, weights);
        })?;
        Ok((
            bounded(sum.values, moved, Kind::Gradients),
            bounded(statistic.end(&counters), statistic.sensitivity(), Kind::Counts),
        ))
    }

    /// The same sum, and in the same pass the sum of what the rule leaves of each gradient, bounded by `residual`: a gradient
    /// clipped to `C_1` leaves one in the same direction, clipped to `C_r`. Each is a release of its own.
    ///
    /// # Errors
    /// As [`clipped_sum`](Self::clipped_sum).
    pub fn clipped_and_residual_sums(
        mut self,
        rule: &ClipRule,
        residual: &ClipRule,
    ) -> Result<(Bounded<'r>, Bounded<'r>), PrivacyError> {
        let ([sum, left], [moved, left_moved]) = self.with_residual(rule, residual)?;
        Ok((bounded(sum.values, moved, Kind::Gradients), bounded(left.values, left_moved, Kind::Gradients)))
    }

    /// Banded error feedback: the clipped sum plus the mean of the residual sums of the last `W` steps, which stay hidden in the
    /// vault: `sum_i clip(g_i, C_1) + (1/W) sum_{l=1..W} R_{t-l}`.
    ///
    /// For plans that [sample groups in turn](sordino_accounting::Sampling::Rotating), `W + 1` of them. It is the one release of its
    /// step, with the same rules from the first step to the last.
    ///
    /// **Guarantees.** Adding or removing one record moves the releases of the `W + 1` steps from the one that samples it on,
    /// together, by at most `sqrt(C_1^2 + C_r^2 / W)`, and no others.
    ///
    /// # Errors
    /// As [`clipped_sum`](Self::clipped_sum); a plan of another kind; other rules than before.
    pub fn banded_sum(mut self, rule: &ClipRule, residual: &ClipRule) -> Result<Bounded<'r>, PrivacyError> {
        let ([mut sum, left], moved) = self.with_residual(rule, residual)?;
        let (kind, sensitivity) = self.round.feed_band((rule, residual), moved, &mut sum.values, &left)?;
        Ok(bounded(sum.values, sensitivity, kind))
    }

    /// The sum of all gradients as they are. No bound is known, so it can only be [disclosed](Round::disclose).
    ///
    /// # Errors
    /// The engine's own.
    pub fn plain_sum(self) -> Result<Sensitive<'r, Vec<f32>>, PrivacyError> {
        let mut sums = [Sum::default()];
        self.round.pass(self.at, self.anchor, None, &mut sums)?;
        let [sum] = sums;
        Ok(Sensitive { value: sum.values, brand: Brand::default() }.narrow())
    }

    fn with_residual(
        &mut self,
        rule: &ClipRule,
        residual: &ClipRule,
    ) -> Result<([Sum; 2], [f64; 2]), PrivacyError> {
        self.pass([rule, residual], &|norms, weights| rule.weigh_with_residual(residual, norms, weights))
    }

    /// Sums that these rules bound, and how far each can move when one record is removed: by the sensitivity of the rule, by rounding
    /// while the engine adds up, and by six roundings of a vector to the sum's lattice, each of which moves it by at most
    /// `step sqrt(d) / 2`.
    fn pass<const SUMS: usize>(
        &mut self,
        rules: [&ClipRule; SUMS],
        weights: &WeightRule<'_>,
    ) -> Result<([Sum; SUMS], [f64; SUMS]), PrivacyError> {
        let layers = self.round.layers();
        rules.iter().try_for_each(|rule| rule.fits(layers))?;
        let rounding = self.round.rounding(self.anchor.is_some())?;
        let records = self.round.records();
        let mut sums =
            rules.map(|rule| Sum { step: Sum::step_for(rule.sensitivity(), records), values: Vec::new() });
        self.round.pass(self.at, self.anchor, Some(weights), &mut sums)?;
        #[expect(clippy::cast_precision_loss, reason = "a count")]
        let moved = std::array::from_fn(|index| {
            let Sum { step, values } = &sums[index];
            rules[index].sensitivity() * (1.0 + rounding) + 3.0 * step * (values.len() as f64).sqrt()
        });
        Ok((sums, moved))
    }
}

fn bounded<'r>(value: Vec<f64>, sensitivity: f64, kind: Kind) -> Bounded<'r> {
    Bounded { value: Sensitive { value, brand: Brand::default() }, sensitivity, kind }
}
