//! Errors of networks, parameters and records.

use thiserror::Error;

/// Why a network, its parameters or its records were refused.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// A layer does not fit what comes before it.
    #[error("layer {layer} ({kind}): {problem}")]
    Layer {
        /// The path to the layer: `3`, or `4.body.1` inside a residual block.
        layer: String,
        /// The layer's type.
        kind: &'static str,
        /// The problem: the value, the permitted range, and the remedy.
        problem: String,
    },
    /// The description as a whole is wrong.
    #[error("{0}")]
    Description(String),
    /// Parameters do not fit the network.
    #[error("{0}")]
    Parameters(String),
    /// Records do not fit the network or the loss.
    #[error("{0}")]
    Records(String),
    /// A record that is not in memory could not be read. The message does not say which one.
    #[error("a record could not be read during the pass: {0}")]
    Read(std::io::ErrorKind),
    /// A file of weights could not be read or written.
    #[error("{path}: {problem}")]
    File {
        /// The file.
        path: String,
        /// The problem.
        problem: String,
    },
}
