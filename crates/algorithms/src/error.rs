//! What can be wrong with an algorithm's options or its plan.

use sordino_accounting::AccountingError;
use sordino_privacy::PrivacyError;
use thiserror::Error;

/// Why an algorithm was refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AlgorithmError {
    /// An option lies outside of its permitted range.
    #[error("{what} must be {range}, got {got}")]
    OutOfRange {
        /// The option.
        what: &'static str,
        /// The permitted range.
        range: &'static str,
        /// What was given.
        got: f64,
    },
    /// The options do not fit the plan.
    #[error("{problem}")]
    Plan {
        /// What is wrong.
        problem: String,
        /// The cure.
        hint: &'static str,
    },
    /// The accountant refused.
    #[error(transparent)]
    Accounting(#[from] AccountingError),
    /// The trusted base refused.
    #[error(transparent)]
    Privacy(#[from] PrivacyError),
}

impl AlgorithmError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::OutOfRange { .. } => "`sordino algorithms` lists options and their defaults".to_owned(),
            Self::Plan { hint, .. } => (*hint).to_owned(),
            Self::Accounting(error) => error.hint(),
            Self::Privacy(error) => error.hint(),
        }
    }
}

/// Refuses an option outside of its range; a NaN is outside of every range.
pub(crate) fn require(
    permitted: bool,
    what: &'static str,
    range: &'static str,
    got: f64,
) -> Result<(), AlgorithmError> {
    if permitted { Ok(()) } else { Err(AlgorithmError::OutOfRange { what, range, got }) }
}
