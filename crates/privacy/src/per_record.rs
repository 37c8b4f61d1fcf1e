//! The per-record gradients of a round, and the sums that can be computed from them.

use crate::{
    Bounded, ClipRule, Coefficients, Gradients, NormStatistic, PrivacyError, Round, Sensitive, Sum,
    WeightRule,
    clip::total_norm,
    memory::Spread,
    sensitive::{Brand, SumKind},
};

/// The per-record gradients of a round's batch. They are computed chunk by chunk when a sum is requested, and never leave the engine.
#[must_use = "nothing is computed before a sum is requested"]
pub struct PerRecord<'a, 'r, G: Gradients> {
    pub(crate) round: &'a mut Round<'r, G>,
    pub(crate) at: &'a G::Point,
    pub(crate) anchor: Option<&'a G::Point>,
}

impl<'a, 'r, G: Gradients> PerRecord<'a, 'r, G> {
    /// Each record's gradient minus its gradient at the anchor. Rules then bound this difference.
    pub fn minus(self, anchor: &'a G::Point) -> Self {
        Self { anchor: Some(anchor), ..self }
    }

    /// The sum of all gradients, each bounded by the rule. It is not divided by the size of the batch.
    ///
    /// **Guarantees.** Adding or removing one record moves it by at most [`ClipRule::sensitivity`] plus the effect of rounding
    /// ([`Gradients::rounding`]); [`Bounded::sensitivity`] includes both.
    ///
    /// **Edge cases.** An empty batch sums to zero. A record whose gradient is not finite adds nothing.
    ///
    /// # Errors
    /// A rule with norms for another number of layers; errors of the engine; a sum that is not finite.
    pub fn clipped_sum(mut self, rule: &ClipRule) -> Result<Bounded<'r>, PrivacyError> {
        let ([sum], [moved]) = self.pass([rule], &|norms, weights| rule.weigh(norms, weights))?;
        Ok(bounded(sum.values, moved, SumKind::Gradients))
    }

    /// The same sum, and from the same pass a statistic of the norms before clipping. Each is a separate release with its own
    /// multiplier in the plan.
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
        let mut counts = statistic.end(&counters);
        self.round.sum_over_ranks(&mut counts)?;
        Ok((
            bounded(sum.values, moved, SumKind::Gradients),
            bounded(counts, statistic.sensitivity(), SumKind::Counts),
        ))
    }

    /// The same sum, and from the same pass the sum of the residuals: what the rule removes from each gradient, bounded by `residual`. The
    /// residual of a gradient has the same direction and is clipped to `C_r`. Each is a separate release.
    ///
    /// # Errors
    /// As [`clipped_sum`](Self::clipped_sum).
    pub fn clipped_and_residual_sums(
        mut self,
        rule: &ClipRule,
        residual: &ClipRule,
    ) -> Result<(Bounded<'r>, Bounded<'r>), PrivacyError> {
        let ([sum, left], [moved, left_moved]) = self.with_residual(rule, residual)?;
        Ok((
            bounded(sum.values, moved, SumKind::Gradients),
            bounded(left.values, left_moved, SumKind::Gradients),
        ))
    }

    /// Banded error feedback: the clipped sum plus the mean of the residual sums of the last `W` steps, which the vault keeps
    /// hidden: `sum_i clip(g_i, C_1) + (1/W) sum_{l=1..W} R_{t-l}`.
    ///
    /// It needs a plan that [samples `W + 1` groups in turn](sordino_accounting::Sampling::Rotating). It is the only release of its
    /// step. The rules are the same from the first step to the last.
    ///
    /// **Guarantees.** Adding or removing one record moves the `W + 1` releases that begin with the step that samples it, together, by
    /// at most `sqrt(C_1^2 + C_r^2 / W)`. It does not move any other release.
    ///
    /// # Errors
    /// As [`clipped_sum`](Self::clipped_sum); a plan of another kind; rules that differ from those of earlier steps.
    pub fn banded_sum(mut self, rule: &ClipRule, residual: &ClipRule) -> Result<Bounded<'r>, PrivacyError> {
        let (mut sums, sensitivities) = self.with_residual(rule, residual)?;
        let spread = Spread::Feedback { rules: [rule.clone(), residual.clone()], sensitivities };
        let (kind, sensitivity) = self.round.combine_with_memory(spread, &mut sums)?;
        let [sum, _] = sums;
        Ok(bounded(sum.values, sensitivity, kind))
    }

    /// A sum over the last `b` steps, for noise that is correlated from step to step: `c_0 x_t + sum_{j=1..b-1} c_j x_{t-j}`, where
    /// `x_s` is the clipped sum of step `s`, which the vault keeps hidden.
    ///
    /// Dividing the releases by the coefficients as a power series, which is post-processing, gives back the clipped sums with
    /// correlated noise. This sum needs a plan that [samples at least `b` groups in turn](sordino_accounting::Sampling::Rotating). It is the only
    /// release of its step. The rule and the coefficients must be the same from the first step to the last. A step that stored no sum,
    /// and every step before the run was resumed, counts as a sum of zero.
    ///
    /// **Guarantees.** Adding or removing one record moves the `b` releases that begin with the step that samples it, together, by
    /// at most `|c|_2 C`, and by the effect of rounding; [`Bounded::sensitivity`] includes both. It does not move any other release.
    ///
    /// # Errors
    /// As [`clipped_sum`](Self::clipped_sum); a plan of another kind, or with fewer groups than coefficients; a rule or coefficients that
    /// differ from those of earlier steps.
    pub fn correlated_sum(
        mut self,
        rule: &ClipRule,
        coefficients: &Coefficients,
    ) -> Result<Bounded<'r>, PrivacyError> {
        self.round.agree_over_ranks(|| format!("{coefficients:?}"))?;
        let (mut sums, [sensitivity]) = self.pass([rule], &|norms, weights| rule.weigh(norms, weights))?;
        let spread =
            Spread::Correlated { rule: rule.clone(), sensitivity, coefficients: coefficients.clone() };
        let (kind, sensitivity) = self.round.combine_with_memory(spread, &mut sums)?;
        let [sum] = sums;
        Ok(bounded(sum.values, sensitivity, kind))
    }

    /// The sum of all gradients without clipping. It has no bound, so it can only be [disclosed](Round::disclose).
    ///
    /// **Edge cases.** It may have values that are not finite. This is no error: an error would reveal it without a disclosure.
    ///
    /// # Errors
    /// Errors of the engine.
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

    /// One sum for each rule, and its sensitivity. Removing one record moves a sum by the sensitivity of its rule, by rounding in the
    /// engine, and by six roundings of a vector to the lattice of the sum, each of which moves it by at most `step sqrt(d) / 2`.
    fn pass<const SUMS: usize>(
        &mut self,
        rules: [&ClipRule; SUMS],
        weights: &WeightRule<'_>,
    ) -> Result<([Sum; SUMS], [f64; SUMS]), PrivacyError> {
        let layers = self.round.engine().layers();
        rules.iter().try_for_each(|rule| rule.fits(layers))?;
        let rounding = self.round.rounding(self.anchor.is_some())?;
        let records = self.round.slots();
        let mut sums =
            rules.map(|rule| Sum { step: Sum::step_for(rule.sensitivity(), records), values: Vec::new() });
        let steps = sums.each_ref().map(|sum| sum.step);
        // The noise follows from the numbers of rank 0, so all ranks must have the same numbers.
        self.round.agree_over_ranks(|| {
            format!(
                "{rules:?}, rounding {rounding:?}, steps {steps:?}, differences {}",
                self.anchor.is_some()
            )
        })?;
        self.round.pass(self.at, self.anchor, Some(weights), &mut sums)?;
        #[expect(clippy::cast_precision_loss, reason = "a count")]
        let moved = std::array::from_fn(|index| {
            let Sum { step, values } = &sums[index];
            rules[index].sensitivity() * (1.0 + rounding) + 3.0 * step * (values.len() as f64).sqrt()
        });
        Ok((sums, moved))
    }
}

fn bounded<'r>(value: Vec<f64>, sensitivity: f64, kind: SumKind) -> Bounded<'r> {
    Bounded { value: Sensitive { value, brand: Brand::default() }, sensitivity, kind }
}
