//! Finished runs, one JSON file for each experiment.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use sordino_train::{Settings, TrainError, check_writable, write_whole};

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
    /// The fraction of test records that are classified correctly; none for a language model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// The mean loss per token of the test records; for a language model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Seconds of training, while other runs use the same machine.
    pub seconds: f64,
    /// The version of Sordino, with the commit that it was built from if that is known.
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

    /// Creates the folder, and checks that files can be written to it.
    ///
    /// # Errors
    /// A folder that cannot be created or written.
    pub(super) fn create(&self) -> Result<(), TrainError> {
        let written = fs::create_dir_all(&self.folder).map_err(|error| error.to_string());
        let written = written
            .and_then(|()| check_writable(&self.folder.join("run.json")).map_err(|error| error.to_string()));
        written.map_err(|problem| {
            TrainError::refused(
                format!("cannot store results in {}: {problem}", self.folder.display()),
                "choose another folder with {results}",
            )
        })
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
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(refused(error.to_string())),
        };
        let stored: StoredExperiment =
            serde_json::from_str(&text).map_err(|error| refused(error.to_string()))?;
        if stored.data != experiment.data.name || stored.settings != experiment.settings {
            return Err(refused("the file has the results of another experiment".to_owned()));
        }
        let is_share = |accuracy: &f64| (0.0..=1.0).contains(accuracy);
        if let Some(accuracy) = stored.runs.iter().filter_map(|run| run.accuracy).find(|a| !is_share(a)) {
            return Err(refused(format!("an accuracy must be from 0 to 1, got {accuracy}")));
        }
        Ok(stored.runs)
    }

    /// Those of the seeds 1, 2, ... `runs` that have no finished run.
    ///
    /// # Errors
    /// A file that cannot be read, or that is about another experiment.
    pub fn missing_seeds(&self, experiment: &Experiment, runs: u64) -> Result<Vec<u64>, TrainError> {
        let finished: BTreeSet<u64> = self.runs(experiment)?.iter().map(|run| run.seed).collect();
        Ok((1..=runs).filter(|seed| !finished.contains(seed)).collect())
    }

    /// Adds a finished run. If a run with its seed is stored already, that one is kept.
    ///
    /// # Errors
    /// A file that cannot be read or written.
    pub fn add(&self, experiment: &Experiment, run: RunRecord) -> Result<(), TrainError> {
        let _guard = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // If this fails, so does writing the file.
        let _ = fs::create_dir_all(&self.folder);
        // Other processes may use the same folder. Where a folder cannot be locked, as on Windows, only one process may use it.
        let folder = File::open(&self.folder);
        let _lock = folder.and_then(|folder| folder.lock().map(|()| folder));
        let mut runs = self.runs(experiment)?;
        if runs.iter().any(|other| other.seed == run.seed) {
            return Ok(());
        }
        runs.push(run);
        runs.sort_by_key(|run| run.seed);
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
        let run = |seed, accuracy| RunRecord {
            seed,
            accuracy: Some(accuracy),
            loss: None,
            seconds: 1.0,
            version: "0".to_owned(),
        };
        let first = experiment(3.0);
        assert!(store.runs(&first).unwrap().is_empty());
        for (seed, accuracy) in [(2, 0.5), (1, 0.25), (2, 0.75)] {
            store.add(&first, run(seed, accuracy)).unwrap();
        }
        assert_eq!(store.runs(&first).unwrap(), [run(1, 0.25), run(2, 0.5)]);
        store.add(&first, run(4, 0.5)).unwrap();
        assert_eq!(store.missing_seeds(&first, 4).unwrap(), [3]);
        assert!(store.runs(&experiment(4.0)).unwrap().is_empty());
        fs::copy(store.path(&first), store.path(&experiment(4.0))).unwrap();
        let message = store.runs(&experiment(4.0)).unwrap_err().to_string();
        assert!(message.contains("another experiment"), "{message}");
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Like two processes, two stores on the same folder share no mutex.
    #[cfg(unix)]
    #[test]
    fn no_run_is_lost_if_two_stores_write_to_one_folder() {
        let folder = std::env::temp_dir().join(format!("sordino-two-stores-{}", std::process::id()));
        let experiment = Experiment { data: &data_sets()[0], settings: Settings::default() };
        let write = |parity: u64| {
            let store = Store::open(&folder);
            for seed in (parity..60).step_by(2) {
                let (accuracy, loss) = (None, Some(0.5));
                let run = RunRecord { seed, accuracy, loss, seconds: 1.0, version: "0".to_owned() };
                store.add(&experiment, run).unwrap();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| write(0));
            scope.spawn(|| write(1));
        });
        assert_eq!(Store::open(&folder).runs(&experiment).unwrap().len(), 60);
        fs::remove_dir_all(&folder).unwrap();
    }
}
