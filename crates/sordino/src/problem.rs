//! What went wrong, in one voice: the value, the permitted range, and a hint.

use std::{error::Error, fmt, io, path::Path};

use clap::error::ErrorKind;
use sordino_accounting::AccountingError;
use sordino_algorithms::AlgorithmError;
use sordino_data::DataError;
use sordino_nn::NetworkError;
use sordino_optim::OptimError;
use sordino_privacy::PrivacyError;
use sordino_train::TrainError;

/// A reason not to answer; the exit code is 2.
#[derive(Debug)]
pub(crate) enum Problem {
    /// Help, the version, or arguments that make no sense together.
    Usage(clap::Error),
    /// Anything that was refused.
    Refused {
        /// What, with its value and the permitted range.
        message: String,
        /// The cure.
        hint: String,
    },
}

impl Problem {
    pub(crate) fn refused(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Refused { message: message.into(), hint: hint.into() }
    }

    /// What was refused, in one line.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Usage(error) => error.to_string(),
            Self::Refused { message, .. } => message.clone(),
        }
    }

    /// The same problem, with this hint if the disk is full.
    #[must_use]
    pub(crate) fn or_on_a_full_disk(self, cure: impl FnOnce() -> String) -> Self {
        // ENOSPC and EDQUOT, as the standard library shows them.
        let full =
            |message: &str| ["(os error 28)", "(os error 122)"].iter().any(|code| message.contains(code));
        match self {
            Self::Refused { message, .. } if full(&message) => Self::Refused { message, hint: cure() },
            other => other,
        }
    }

    /// The same problem, of this one among several.
    pub(crate) fn about(self, name: &str) -> Self {
        match self {
            Self::Refused { message, hint } => Self::Refused { message: format!("{name}: {message}"), hint },
            usage @ Self::Usage(_) => usage,
        }
    }

    pub(crate) fn incomplete_plan(missing: &str) -> Self {
        Self::refused(
            format!("the plan lacks {missing}"),
            "give --noise-multiplier, --sample-rate and --steps, or --plan FILE",
        )
    }

    pub(crate) fn unreadable_plan(path: &Path, error: &io::Error) -> Self {
        Self::refused(
            format!("cannot read the plan {}: {error}", path.display()),
            "give the path of a JSON file",
        )
    }

    pub(crate) fn malformed_plan(path: &Path, error: &serde_json::Error) -> Self {
        Self::refused(
            format!("{}: {error}", path.display()),
            "a plan is a list such as [{\"noise_multiplier\": 1.1, \"sample_rate\": 0.01, \"steps\": 1000}]; \
             docs/plans.md lists all keys",
        )
    }
}

/// Errors of the crates below bring their own hints.
macro_rules! speaks_for_itself {
    ($($error:ty),*) => {$(
        impl From<$error> for Problem {
            fn from(error: $error) -> Self {
                Self::refused(error.to_string(), error.hint())
            }
        }
    )*};
}

speaks_for_itself!(AccountingError, AlgorithmError, DataError, OptimError, PrivacyError, TrainError);

impl From<NetworkError> for Problem {
    fn from(error: NetworkError) -> Self {
        TrainError::from(error).into()
    }
}

impl From<clap::Error> for Problem {
    fn from(error: clap::Error) -> Self {
        // A value that was refused by its own type speaks for itself.
        let refused = error.source().and_then(|source| source.downcast_ref::<AccountingError>()).cloned();
        match refused {
            Some(refused) if error.kind() == ErrorKind::ValueValidation => refused.into(),
            _ => Self::Usage(error),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(error) => error.fmt(f),
            Self::Refused { message, hint } => write!(f, "error: {message}\n\nhint: {hint}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_has_a_cure_of_its_own() {
        let problem = |code| {
            let message = format!("runs/1/ledger: {}", io::Error::from_raw_os_error(code));
            Problem::refused(message, "other").or_on_a_full_disk(|| "free some space".to_owned()).to_string()
        };
        assert!(problem(28).ends_with("hint: free some space"));
        assert!(problem(122).ends_with("hint: free some space"));
        assert!(problem(13).ends_with("hint: other"));
    }
}
