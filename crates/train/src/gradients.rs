//! Private records and the engine that runs over them, as the trusted base sees them.

use std::ops::Range;

use sordino_nn::{Engine, NetworkError, Params, Pass, Records};
use sordino_privacy::{Gradients, RecordGradient, Sum, Weigh};

/// Records of a data set with a network to run over them.
pub struct NetworkGradients<'d> {
    engine: Engine,
    records: Records<'d>,
}

impl<'d> NetworkGradients<'d> {
    /// These records; they were checked by this engine.
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
        weigh: Option<&Weigh<'_>>,
        key: [u8; 32],
        sums: &mut [Sum],
    ) -> Result<(), NetworkError> {
        let steps: Vec<f64> = sums.iter().map(|sum| sum.step).collect();
        let mut values: Vec<Vec<f64>> = sums.iter_mut().map(|sum| std::mem::take(&mut sum.values)).collect();
        let mut pass = Pass::new(at, &self.records, chosen).with_dropout(key).rounded_to(&steps);
        if let Some(anchor) = anchor {
            pass = pass.minus(anchor);
        }
        match weigh {
            None => self.engine.pass(&pass, &mut values)?,
            Some(weigh) => {
                let rule = |norms: &[f64], weights: &mut [f32]| weigh(&mut Seen { norms, weights });
                self.engine.pass(&pass.weighed_by(&rule), &mut values)?
            }
        };
        sums.iter_mut().zip(values).for_each(|(sum, values)| sum.values = values);
        Ok(())
    }
}

/// A record in the middle of a pass.
struct Seen<'a> {
    norms: &'a [f64],
    weights: &'a mut [f32],
}

impl RecordGradient for Seen<'_> {
    fn norm(&self, layer: usize) -> f64 {
        self.norms[layer]
    }

    fn weigh(&mut self, sum: usize, layer: usize, weight: f32) {
        // A sum that was not asked for has no weights.
        if let Some(place) = self.weights.get_mut(sum * self.norms.len() + layer) {
            *place = weight;
        }
    }
}
