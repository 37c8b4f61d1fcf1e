//! Why an algorithm is refused.

use sordino_accounting::AccountingError;
use sordino_privacy::PrivacyError;
use thiserror::Error;

/// Why an algorithm was refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AlgorithmError {
    /// An option is outside its permitted range.
    #[error("{name} must be {permitted}, got {got}")]
    OutOfRange {
        /// The option.
        name: &'static str,
        /// The permitted range.
        permitted: String,
        /// The value that was given.
        got: String,
    },
    /// The options contradict each other or the plan.
    #[error("{problem}")]
    Plan {
        /// What is wrong.
        problem: String,
        /// The remedy.
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
    /// What to do about it. A setting is written in braces, `{algorithm=dp-sgd}`; front ends show it in their own form.
    pub fn hint(&self) -> String {
        match self {
            Self::OutOfRange { .. } => {
                "`sordino algorithms` lists all options, with their defaults and meaning".to_owned()
            }
            Self::Plan { hint, .. } => (*hint).to_owned(),
            Self::Accounting(error) => error.hint(),
            Self::Privacy(error) => error.hint(),
        }
    }
}
