//! Why a run was refused or failed.

use std::path::PathBuf;

use sordino_accounting::AccountingError;
use sordino_algorithms::AlgorithmError;
use sordino_data::DataError;
use sordino_nn::NetworkError;
use sordino_optim::OptimError;
use sordino_privacy::PrivacyError;
use thiserror::Error;

use crate::Hint;

/// Why settings were refused or a run failed. The message states the value and what is permitted; [`hint`](Self::hint) states the remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The trusted base refused.
    #[error(transparent)]
    Privacy(#[from] PrivacyError),
    /// A quantity is out of range, or a plan cannot be priced.
    #[error(transparent)]
    Accounting(#[from] AccountingError),
    /// The options of the algorithm are wrong, or do not fit the run.
    #[error(transparent)]
    Algorithm(#[from] AlgorithmError),
    /// The data cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The network does not fit its records or weights.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The settings of the optimizer are wrong.
    #[error(transparent)]
    Optim(#[from] OptimError),
    /// A file of the run cannot be read or written, or was changed.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What happened.
        problem: String,
    },
    /// A setting or the state of a run does not permit the request.
    #[error("{problem}")]
    Refused {
        /// What is wrong: the value and what is permitted.
        problem: String,
        /// The remedy, as the text of a [`Hint`].
        hint: String,
    },
}

impl TrainError {
    /// An error with its remedy; settings in the hint are written in braces, as [`Hint`] describes.
    pub fn refused(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Refused { problem: problem.into(), hint: hint.into() }
    }

    /// What to do about it.
    pub fn hint(&self) -> Hint {
        Hint::new(match self {
            Self::Privacy(error) => error.hint(),
            Self::Accounting(error) => error.hint(),
            Self::Algorithm(error) => error.hint(),
            Self::Data(error) => error.hint().to_owned(),
            Self::Network(NetworkError::Read(_)) => "the file of the records must stay readable and unchanged during a run; resume the run when it is".to_owned(),
            Self::Network(_) => "check that the model fits the data; docs/training.md lists the models".to_owned(),
            Self::Optim(error) => error.hint().to_owned(),
            Self::File { .. } => "the folder of a run must be complete and writable; restore the file from a copy, or start a new run".to_owned(),
            Self::Refused { hint, .. } => hint.clone(),
        })
    }
}
