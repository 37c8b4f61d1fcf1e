//! `metrics.jsonl`: what was measured on test records during a run.

use std::{
    fs::{self, OpenOptions},
    io::Write,
};

use serde::{Deserialize, Serialize};
use sordino_privacy::Vault;

use crate::{
    Evaluator, Metrics, NetworkGradients, Observer, RunFolder, Score, TrainError, folder::failed,
    learner::Learner, measurement::HeldBack, write_whole,
};

/// A line of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Steps taken or given up.
    pub step: u64,
    /// The score.
    #[serde(flatten)]
    pub score: Score,
    /// Seconds of training, in all processes.
    pub seconds: f64,
    /// Whether the run is private. With a fixed seed or without noise it is not.
    pub private: bool,
    /// Whether the test records are protected: then noise was added to what is measured.
    #[serde(default)]
    pub protected: bool,
    /// All metrics with their intervals. Exact measurements during a run have only a score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
}

/// Measures a model on test records and records the result.
pub(crate) struct Recorder<'a> {
    /// None if there are no test records.
    pub(crate) evaluator: Option<Evaluator<'a>>,
    /// None if nothing is written.
    pub(crate) folder: Option<&'a RunFolder>,
    pub(crate) private: bool,
    /// Whether the test records are protected; then the standard deviation of the noise in each cell of a table.
    pub(crate) noise_std: Option<f64>,
}

/// When a measurement is made.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) step: u64,
    pub(crate) seconds: f64,
    /// Whether training is over.
    pub(crate) last: bool,
}

impl Recorder<'_> {
    /// Measures a model: exactly on public records, through the vault on protected ones. Returns nothing if there are no test records, or if no
    /// measurement is left.
    pub(crate) fn measure(
        &mut self,
        vault: &mut Vault<NetworkGradients<'_>>,
        learner: &Learner,
        Moment { step, seconds, last }: Moment,
        observer: &mut dyn Observer,
    ) -> Result<Option<Measurement>, TrainError> {
        let Some(evaluator) = &mut self.evaluator else { return Ok(None) };
        let account = vault.account();
        let private = self.private && account.disclosure().is_none();
        let left = account.measurement_budget().map_or(0, |budget| budget.measurements - account.measured());
        let (params, slots) = (learner.best(), evaluator.slots() as u64);
        let Some(layout) = evaluator.layout(self.noise_std.unwrap_or(0.0).powi(2)) else { return Ok(None) };
        let (score, metrics) = match self.noise_std {
            Some(_) if left == 0 => return Ok(None),
            Some(_) => {
                let table = vault.measure(&mut HeldBack { evaluator, layout: &layout }, &params)?;
                let noise_std = table.noise_std();
                let metrics = Metrics::new(&layout, table.into_inner(), slots, noise_std);
                (Score::estimated(&metrics), Some(metrics))
            }
            None => {
                let score = evaluator.score(&params)?;
                let table = last.then(|| evaluator.table(&params, &layout)).transpose()?;
                let log_loss = last.then(|| evaluator.log_loss(&params)).transpose()?.flatten();
                let metrics =
                    table.map(|table| Metrics { log_loss, ..Metrics::new(&layout, table, slots, 0.0) });
                let headline = metrics.as_ref().and_then(Metrics::headline);
                (Score { interval: headline.map(|headline| [headline.low, headline.high]), ..score }, metrics)
            }
        };
        let protected = self.noise_std.is_some();
        let measurement = Measurement { step, score, seconds, private, protected, metrics };
        if let Some(folder) = self.folder {
            append(folder, &measurement)?;
        }
        observer.measured(&measurement);
        Ok(Some(measurement))
    }

    /// The last measurement of the model that training ended with, in this process or in one that was killed.
    pub(crate) fn measure_at_end(
        &mut self,
        vault: &mut Vault<NetworkGradients<'_>>,
        learner: &Learner,
        moment: Moment,
        observer: &mut dyn Observer,
    ) -> Result<Option<Measurement>, TrainError> {
        let recorded = self.folder.and_then(last).filter(|last| last.protected && last.step == moment.step);
        match recorded {
            Some(recorded) => Ok(Some(recorded)),
            None => self.measure(vault, learner, moment, observer),
        }
    }
}

/// Appends a line.
pub(crate) fn append(folder: &RunFolder, measurement: &Measurement) -> Result<(), TrainError> {
    let path = folder.metrics();
    let line = serde_json::to_string(measurement).map_err(|error| failed(&path, &error))? + "\n";
    let file = OpenOptions::new().create(true).append(true).open(&path);
    file.and_then(|mut file| file.write_all(line.as_bytes())).map_err(|error| failed(&path, &error))
}

/// Removes an incomplete last line, which a killed run may leave.
pub(crate) fn repair(folder: &RunFolder) -> Result<(), TrainError> {
    let path = folder.metrics();
    let Ok(text) = fs::read(&path) else { return Ok(()) };
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    if whole < text.len() { write_whole(&path, &text[..whole]) } else { Ok(()) }
}

/// All complete measurements, in the order of steps.
pub fn measurements(folder: &RunFolder) -> Vec<Measurement> {
    let text = fs::read_to_string(folder.metrics()).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The last complete measurement.
pub(crate) fn last(folder: &RunFolder) -> Option<Measurement> {
    let text = fs::read_to_string(folder.metrics()).unwrap_or_default();
    text.lines().rev().find_map(|line| serde_json::from_str(line).ok())
}
