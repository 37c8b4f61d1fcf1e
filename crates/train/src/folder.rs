//! The files of a run, and how they are written so that they are always complete.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::TrainError;

/// The folder of a run.
///
/// | file | content |
/// | --- | --- |
/// | `config.toml` | all settings; a new run can use them |
/// | `schema.toml`, `network.toml`, `tokenizer.json` | copies of public files that the settings refer to, as far as there are any |
/// | `ledger` | what may have been released; each line is written before the release and chained to the previous one by a hash |
/// | `metrics.jsonl` | measurements on public data, one JSON object per line |
/// | `model.safetensors` | the weights |
/// | `checkpoint.safetensors` | what is needed to resume: weights, optimizer, average, public state of the algorithm, step |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolder(PathBuf);

impl RunFolder {
    /// Creates the folder of a new run. It may exist if it is empty.
    ///
    /// # Errors
    /// A folder that is not empty or cannot be created.
    pub fn create(path: &Path) -> Result<Self, TrainError> {
        fs::create_dir_all(path).map_err(|error| failed(path, &error))?;
        let mut entries = fs::read_dir(path).map_err(|error| failed(path, &error))?;
        match entries.next() {
            None => Ok(Self(path.to_owned())),
            Some(_) => Err(TrainError::Refused {
                problem: format!("the folder {} is not empty", path.display()),
                hint: format!(
                    "choose another folder with {{out}}, or resume the run in it with {{resume={}}}",
                    path.display()
                ),
            }),
        }
    }

    /// Opens the folder of a run that has begun.
    ///
    /// # Errors
    /// A folder without settings or without a ledger.
    pub fn open(path: &Path) -> Result<Self, TrainError> {
        let folder = Self(path.to_owned());
        if folder.config().is_file() && folder.never_began() {
            return Err(TrainError::Refused {
                problem: format!(
                    "the run in {} ended before its ledger was written: no step was taken, and no privacy budget was spent",
                    path.display()
                ),
                hint: format!("delete the folder: rm -r {}", path.display()),
            });
        }
        if !folder.config().is_file() {
            return Err(TrainError::Refused {
                problem: format!("{} is not the folder of a run: it has no config.toml", path.display()),
                hint: "give a folder that a training run has written".to_owned(),
            });
        }
        folder.check_ledger()?;
        Ok(folder)
    }

    /// Opens the folder of a run that has begun. Returns none if this is not the folder of a run, or if its run never began.
    ///
    /// # Errors
    /// A run whose ledger is missing.
    pub fn find(path: &Path) -> Result<Option<Self>, TrainError> {
        let folder = Self(path.to_owned());
        if !folder.config().is_file() || folder.never_began() {
            return Ok(None);
        }
        folder.check_ledger()?;
        Ok(Some(folder))
    }

    /// Checks that a run that has begun still has its ledger.
    fn check_ledger(&self) -> Result<(), TrainError> {
        match self.has_ledger() {
            true => Ok(()),
            false => Err(TrainError::Refused {
                problem: format!(
                    "the ledger of {} is missing or empty, although its run has begun: no epsilon can be stated for it",
                    self.0.display()
                ),
                hint: "restore the ledger from a copy".to_owned(),
            }),
        }
    }

    /// Whether there is a ledger with at least one complete line.
    fn has_ledger(&self) -> bool {
        fs::read(self.ledger()).is_ok_and(|ledger| ledger.contains(&b'\n'))
    }

    /// Whether the folder has nothing that a run writes after its settings: no complete line of a ledger, and no later file.
    fn never_began(&self) -> bool {
        let later = [self.metrics(), self.model(), self.checkpoint()];
        !self.has_ledger() && !later.iter().any(|file| file.exists())
    }

    /// Removes the folder if its run never began. Returns whether it was removed.
    pub fn remove_if_never_began(&self) -> bool {
        let never_began = self.never_began();
        if never_began {
            let _ = fs::remove_dir_all(&self.0);
        }
        never_began
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The settings.
    pub fn config(&self) -> PathBuf {
        self.0.join("config.toml")
    }

    /// The ledger.
    pub fn ledger(&self) -> PathBuf {
        self.0.join("ledger")
    }

    /// The measurements.
    pub fn metrics(&self) -> PathBuf {
        self.0.join("metrics.jsonl")
    }

    /// The weights.
    pub fn model(&self) -> PathBuf {
        self.0.join("model.safetensors")
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> PathBuf {
        self.0.join("checkpoint.safetensors")
    }
}

/// Writes a file atomically: to a temporary name, synced, then renamed. A reader sees the old file or the new one.
///
/// # Errors
/// A file that cannot be written.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    let attempt = || -> io::Result<()> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".draft");
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
            _ => Ok(()),
        }
    };
    attempt().map_err(|error| failed(path, &error))
}

/// Reads a file.
///
/// # Errors
/// A file that cannot be read.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, TrainError> {
    fs::read(path).map_err(|error| failed(path, &error))
}

pub(crate) fn failed(path: &Path, problem: &dyn std::fmt::Display) -> TrainError {
    TrainError::File { path: path.to_owned(), problem: problem.to_string() }
}
