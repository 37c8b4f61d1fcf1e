//! The results of one measurement of a model: metrics, each with an interval, computed from one table of counts.
//!
//! Test records that are public are counted exactly. Records that are protected are counted by the trusted base, which adds noise to
//! every cell. All metrics are computed from the table and from public numbers, so they cost no more than the table.

mod classes;
mod layout;
mod numbers;
mod table;
mod temperature;

use serde::{Deserialize, Serialize};
use sordino_nn::{NetworkError, Params};
use sordino_privacy::{Outcomes, Tally};

pub(crate) use classes::exact_log_loss;
pub use layout::Layout;
pub(crate) use layout::log_odds;
pub(crate) use numbers::{residual_weights, token_weights};
use table::Table;

use crate::Evaluator;

/// A number with an interval. The interval contains the value for the population that the records are from in at least 95 of 100
/// measurements: it covers the noise of the measurement and the error of sampling the records.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

/// All metrics of one measurement. A metric is absent if it does not apply, or if there are too few records to compute it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Metrics {
    /// The number of test records, or of units that hold them.
    pub records: u64,
    /// The standard deviation of the noise in each cell of the table; 0 if it was counted exactly.
    pub noise_std: f64,
    /// The fraction of records whose class is predicted correctly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Estimate>,
    /// The accuracy of always predicting the most frequent class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub majority: Option<Majority>,
    /// The mean of the classes' recall.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balanced_accuracy: Option<Estimate>,
    /// For two classes: the probability that a record of the second class has a higher score than a record of the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auc: Option<Estimate>,
    /// For two classes: the mean precision over the records of the second class, in the order of their scores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_precision: Option<Estimate>,
    /// The mean of `-log(probability of the true class)`. If the records are protected, probabilities are rounded to a grid, whose width the
    /// interval covers, and log-odds are cut beyond it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_loss: Option<Estimate>,
    /// The mean distance, over groups of records with similar confidence, between their confidence and their accuracy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration_error: Option<Estimate>,
    /// The temperature that was fitted to the table, and what it achieves on the same table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<Temperature>,
    /// Recall and precision of each class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassMetrics>,
    /// The mean squared error, in scaled units; residuals are cut at [`Layout::RESIDUAL`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_squared_error: Option<Estimate>,
    /// The mean absolute error, in scaled units; residuals are cut at [`Layout::RESIDUAL`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_absolute_error: Option<Estimate>,
    /// The share of residuals (prediction minus target, in scaled units) up to each edge; the last bin has no edge.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub residuals: Vec<ResidualBin>,
    /// The mean over records of their loss per token; the loss of a record is cut at twice that of guessing uniformly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_loss: Option<Estimate>,
}

/// The most frequent class.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Majority {
    /// Its number.
    pub class: usize,
    /// Its share of the records.
    pub share: Estimate,
}

/// How well one class is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClassMetrics {
    /// The share of the records that have this class.
    pub share: Estimate,
    /// The fraction of the records of this class that are predicted to have it.
    pub recall: Option<Estimate>,
    /// The fraction of the records predicted to have this class that have it.
    pub precision: Option<Estimate>,
}

/// A temperature divides the outputs of a model before they become probabilities. It does not change which class is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Temperature {
    /// The temperature. For an overconfident model it is above 1.
    pub value: f64,
    /// The log loss with it; for more than two classes, an upper bound.
    pub log_loss: Estimate,
    /// The calibration error with it, for two classes.
    pub calibration_error: Option<Estimate>,
}

/// One bin of the histogram of residuals.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ResidualBin {
    /// The upper edge; none for the last bin.
    pub up_to: Option<f64>,
    /// The share of the residuals.
    pub share: Estimate,
}

impl Metrics {
    /// The metrics of a table.
    pub fn new(layout: &Layout, counts: Vec<f64>, slots: u64, noise_std: f64) -> Self {
        let table = Table::new(counts, slots as f64, noise_std.powi(2), layout.fills_one_cell());
        let metrics = match layout {
            Layout::Classes(cells) => classes::metrics(cells, &table),
            Layout::Numbers { width } => numbers::residuals(*width, &table),
            Layout::Tokens { largest } => numbers::tokens(*largest, &table),
        };
        Self { records: slots, noise_std, ..metrics }
    }

    /// The metric that comes first: accuracy, mean squared error or loss per token.
    pub fn headline(&self) -> Option<Estimate> {
        self.accuracy.or(self.mean_squared_error).or(self.token_loss)
    }

    /// Whether noise was added to the counts.
    pub fn is_noisy(&self) -> bool {
        self.noise_std > 0.0
    }
}

/// Held-back slots, for the trusted base.
pub(crate) struct HeldBack<'e, 'd> {
    pub(crate) evaluator: &'e mut Evaluator<'d>,
    pub(crate) layout: &'e Layout,
}

impl Outcomes for HeldBack<'_, '_> {
    type Point = Params;
    type Error = NetworkError;

    fn slots(&self) -> usize {
        self.evaluator.slots()
    }

    fn cells(&self) -> usize {
        self.layout.cells()
    }

    fn tally(&mut self, at: &Params, tally: &mut Tally<'_>) -> Result<(), NetworkError> {
        self.evaluator.tally(at, self.layout, &mut |slot, cell, weight| tally.add(slot, cell, weight))
    }
}

#[cfg(test)]
mod tests;
