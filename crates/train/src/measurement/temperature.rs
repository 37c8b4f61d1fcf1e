//! A temperature for the probabilities of a model, fitted to a table that was measured anyway.

use super::{
    Temperature,
    classes::{Cell, calibration_error, log_loss, losses},
    table::Table,
};

/// The temperature with the lowest log loss. None if 1 is as good: the difference must exceed two standard deviations of its error,
/// so that noise is not fitted.
///
/// Only temperatures of at least 1 are tried: a model that was trained with noise is rarely not sure enough, and a temperature below 1 that is fitted to few
/// records could make it far too sure. For more than two classes, the table gives an upper bound on the log loss at these temperatures, and the
/// temperature is the one with the lowest bound. The calibration error is then not bounded and not stated.
pub(super) fn fit(cells: &[Cell], groups: &[f64], table: &Table) -> Option<Temperature> {
    let two = cells.iter().all(|cell| cell.truth <= 1);
    // From 1 to 64, in steps of 2^(1/8).
    let candidates = (0..=48).map(|eighths| 2.0_f64.powf(f64::from(eighths) / 8.0));
    let loss = |value: f64| table.positive_mean(&losses(cells, value));
    let value = candidates.min_by(|a, b| loss(*a).total_cmp(&loss(*b)))?;
    let (before, after) = (losses(cells, 1.0), losses(cells, value));
    let gain: Vec<f64> = before.iter().zip(&after).map(|(before, after)| before - after).collect();
    (table.sum(&gain) > 2.0 * table.variance(&gain).total().sqrt()).then(|| Temperature {
        value,
        log_loss: log_loss(cells, table, value),
        calibration_error: two.then(|| calibration_error(cells, groups, table, value)),
    })
}
