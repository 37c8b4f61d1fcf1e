//! The files of a run, and how they are written so that they are always complete.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
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
        fs::create_dir_all(path).map_err(|error| TrainError::Refused {
            problem: format!("cannot create the folder {}: {error}", path.display()),
            hint: "choose another folder with {out}".to_owned(),
        })?;
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

/// Writes a file atomically: to a temporary name, synced, then renamed. A reader sees the old file or the new one, and a failure leaves
/// the old one. A link stays a link. What is not a file, such as `/dev/stdout` or a pipe, is written in place.
///
/// # Errors
/// A file that cannot be written.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    let attempt = || -> io::Result<()> {
        if is_device(path) {
            return OpenOptions::new().write(true).open(path)?.write_all(bytes);
        }
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let draft = Draft::of(&path);
        let mut file = File::create(&draft.0)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&draft.0, &path)?;
        match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
            _ => Ok(()),
        }
    };
    attempt().map_err(|error| failed(path, &error))
}

/// Checks that [`write_whole`] can write a file, and does not change it. A long computation checks this first.
///
/// # Errors
/// A file that cannot be written.
pub fn check_writable(path: &Path) -> Result<(), TrainError> {
    let attempt = || -> io::Result<()> {
        static CHECKS: AtomicU64 = AtomicU64::new(0);
        let open = |path: &Path| OpenOptions::new().write(true).open(path).map(drop);
        if is_device(path) || path.is_dir() {
            return open(path);
        }
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        // The draft's name may belong to a folder, or to the draft of a process that was stopped.
        let draft = with_suffix(&path, DRAFT);
        if draft.exists() {
            open(&draft)?;
        }
        // A unique name, so that no existing file is overwritten.
        loop {
            let number = CHECKS.fetch_add(1, Ordering::Relaxed);
            let probe = with_suffix(&path, &format!("{DRAFT}-{}-{number}", process::id()));
            match File::create_new(&probe) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                created => return created.map(|_| drop(Draft(probe))),
            }
        }
    };
    attempt().map_err(|error| failed(path, &error))
}

/// Whether a path exists and is neither a file nor a folder. A rename would replace it with a file.
fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// The ending of the temporary name of a file.
const DRAFT: &str = ".draft";

/// The temporary name of a file. If the file was not renamed, it is removed.
struct Draft(PathBuf);

impl Draft {
    fn of(path: &Path) -> Self {
        Self(with_suffix(path, DRAFT))
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
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

#[cfg(test)]
mod tests {
    use sordino_testing::Folder;

    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_stays_as_it_is() {
        let folder = Folder::new("write-whole");
        let path = folder.file("results.json");
        write_whole(&path, b"old").unwrap();
        check_writable(&path).unwrap();
        check_writable(&folder.file("new.json")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        // The draft cannot be created, as on a full disk.
        fs::create_dir(folder.file("results.json.draft")).unwrap();
        assert!(write_whole(&path, b"new").is_err() && check_writable(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        // The name of a folder.
        fs::create_dir(folder.file("folder")).unwrap();
        assert!(write_whole(&folder.file("folder"), b"new").is_err());
        assert!(check_writable(&folder.file("folder")).is_err());
        assert!(check_writable(&folder.file("absent/new.json")).is_err());
        let mut names: Vec<_> =
            fs::read_dir(folder.file("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["folder", "results.json", "results.json.draft"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_links_and_devices_are_written_in_place() {
        use std::os::unix::fs::symlink;

        let folder = Folder::new("write-links");
        let (path, link) = (folder.file("results.json"), folder.file("latest.json"));
        write_whole(&path, b"old").unwrap();
        symlink(&path, &link).unwrap();
        write_whole(&link, b"new").unwrap();
        assert!(link.is_symlink() && !path.is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(!is_device(&link) && !is_device(&folder.file("")) && is_device(Path::new("/dev/null")));
        let device = folder.file("device");
        symlink("/dev/null", &device).unwrap();
        check_writable(&device).unwrap();
        write_whole(&device, b"new").unwrap();
        assert!(device.is_symlink() && is_device(&device));
    }
}
