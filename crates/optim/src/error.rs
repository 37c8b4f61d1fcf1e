//! Everything that can go wrong before and between steps.

use std::ops::Range;

use thiserror::Error;

/// Why a setting, a name, a range of parameters or a checkpoint was refused.
///
/// The message has the value and the permitted range; [`hint`](Self::hint) has the cure.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum OptimError {
    /// A setting lies outside of its permitted range.
    #[error("{what} must be {range}, got {got}")]
    OutOfRange {
        /// The setting's name.
        what: &'static str,
        /// The permitted range.
        range: &'static str,
        /// What was given.
        got: String,
        /// What the caller may have meant.
        hint: &'static str,
    },
    /// No optimizer has this name.
    #[error("optimizer must be one of {permitted}, got {got}")]
    UnknownOptimizer {
        /// What was given.
        got: String,
        /// The names that exist.
        permitted: String,
    },
    /// Trainable ranges overlap, run backwards, or leave the parameters.
    #[error(
        "trainable ranges must ascend without overlap within 0..{dimension}, got {range:?} after {after}"
    )]
    BadTrainable {
        /// The first range that was refused.
        range: Range<usize>,
        /// Where the range before it ended.
        after: usize,
        /// The number of parameters.
        dimension: usize,
    },
    /// A checkpoint does not belong to this optimizer or average.
    #[error("the checkpoint's {name} must be {expected}, got {got}")]
    BadState {
        /// The vector or number at fault.
        name: String,
        /// What belongs there.
        expected: String,
        /// What was found.
        got: String,
    },
}

impl OptimError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::OutOfRange { hint, .. } => hint,
            Self::UnknownOptimizer { .. } => "sgd, momentum and adam are good first choices",
            Self::BadTrainable { .. } => {
                "list the trainable parameters from the first to the last, each one once"
            }
            Self::BadState { .. } => {
                "resume with the model, the trainable layers and the optimizer of the checkpoint"
            }
        }
    }
}

/// Refuses what is not permitted.
pub(crate) fn require(
    permitted: bool,
    what: &'static str,
    range: &'static str,
    got: impl ToString,
    hint: &'static str,
) -> Result<(), OptimError> {
    if permitted { Ok(()) } else { Err(OptimError::OutOfRange { what, range, got: got.to_string(), hint }) }
}
