//! Sums of earlier steps, kept from one step to the next. They never leave the vault without noise.

use std::collections::VecDeque;

use rayon::prelude::*;

use crate::{ClipRule, PrivacyError, Sum, noise::rounded};

/// The number of coordinates that are computed together.
const BLOCK: usize = 1 << 12;

/// The coefficients `c_0, ..., c_(b-1)` of a sum over `b` steps. They are multiples of 2^-20 of magnitude at most 1, so they are exact
/// in single precision.
///
/// **References.** Banded Toeplitz strategies: Choquette-Choo et al. 2023 ("(Amplified) Banded Matrix Factorization"), McKenna 2024.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coefficients {
    /// The coefficients in units of 2^-20.
    units: Vec<i32>,
}

impl Coefficients {
    /// The number of units in the coefficient 1.
    const ONE: f64 = 1_048_576.0;

    /// Rounds coefficients to multiples of 2^-20.
    ///
    /// ```
    /// use sordino_privacy::Coefficients;
    ///
    /// let coefficients = Coefficients::new(&[0.8, 0.6])?;
    /// assert!((coefficients.norm() - 1.0).abs() < 1e-6);
    /// assert!(Coefficients::new(&[0.0, 1.0]).is_err());
    /// # Ok::<(), sordino_privacy::PrivacyError>(())
    /// ```
    ///
    /// # Errors
    /// No coefficients; a first coefficient that is not above 0 after rounding; one that is not in [-1, 1].
    pub fn new(values: &[f64]) -> Result<Self, PrivacyError> {
        if let Some(wrong) = values.iter().find(|value| !(-1.0..=1.0).contains(*value)) {
            return Err(PrivacyError::Rule(format!("a coefficient must be in [-1, 1], got {wrong}")));
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most 2^20")]
        let units: Vec<i32> = values.iter().map(|value| rounded(value * Self::ONE) as i32).collect();
        match units.first() {
            Some(first) if *first > 0 => Ok(Self { units }),
            _ => Err(PrivacyError::Rule("the first coefficient must be above 0".to_owned())),
        }
    }

    /// The coefficients as they are used, after rounding.
    pub fn values(&self) -> Vec<f64> {
        self.units.iter().map(|&units| f64::from(units) / Self::ONE).collect()
    }

    /// `|c|_2`, of the coefficients as they are used.
    pub fn norm(&self) -> f64 {
        // Squares are at most 2^40, so their sum is exact for up to 8,192 coefficients.
        self.units.iter().map(|&units| f64::from(units).powi(2)).sum::<f64>().sqrt() / Self::ONE
    }
}

/// How the contribution of a record to a step is spread over the releases of its block: that step and the steps up to the next turn
/// of its group. It stays the same for all steps of a plan entry, because the proof adds up the effects of a record on several
/// steps with the same noise.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Spread {
    /// Error feedback: the clipped sum in its own step, and equal shares of the residual sum in the other steps.
    Feedback {
        /// The rules of the clipped sum and of the residual.
        rules: [ClipRule; 2],
        /// The sensitivities of the two sums.
        sensitivities: [f64; 2],
    },
    /// The clipped sum times `c_j`, in the step that is `j` steps later.
    Correlated { rule: ClipRule, sensitivity: f64, coefficients: Coefficients },
}

impl Spread {
    /// How far one record can move the releases of a block together, for a block of `groups` steps. `error` bounds the rounding errors of
    /// one release for two neighbouring data sets, added together. The result is `sqrt(C^2 + C_r^2 / W) + error sqrt(W + 1)` for feedback
    /// and `|c|_2 C + error sqrt(b)` for coefficients.
    #[expect(clippy::cast_precision_loss, reason = "a count")]
    pub(crate) fn sensitivity(&self, groups: u64, error: f64) -> f64 {
        let exact = match self {
            Self::Feedback { sensitivities: [clipped, residual], .. } => {
                (clipped.powi(2) + residual.powi(2) / (groups - 1) as f64).sqrt()
            }
            Self::Correlated { sensitivity, coefficients, .. } => coefficients.norm() * sensitivity,
        };
        exact + error * (groups as f64).sqrt()
    }

    /// The number of later steps to which a record contributes.
    ///
    /// # Errors
    /// More coefficients than groups: a record could be sampled again before its last contribution has left the memory.
    fn window(&self, groups: u64) -> Result<u64, PrivacyError> {
        match self {
            Self::Feedback { .. } => Ok(groups - 1),
            Self::Correlated { coefficients, .. } => match coefficients.units.len() as u64 {
                count if count <= groups => Ok(count - 1),
                count => Err(PrivacyError::Rule(format!(
                    "{count} coefficients need a plan with at least {count} groups, but it has {groups}"
                ))),
            },
        }
    }
}

/// Sums of the last steps of a plan entry.
///
/// They are kept in memory only: a resumed run begins without them.
pub(crate) struct BandMemory {
    entry: usize,
    spread: Spread,
    /// The number of later steps to which a sum contributes.
    window: u64,
    /// The turns of earlier steps with their sums, in steps of the lattice, the oldest first.
    held: VecDeque<(u64, Vec<i64>)>,
    /// For feedback, the total of the sums in `held`. It is exact, so a residual that was subtracted leaves no trace.
    total: Vec<i64>,
}

