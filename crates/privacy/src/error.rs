//! The errors of the trusted base.

use std::path::PathBuf;

use sordino_accounting::{AccountingError, Delta, Epsilon};
use thiserror::Error;

/// Why the base refused.
///
/// The message states the value and what is permitted. [`hint`](Self::hint) states what to change; settings in it are in braces, as in
/// `{accountant=rdp}`, for a front end to render.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PrivacyError {
    /// A plan, a quantity or an accountant was refused.
    #[error(transparent)]
    Accounting(#[from] AccountingError),
    /// The plan costs more than the budget.
    #[error("the plan costs epsilon = {cost} at delta = {delta}, but the budget is {budget}")]
    OverBudget {
        /// The epsilon of the plan.
        cost: Epsilon,
        /// The largest epsilon that is permitted.
        budget: Epsilon,
        /// The delta of both.
        delta: Delta,
    },
    /// The accountant only approximates.
    #[error("the {0} accountant is an approximation and not a bound, so nothing can be released under it")]
    NoBound(&'static str),
    /// The plan, the records or the ledger do not belong together.
    #[error("{0}")]
    Mismatch(String),
    /// The plan has an entry with stateful sampling.
    #[error("the vault cannot run the entry {0}: its releases depend on hidden state")]
    Stateful(String),
    /// A clip rule is invalid, or does not fit the model or the plan.
    #[error("{0}")]
    Rule(String),
    /// A round tried to release more than its plan permits.
    #[error("the plan permits {planned} releases in this step, and all of them have been made")]
    OffPlan {
        /// The number of releases in the plan.
        planned: usize,
    },
    /// More measurements were asked for than the terms permit.
    #[error(
        "the terms permit {planned} measurements of held-back records, and all of them have been charged"
    )]
    NoMeasurementLeft {
        /// The number of measurements in the terms.
        planned: u64,
    },
    /// The engine computed a sum that is not finite.
    #[error("the sum of gradients is not finite, so nothing was released; the step is charged")]
    NotFinite,
    /// Ranks cannot work together.
    #[error("{0}")]
    Ranks(String),
    /// The operating system has no randomness.
    #[error("the operating system provides no randomness: {0}")]
    NoRandomness(String),
    /// The engine failed.
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
    /// The ledger was changed after it was written.
    #[error("{}, line {line}: {problem}", path.display())]
    LedgerBroken {
        /// The file.
        path: PathBuf,
        /// The first wrong line.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
}

impl PrivacyError {
    /// What to change.
    pub fn hint(&self) -> String {
        match self {
            Self::Accounting(error) => return error.hint(),
            Self::OverBudget { .. } => "use more noise, fewer steps or a lower sampling rate",
            Self::NoBound(_) => "use {accountant=pld} or {accountant=rdp}",
            Self::Mismatch(_) => "plans, records and ledgers belong together; start a new run for new ones",
            Self::Stateful(_) => "entries with stateful sampling are for the accountant alone",
            Self::Rule(_) => "typical values of {max_grad_norm} are between 0.1 and 10",
            Self::OffPlan { .. } => "put every release of a step into the plan before training starts",
            Self::NoMeasurementLeft { .. } => "plan the number of {measurements} before training starts",
            Self::NotFinite => "end this run and repair the engine: it adds gradients that are not finite",
            Self::Ranks(_) => {
                "steps that were charged are in the ledger; resume the run with any number of ranks"
            }
            Self::NoRandomness(_) => "noise needs getrandom(2) or its equivalent; there is no substitute",
            Self::Engine(_) => "check that the parameters belong to the model",
            Self::LedgerFile { .. } => "the ledger must be a writable file on a disk with free space",
            Self::InUse(_) => "wait until the other process has ended, or stop it",
            Self::Finished(_) => "there is nothing to resume; start a new run, or show this one",
            Self::LedgerBroken { .. } => {
                "restore the ledger from a copy; without it no epsilon can be stated"
            }
        }
        .to_owned()
    }
}
