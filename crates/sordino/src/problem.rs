//! What went wrong, in one voice: the value, the permitted range, and a hint.

use std::{error::Error, fmt, io, path::Path};

use clap::error::ErrorKind;
use sordino_accounting::AccountingError;

/// A reason not to answer; the exit code is 2.
#[derive(Debug)]
pub(crate) enum Problem {
    /// Help, the version, or arguments that make no sense together.
    Usage(clap::Error),
    /// A value or a plan that was refused.
    Refused(AccountingError),
    /// The flags that a plan still lacks.
    IncompletePlan(String),
    /// A plan file that cannot be read.
    PlanFile {
        /// Where and what.
        message: String,
        /// The cure.
        hint: String,
    },
}

impl Problem {
    pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Self {
        let message = format!("cannot read the plan {}: {error}", path.display());
        Self::PlanFile { message, hint: "give the path of a JSON file".to_owned() }
    }

    pub(crate) fn malformed(path: &Path, error: &serde_json::Error) -> Self {
        let hint = "a plan is a list such as [{\"noise_multiplier\": 1.1, \"sample_rate\": 0.01, \"steps\": 1000}]; \
                    docs/plans.md lists all keys";
        Self::PlanFile { message: format!("{}: {error}", path.display()), hint: hint.to_owned() }
    }
}

impl From<AccountingError> for Problem {
    fn from(error: AccountingError) -> Self {
        Self::Refused(error)
    }
}

impl From<clap::Error> for Problem {
    fn from(error: clap::Error) -> Self {
        // A value that was refused by its own type speaks for itself.
        let refused = error.source().and_then(|source| source.downcast_ref::<AccountingError>()).cloned();
        match refused {
            Some(refused) if error.kind() == ErrorKind::ValueValidation => Self::Refused(refused),
            _ => Self::Usage(error),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(error) => error.fmt(f),
            Self::Refused(error) => write!(f, "error: {error}\n\nhint: {}", error.hint()),
            Self::IncompletePlan(missing) => write!(
                f,
                "error: the plan lacks {missing}\n\n\
                 hint: give --noise-multiplier, --sample-rate and --steps, or --plan FILE"
            ),
            Self::PlanFile { message, hint } => write!(f, "error: {message}\n\nhint: {hint}"),
        }
    }
}
