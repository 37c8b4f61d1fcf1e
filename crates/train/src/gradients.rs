//! Per-record gradients of a network, for the trusted base.

use std::ops::Range;

use sordino_nn::{Engine, NetworkError, Params, Pass, Records};
use sordino_privacy::{Gradients, Sum, WeightRule};

/// Records, and the engine that computes their gradients.
pub struct NetworkGradients<'d> {
    engine: Engine,
    records: Records<'d>,
    class_weights: Vec<f32>,
}

impl<'d> NetworkGradients<'d> {
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
