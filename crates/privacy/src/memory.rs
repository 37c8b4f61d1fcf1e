//! What is kept from one step to the next and never leaves without noise: parts of gradients that were clipped away.

use std::collections::VecDeque;

use crate::{ClipRule, noise::rounded};

/// The hidden state of a vault. It lives in memory only: a resumed run begins without one.
#[derive(Default)]
pub(crate) struct Memory {
    band: Option<Band>,
    error: Vec<f32>,
}

/// Residuals of the last `W` steps of an entry, for banded error feedback.
pub(crate) struct Band {
    entry: usize,
    /// The rules of the clipped sum and of the residual. A band has one pair of them: the proof adds up what a record does to
    /// `W + 1` steps with the same noise.
    rules: (ClipRule, ClipRule),
    /// Residual sums and the turns they are from, the oldest first.
    held: VecDeque<(u64, Vec<f32>)>,
    /// The sum of what is held, in lattice steps: whole numbers, so that what has been taken out leaves no trace.
    sum: Vec<i64>,
    step: f64,
}

/// The lattice of residuals is finer than their bound by 2 to this power.
const FINENESS: i32 = 30;

impl Memory {
    /// The band of this entry, begun anew if there is none; nothing if it has other rules.
    pub(crate) fn band(
        &mut self,
        entry: usize,
        rule: &ClipRule,
        residual: &ClipRule,
        dimension: usize,
    ) -> Option<&mut Band> {
        self.band.take_if(|band| band.entry != entry);
        let band = self.band.get_or_insert_with(|| Band {
            entry,
            rules: (rule.clone(), residual.clone()),
            held: VecDeque::new(),
            sum: vec![0; dimension],
            step: Band::step(residual),
        });
        (band.rules.0 == *rule && band.rules.1 == *residual).then_some(band)
    }

    /// The clipped error, to be added to a sum of clipped gradients; what is lost becomes the error: `y = s + clip(e)`,
    /// `e <- e + g - y`, where `g` is the sum as it is.
    #[expect(clippy::cast_possible_truncation, reason = "an error in single precision, which stays hidden")]
    pub(crate) fn feed_back(&mut self, clipped: &[f32], plain: &[f32], feedback: &ClipRule) -> Vec<f64> {
        self.error.resize(clipped.len(), 0.0);
        let norm = self.error.iter().map(|&e| f64::from(e).powi(2)).sum::<f64>().sqrt();
        let weight = f64::from(feedback.whole_weight(norm));
        let fed = |error: f32| if weight > 0.0 { weight * f64::from(error) } else { 0.0 };
        let beside: Vec<f64> = self.error.iter().map(|error| fed(*error)).collect();
        for (((sum, plain), error), fed) in clipped.iter().zip(plain).zip(&mut self.error).zip(&beside) {
            *error += plain - (f64::from(*sum) + fed) as f32;
        }
        beside
    }
}

impl Band {
    fn step(residual: &ClipRule) -> f64 {
        #[expect(clippy::cast_possible_truncation, reason = "the exponent of a positive number")]
        let exponent = residual.sensitivity().log2().floor() as i32;
        2.0_f64.powi(exponent - FINENESS)
    }

    /// How far the releases of `W + 1` steps can move together: `sqrt(C_1^2 + C_r^2 / W)`, with what rounding to the lattice adds.
    #[expect(clippy::cast_precision_loss, reason = "counts")]
    pub(crate) fn sensitivity(rule: &ClipRule, residual: &ClipRule, window: u64, dimension: usize) -> f64 {
        let residual = residual.sensitivity() + Self::step(residual) * (dimension as f64).sqrt();
        (rule.sensitivity().powi(2) + residual * residual / window as f64).sqrt()
    }

    /// The mean of the last `window` residuals, to be added to a clipped sum; takes up this step's own. No coordinate of an honest
    /// residual exceeds `most`.
    #[expect(clippy::cast_precision_loss, reason = "below 2^63, rounded to 53 digits")]
    pub(crate) fn feed(&mut self, turn: u64, window: u64, mut residual: Vec<f32>, most: f32) -> Vec<f64> {
        while self.held.front().is_some_and(|(from, _)| from.saturating_add(window) < turn)
            && let Some((_, old)) = self.held.pop_front()
        {
            self.move_sum(&old, i64::wrapping_sub);
        }
        let share = self.step / window as f64;
        let fed = self.sum.iter().map(|held| *held as f64 * share).collect();
        for value in &mut residual {
            // A NaN becomes 0 when it is rounded.
            *value = value.clamp(-most, most);
        }
        self.move_sum(&residual, i64::wrapping_add);
        self.held.push_back((turn, residual));
        fed
    }

    fn move_sum(&mut self, residual: &[f32], by: impl Fn(i64, i64) -> i64) {
        let per_step = 1.0 / self.step;
        for (sum, value) in self.sum.iter_mut().zip(residual) {
            *sum = by(*sum, rounded(f64::from(*value) * per_step));
        }
    }
}

#[cfg(test)]
mod tests {
    use sordino_accounting::ClipNorm;

    use super::*;

    fn flat(bound: f64) -> ClipRule {
        ClipRule::flat(ClipNorm::new(bound).unwrap()).unwrap()
    }

    fn fed(memory: &mut Memory, turn: u64, window: u64, residual: f32) -> f64 {
        memory.band(0, &flat(1.0), &flat(2.0), 1).unwrap().feed(turn, window, vec![residual], 1e3)[0]
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
        for (turn, spoilt) in [f32::INFINITY, f32::NAN, -1e30].into_iter().enumerate() {
            fed(&mut memory, turn as u64, 3, spoilt);
        }
        assert!((fed(&mut memory, 3, 3, 0.0)).abs() < 1e-6);
        assert_eq!(fed(&mut memory, u64::MAX, u64::MAX, 0.0), 0.0);
    }

    #[test]
    fn a_band_has_one_pair_of_rules_and_belongs_to_its_entry() {
        let mut memory = Memory::default();
        fed(&mut memory, 0, 2, 1.0);
        assert!(memory.band(0, &flat(1.0), &flat(3.0), 1).is_none());
        let band = memory.band(1, &flat(1.0), &flat(3.0), 1).unwrap();
        assert_eq!(band.feed(0, 2, vec![0.0], 1.0), [0.0]);
    }

    #[test]
    fn errors_are_fed_back_clipped() {
        let mut memory = Memory::default();
        let mut step = |clipped: f32, plain: f32| {
            f64::from(clipped) + memory.feed_back(&[clipped], &[plain], &flat(0.5))[0]
        };
        // e: 0, 3, 2.5 (and a thousandth), ...
        assert_eq!(step(1.0, 4.0), 1.0);
        assert!((step(0.0, 0.0) - 0.5).abs() < 1e-3);
        assert!((step(-1.0, -1.0) + 0.5).abs() < 1e-3);
        let mut spoilt = Memory { error: vec![f32::NAN], ..Memory::default() };
        assert_eq!(spoilt.feed_back(&[1.0], &[1.0], &flat(0.5)), [0.0]);
    }
}
