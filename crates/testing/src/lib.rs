//! Engines with known gradients, for the tests of the other crates.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod threads;

use std::{convert::Infallible, fs, ops::Range, path::PathBuf};

use sordino_accounting::{Accountant, Delta, Entry, NoiseMultiplier, Plan, Sampling, SamplingRate, Steps};
use sordino_privacy::{Gradients, Sum, Terms, WeightRule};
pub use threads::{ThreadRank, on_connected, on_ranks};

/// Records in memory whose gradient `V` at a point `P` is a function of the record `R` and the point. The model has one layer.
#[derive(Clone)]
pub struct InMemory<R, P, V> {
    /// The records. `None` is an absent record, which adds nothing.
    pub records: Vec<Option<R>>,
    /// The gradient of a record at a point.
    pub gradient: fn(&R, &P) -> V,
    /// The length of a gradient.
    pub dimension: usize,
    /// The rounding that the engine reports.
    pub rounding: f64,
    /// Whether the engine adds records whose gradient is not finite, as no engine should.
    pub adds_not_finite: bool,
}

impl<R, P, V> InMemory<R, P, V> {
    /// These records, all present, with gradients of this length.
    pub fn new(records: Vec<R>, dimension: usize, gradient: fn(&R, &P) -> V) -> Self {
        let records = records.into_iter().map(Some).collect();
        Self { records, gradient, dimension, rounding: 0.0, adds_not_finite: false }
    }
}

/// Records whose gradients are given, wherever they are computed.
pub type Rows = InMemory<Vec<f32>, [f32; 0], Vec<f32>>;

/// One record for each row. An empty row is an absent record.
pub fn rows(rows: Vec<Vec<f32>>) -> Rows {
    let dimension = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut engine = Rows::new(rows, dimension, |row, _| row.clone());
    for record in &mut engine.records {
        record.take_if(|row| row.is_empty());
    }
    engine
}

/// Equal rows.
pub fn same_rows(count: usize, row: &[f32]) -> Rows {
    rows(vec![row.to_vec(); count])
}

impl<R, P, V> Gradients for InMemory<R, P, V>
where
    P: Clone + AsRef<[f32]> + AsMut<[f32]>,
    V: AsRef<[f32]>,
{
    type Point = P;
    type Error = Infallible;

    fn records(&self) -> usize {
        self.records.len()
    }

    fn dimension(&self) -> usize {
        self.dimension
    }

    fn trainable(&self) -> Vec<Range<usize>> {
        std::iter::once(0..self.dimension).collect()
    }

    fn layers(&self) -> usize {
        1
    }

    fn rounding(&self, _: bool) -> f64 {
        self.rounding
    }

    fn pass(
        &mut self,
        at: &P,
        anchor: Option<&P>,
        chosen: &[usize],
        rule: Option<&WeightRule<'_>>,
        _: [u8; 32],
        sums: &mut [Sum],
    ) -> Result<(), Infallible> {
        for record in chosen.iter().filter_map(|&index| self.records[index].as_ref()) {
            let (here, there) = ((self.gradient)(record, at), anchor.map(|at| (self.gradient)(record, at)));
            let there = there.as_ref().map_or(&[][..], V::as_ref);
            let value = |i: usize| here.as_ref()[i] - there.get(i).unwrap_or(&0.0);
            let length = here.as_ref().len();
            let norm = (0..length).map(|i| f64::from(value(i)).powi(2)).sum::<f64>().sqrt();
            if !norm.is_finite() && !self.adds_not_finite {
                continue;
            }
            let mut weights = vec![1.0; sums.len()];
            if let Some(rule) = rule {
                weights.fill(0.0);
                rule(&[norm], &mut weights);
            }
            for (sum, weight) in sums.iter_mut().zip(weights) {
                sum.values
                    .iter_mut()
                    .take(length)
                    .enumerate()
                    .for_each(|(i, sum)| *sum += f64::from(weight * value(i)));
            }
        }
        Ok(())
    }
}

/// What an [`Intercepted`] engine does with a batch: it is given the chosen records, and whether the pass has an anchor, and returns the
/// records that are passed on.
pub type Intercept<'a> = Box<dyn FnMut(&[usize], bool) -> Vec<usize> + 'a>;

/// Another engine whose batches can be observed or changed.
pub struct Intercepted<'a, G> {
    /// The engine.
    pub gradients: G,
    /// Called for each pass.
    pub batch: Intercept<'a>,
}

impl<G: Gradients> Gradients for Intercepted<'_, G> {
    type Point = G::Point;
    type Error = G::Error;

    fn records(&self) -> usize {
        self.gradients.records()
    }

    fn dimension(&self) -> usize {
        self.gradients.dimension()
    }

    fn trainable(&self) -> Vec<Range<usize>> {
        self.gradients.trainable()
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
        let chosen = (self.batch)(chosen, anchor.is_some());
        self.gradients.pass(at, anchor, &chosen, rule, key, sums)
    }
}

/// Terms of DP-SGD from plain numbers, with one release for each multiplier.
pub fn terms(records: usize, multipliers: &[f64], rate: f64, steps: u64) -> Terms {
    let releases = multipliers.iter().map(|&z| NoiseMultiplier::new(z).unwrap()).collect();
    let sampling = Sampling::Poisson { rate: SamplingRate::new(rate).unwrap(), cap: None };
    let entry = Entry::new(sampling, releases, Steps::new(steps).unwrap()).unwrap();
    let delta = Delta::new(1e-5).unwrap();
    Terms::price(Plan::new(vec![entry]), records as u64, delta, None, Accountant::Rdp).unwrap()
}

/// A temporary folder, removed when it is dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// A new empty folder. The name is unique to a process.
    pub fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("sordino-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// A path in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
