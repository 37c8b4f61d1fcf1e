//! Training.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use pyo3::{prelude::*, types::PyDict};
use sordino::{Error, Fitted, Score, Settings, StopHandle, Trainer, TrainingProgress, nn::Params};

use crate::{arrays::Data, errors::to_python, fitted::Model, network, threads};

/// Trains a model. Settings are given by name, as text. `network` is the description of a network in JSON. If `initial_weights` are given, training
/// starts from them. They must be public.
///
/// `callback(step, steps, score)` is called on the calling thread, at most every 50 ms. Ctrl-C and exceptions in the callback stop training
/// after the current step. A run with a run folder can then be resumed.
#[pyfunction]
#[pyo3(signature = (data, settings, *, network=None, initial_weights=None, test=None, public_test=false, run_folder=None, resume=false, callback=None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn fit(
    py: Python<'_>,
    data: &Data,
    settings: BTreeMap<String, String>,
    network: Option<&str>,
    initial_weights: Option<&Bound<'_, PyDict>>,
    test: Option<&Data>,
    public_test: bool,
    run_folder: Option<PathBuf>,
    resume: bool,
    callback: Option<Py<PyAny>>,
) -> PyResult<Model> {
    let model = match network {
        Some(text) => sordino::Model::from_json(text).map_err(to_python)?,
        None => sordino::Model::for_data(),
    };
    let initial_weights = match (network, initial_weights) {
        (Some(text), Some(weights)) => Some(network::params(&network::description(text)?, weights)?),
        _ => None,
    };
    let request = Request { model, initial_weights, settings, test, public_test, run_folder, resume };
    let (stop, latest, history) = (StopHandle::default(), Mutex::new(None), Mutex::new(BTreeMap::new()));
    let work = || request.fit(data, stop.clone(), &latest, &history);
    let mut reported = None;
    let fitted = threads::run(
        py,
        0,
        work,
        || stop.stop(),
        |py| {
            let now = *latest.lock().unwrap_or_else(PoisonError::into_inner);
            match (&callback, now) {
                (Some(callback), Some(now)) if reported != Some(now) => {
                    reported = Some(now);
                    callback.call1(py, (now.step, now.steps, now.score.and_then(number))).map(|_| ())
                }
                _ => Ok(()),
            }
        },
    )?;
    let history = history.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Model { fitted: fitted.map_err(to_python)?, history })
}

/// The arguments of [`fit`].
struct Request<'a> {
    model: sordino::Model,
    initial_weights: Option<Params>,
    settings: BTreeMap<String, String>,
    test: Option<&'a Data>,
    public_test: bool,
    run_folder: Option<PathBuf>,
    resume: bool,
}

impl Request<'_> {
    fn fit(
        &self,
        data: &Data,
        stop: StopHandle,
        latest: &Mutex<Option<TrainingProgress>>,
        history: &Mutex<BTreeMap<u64, f64>>,
    ) -> Result<Fitted, Error> {
        let mut trainer = match (&self.run_folder, self.resume) {
            (Some(folder), true) => Trainer::resume(folder),
            (None, true) => {
                return Err(Error::refused(
                    "resume is True, but run_folder is not given; only a run with a run folder can be resumed",
                    "give the run_folder of the run that was stopped",
                ));
            }
            (folder, false) => {
                let mut trainer = Trainer::new(self.model.clone());
                for (name, value) in &self.settings {
                    trainer = trainer.set(name, value)?;
                }
                if let Some(weights) = &self.initial_weights {
                    trainer = trainer.initial_weights(weights)?;
                }
                match folder {
                    Some(folder) => trainer.run_folder(folder),
                    None => trainer,
                }
            }
        };
        trainer = match (self.test, self.public_test) {
            (Some(test), true) => trainer.public_test_data(&test.dataset),
            (Some(test), false) => trainer.test_data(&test.dataset),
            (None, _) => trainer,
        };
        let report = |progress: &TrainingProgress| {
            *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(*progress);
            if let Some(score) = progress.score.and_then(number) {
                history.lock().unwrap_or_else(PoisonError::into_inner).insert(progress.scored_step, score);
            }
        };
        trainer.stopped_by(stop).on_progress(report).fit(&data.dataset)
    }
}

/// The score as one number.
pub(crate) fn number(score: Score) -> Option<f64> {
    score.accuracy.or(score.mean_squared_error).or(score.token_loss)
}

/// The names of all settings, with their headings. Settings under "Data" describe files.
#[pyfunction]
pub(crate) fn setting_headings() -> BTreeMap<&'static str, &'static str> {
    Settings::ALL.iter().map(|setting| (setting.name, setting.heading)).collect()
}
