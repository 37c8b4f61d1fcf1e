//! Per-record gradients of a network, for the trusted base.

use std::ops::Range;

use sordino_data::Dataset;
use sordino_nn::{Combination, Engine, NetworkError, Params, Pass, Records, Units};
use sordino_privacy::{Gradients, Sum, WeightRule};

use crate::{ResolvedSettings, TrainError, UnitGradient};

/// Records, and the engine that computes their gradients.
pub struct NetworkGradients<'d> {
    engine: Engine,
    records: Records<'d>,
    class_weights: Vec<f32>,
}

impl<'d> NetworkGradients<'d> {
    /// Gradients of labelled records, in their units and with the views of the settings.
    ///
    /// # Errors
    /// Records without labels, or records that do not fit the network.
    pub fn of(data: &'d Dataset, resolved: &ResolvedSettings) -> Result<Self, TrainError> {
        let targets = data.targets().ok_or_else(|| {
            TrainError::refused(
                "the records have no targets to learn",
                "give labelled records, or name the {target}",
            )
        })?;
        let engine = resolved.engine(None)?;
        let records = engine.records(data.inputs(), targets)?;
        let records = resolved.in_slots(records, data.units())?;
        Ok(Self::new(engine, records).with_class_weights(resolved.loss_factors()))
    }

    /// Gradients of these records, which were checked by this engine.
    pub fn new(engine: Engine, records: Records<'d>) -> Self {
        Self { engine, records, class_weights: Vec::new() }
    }

    /// The same gradients, where the loss of each class has a public weight. Empty for no weights.
    #[must_use]
    pub fn with_class_weights(self, weights: Vec<f32>) -> Self {
        Self { class_weights: weights, ..self }
    }
}

impl ResolvedSettings {
    /// An engine for the slots of the run: for the public maximum of gradients in a slot, not for the largest number that
    /// occurs. Without a number of workers, it has one for each thread.
    ///
    /// # Errors
    /// A network that takes too much memory.
    pub fn engine(&self, workers: Option<usize>) -> Result<Engine, NetworkError> {
        let records = self.data.unit.as_ref().map_or(1, |unit| unit.records);
        let most = records.saturating_mul(self.views.map_or(1, |views| views.copies));
        let (network, loss) = (self.model.network()?, self.model.loss);
        let engine = match workers {
            Some(workers) => Engine::with_workers(network, loss, workers),
            None => Engine::new(network, loss),
        };
        engine?.for_slots_of(most)
    }

    /// Records in these units, with the views of the run.
    ///
    /// # Errors
    /// Units of other records.
    pub fn in_slots<'d>(
        &self,
        mut records: Records<'d>,
        units: Option<&'d Units>,
    ) -> Result<Records<'d>, NetworkError> {
        if let Some(units) = units {
            let combination = match self.values.unit_gradient.as_ref().map(|rule| rule.value) {
                Some(UnitGradient::Sum) => Combination::Sum,
                Some(UnitGradient::Mean) | None => Combination::Mean,
            };
            records = records.in_units(units, combination)?;
        }
        self.views.map_or(Ok(records), |views| records.with_views(views))
    }
}

impl Gradients for NetworkGradients<'_> {
    type Point = Params;
    type Error = NetworkError;

    fn records(&self) -> usize {
        self.records.slots()
    }

    fn dimension(&self) -> usize {
        self.engine.network().layout().len()
    }

    fn trainable(&self) -> Vec<Range<usize>> {
        self.engine.network().layout().trainable()
    }

    fn layers(&self) -> usize {
        self.engine.network().layers().len()
    }

    fn rounding(&self, differences: bool) -> f64 {
        self.engine.rounding(differences)
    }

    fn pass(
        &mut self,
        at: &Params,
        anchor: Option<&Params>,
        chosen: &[usize],
        rule: Option<&WeightRule<'_>>,
        key: [u8; 32],
        sums: &mut [Sum],
    ) -> Result<(), NetworkError> {
        let steps: Vec<f64> = sums.iter().map(|sum| sum.step).collect();
        let mut values: Vec<Vec<f64>> = sums.iter_mut().map(|sum| std::mem::take(&mut sum.values)).collect();
        let mut pass = Pass::new(at, &self.records, chosen)
            .with_dropout(key)
            .rounded_to(&steps)
            .with_class_weights(&self.class_weights);
        if let Some(anchor) = anchor {
            pass = pass.minus(anchor);
        }
        if let Some(rule) = rule {
            pass = pass.weighed_by(rule);
        }
        self.engine.pass(&pass, &mut values)?;
        sums.iter_mut().zip(values).for_each(|(sum, values)| sum.values = values);
        Ok(())
    }
}
