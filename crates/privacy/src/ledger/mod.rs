//! The ledger: what may have been released, written before it is.
//!
//! A text file with one line for each event, `HASH JSON`, where `HASH = SHA-256(previous hash, JSON)` in hexadecimal. The
//! first line has the terms; each `charge` pays for steps *before* they are drawn. Lines are synced to disk before anything
//! they pay for is computed, so after a crash the ledger covers at least what was released. A `model` line has the hash of weights
//! that are written after it, so a file of weights that is on the disk has its line.
//!
//! The chain shows accidents and careless edits. Somebody who rewrites the whole file and everything that refers to it is
//! not detected: there is no secret in it.

mod account;

use std::{
    fs::TryLockError,
    fs::{File, OpenOptions},
    io::{Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

pub use account::Account;
use account::{Event, LedgerHead};

use crate::{PrivacyError, Terms};

/// Steps that a line which was only half written may have been meant to pay for.
const MOST_STEPS_PER_CHARGE: u64 = 1 << 12;

/// A ledger that is being written. Its file is locked, so that a run has one writer.
pub(crate) struct Ledger {
    /// `None` for a ledger in memory.
    file: Option<File>,
    path: PathBuf,
    account: Account,
    sync_time: Duration,
    /// Whether a line may not have reached the disk. Then nothing can be paid for any more.
    failed: bool,
}

impl Ledger {
    /// Begins a ledger; there must be no file of this name.
    pub(crate) fn create(path: &Path, terms: &Terms, seeded: bool) -> Result<Self, PrivacyError> {
        let file = OpenOptions::new().create_new(true).read(true).append(true).open(path);
        let file = file.map_err(|error| failed(path, "cannot be created", &error))?;
        lock(&file, path)?;
        let head = LedgerHead::new(terms.text.clone(), seeded);
        let (account, line) = Account::begin(head);
        let mut ledger = Self::new(Some(file), path, account);
        ledger.append(&line)?;
        // The name must survive a crash, too.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| failed(path, "cannot be synced", &error))?;
        Ok(ledger)
    }

    /// Begins a ledger without a file, which charges the whole plan at once.
    pub(crate) fn in_memory(terms: &Terms, seeded: bool) -> Self {
        let account = Account::in_memory(LedgerHead::new(terms.text.clone(), seeded));
        Self::new(None, Path::new("(in memory)"), account)
    }

    fn new(file: Option<File>, path: &Path, account: Account) -> Self {
        Self { file, path: path.to_owned(), account, sync_time: Duration::ZERO, failed: false }
    }

    /// Takes up a ledger where it was left. Every step that was charged counts as taken.
    pub(crate) fn resume(path: &Path, terms: &Terms, seeded: bool) -> Result<Self, PrivacyError> {
        let file = OpenOptions::new().read(true).append(true).open(path);
        let file = file.map_err(|error| failed(path, "cannot be opened", &error))?;
        lock(&file, path)?;
        let account = Account::read(path)?;
        if account.head() != &LedgerHead::new(terms.text.clone(), seeded) {
            return Err(PrivacyError::Mismatch(format!(
                "{} was written under other terms; its settings, records or seed are not those of this run",
                path.display()
            )));
        }
        if account.is_closed() {
            return Err(PrivacyError::Finished(path.to_owned()));
        }
        let mut ledger = Self::new(Some(file), path, account);
        if let Some(whole) = ledger.account.torn() {
            // Nothing was drawn on a line that never reached the disk, but whether it did is not ours to guess. The new line is
            // laid over the torn one, so that the file is torn or mended whenever this is interrupted.
            let line = ledger.account.mend().map_err(|problem| failed(path, "cannot be mended", &problem))?;
            let lay = || -> std::io::Result<()> {
                let mut file = OpenOptions::new().write(true).open(path)?;
                file.seek(SeekFrom::Start(whole))?;
                file.write_all(line.as_bytes())?;
                file.set_len(whole + line.len() as u64)?;
                file.sync_all()
            };
            lay().map_err(|error| failed(path, "cannot be mended", &error))?;
        }
        ledger.write(Event::Resumed { at: ledger.account.charged() })?;
        Ok(ledger)
    }

    /// Pays for the next steps; when this returns, the line is on the disk.
    pub(crate) fn charge(&mut self, steps: u64) -> Result<(), PrivacyError> {
        self.write(Event::Charge { from: self.account.charged(), steps: steps.min(MOST_STEPS_PER_CHARGE) })
    }

    /// Says that of the steps charged only the first were drawn, and nothing will be drawn before the next charge.
    pub(crate) fn settle(&mut self, drawn: u64) -> Result<(), PrivacyError> {
        self.write(Event::Settled { drawn })
    }

    /// Says that something left without noise; once is enough.
    pub(crate) fn disclose(&mut self, why: &str) -> Result<(), PrivacyError> {
        if self.account.is_given_up() {
            return self.check();
        }
        self.write(Event::Disclosed { why: why.to_owned() })
    }

    /// Enters the hash of the weights that are written next. When this returns, the line is on the disk.
    pub(crate) fn enter_model(&mut self, hash: &str) -> Result<(), PrivacyError> {
        self.write(Event::Model { hash: hash.to_owned() })
    }

    /// Says that the plan is finished.
    pub(crate) fn close(&mut self) -> Result<(), PrivacyError> {
        self.write(Event::Closed { steps: self.account.charged() })
    }

    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// How long the last line took to reach the disk.
    pub(crate) fn sync_time(&self) -> Duration {
        self.sync_time
    }

    /// Refuses if a line may not have reached the disk.
    pub(crate) fn check(&self) -> Result<(), PrivacyError> {
        match self.failed {
            true => Err(failed(&self.path, "cannot be written", &"an earlier line did not reach the disk")),
            false => Ok(()),
        }
    }

    fn write(&mut self, event: Event) -> Result<(), PrivacyError> {
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
