//! Measurements on held-back slots: a table of counts with discrete Laplace noise.
//!
//! A held-back slot adds non-negative weights, at most 1 in total, to the cells of a public table. Weights are whole numbers of *quanta*,
//! [`QUANTA`] to 1, so the table is a vector of integers that moves by at most `QUANTA` in L1 norm when a slot is removed.

use serde::{Deserialize, Serialize};
use sordino_accounting::{Epsilon, Relation};

use crate::{
    PrivacyError, Release,
    discrete_laplace::{discrete_laplace, variance},
    randomness::Streams,
    sensitive::Brand,
};

/// The number of quanta in a weight of 1.
const QUANTA: u32 = 1 << 20;

/// The largest scale of the noise, in quanta: 2^50, so that sums of noise and counts are far from overflow.
const MAX_SCALE: f64 = 1_125_899_906_842_624.0;

/// Held-back slots, and what a model predicts for them.
///
/// **Trusted** (`PROOF.md`): what a slot adds depends on its own records and on the point alone, not on other slots. No slot of a
/// measurement is a slot of training.
pub trait Outcomes {
    /// What is measured: the parameters of a model.
    type Point;
    /// Why a measurement can fail. It must not depend on the values of records, only on their public shape.
    type Error: std::error::Error + Send + Sync + 'static;

    /// The public number of held-back slots.
    fn slots(&self) -> usize;

    /// The public number of cells of the table.
    fn cells(&self) -> usize;

    /// Adds what every slot contributes to the table.
    ///
    /// # Errors
    /// As the implementation documents.
    fn tally(&mut self, at: &Self::Point, tally: &mut Tally<'_>) -> Result<(), Self::Error>;
}

/// A table of counts that can be added to, but not read. It belongs to one measurement.
pub struct Tally<'m> {
    counts: Vec<i64>,
    /// The quanta that each slot may still add.
    left: Vec<u32>,
    _brand: Brand<'m>,
}

impl Tally<'_> {
    pub(crate) fn new(slots: usize, cells: usize) -> Self {
        Self { counts: vec![0; cells], left: vec![QUANTA; slots], _brand: Brand::default() }
    }

    /// Adds a weight of a slot to a cell, rounded down to quanta. A slot adds at most 1 in total; what exceeds this is dropped. A
    /// negative weight, a NaN, and a slot or cell that does not exist add nothing.
    pub fn add(&mut self, slot: usize, cell: usize, weight: f64) {
        let (Some(left), Some(count)) = (self.left.get_mut(slot), self.counts.get_mut(cell)) else { return };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates; a NaN gives 0"
        )]
        let quanta = ((weight * f64::from(QUANTA)).floor() as u32).min(*left);
        *left -= quanta;
        *count += i64::from(quanta);
    }

    /// The counts with noise.
    pub(crate) fn release(self, scale: u64, streams: &Streams) -> Release<Vec<f64>> {
        let mut rng = streams.number(0);
        #[expect(clippy::cast_precision_loss, reason = "after the noise")]
        let noised =
            |count: i64| count.saturating_add(discrete_laplace(scale, &mut rng)) as f64 / f64::from(QUANTA);
        let noise_std = variance(scale).sqrt() / f64::from(QUANTA);
        Release::new(self.counts.into_iter().map(noised).collect(), noise_std)
    }
}

/// What may be measured on held-back slots, and the privacy budget for it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasurementBudget {
    /// The public number of held-back slots.
    pub slots: u64,
    /// The number of measurements. Each spends an equal part of epsilon.
    pub measurements: u64,
    /// The epsilon of all measurements together; their delta is 0.
    pub epsilon: Epsilon,
}

impl MeasurementBudget {
    /// The standard deviation of the noise in each cell of a table, where a slot counts 1. It is public.
    ///
    /// # Errors
    /// A budget that is too small for any number of measurements, or for this one.
    pub fn noise_std(&self, relation: Relation) -> Result<f64, PrivacyError> {
        Ok(variance(self.scale(relation)?).sqrt() / f64::from(QUANTA))
    }

