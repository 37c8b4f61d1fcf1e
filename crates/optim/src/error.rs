//! Errors about settings, trainable ranges and checkpoints.

use std::ops::Range;

use thiserror::Error;

/// A setting, a name, a range of parameters or a checkpoint that was refused.
///
/// The message states the value and the permitted range; [`hint`](Self::hint) states what to do.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum OptimError {
    /// A setting is out of range.
    #[error("{what} must be {range}, got {got}")]
    OutOfRange {
        /// The name of the setting.
        what: &'static str,
        /// The permitted range.
        range: &'static str,
        /// The value that was given.
        got: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// There is no optimizer of this name.
    #[error("optimizer must be one of {permitted}, got {got}")]
    UnknownOptimizer {
        /// The value that was given.
        got: String,
        /// The names of all optimizers.
        permitted: String,
    },
    /// Trainable ranges overlap, are not in ascending order, or exceed the number of parameters.
    #[error(
        "trainable ranges must ascend without overlap within 0..{dimension}, got {range:?} after {after}"
    )]
    BadTrainable {
        /// The first range that was refused.
        range: Range<usize>,
        /// The end of the previous range.
        after: usize,
        /// The number of parameters.
        dimension: usize,
    },
    /// A checkpoint does not fit this optimizer or average.
    #[error("the checkpoint's {name} must be {expected}, got {got}")]
    BadState {
        /// The vector or number that was refused.
        name: String,
        /// What is expected there.
        expected: String,
        /// What was found.
        got: String,
    },
}

impl OptimError {
    /// What to do about it. Settings are written in braces, as in `{epsilon}`: front ends render them in their own notation.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::OutOfRange { hint, .. } => hint,
            Self::UnknownOptimizer { .. } => "sgd, momentum and adam are good first choices",
            Self::BadTrainable { .. } => "list the trainable ranges in ascending order, each parameter once",
            Self::BadState { .. } => {
                "resume with the same model, trainable layers and optimizer as in the checkpoint"
            }
        }
    }
}

/// An error unless `permitted`.
pub(crate) fn require(
    permitted: bool,
    what: &'static str,
    range: &'static str,
    got: impl ToString,
    hint: &'static str,
) -> Result<(), OptimError> {
    if permitted { Ok(()) } else { Err(OptimError::OutOfRange { what, range, got: got.to_string(), hint }) }
}
