//! Residuals of clipped gradients, kept from one step to the next. They never leave the vault without noise.

use std::collections::VecDeque;

use crate::{ClipRule, Sum, noise::rounded};

/// Residual sums of the last `W` steps of a plan entry, for banded error feedback.
///
/// They are kept in memory only: a resumed run begins without them.
pub(crate) struct ResidualMemory {
    entry: usize,
    /// The rules of the clipped sum and of the residual. They stay the same, because the proof adds up the effects of a record on
    /// `W + 1` steps with the same noise.
    rules: [ClipRule; 2],
    /// The sensitivities of the clipped sum and of the residual.
    sensitivities: [f64; 2],
    /// Residual sums, in steps of their lattice, with the turns they are from, the oldest first.
    held: VecDeque<(u64, Vec<i64>)>,
    /// The sum of the stored residuals. It is exact, so that a residual that was subtracted leaves no trace.
    sum: Vec<i64>,
}

impl ResidualMemory {
    /// An empty memory.
    pub(crate) fn new(
        entry: usize,
        rules: [&ClipRule; 2],
        sensitivities: [f64; 2],
        dimension: usize,
    ) -> Self {
        let rules = rules.map(Clone::clone);
        Self { entry, rules, sensitivities, held: VecDeque::new(), sum: vec![0; dimension] }
    }

    /// Whether it belongs to this entry of the plan.
    pub(crate) fn is_for(&self, entry: usize) -> bool {
        self.entry == entry
    }

    /// Whether it was begun with these rules and sensitivities.
    pub(crate) fn agrees(&self, rules: [&ClipRule; 2], sensitivities: [f64; 2]) -> bool {
        self.rules.each_ref() == rules && self.sensitivities == sensitivities
    }

    /// How far one record can move the releases of `W + 1` steps together: `sqrt(C_1^2 + C_r^2 / W)`.
    #[expect(clippy::cast_precision_loss, reason = "a count")]
    pub(crate) fn sensitivity([clipped, residual]: [f64; 2], window: u64) -> f64 {
        (clipped.powi(2) + residual.powi(2) / window as f64).sqrt()
    }

    /// Adds the mean of the last `window` residuals to a clipped sum, and stores this step's residual.
    #[expect(clippy::cast_precision_loss, reason = "below 2^53 for the sums of an honest engine")]
    pub(crate) fn feed(&mut self, turn: u64, window: u64, sum: &mut [f64], residual: &Sum) {
        while self.held.front().is_some_and(|(from, _)| from.saturating_add(window) < turn)
            && let Some((_, old)) = self.held.pop_front()
        {
            self.sum.iter_mut().zip(old).for_each(|(sum, old)| *sum = sum.wrapping_sub(old));
        }
        let share = residual.step / window as f64;
        sum.iter_mut().zip(&self.sum).for_each(|(sum, held)| *sum += *held as f64 * share);
        let own: Vec<i64> = residual.values.iter().map(|value| rounded(value / residual.step)).collect();
        self.sum.iter_mut().zip(&own).for_each(|(sum, own)| *sum = sum.wrapping_add(*own));
        self.held.push_back((turn, own));
    }
}

#[cfg(test)]
mod tests {
    use sordino_accounting::ClipNorm;

    use super::*;

    fn flat(bound: f64) -> ClipRule {
        ClipRule::flat(ClipNorm::new(bound).unwrap()).unwrap()
    }

    fn empty() -> ResidualMemory {
        ResidualMemory::new(0, [&flat(1.0), &flat(2.0)], [1.0, 2.0], 1)
    }

    fn fed(memory: &mut ResidualMemory, turn: u64, window: u64, residual: f64) -> f64 {
        let (mut sum, residual) = ([0.0], Sum { step: 2f64.powi(-30), values: vec![residual] });
        memory.feed(turn, window, &mut sum, &residual);
        sum[0]
    }

    #[test]
    fn residuals_come_back_over_the_window_and_are_then_forgotten() {
        let mut memory = empty();
        for ((turn, residual), expected) in
            [(0, 1.5), (1, 0.0), (2, 0.3), (3, 0.0), (4, 0.0)].into_iter().zip([0.0, 0.75, 0.75, 0.15, 0.15])
        {
            let found = fed(&mut memory, turn, 2, residual);
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
        // Exactly nothing is left, even after a gap.
        assert_eq!(fed(&mut memory, 9, 2, 0.0), 0.0);
        assert_eq!(memory.sum, [0]);
    }

    /// This also holds for residuals that no honest engine computes: they saturate and wrap, and are subtracted exactly.
    #[test]
    fn a_forgotten_residual_leaves_no_trace() {
        let mut memory = empty();
        for (turn, residual) in [1e30, -1e30, 1e30, 1e30].into_iter().enumerate() {
            fed(&mut memory, turn as u64, 3, residual);
        }
        assert_eq!(fed(&mut memory, 9, 3, 0.0), 0.0);
        assert_eq!(fed(&mut memory, u64::MAX, u64::MAX, 0.0), 0.0);
    }

    #[test]
    fn a_memory_has_one_pair_of_rules_and_belongs_to_its_entry() {
        let memory = empty();
        assert!(memory.agrees([&flat(1.0), &flat(2.0)], [1.0, 2.0]));
        assert!(!memory.agrees([&flat(1.0), &flat(3.0)], [1.0, 2.0]));
        assert!(!memory.agrees([&flat(1.0), &flat(2.0)], [1.01, 2.0]));
        assert!(memory.is_for(0) && !memory.is_for(1));
    }
}
