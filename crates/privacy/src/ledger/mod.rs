//! The ledger: a record of what may have been released, written in advance.
//!
//! It is a text file with one line for each event, `HASH JSON`, where `HASH = SHA-256(previous hash, JSON)` in hexadecimal. The first
//! line has the terms. Each `charge` line charges steps *before* they are taken. A line is synced to the disk before the steps it charges
//! are computed, so after a crash the ledger covers at least what was released. A `model` line has the hash of weights that are written
//! after it, so weights on the disk have a line in the ledger. A `measured` line charges a measurement on held-back slots before it is made. A ledger in memory has no file and charges the whole plan at once.
//!
//! The chain of hashes detects accidents and careless edits. It contains no secret, so it does not detect an edit that rewrites the whole
//! file and everything that refers to it.

mod account;

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

pub use account::Account;
pub(crate) use account::Event;
use account::LedgerHead;

use crate::{PrivacyError, Terms};

/// The largest number of steps that one line charges. An incomplete line may have charged as many.
const MAX_STEPS_PER_CHARGE: u64 = 1 << 12;

/// A ledger that is being written. Its file is locked, so that a run has one writer.
pub(crate) struct Ledger {
    /// `None` for a ledger in memory.
    file: Option<File>,
    path: PathBuf,
    account: Account,
    sync_time: Duration,
    /// Whether a line may not have reached the disk. Then nothing more can be charged.
    failed: bool,
}

impl Ledger {
    /// Creates a ledger. The file must not exist.
    pub(crate) fn create(path: &Path, terms: &Terms, seeded: bool) -> Result<Self, PrivacyError> {
        let file = OpenOptions::new().create_new(true).read(true).append(true).open(path);
        let file = file.map_err(|error| failed(path, "cannot be created", &error))?;
        lock(&file, path)?;
        let head = LedgerHead::new(terms.text.clone(), seeded);
        let (account, line) = Account::begin(head);
        let mut ledger = Self::new(Some(file), path, account);
        ledger.append(&line)?;
        // The name of the file must also survive a crash.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| failed(path, "cannot be synced", &error))?;
        Ok(ledger)
    }

    /// Creates a ledger without a file, which charges the whole plan at once.
    pub(crate) fn in_memory(terms: &Terms, seeded: bool) -> Self {
        let account = Account::in_memory(LedgerHead::new(terms.text.clone(), seeded));
        Self::new(None, Path::new("(in memory)"), account)
    }

    fn new(file: Option<File>, path: &Path, account: Account) -> Self {
        Self { file, path: path.to_owned(), account, sync_time: Duration::ZERO, failed: false }
    }

    /// Opens a ledger of an earlier process. Every step that was charged counts as taken.
    pub(crate) fn resume(path: &Path, terms: &Terms, seeded: bool) -> Result<Self, PrivacyError> {
        let file = OpenOptions::new().read(true).append(true).open(path);
        let file = file.map_err(|error| failed(path, "cannot be opened", &error))?;
        lock(&file, path)?;
        let account = Account::read(path)?;
        if account.head != LedgerHead::new(terms.text.clone(), seeded) {
            return Err(PrivacyError::Mismatch(format!(
                "{} was written under other terms: the settings, the records or the seed of this run are different",
                path.display()
            )));
        }
        if account.is_closed() {
            return Err(PrivacyError::Finished(path.to_owned()));
        }
        let mut ledger = Self::new(Some(file), path, account);
        if let Some(whole) = ledger.account.torn {
            // It is not known whether the torn line reached the disk before the process ended. The new line overwrites the torn one,
            // so that the file is either torn or repaired if this is interrupted.
            let line = ledger.account.mend().map_err(|problem| failed(path, "cannot be mended", &problem))?;
            let overwrite = || -> std::io::Result<()> {
                let mut file = OpenOptions::new().write(true).open(path)?;
                file.seek(SeekFrom::Start(whole))?;
                file.write_all(line.as_bytes())?;
                file.set_len(whole + line.len() as u64)?;
                file.sync_all()
            };
            overwrite().map_err(|error| failed(path, "cannot be mended", &error))?;
        }
        ledger.write(Event::Resumed { at: ledger.account.charged() })?;
        Ok(ledger)
    }

    /// Charges the next steps. When this returns, the line is on the disk.
    pub(crate) fn charge(&mut self, steps: u64) -> Result<(), PrivacyError> {
        self.write(Event::Charge { from: self.account.charged(), steps: steps.min(MAX_STEPS_PER_CHARGE) })
    }

    /// Records that a value was released without noise. One line is enough for a run.
    pub(crate) fn disclose(&mut self, why: &str) -> Result<(), PrivacyError> {
        if self.account.disclosure().is_some() || self.account.is_unprotected() {
            return self.check();
        }
        self.write(Event::Disclosed { why: why.to_owned() })
    }

    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// How long it took to sync the last line.
    pub(crate) fn sync_time(&self) -> Duration {
        self.sync_time
    }

    /// Fails if a line may not have reached the disk.
    pub(crate) fn check(&self) -> Result<(), PrivacyError> {
        match self.failed {
            true => Err(failed(&self.path, "cannot be written", &"an earlier line did not reach the disk")),
            false => Ok(()),
        }
    }

    /// Enters an event. When this returns, its line is on the disk.
    pub(crate) fn write(&mut self, event: Event) -> Result<(), PrivacyError> {
        self.check()?;
        let line =
            self.account.enter(event).map_err(|problem| failed(&self.path, "would be wrong", &problem))?;
        self.append(&line)
    }

    fn append(&mut self, line: &str) -> Result<(), PrivacyError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let begun = Instant::now();
        let written = file.write_all(line.as_bytes()).and_then(|()| file.sync_data());
        self.sync_time = begun.elapsed();
        self.failed = written.is_err();
        written.map_err(|error| failed(&self.path, "cannot be written", &error))
    }
}

fn lock(file: &File, path: &Path) -> Result<(), PrivacyError> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => PrivacyError::InUse(path.to_owned()),
        TryLockError::Error(error) => failed(path, "cannot be locked", &error),
    })
}

fn failed(path: &Path, what: &str, why: &dyn std::fmt::Display) -> PrivacyError {
    PrivacyError::LedgerFile { path: path.to_owned(), problem: format!("the ledger {what}: {why}") }
}

#[cfg(test)]
mod tests;
