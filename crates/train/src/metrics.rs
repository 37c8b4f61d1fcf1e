//! `metrics.jsonl`: what was measured on public records during a run.

use std::{
    fs::{self, OpenOptions},
    io::Write,
};

use serde::{Deserialize, Serialize};

use crate::{
    Evaluator, Observer, RunFolder, Score, TrainError, folder::failed, learner::Learner, write_whole,
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
}

/// Measures a model on public records and records the result.
pub(crate) struct Recorder<'a> {
    /// None if there are no public records.
    pub(crate) evaluator: Option<Evaluator<'a>>,
    /// None if nothing is written.
    pub(crate) folder: Option<&'a RunFolder>,
    pub(crate) private: bool,
}

impl Recorder<'_> {
    pub(crate) fn measure(
        &mut self,
        learner: &Learner,
        step: u64,
        seconds: f64,
        observer: &mut dyn Observer,
    ) -> Result<Option<Score>, TrainError> {
        let Some(evaluator) = &mut self.evaluator else { return Ok(None) };
        let score = evaluator.score(&learner.best())?;
        let measurement = Measurement { step, score, seconds, private: self.private };
        if let Some(folder) = self.folder {
            append(folder, &measurement)?;
        }
        observer.measured(&measurement);
        Ok(Some(score))
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
