//! A temperature for the probabilities of a model, fitted to a table that was measured anyway.

use super::{
    Temperature,
    classes::{Cell, calibration_error, log_loss, losses},
    table::Table,
};

/// The temperature with the lowest log loss. None if 1 is as good: the difference must exceed two standard deviations of its error,
/// so that noise is not fitted.
///
/// For two classes `z / T` are the log-odds at temperature `T` exactly. For more classes, the log-odds of a class against all others are
/// treated alike, which is an approximation.
pub(super) fn fit(cells: &[Cell], groups: &[f64], table: &Table) -> Option<Temperature> {
    // From 1/8 to 64, in steps of 2^(1/8).
    let candidates = (-24..=48).map(|eighths| 2.0_f64.powf(f64::from(eighths) / 8.0));
    let loss = |value: f64| table.positive_mean(&losses(cells, value));
    let value = candidates.min_by(|a, b| loss(*a).total_cmp(&loss(*b)))?;
    let (before, after) = (losses(cells, 1.0), losses(cells, value));
    let gain: Vec<f64> = before.iter().zip(&after).map(|(before, after)| before - after).collect();
    (table.sum(&gain) > 2.0 * table.variance(&gain).total().sqrt()).then(|| Temperature {
        value,
        log_loss: log_loss(cells, table, value),
        calibration_error: calibration_error(cells, groups, table, value),
    })
}
