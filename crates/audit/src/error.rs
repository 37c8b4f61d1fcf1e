//! Why an audit cannot be carried out.

use sordino_accounting::AccountingError;
use sordino_algorithms::AlgorithmError;
use sordino_nn::NetworkError;
use sordino_optim::OptimError;
use sordino_privacy::PrivacyError;
use sordino_train::TrainError;

/// Why an audit cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// Settings or data that cannot be used.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// An error of the trusted base.
    #[error(transparent)]
    Privacy(#[from] PrivacyError),
    /// An error of the algorithm.
    #[error(transparent)]
    Algorithm(#[from] AlgorithmError),
    /// An error of the accountant.
    #[error(transparent)]
    Accounting(#[from] AccountingError),
    /// An error of the network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// An error of the optimizer.
    #[error(transparent)]
    Optimizer(#[from] OptimError),
    /// Something that cannot be audited.
    #[error("{problem}")]
    Refused {
        /// The value and the permitted range.
        problem: String,
        /// The remedy.
        hint: String,
    },
    /// The audit was stopped.
    #[error("the audit was stopped")]
    Stopped,
}
