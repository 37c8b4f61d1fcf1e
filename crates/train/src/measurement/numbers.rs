//! Metrics of predicted numbers and of language models.

use super::{Estimate, Layout, Metrics, ResidualBin, layout::bin, table::Table};

/// The edges of the histogram of residuals, in scaled units.
pub(super) const EDGES: [f64; 11] = [-0.8, -0.4, -0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.2, 0.4, 0.8];
const BINS: usize = EDGES.len() + 1;

/// The cells of one residual, and its weights: a quarter for the histogram, half for its square and a quarter for its absolute value.
pub(crate) fn residual_weights(residual: f64) -> [(usize, f64); 3] {
    let cut = (residual.abs() / Layout::RESIDUAL).min(1.0);
    // A residual that is not a number counts as the largest.
    let cut = if cut.is_nan() { 1.0 } else { cut };
    [(bin(&EDGES, residual), 0.25), (BINS, 0.5 * cut * cut), (BINS + 1, 0.25 * cut)]
}

/// The cells of one record's loss, and its weights.
pub(crate) fn token_weights(loss: f64, largest: f64) -> [(usize, f64); 2] {
    let share = (loss / largest).clamp(0.0, 1.0);
    let share = if share.is_nan() { 1.0 } else { share };
    [(0, 0.5 * share), (1, 0.5 * share * share)]
}

/// The mean of `scale * x`, where `x` from 0 to 1 adds `weight x` to one cell, and the mean of `x^2` is known.
fn mean_of_cell(table: &Table, cell: usize, weight: f64, scale: f64, square: f64) -> Estimate {
    let mut weights = vec![0.0; table.counts.len()];
    weights[cell] = 1.0 / weight;
    let mean = (table.sum(&weights) / table.slots).clamp(0.0, 1.0);
    // The variance of a number from 0 to 1 is at most mean (1 - mean).
    let spread = (square - mean * mean).clamp(0.0, mean * (1.0 - mean));
    let mut variance = table.variance(&weights);
    variance.sampling = spread * table.slots;
    let half = variance.half() / table.slots;
    let end = |x: f64| scale * x.clamp(0.0, 1.0);
    Estimate { value: scale * mean, low: end(mean - half), high: end(mean + half) }
}

pub(super) fn residuals(width: usize, table: &Table) -> Metrics {
    let share = |cell: usize| {
        let mut weights = vec![0.0; table.counts.len()];
        weights[cell] = 4.0;
        let Estimate { value, low, high } = table.mean(&weights);
        Estimate { value: value.clamp(0.0, 1.0), low: low.clamp(0.0, 1.0), high: high.clamp(0.0, 1.0) }
    };
    let shares: Vec<Estimate> = (0..BINS).map(share).collect();
    // The means of powers of the residual, cut and divided by the largest, from the far ends of the bins: not too small.
    let power = |exponent: i32| {
        let far = |bin: usize| {
            let low = if bin == 0 { Layout::RESIDUAL } else { EDGES[bin - 1].abs() };
            let high = EDGES.get(bin).map_or(Layout::RESIDUAL, |edge| edge.abs());
            (low.max(high) / Layout::RESIDUAL).powi(exponent)
        };
        shares.iter().enumerate().map(|(bin, share)| share.value * far(bin)).sum::<f64>()
    };
    let (largest, width) = (Layout::RESIDUAL, width as f64);
    let bins = shares.iter().enumerate();
    Metrics {
        // The squared error of a record is a sum over the values that are predicted for it.
        mean_squared_error: Some(mean_of_cell(table, BINS, 0.5, largest * largest * width, power(4))),
        mean_absolute_error: Some(mean_of_cell(table, BINS + 1, 0.25, largest, power(2))),
        residuals: bins
            .map(|(bin, share)| ResidualBin { up_to: EDGES.get(bin).copied(), share: *share })
            .collect(),
        ..Metrics::default()
    }
}

pub(super) fn tokens(largest: f64, table: &Table) -> Metrics {
    let square = 2.0 * table.counts[1] / table.slots;
    Metrics { token_loss: Some(mean_of_cell(table, 0, 0.5, largest, square)), ..Metrics::default() }
}
