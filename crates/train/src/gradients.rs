//! The network engine as the trusted base uses it.

use std::ops::Range;

use sordino_nn::{Engine, NetworkError, Params, Query, RecordNorms, RecordWeights, Records};
use sordino_privacy::{Gradients, Sum, WeightRule};

/// Private records and the engine that computes their gradients.
pub struct NetworkGradients<'d> {
    engine: Engine,
    records: Records<'d>,
}

impl<'d> NetworkGradients<'d> {
    /// Records that this engine has checked.
    pub fn new(engine: Engine, records: Records<'d>) -> Self {
        Self { engine, records }
    }
}

impl Gradients for NetworkGradients<'_> {
    type Point = Params;
    type Error = NetworkError;

    fn records(&self) -> usize {
        self.records.len()
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
        let mut query = Query::new(at, &self.records, chosen).with_dropout(key).rounded_to(&steps);
        if let Some(anchor) = anchor {
            query = query.minus(anchor);
        }
        match rule {
            None => self.engine.pass(&query, &mut values)?,
            Some(rule) => {
                let sums = sums.len();
                let weigh = |norms: RecordNorms<'_>, weights: &mut RecordWeights<'_>| {
                    let norms: Vec<f64> = (0..norms.layers()).map(|layer| norms.layer(layer)).collect();
                    let mut chosen = vec![0.0; sums * norms.len()];
                    rule(&norms, &mut chosen);
                    for (place, weight) in chosen.into_iter().enumerate() {
                        weights.set_layer(place / norms.len(), place % norms.len(), weight);
                    }
                };
                self.engine.pass(&query.weighed_by(&weigh), &mut values)?
            }
        };
        sums.iter_mut().zip(values).for_each(|(sum, values)| sum.values = values);
        Ok(())
    }
}
