//! Errors as the command line prints them: the value, the permitted range, and a hint with flags.

use std::{error::Error, fmt, io, path::Path};

use clap::error::ErrorKind;
use sordino_accounting::AccountingError;
use sordino_data::DataError;
use sordino_privacy::PrivacyError;
use sordino_train::TrainError;

/// Why a command failed; the exit code is 2.
#[derive(Debug)]
pub(crate) enum Problem {
    /// Help, the version, or wrong arguments.
    Usage(clap::Error),
    /// Any other error.
    Refused {
        /// The value and the permitted range.
        message: String,
        /// The remedy.
        hint: String,
    },
}

impl Problem {
    pub(crate) fn refused(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Refused { message: message.into(), hint: hint.into() }
    }

    /// The message in one line.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Usage(error) => error.to_string(),
            Self::Refused { message, .. } => message.clone(),
        }
    }

    /// The same problem, with another hint if the disk is full.
    #[must_use]
    pub(crate) fn with_disk_hint(self, hint: impl FnOnce() -> String) -> Self {
        // ENOSPC and EDQUOT, as the standard library prints them.
        let full =
            |message: &str| ["(os error 28)", "(os error 122)"].iter().any(|code| message.contains(code));
        match self {
            Self::Refused { message, .. } if full(&message) => Self::Refused { message, hint: hint() },
            other => other,
        }
    }

    /// The same problem, with a name before the message.
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

/// A setting as a flag.
pub(crate) fn flag(name: &str, value: Option<&str>) -> String {
    let value = value.map(|value| format!(" {value}")).unwrap_or_default();
    format!("--{}{value}", name.replace('_', "-"))
}

impl From<TrainError> for Problem {
    fn from(error: TrainError) -> Self {
        Self::refused(error.to_string(), error.hint().render(flag))
    }
}

/// Errors of other crates get their hints from [`TrainError`].
macro_rules! through_train_error {
    ($($error:ty),*) => {$(
        impl From<$error> for Problem {
            fn from(error: $error) -> Self {
                TrainError::from(error).into()
            }
        }
    )*};
}

through_train_error!(AccountingError, DataError, PrivacyError);

impl From<clap::Error> for Problem {
    fn from(error: clap::Error) -> Self {
        // Quantities have their own messages.
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
    fn settings_in_hints_become_flags() {
        let error = TrainError::refused("too large", "raise {max_batch_size}, or use {accountant=rdp}");
        let text = Problem::from(error).to_string();
        assert_eq!(text, "error: too large\n\nhint: raise --max-batch-size, or use --accountant rdp");
    }

    #[test]
    fn a_full_disk_has_its_own_hint() {
        let problem = |code| {
            let message = format!("runs/1/ledger: {}", io::Error::from_raw_os_error(code));
            Problem::refused(message, "other").with_disk_hint(|| "free some space".to_owned()).to_string()
        };
        assert!(problem(28).ends_with("hint: free some space"));
        assert!(problem(122).ends_with("hint: free some space"));
        assert!(problem(13).ends_with("hint: other"));
    }
}
