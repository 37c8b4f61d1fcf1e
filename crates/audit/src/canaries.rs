//! Canaries: synthetic records with known gradients, in slots of their own beside the real records.
//!
//! The gradient vector has more coordinates than the network has parameters. Every canary has a coordinate `i` that the network does not use,
//! and its gradient is `n e_i` at every point, for its norm `n`. Free coordinates have no canaries and contain noise only. Clipping,
//! sampling, noise and ledger are those of the real [`Vault`](sordino_privacy::Vault), and the gradients of real records are not changed.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use sordino_privacy::{Gradients, Sum, WeightRule};

/// The canaries of an audit.
#[derive(Debug, Clone, PartialEq)]
pub struct Canaries {
    /// The gradient norm of the canaries of each coordinate. It must be finite.
    pub norms: Vec<f64>,
    /// How many canaries share a coordinate.
    pub copies: usize,
    /// Whether the canaries of each coordinate are members. The slots of the others are empty.
    pub members: Vec<bool>,
    /// The number of coordinates without canaries.
    pub free: usize,
    /// The number of layers over which the gradient of a canary is divided equally: all of them if each layer is clipped separately,
    /// otherwise 1.
    pub parts: usize,
}

impl Canaries {
    /// Canaries that are all members, with one coordinate for each of these norms.
    pub fn with_norms(norms: Vec<f64>, copies: usize, free: usize) -> Self {
        let members = vec![true; norms.len()];
        Self { norms, copies, members, free, parts: 1 }
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.norms.len() * self.copies
    }

    /// The number of coordinates after those of the network.
    pub fn coordinates(&self) -> usize {
        self.norms.len() * self.parts + self.free
    }

    /// The projection of a release on the direction of each canary, and the free coordinates, given the coordinates after those of the
    /// network. Each value has the noise of one coordinate.
    pub fn projections(&self, tail: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let (canaries, free) = tail.split_at(tail.len().saturating_sub(self.free));
        let scale = 1.0 / (self.parts as f32).sqrt();
        let canaries = canaries.chunks(self.parts).map(|parts| scale * parts.iter().sum::<f32>()).collect();
        (canaries, free.to_vec())
    }
}

/// The canary slots that the last batch drew, in ascending order.
pub(crate) type Drawn = Arc<Mutex<Vec<u32>>>;

/// An engine with canaries beside its records.
pub struct Canaried<G> {
    gradients: G,
    /// Whether the slots of the real records are filled.
    records_are_members: bool,
    canaries: Canaries,
    drawn: Drawn,
}

impl<G: Gradients> Canaried<G> {
    /// Canaries beside the records of an engine. Unless `records_are_members`, the slots of the records are empty.
    pub fn new(gradients: G, records_are_members: bool, canaries: Canaries) -> Self {
        Self { gradients, records_are_members, canaries, drawn: Drawn::default() }
    }

    /// The canary slots that the last batch drew. Every pass updates this list.
    pub(crate) fn drawn(&self) -> Drawn {
        self.drawn.clone()
    }

    /// Adds the contributions of the drawn canaries to the sums.
    fn add(&self, drawn: &[u32], rule: Option<&WeightRule<'_>>, sums: &mut [Sum]) {
        let (layers, before) = (self.gradients.layers(), self.gradients.dimension());
        let Canaries { norms, copies, members, parts, .. } = &self.canaries;
        let mut of_layers = vec![0.0; layers];
        let mut weights = vec![0.0_f32; sums.len() * layers];
        for &slot in drawn {
            let canary = slot as usize / copies;
            if !members[canary] {
                continue;
            }
            let part = norms[canary] / (*parts as f64).sqrt();
            of_layers.fill(0.0);
            of_layers[..*parts].fill(part);
            weights.fill(if rule.is_some() { 0.0 } else { 1.0 });
            if let Some(rule) = rule {
                rule(&of_layers, &mut weights);
            }
            for (sum, weights) in sums.iter_mut().zip(weights.chunks(layers)) {
                for (layer, weight) in weights.iter().enumerate().take(*parts) {
                    let added = f64::from(*weight) * part;
                    let lattice = sum.step;
                    let rounded = if lattice > 0.0 { (added / lattice).round() * lattice } else { added };
                    sum.values[before + canary * parts + layer] += rounded;
                }
            }
        }
    }
}

impl<G: Gradients> Gradients for Canaried<G> {
    type Point = G::Point;
    type Error = G::Error;

    fn records(&self) -> usize {
        self.gradients.records() + self.canaries.slots()
    }

    fn dimension(&self) -> usize {
        self.gradients.dimension() + self.canaries.coordinates()
    }

    fn trainable(&self) -> Vec<Range<usize>> {
        let mut trainable = self.gradients.trainable();
        trainable.push(self.gradients.dimension()..self.dimension());
        trainable
    }

    fn layers(&self) -> usize {
        self.gradients.layers()
    }

    fn rounding(&self, differences: bool) -> f64 {
        self.gradients.rounding(differences)
    }

    fn pass(
        &mut self,
        at: &G::Point,
        anchor: Option<&G::Point>,
        chosen: &[usize],
        rule: Option<&WeightRule<'_>>,
        key: [u8; 32],
        sums: &mut [Sum],
    ) -> Result<(), G::Error> {
        let records = self.gradients.records();
        let (real, canaries) = chosen.split_at(chosen.partition_point(|&slot| slot < records));
        let real = if self.records_are_members { real } else { &[] };
        let dimension = self.gradients.dimension();
        let mut inner: Vec<Sum> = sums
            .iter_mut()
            .map(|sum| {
                let mut values = std::mem::take(&mut sum.values);
                values.truncate(dimension);
                Sum { step: sum.step, values }
            })
            .collect();
        self.gradients.pass(at, anchor, real, rule, key, &mut inner)?;
        for (sum, inner) in sums.iter_mut().zip(inner) {
            sum.values = inner.values;
            sum.values.resize(dimension + self.canaries.coordinates(), 0.0);
        }
        let canaries: Vec<u32> = canaries.iter().map(|&slot| (slot - records) as u32).collect();
        self.add(&canaries, rule, sums);
        *self.drawn.lock().unwrap_or_else(PoisonError::into_inner) = canaries;
        Ok(())
    }
}

/// An engine without records and with one parameter that is not used. With canaries, it is the mechanism without a network.
pub struct NoRecords {
    layers: usize,
}

impl NoRecords {
    /// For clip rules with this number of layers.
    pub fn new(layers: usize) -> Self {
        Self { layers }
    }
}

impl Gradients for NoRecords {
    type Point = Vec<f32>;
    type Error = std::convert::Infallible;

    fn records(&self) -> usize {
        0
    }

    fn dimension(&self) -> usize {
        1
    }

    fn trainable(&self) -> Vec<Range<usize>> {
        std::iter::once(0..1).collect()
    }

    fn layers(&self) -> usize {
        self.layers
    }

    fn rounding(&self, _: bool) -> f64 {
        0.0
    }

    fn pass(
        &mut self,
        _: &Vec<f32>,
        _: Option<&Vec<f32>>,
        _: &[usize],
        _: Option<&WeightRule<'_>>,
        _: [u8; 32],
        _: &mut [Sum],
    ) -> Result<(), Self::Error> {
        Ok(())
    }
}
