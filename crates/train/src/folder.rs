//! Where a run keeps its files, and how they are written so that they are always whole.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::TrainError;

/// The folder of a run.
///
/// | file | what it is |
/// | --- | --- |
/// | `config.toml` | the settings, all of them; can be given to a new run |
/// | `ledger` | what may have been released, written ahead and chained by hashes |
/// | `metrics.jsonl` | measurements on public data, one JSON object a line |
/// | `model.safetensors` | the weights |
/// | `checkpoint.safetensors` | what a run needs to go on: weights, optimizer, average, the algorithm's public state, step |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolder(PathBuf);

impl RunFolder {
    /// A new folder for a run. An empty one may exist already.
    ///
    /// # Errors
    /// A folder that has anything in it, or cannot be made.
    pub fn create(path: &Path) -> Result<Self, TrainError> {
        fs::create_dir_all(path).map_err(|error| failed(path, &error))?;
        let mut entries = fs::read_dir(path).map_err(|error| failed(path, &error))?;
        match entries.next() {
            None => Ok(Self(path.to_owned())),
            Some(_) => Err(TrainError::Refused {
                problem: format!("{} has files in it already", path.display()),
                hint: format!(
                    "choose another folder with --out, or go on with the run in it by --resume {}",
                    path.display()
                ),
            }),
        }
    }

    /// The folder of a run that has begun.
    ///
    /// # Errors
    /// A folder without a configuration and a ledger.
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
                hint: "give a folder that `sordino train` has written".to_owned(),
            });
        }
        folder.check_ledger()?;
        Ok(folder)
    }

    /// The folder of a run that has begun; none if this is not the folder of a run, or if its run never began.
    ///
    /// # Errors
    /// A run that has lost its ledger.
    pub fn find(path: &Path) -> Result<Option<Self>, TrainError> {
        let folder = Self(path.to_owned());
        if !folder.config().is_file() || folder.never_began() {
            return Ok(None);
        }
        folder.check_ledger()?;
        Ok(Some(folder))
    }

    /// Refuses a folder whose run has begun and that has no ledger any more.
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

    /// Whether there is a ledger with at least one whole line.
    fn has_ledger(&self) -> bool {
        fs::read(self.ledger()).is_ok_and(|ledger| ledger.contains(&b'\n'))
    }

    /// Whether the folder has nothing that a run writes after its settings: no whole line of a ledger, and no later file.
    pub fn never_began(&self) -> bool {
        let later = [self.metrics(), self.model(), self.checkpoint()];
        !self.has_ledger() && !later.iter().any(|file| file.exists())
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

    /// What the run needs to go on.
    pub fn checkpoint(&self) -> PathBuf {
        self.0.join("checkpoint.safetensors")
    }
}

/// Writes a file as a whole: to a new name, synced, then renamed. Whoever looks sees the old file or the new one.
///
/// # Errors
/// If the disk does not play along.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    let attempt = || -> io::Result<()> {
        let mut draft = path.as_os_str().to_owned();
        draft.push(".draft");
        let mut file = File::create(&draft)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
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
/// If it cannot be read.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, TrainError> {
    fs::read(path).map_err(|error| failed(path, &error))
}

pub(crate) fn failed(path: &Path, problem: &dyn std::fmt::Display) -> TrainError {
    TrainError::File { path: path.to_owned(), problem: problem.to_string() }
}
