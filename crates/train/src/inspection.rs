//! Reading a run after it has ended or while it is running.

use std::collections::HashMap;

use sordino_privacy::Account;

use crate::{
    Metrics, RunFolder, Score, TrainError,
    folder::failed,
    metrics,
    seal::{self, Seals},
};

/// The state of a run, after its ledger was checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Inspection {
    /// The content of the ledger.
    pub account: Account,
    /// The last measurement, if there is one.
    pub score: Option<Score>,
    /// All metrics of that measurement.
    pub metrics: Option<Metrics>,
    /// The seconds of training up to that measurement.
    pub seconds: Option<f64>,
    /// Whether the ledger has the hash of the weights. False for runs of earlier versions: it cannot be checked whether
    /// their weights were changed.
    pub weights_covered: bool,
}

/// Checks the ledger of a run line by line, checks the ledger and the weights against each other, and reads the last measurement.
///
/// # Errors
/// A ledger that was changed or truncated; weights that were changed.
pub fn inspect(folder: &RunFolder) -> Result<Inspection, TrainError> {
    let seals = Seals::read(folder)?;
    let account = Account::read(&folder.ledger())?;
    seals.check_ledger(folder, &account)?;
    let weights_covered = seals.check_weights(folder, &account)?;
    if account.is_closed() && !folder.model().is_file() {
        return Err(failed(&folder.model(), &"is missing, although the run is finished"));
    }
    let last = metrics::last(folder);
    Ok(Inspection {
        account,
        score: last.as_ref().map(|last| last.score),
        seconds: last.as_ref().map(|last| last.seconds),
        metrics: last.and_then(|last| last.metrics),
        weights_covered,
    })
}

/// The number of parameters in the weights of a run; none if there are no weights yet.
pub fn parameter_count(folder: &RunFolder) -> Option<u64> {
    seal::parameter_count(&folder.model())
}

/// The note with the temperature of predicted probabilities.
pub(crate) const TEMPERATURE: &str = "temperature";

/// The temperature by which the outputs of a run's model are divided before they become probabilities: 1 if none was fitted.
///
/// # Errors
/// A file that is missing or incomplete.
pub fn temperature(folder: &RunFolder) -> Result<f64, TrainError> {
    let notes = model_notes(folder)?;
    let fitted = notes.get(TEMPERATURE).and_then(|text| text.parse().ok());
    Ok(fitted.filter(|fitted: &f64| fitted.is_finite() && *fitted > 0.0).unwrap_or(1.0))
}

/// The notes that are stored with the weights.
///
/// # Errors
/// A file that is missing or incomplete.
pub fn model_notes(folder: &RunFolder) -> Result<HashMap<String, String>, TrainError> {
    seal::read_notes(&folder.model())
}
