//! What is kept from one step to the next and never leaves without noise: parts of gradients that were clipped away.

use std::collections::VecDeque;

use crate::{ClipRule, Sum, noise::rounded};

/// The hidden state of a vault. It lives in memory only: a resumed run begins without one.
#[derive(Default)]
pub(crate) struct Memory {
    band: Option<Band>,
}

/// Residuals of the last `W` steps of an entry, for banded error feedback.
pub(crate) struct Band {
    entry: usize,
    /// The rules of the clipped sum and of the residual. A band has one pair of them: the proof adds up what a record does to
    /// `W + 1` steps with the same noise.
    rules: (ClipRule, ClipRule),
    /// How far one record moves the clipped sum and the residual.
    moved: [f64; 2],
    /// Residual sums, in steps of their lattice, with their turns, the oldest first.
    held: VecDeque<(u64, Vec<i64>)>,
    /// The sum of what is held: whole numbers, so that what has been taken out leaves no trace.
    sum: Vec<i64>,
}

impl Memory {
    /// The band of this entry; a new one if there is none. None if the band has other rules or other noise.
    pub(crate) fn band(
        &mut self,
        entry: usize,
        (rule, residual): (&ClipRule, &ClipRule),
        moved: [f64; 2],
        dimension: usize,
    ) -> Option<&mut Band> {
        self.band.take_if(|band| band.entry != entry);
        let band = self.band.get_or_insert_with(|| Band {
            entry,
            rules: (rule.clone(), residual.clone()),
            moved,
            held: VecDeque::new(),
            sum: vec![0; dimension],
        });
        (band.rules.0 == *rule && band.rules.1 == *residual && band.moved == moved).then_some(band)
    }
}

impl Band {
    /// How far the releases of `W + 1` steps can move together: `sqrt(C_1^2 + C_r^2 / W)`.
    #[expect(clippy::cast_precision_loss, reason = "a count")]
    pub(crate) fn sensitivity(clipped: f64, residual: f64, window: u64) -> f64 {
        (clipped.powi(2) + residual.powi(2) / window as f64).sqrt()
    }

    /// Adds the mean of the last `window` residuals to a clipped sum, and stores this step's residual. No value of an honest
    /// residual exceeds `most`.
    #[expect(clippy::cast_precision_loss, reason = "below 2^63, rounded to 53 digits")]
    pub(crate) fn feed(&mut self, turn: u64, window: u64, sum: &mut [f64], residual: &Sum, most: f64) {
        while self.held.front().is_some_and(|(from, _)| from.saturating_add(window) < turn)
            && let Some((_, old)) = self.held.pop_front()
        {
            self.sum.iter_mut().zip(old).for_each(|(sum, old)| *sum = sum.wrapping_sub(old));
        }
        let share = residual.step / window as f64;
        sum.iter_mut().zip(&self.sum).for_each(|(sum, held)| *sum += *held as f64 * share);
        // A NaN becomes 0 when it is rounded.
        let steps = |value: &f64| rounded(value.clamp(-most, most) / residual.step);
        let own: Vec<i64> = residual.values.iter().map(steps).collect();
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

    fn fed(memory: &mut Memory, turn: u64, window: u64, residual: f64) -> f64 {
        let (mut sum, residual) = ([0.0], Sum { step: 2f64.powi(-30), values: vec![residual] });
        memory
            .band(0, (&flat(1.0), &flat(2.0)), [1.0, 2.0], 1)
            .unwrap()
            .feed(turn, window, &mut sum, &residual, 1e3);
        sum[0]
    }

    #[test]
    fn residuals_come_back_over_the_window_and_are_then_forgotten() {
        let mut memory = Memory::default();
        for ((turn, residual), expected) in
            [(0, 1.5), (1, 0.0), (2, 0.3), (3, 0.0), (4, 0.0)].into_iter().zip([0.0, 0.75, 0.75, 0.15, 0.15])
        {
            let found = fed(&mut memory, turn, 2, residual);
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
        // Exactly nothing is left, also after a gap.
        assert_eq!(fed(&mut memory, 9, 2, 0.0), 0.0);
        assert!(memory.band.as_ref().unwrap().sum.iter().all(|held| *held == 0));
    }

    #[test]
    fn sums_that_no_honest_records_give_are_cut_before_they_are_kept() {
        let mut memory = Memory::default();
        for (turn, spoilt) in [f64::INFINITY, f64::NAN, -1e30].into_iter().enumerate() {
            fed(&mut memory, turn as u64, 3, spoilt);
        }
        assert!((fed(&mut memory, 3, 3, 0.0)).abs() < 1e-6);
        assert_eq!(fed(&mut memory, u64::MAX, u64::MAX, 0.0), 0.0);
    }

    #[test]
    fn a_band_has_one_pair_of_rules_and_belongs_to_its_entry() {
        let mut memory = Memory::default();
        fed(&mut memory, 0, 2, 1.0);
        assert!(memory.band(0, (&flat(1.0), &flat(3.0)), [1.0, 2.0], 1).is_none());
        assert!(memory.band(0, (&flat(1.0), &flat(2.0)), [1.01, 2.0], 1).is_none());
        assert!(memory.band(1, (&flat(1.0), &flat(3.0)), [1.0, 3.0], 1).unwrap().held.is_empty());
    }
}
