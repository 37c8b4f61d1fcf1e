//! Everything that can go wrong between a plan and a release.

use std::path::PathBuf;

use sordino_accounting::{AccountingError, Epsilon};
use thiserror::Error;

/// Why the base refused.
///
/// The message has the value and what is permitted; [`hint`](Self::hint) has the cure.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PrivacyError {
    /// A plan, a quantity or an accountant was refused.
    #[error(transparent)]
    Accounting(#[from] AccountingError),
    /// The plan costs more than the budget.
    #[error("the plan costs epsilon = {cost} at delta = {delta}, the budget is {budget}")]
    OverBudget {
        /// What it costs.
        cost: Epsilon,
        /// What may be spent.
        budget: Epsilon,
        /// At this delta.
        delta: sordino_accounting::Delta,
    },
    /// The accountant only approximates.
    #[error("the {0} accountant gives no bound, so nothing can be released on its word")]
    NoBound(&'static str),
    /// Plan and records do not belong together.
    #[error("{0}")]
    Mismatch(String),
    /// The plan has an entry with stateful sampling.
    #[error("the vault cannot run the entry {0}: its releases depend on hidden state")]
    Stateful(String),
    /// A clip rule makes no sense, or not for this model.
    #[error("{0}")]
    Rule(String),
    /// A round tried to release more than its plan says.
    #[error("the plan has {planned} releases for this step, all of them made")]
    OffPlan {
        /// How many there are.
        planned: usize,
    },
    /// The operating system has no randomness.
    #[error("the operating system gives no randomness: {0}")]
    NoRandomness(String),
    /// The engine could not run.
    #[error("the gradients could not be computed: {0}")]
    Engine(Box<dyn std::error::Error + Send + Sync>),
    /// The ledger cannot be read or written.
    #[error("{}: {problem}", path.display())]
    LedgerFile {
        /// The file.
        path: PathBuf,
        /// What happened.
        problem: String,
    },
    /// Another process has the ledger open.
    #[error("the ledger {} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The plan is finished.
    #[error("the run of the ledger {} is finished: no step of its plan is left", .0.display())]
    Finished(PathBuf),
    /// The ledger is not what was written.
    #[error("{}, line {line}: {problem}", path.display())]
    LedgerBroken {
        /// The file.
        path: PathBuf,
        /// The first line that is wrong.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
}

impl PrivacyError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Accounting(error) => return error.hint(),
            Self::OverBudget { .. } => "use more noise, fewer steps or a lower sampling rate",
            Self::NoBound(_) => "use pld or rdp",
            Self::Mismatch(_) => "plans, records and ledgers belong together; start a new run for new ones",
            Self::Stateful(_) => "entries with stateful sampling are for the accountant alone",
            Self::Rule(_) => "typical clip norms lie between 0.1 and 10",
            Self::OffPlan { .. } => "put every release of a step into the plan before training starts",
            Self::NoRandomness(_) => "noise needs getrandom(2) or its like; there is no substitute",
            Self::Engine(_) => "check that parameters belong to the model",
            Self::LedgerFile { .. } => {
                "the ledger must be writable, on a disk with room, and used by one run at a time"
            }
            Self::InUse(_) => {
                "another process is training in this folder; wait until it has ended, or stop it"
            }
            Self::Finished(_) => "there is nothing to resume; start a new run, or show this one",
            Self::LedgerBroken { .. } => {
                "restore the ledger from a copy; without it no epsilon can be stated for this run"
            }
        }
        .to_owned()
    }
}
