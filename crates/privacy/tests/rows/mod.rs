//! Records whose gradients are given outright, so that everything about a release can be worked out by hand.

use std::{convert::Infallible, fs, ops::Range, path::PathBuf};

use sordino_accounting::{Accountant, Delta, NoiseMultiplier, Plan, SamplingRate, Steps};
use sordino_privacy::{Gradients, Sum, Terms, WeightRule};

/// Record `i` has the gradient `rows[i]` wherever it is taken; an empty row is a record that is absent.
#[derive(Clone)]
pub(crate) struct Rows {
    pub(crate) rows: Vec<Vec<f32>>,
    pub(crate) dimension: usize,
    /// The rounding that this engine reports.
    pub(crate) rounding: f64,
    /// Leaves sums as they are when the batch is empty.
    pub(crate) lazy: bool,
}

impl Rows {
    pub(crate) fn new(rows: Vec<Vec<f32>>) -> Self {
        let dimension = rows.iter().map(Vec::len).max().unwrap_or(0);
        Self { rows, dimension, rounding: 0.0, lazy: false }
    }

    /// Equal rows.
    pub(crate) fn same(count: usize, row: &[f32]) -> Self {
        Self::new(vec![row.to_vec(); count])
    }
}

impl Gradients for Rows {
    type Point = [f32; 0];
    type Error = Infallible;

    fn records(&self) -> usize {
        self.rows.len()
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
        _: &[f32; 0],
        anchor: Option<&[f32; 0]>,
        chosen: &[usize],
        weigh: Option<&WeightRule<'_>>,
        _: [u8; 32],
        sums: &mut [Sum],
    ) -> Result<(), Infallible> {
        if self.lazy && chosen.is_empty() {
            return Ok(());
        }
        for sum in &mut *sums {
            sum.values.clear();
            sum.values.resize(self.dimension, 0.0);
        }
        assert!(anchor.is_none(), "rows are the same everywhere");
        for row in chosen.iter().map(|&record| &self.rows[record]) {
            if row.is_empty() {
                continue;
            }
            let norm = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
            if !norm.is_finite() {
                continue;
            }
            let mut weights = vec![1.0; sums.len()];
            if let Some(weigh) = weigh {
                weights.fill(0.0);
                weigh(&[norm], &mut weights);
            }
            for (sum, weight) in sums.iter_mut().zip(weights) {
                for (sum, value) in sum.values.iter_mut().zip(row) {
                    *sum += f64::from(weight * value);
                }
            }
        }
        Ok(())
    }
}

/// Terms of DP-SGD from plain numbers.
pub(crate) fn terms(records: usize, multipliers: &[f64], rate: f64, steps: u64) -> Terms {
    let releases = multipliers.iter().map(|&z| NoiseMultiplier::new(z).unwrap()).collect();
    let sampling =
        sordino_accounting::Sampling::Poisson { rate: SamplingRate::new(rate).unwrap(), cap: None };
    let entry = sordino_accounting::Entry::new(sampling, releases, Steps::new(steps).unwrap()).unwrap();
    let delta = Delta::new(1e-5).unwrap();
    Terms::price(Plan::new(vec![entry]), records as u64, delta, None, Accountant::Rdp).unwrap()
}

/// A folder for ledgers that goes away with its test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("sordino-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
