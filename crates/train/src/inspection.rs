//! A run, looked at afterwards.

use std::{collections::HashMap, fs};

use sordino_privacy::Account;

use crate::{Measurement, RunFolder, Score, TrainError, folder::failed, seal, seal::Seals};

/// What a run's folder says, after its ledger was checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Inspection {
    /// What the ledger says.
    pub account: Account,
    /// The last measurement, if there is one.
    pub score: Option<Score>,
    /// The seconds of training up to it.
    pub seconds: Option<f64>,
    /// Whether the ledger has the hash of the weights. False for runs of earlier versions: it cannot be checked whether
    /// their weights were changed.
    pub weights_covered: bool,
}

/// Checks a run's ledger, line by line and against the weights, and the weights against the ledger; reads its last measurement.
///
/// # Errors
/// A ledger that was changed or cut, named; weights that were changed.
pub fn inspect(folder: &RunFolder) -> Result<Inspection, TrainError> {
    let seals = Seals::read(folder)?;
    let account = Account::read(&folder.ledger())?;
    seals.check_ledger(folder, &account)?;
    let weights_covered = seals.check_weights(folder, &account)?;
    if account.is_closed() && !folder.model().is_file() {
        return Err(failed(&folder.model(), &"is missing, although the run is finished"));
    }
    let metrics = fs::read_to_string(folder.metrics()).unwrap_or_default();
    let last: Option<Measurement> = metrics.lines().rev().find_map(|line| serde_json::from_str(line).ok());
    Ok(Inspection {
        account,
        score: last.as_ref().map(|last| last.score),
        seconds: last.as_ref().map(|last| last.seconds),
        weights_covered,
    })
}

/// What was noted in the file of the weights.
///
/// # Errors
/// No such file, or one that is not whole.
pub fn model_notes(folder: &RunFolder) -> Result<HashMap<String, String>, TrainError> {
    seal::read_notes(&folder.model())
}