impl BandMemory {
    /// An empty memory for an entry of a plan with this many groups.
    ///
    /// # Errors
    /// More coefficients than groups.
    pub(crate) fn new(entry: usize, spread: Spread, groups: u64) -> Result<Self, PrivacyError> {
        let window = spread.window(groups)?;
        Ok(Self { entry, spread, window, held: VecDeque::new(), total: Vec::new() })
    }

    /// Whether it belongs to this entry of the plan.
    pub(crate) fn is_for(&self, entry: usize) -> bool {
        self.entry == entry
    }

    /// Whether the memory was created for this way of spreading contributions.
    pub(crate) fn agrees(&self, spread: &Spread) -> bool {
        self.spread == *spread
    }

    /// Replaces the first of these sums, which a step has computed, by the sum to be released, and stores what later steps need.
    pub(crate) fn combine(&mut self, turn: u64, sums: &mut [Sum]) {
        self.forget(turn);
        match (&self.spread, sums) {
            (Spread::Feedback { .. }, [sum, residual]) => self.feed(turn, &mut sum.values, residual),
            (Spread::Correlated { .. }, [sum]) => self.correlate(turn, sum),
            _ => unreachable!("feedback has two sums, and coefficients have one"),
        }
    }

    /// Removes the sums that are too old to contribute to this turn.
    fn forget(&mut self, turn: u64) {
        while self.held.front().is_some_and(|(from, _)| from.saturating_add(self.window) < turn)
            && let Some((_, old)) = self.held.pop_front()
        {
            self.total.iter_mut().zip(old).for_each(|(total, old)| *total = total.wrapping_sub(old));
        }
    }

    /// Adds the mean of the last residuals to a clipped sum, and stores this step's residual: `a_t + (1/W) sum_(l=1..W) R_(t-l)`.
    #[expect(clippy::cast_precision_loss, reason = "below 2^53 for the sums of an honest engine")]
    fn feed(&mut self, turn: u64, sum: &mut [f64], residual: &Sum) {
        self.total.resize(sum.len(), 0);
        let share = residual.step / self.window as f64;
        sum.iter_mut().zip(&self.total).for_each(|(sum, held)| *sum += *held as f64 * share);
        let own = in_steps(residual);
        self.total.iter_mut().zip(&own).for_each(|(total, own)| *total = total.wrapping_add(*own));
        self.held.push_back((turn, own));
    }

    /// Stores this step's clipped sum, and adds up all stored sums, multiplied by their coefficients: `c_0 x_t + sum_(j=1..b-1) c_j x_(t-j)`.
    ///
    /// The result is computed exactly, as an integer in units of 2^-20 steps of the lattice, and then rounded once.
    #[expect(clippy::cast_precision_loss, reason = "rounded once; the sensitivity includes it")]
    fn correlate(&mut self, turn: u64, sum: &mut Sum) {
        self.held.push_back((turn, in_steps(sum)));
        let Spread::Correlated { coefficients, .. } = &self.spread else { return };
        let coefficient = |from: u64| {
            let age = usize::try_from(turn.saturating_sub(from)).unwrap_or(usize::MAX);
            coefficients.units.get(age).map_or(0, |&units| i128::from(units))
        };
        let terms: Vec<(i128, &[i64])> =
            self.held.iter().map(|(from, held)| (coefficient(*from), &held[..])).collect();
        let unit = sum.step / Coefficients::ONE;
        sum.values.par_chunks_mut(BLOCK).enumerate().for_each(|(number, values)| {
            let mut exact = vec![0_i128; values.len()];
            for (coefficient, held) in &terms {
                let held = &held[number * BLOCK..][..values.len()];
                exact
                    .iter_mut()
                    .zip(held)
                    .for_each(|(exact, held)| *exact += coefficient * i128::from(*held));
            }
            values.iter_mut().zip(exact).for_each(|(value, exact)| *value = exact as f64 * unit);
        });
    }
}

/// A sum in steps of its lattice.
fn in_steps(sum: &Sum) -> Vec<i64> {
    sum.values.iter().map(|value| rounded(value / sum.step)).collect()
}

#[cfg(test)]
mod tests {
    use sordino_accounting::ClipNorm;

    use super::*;

    fn flat(bound: f64) -> ClipRule {
        ClipRule::flat(ClipNorm::new(bound).unwrap()).unwrap()
    }

    fn feedback() -> Spread {
        Spread::Feedback { rules: [flat(1.0), flat(2.0)], sensitivities: [1.0, 2.0] }
    }

    fn correlated(coefficients: &[f64]) -> Spread {
        let coefficients = Coefficients::new(coefficients).unwrap();
        Spread::Correlated { rule: flat(1.0), sensitivity: 1.0, coefficients }
    }

    fn empty(window: u64) -> BandMemory {
        BandMemory::new(0, feedback(), window.saturating_add(1)).unwrap()
    }

