//! What a slot adds to a sum, for the trusted base: the gradient of a record or a unit, or the update of a client.

use std::ops::Range;

use sordino_data::Dataset;
use sordino_nn::{Combination, Engine, Network, NetworkError, Params, Pass, Records, Units};
use sordino_privacy::{Gradients, Sum, WeightRule};

use crate::{LocalTraining, ResolvedSettings, TrainError, UnitGradient, client_updates::ClientUpdates};

/// Records, and the engine that computes their gradients or the updates of their clients.
pub struct NetworkGradients<'d>(Contributions<'d>);

/// What a slot adds.
enum Contributions<'d> {
    /// The gradient of its records.
    Gradients { engine: Engine, records: Records<'d>, class_weights: Vec<f32> },
    /// The update of a client that trains on its records.
    Updates(ClientUpdates<'d>),
}

impl<'d> NetworkGradients<'d> {
    /// The contributions of labelled records, in their units and with the views of the settings; updates, if clients train on them.
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
        let class_weights = resolved.loss_factors();
        if let (Some(local), Some(clients)) = (resolved.local, data.units()) {
            let engines = (0..rayon::current_num_threads()).map(|_| resolved.engine(Some(1)));
            let engines = engines.collect::<Result<Vec<Engine>, NetworkError>>()?;
            let records = engines[0].records(data.inputs(), targets)?;
            let records = resolved.in_slots(records, None)?;
            return Ok(Self::of_clients(engines, records, clients, local, class_weights));
        }
        let engine = resolved.engine(None)?;
        let records = engine.records(data.inputs(), targets)?;
        let records = resolved.in_slots(records, data.units())?;
        Ok(Self(Contributions::Gradients { engine, records, class_weights }))
    }

    /// Gradients of these records, which were checked by this engine.
    pub fn new(engine: Engine, records: Records<'d>) -> Self {
        Self(Contributions::Gradients { engine, records, class_weights: Vec::new() })
    }

    /// Updates of clients that train on these records, with a thread for each engine. The records were checked by an engine, and the
    /// engines were made for slots of [`LocalTraining::batch_size`] records. The loss of each class has a public weight, if there are any.
    pub fn of_clients(
        engines: Vec<Engine>,
        records: Records<'d>,
        clients: &'d Units,
        local: LocalTraining,
        class_weights: Vec<f32>,
    ) -> Self {
        Self(Contributions::Updates(ClientUpdates::new(engines, records, clients, local, class_weights)))
    }

    fn network(&self) -> &Network {
        match &self.0 {
            Contributions::Gradients { engine, .. } => engine.network(),
            Contributions::Updates(updates) => updates.network(),
        }
    }
}

impl ResolvedSettings {
    /// An engine for the slots of the run: for the public maximum of gradients in a slot or in a local batch, not for the largest number
    /// that occurs. Without a number of workers, it has one for each thread.
    ///
    /// # Errors
    /// A network that takes too much memory.
    pub fn engine(&self, workers: Option<usize>) -> Result<Engine, NetworkError> {
        let records = match self.local {
            Some(local) => local.batch_size,
            None => self.data.unit.as_ref().and_then(|unit| unit.records).unwrap_or(1),
        };
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
        match &self.0 {
            Contributions::Gradients { records, .. } => records.slots(),
            Contributions::Updates(updates) => updates.len(),
        }
    }

    fn dimension(&self) -> usize {
        self.network().layout().len()
    }

    fn trainable(&self) -> Vec<Range<usize>> {
        self.network().layout().trainable()
    }

    fn layers(&self) -> usize {
        self.network().layers().len()
    }

    fn rounding(&self, differences: bool) -> f64 {
        match &self.0 {
            Contributions::Gradients { engine, .. } => engine.rounding(differences),
            // Each update is rounded to the lattice by itself, and updates are added exactly.
            Contributions::Updates(_) => 0.0,
        }
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
        let (engine, records, class_weights) = match &mut self.0 {
            Contributions::Gradients { engine, records, class_weights } => (engine, records, class_weights),
            Contributions::Updates(updates) => return updates.pass(at, anchor, chosen, rule, key, sums),
        };
        let steps: Vec<f64> = sums.iter().map(|sum| sum.step).collect();
        let mut values: Vec<Vec<f64>> = sums.iter_mut().map(|sum| std::mem::take(&mut sum.values)).collect();
        let mut pass = Pass::new(at, records, chosen)
            .with_dropout(key)
            .rounded_to(&steps)
            .with_class_weights(class_weights);
        if let Some(anchor) = anchor {
            pass = pass.minus(anchor);
        }
        if let Some(rule) = rule {
            pass = pass.weighed_by(rule);
        }
        engine.pass(&pass, &mut values)?;
        sums.iter_mut().zip(values).for_each(|(sum, values)| sum.values = values);
        Ok(())
    }
}