    /// The scale of the noise of one measurement, in quanta. It is above `sensitivity * measurements / epsilon`, so that one
    /// measurement costs less than `epsilon / measurements`.
    pub(crate) fn scale(&self, relation: Relation) -> Result<u64, PrivacyError> {
        // One slot adds up to QUANTA. A slot that is replaced removes as many and adds as many.
        let sensitivity = match relation {
            Relation::ZeroOut => f64::from(QUANTA),
            Relation::ReplaceOne => 2.0 * f64::from(QUANTA),
        };
        #[expect(
            clippy::cast_precision_loss,
            reason = "exact below 2^53; larger numbers exceed the largest scale"
        )]
        let quotient = sensitivity * self.measurements as f64 / self.epsilon.get();
        if self.measurements == 0 || self.slots >= 1 << 40 || !(quotient < MAX_SCALE) {
            return Err(PrivacyError::Mismatch(format!(
                "{} measurements of {} held-back records cannot be made with epsilon = {}",
                self.measurements, self.slots, self.epsilon
            )));
        }
        // The quotient may be rounded down, but not past a whole number: the next whole number is above the exact quotient.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 2^50")]
        let scale = quotient.floor() as u64 + 1;
        Ok(scale)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn budget(measurements: u64, epsilon: f64) -> MeasurementBudget {
        MeasurementBudget { slots: 100, measurements, epsilon: Epsilon::new(epsilon).unwrap() }
    }

    /// The contributions of some slots to a table with five cells.
    fn table(slots: &[Vec<(usize, f64)>]) -> Vec<i64> {
        let mut tally = Tally::new(slots.len(), 5);
        for (slot, weights) in slots.iter().enumerate() {
            weights.iter().for_each(|&(cell, weight)| tally.add(slot, cell, weight));
        }
        tally.counts
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            rng_seed: proptest::test_runner::RngSeed::Fixed(1),
            ..ProptestConfig::default()
        })]

        /// A slot may add any weight to any cell, any number of times.
        #[test]
        fn removing_a_slot_moves_the_table_by_at_most_one(
            slots in prop::collection::vec(prop::collection::vec((0_usize..7, -0.5_f64..1.5), 0..6), 1..8),
            chosen in any::<prop::sample::Index>(),
        ) {
            let mut without = slots.clone();
            without[chosen.index(slots.len())].clear();
            let moved: i64 = table(&slots).iter().zip(table(&without)).map(|(a, b)| (a - b).abs()).sum();
            prop_assert!(moved <= i64::from(QUANTA));
        }

        /// `sensitivity / scale` is what one measurement costs.
        #[test]
        fn all_measurements_together_cost_at_most_epsilon(
            measurements in 1_u64..1000, exponent in -4.0_f64..4.0, relation in prop::bool::ANY,
        ) {
            let budget = budget(measurements, 10_f64.powf(exponent));
            let (relation, sensitivity) =
                if relation { (Relation::ZeroOut, 1_u128 << 20) } else { (Relation::ReplaceOne, 1 << 21) };
            let scale = u128::from(budget.scale(relation).unwrap());
            // measurements * sensitivity <= epsilon * scale, with epsilon = mantissa * 2^exponent exactly.
            let bits = budget.epsilon.get().to_bits();
            let (mantissa, exponent) = ((bits & ((1 << 52) - 1)) | 1 << 52, (bits >> 52) as i32 - 1075);
            let cost = u128::from(measurements) * sensitivity;
            prop_assert!(cost << (-exponent).min(90) <= (u128::from(mantissa) * scale) >> (-exponent - 90).max(0));
        }
    }

    #[test]
    fn what_cannot_be_a_weight_adds_nothing() {
        let unit = i64::from(QUANTA);
        assert_eq!(
            table(&[vec![(0, f64::NAN), (1, -1.0), (2, f64::INFINITY), (3, 1.0)]]),
            [0, 0, unit, 0, 0]
        );
        assert_eq!(
            table(&[vec![(9, 1.0), (0, 0.25), (4, 0.5), (4, 1.0)]]),
            [unit / 4, 0, 0, 0, unit / 4 * 3]
        );
        // Thirds are rounded down.
        assert_eq!(table(&[vec![(0, 1.0 / 3.0); 3]])[0], unit - 1);
        let mut tally = Tally::new(1, 1);
        tally.add(1, 0, 1.0);
        assert_eq!(tally.counts, [0]);
    }

    #[test]
    fn budgets_that_permit_no_measurement_are_refused() {
        for wrong in [budget(0, 1.0), budget(1, 0.0), budget(1, 1e-10), budget(u64::MAX, 1.0)] {
            assert!(wrong.scale(Relation::ZeroOut).is_err(), "{wrong:?}");
        }
        assert!(MeasurementBudget { slots: 1 << 40, ..budget(1, 1.0) }.scale(Relation::ZeroOut).is_err());
        let std = |relation, measurements| budget(measurements, 2.0).noise_std(relation).unwrap();
        // sqrt(2) / epsilon for each of the measurements.
        let expected = |factor: f64, std: f64| (std / (factor * 2.0_f64.sqrt() / 2.0) - 1.0).abs() < 1e-5;
        assert!(expected(1.0, std(Relation::ZeroOut, 1)) && expected(5.0, std(Relation::ZeroOut, 5)));
        assert!(expected(2.0, std(Relation::ReplaceOne, 1)));
        // However large epsilon is, there is noise.
        assert!(budget(1, 1e9).scale(Relation::ZeroOut).unwrap() == 1);
    }
}
