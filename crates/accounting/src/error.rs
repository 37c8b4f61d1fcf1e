//! Errors about quantities, plans and calibration.

use thiserror::Error;

/// A quantity, a plan or a calibration that was refused.
///
/// The message states the value and the permitted range; [`hint`](Self::hint) states what to do.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum AccountingError {
    /// A quantity is out of range.
    #[error("{what} must be {range}, got {got}")]
    OutOfRange {
        /// The name of the quantity.
        what: &'static str,
        /// The permitted range.
        range: &'static str,
        /// The value that was given.
        got: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// An entry of a plan is incomplete or contradictory.
    #[error("{problem}")]
    BadEntry {
        /// What is wrong with the entry.
        problem: String,
    },
    /// The accountant has no theorem for this kind of entry.
    #[error("the {accountant} accountant cannot bound {entry}: {reason}")]
    Unsupported {
        /// The name of the accountant.
        accountant: &'static str,
        /// The entry.
        entry: String,
        /// Why.
        reason: String,
        /// What to do instead.
        instead: &'static str,
    },
    /// The accountant has a theorem, but the setting is outside its numerical range.
    #[error("the {accountant} accountant cannot price this setting: {reason}")]
    OutOfReach {
        /// The name of the accountant.
        accountant: &'static str,
        /// Why.
        reason: String,
        /// What to do instead.
        instead: &'static str,
    },
    /// No value of the calibrated quantity meets the target.
    #[error("no {what} meets the target: {reason}")]
    NoSolution {
        /// The calibrated quantity.
        what: &'static str,
        /// Why.
        reason: String,
    },
}

impl AccountingError {
    /// The error of an accountant that assumes independent batches, about an entry whose releases depend on earlier batches.
    pub(crate) fn stateful(accountant: &'static str, entry: &crate::Entry) -> Self {
        Self::Unsupported {
            accountant,
            entry: entry.to_string(),
            reason: "a record that was sampled once affects all later releases".to_owned(),
            instead: "use {accountant=first-participation}, with this entry alone in its plan",
        }
    }

    /// What to do about it.
    ///
    /// A setting is written in braces: `{accountant=rdp}` means "the setting `accountant` with the value `rdp`", and
    /// `{max_batch_size}` means "the setting `max_batch_size`". The names are those of the settings of a run, in snake case. Front
    /// ends render them in their own notation; the command line renders these two as `--accountant rdp` and `--max-batch-size`.
    /// Braces have no other use in hints.
    pub fn hint(&self) -> String {
        match self {
            Self::OutOfRange { hint, .. } => (*hint).to_owned(),
            Self::BadEntry { .. } => "an entry has the keys noise_multiplier, sample_rate and steps; \
                 docs/plans.md describes the other kinds of sampling"
                .to_owned(),
            Self::Unsupported { instead, .. } | Self::OutOfReach { instead, .. } => (*instead).to_owned(),
            Self::NoSolution { what: "window", .. } => {
                "a smaller batch permits more groups; a window of W needs W + 1 of them".to_owned()
            }
            Self::NoSolution { what: "epsilon", .. } => "raise {delta} or {max_batch_size}".to_owned(),
            Self::NoSolution { .. } => "raise epsilon or delta, or take fewer steps".to_owned(),
        }
    }
}
