//! Everything that can go wrong in a run.

use std::path::PathBuf;

use sordino_algorithms::AlgorithmError;
use sordino_nn::NetworkError;
use sordino_optim::OptimError;
use sordino_privacy::PrivacyError;
use thiserror::Error;

/// Why a run could not go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The trusted base refused.
    #[error(transparent)]
    Privacy(#[from] PrivacyError),
    /// The algorithm makes no sense.
    #[error(transparent)]
    Algorithm(#[from] AlgorithmError),
    /// The network does not fit its records or weights.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The optimizer makes no sense.
    #[error(transparent)]
    Optim(#[from] OptimError),
    /// A file of the run cannot be read or written, or is not what was written.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What happened.
        problem: String,
    },
    /// Something about the run makes no sense.
    #[error("{problem}")]
    Refused {
        /// What.
        problem: String,
        /// The cure.
        hint: String,
    },
}

impl TrainError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Privacy(error) => error.hint(),
            Self::Algorithm(error) => error.hint(),
            Self::Network(_) => {
                "check that the model fits the data: `docs/training.md` lists the models".to_owned()
            }
            Self::Optim(error) => error.hint().to_owned(),
            Self::File { .. } => "a run's folder must be whole and writable; restore what is missing from a copy, or start a new run".to_owned(),
            Self::Refused { hint, .. } => hint.clone(),
        }
    }
}
