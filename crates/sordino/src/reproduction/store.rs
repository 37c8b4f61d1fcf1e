//! Finished runs, one JSON file for each experiment.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use sordino_train::{Settings, TrainError, write_whole};

use super::Experiment;
use crate::report::json;

/// A folder of finished runs.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    writing: Mutex<()>,
}

/// A finished run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRecord {
    /// The seed of its model, batches and noise.
    pub seed: u64,
    /// The fraction of test records that are classified correctly.
    pub accuracy: f64,
    /// Seconds of training, while other runs use the same machine.
    pub seconds: f64,
    /// The version of Sordino.
    pub version: String,
}

/// The stored results of an experiment.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredExperiment {
    data: String,
    settings: Settings,
    runs: Vec<RunRecord>,
}

impl Store {
    /// The runs in this folder. It is created when the first run is stored.
    pub fn open(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), writing: Mutex::new(()) }
    }

    /// The finished runs of an experiment, by seed.
    ///
    /// # Errors
    /// A file that cannot be read, or that is about another experiment.
    pub fn runs(&self, experiment: &Experiment) -> Result<Vec<RunRecord>, TrainError> {
        let path = self.path(experiment);
        let refused = |problem: String| {
            TrainError::refused(format!("{}: {problem}", path.display()), "remove the file to train again")
        };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(refused(error.to_string())),
        };
        let stored: StoredExperiment =
            serde_json::from_str(&text).map_err(|error| refused(error.to_string()))?;
        if stored.data != experiment.data.name || stored.settings != experiment.settings {
            return Err(refused("the file has the results of another experiment".to_owned()));
        }
        Ok(stored.runs)
    }

    /// The seeds of the finished runs of an experiment.
    pub(super) fn seeds(&self, experiment: &Experiment) -> Result<BTreeSet<u64>, TrainError> {
        Ok(self.runs(experiment)?.iter().map(|run| run.seed).collect())
    }

    /// Adds a finished run.
    ///
    /// # Errors
    /// A file that cannot be read or written.
    pub fn add(&self, experiment: &Experiment, run: RunRecord) -> Result<(), TrainError> {
        let _guard = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut runs = self.runs(experiment)?;
        runs.retain(|other| other.seed != run.seed);
        runs.push(run);
        runs.sort_by_key(|run| run.seed);
        fs::create_dir_all(&self.folder).map_err(|error| {
            TrainError::refused(
                format!("cannot create the folder {}: {error}", self.folder.display()),
                "choose another folder for the results",
            )
        })?;
        let (data, settings) = (experiment.data.name.to_owned(), experiment.settings.clone());
        let text = json(&StoredExperiment { data, settings, runs });
        write_whole(&self.path(experiment), text.as_bytes())
    }

    fn path(&self, experiment: &Experiment) -> PathBuf {
        self.folder.join(format!("{}.json", experiment.key()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduction::data_sets;

    #[test]
    fn runs_are_kept_by_seed_and_a_file_of_another_experiment_is_refused() {
        let folder = std::env::temp_dir().join(format!("sordino-store-{}", std::process::id()));
        let store = Store::open(&folder);
        let experiment = |epochs| Experiment {
            data: &data_sets()[0],
            settings: Settings { epochs: Some(epochs), ..Settings::default() },
        };
        let run = |seed, accuracy| RunRecord { seed, accuracy, seconds: 1.0, version: "0".to_owned() };
        let first = experiment(3.0);
        assert!(store.runs(&first).unwrap().is_empty());
        for (seed, accuracy) in [(2, 0.5), (1, 0.25), (2, 0.75)] {
            store.add(&first, run(seed, accuracy)).unwrap();
        }
        assert_eq!(store.runs(&first).unwrap(), [run(1, 0.25), run(2, 0.75)]);
        assert!(store.runs(&experiment(4.0)).unwrap().is_empty());
        fs::copy(store.path(&first), store.path(&experiment(4.0))).unwrap();
        let message = store.runs(&experiment(4.0)).unwrap_err().to_string();
        assert!(message.contains("another experiment"), "{message}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