    fn sum(value: f64) -> Sum {
        Sum { step: 2f64.powi(-30), values: vec![value] }
    }

    fn fed(memory: &mut BandMemory, turn: u64, residual: f64) -> f64 {
        let mut sums = [sum(0.0), sum(residual)];
        memory.combine(turn, &mut sums);
        sums[0].values[0]
    }

    #[test]
    fn residuals_come_back_over_the_window_and_are_then_forgotten() {
        let mut memory = empty(2);
        for ((turn, residual), expected) in
            [(0, 1.5), (1, 0.0), (2, 0.3), (3, 0.0), (4, 0.0)].into_iter().zip([0.0, 0.75, 0.75, 0.15, 0.15])
        {
            let found = fed(&mut memory, turn, residual);
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
        // Exactly nothing is left, even after a gap.
        assert_eq!(fed(&mut memory, 9, 0.0), 0.0);
        assert_eq!(memory.total, [0]);
    }

    /// This also holds for residuals that no honest engine computes: they saturate and wrap, and are subtracted exactly.
    #[test]
    fn a_forgotten_residual_leaves_no_trace() {
        let mut memory = empty(3);
        for (turn, residual) in [1e30, -1e30, 1e30, 1e30].into_iter().enumerate() {
            fed(&mut memory, turn as u64, residual);
        }
        assert_eq!(fed(&mut memory, 9, 0.0), 0.0);
        assert_eq!(fed(&mut empty(u64::MAX - 1), u64::MAX, 0.0), 0.0);
    }

    /// One sum contributes to the next releases by its coefficients, and then exactly nothing. A turn without a sum counts as a sum of zero.
    #[test]
    fn sums_come_back_by_their_coefficients_and_are_then_forgotten() {
        let (given, more) = ([0.75, 0.5, -0.25], 1 << 13);
        let mut memory = BandMemory::new(0, correlated(&given), 3).unwrap();
        let mut release = |turn: u64, value: f64| {
            let mut sums = [Sum { step: 2f64.powi(-30), values: vec![value; more] }];
            memory.combine(turn, &mut sums);
            assert!(sums[0].values.iter().all(|other| *other == sums[0].values[0]));
            sums[0].values[0]
        };
        let found = [(0, 1.0), (1, 0.0), (2, 8.0), (3, 0.0), (4, 0.0), (5, 0.0)]
            .map(|(turn, value)| release(turn, value));
        assert_eq!(found, [0.75, 0.5, 6.0 - 0.25, 4.0, -2.0, 0.0]);
        release(6, 1.0);
        assert_eq!(release(8, 4.0), 3.0 - 0.25);
        // Sums that no honest engine computes saturate, and are also removed.
        release(9, 1e300);
        release(10, -1e300);
        assert_eq!(release(20, 1.0), 0.75);
    }

    #[test]
    fn a_memory_spreads_contributions_in_one_way_and_belongs_to_its_entry() {
        let memory = empty(2);
        let other =
            |rules: [f64; 2], sensitivities| Spread::Feedback { rules: rules.map(flat), sensitivities };
        assert!(memory.agrees(&other([1.0, 2.0], [1.0, 2.0])));
        assert!(!memory.agrees(&other([1.0, 3.0], [1.0, 2.0])));
        assert!(!memory.agrees(&other([1.0, 2.0], [1.01, 2.0])));
        assert!(!memory.agrees(&correlated(&[1.0, 0.5])));
        assert!(memory.is_for(0) && !memory.is_for(1));
        let memory = BandMemory::new(1, correlated(&[1.0, 0.5]), 2).unwrap();
        assert!(memory.agrees(&correlated(&[1.0, 0.5])) && !memory.agrees(&correlated(&[1.0, 0.6])));
        assert!(BandMemory::new(1, correlated(&[1.0, 0.5, 0.1]), 2).is_err());
    }

    #[test]
    fn coefficients_are_rounded_and_their_norm_is_that_of_the_rounded_ones() {
        let coefficients = Coefficients::new(&[1.0, 1.4 * 2f64.powi(-20), -0.3]).unwrap();
        let used = coefficients.values();
        assert_eq!(used[..2], [1.0, 2f64.powi(-20)]);
        assert!((used[2] + 0.3).abs() < 2f64.powi(-21) && f64::from(used[2] as f32) == used[2]);
        let norm = used.iter().map(|c| c * c).sum::<f64>().sqrt();
        assert!((coefficients.norm() - norm).abs() < 1e-15);
        for wrong in [&[][..], &[0.0], &[-0.5], &[1e-7], &[1.1], &[0.5, f64::NAN], &[0.5, -1.1]] {
            assert!(Coefficients::new(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_sensitivity_of_a_block_adds_up_squares_and_pays_for_rounding() {
        assert!((feedback().sensitivity(5, 0.0) - 2f64.sqrt()).abs() < 1e-15);
        assert!((correlated(&[0.5, 0.5, 0.5, 0.5]).sensitivity(4, 0.0) - 1.0).abs() < 1e-15);
        assert!((correlated(&[0.5; 4]).sensitivity(9, 0.01) - 1.03).abs() < 1e-15);
    }
}
