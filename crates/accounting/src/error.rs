//! Everything that can go wrong when a plan is priced.

use thiserror::Error;

/// Why a quantity, a plan or a question was refused.
///
/// The message has the value and the permitted range; [`hint`](Self::hint) has the cure.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum AccountingError {
    /// A quantity lies outside of its permitted range.
    #[error("{what} must be {range}, got {got}")]
    OutOfRange {
        /// The quantity's name.
        what: &'static str,
        /// The permitted range.
        range: &'static str,
        /// What was given.
        got: String,
        /// What the caller may have meant.
        hint: &'static str,
    },
    /// An entry of a plan is incomplete or contradicts itself.
    #[error("{problem}")]
    BadEntry {
        /// What is wrong with it.
        problem: String,
    },
    /// The accountant has no proof for this kind of entry.
    #[error("the {accountant} accountant cannot bound {entry}: {reason}")]
    Unsupported {
        /// The accountant's name.
        accountant: &'static str,
        /// The entry it refused.
        entry: String,
        /// Why.
        reason: String,
        /// Who can.
        instead: &'static str,
    },
    /// The accountant has a proof, but the setting is out of its numerical reach.
    #[error("the {accountant} accountant cannot reach this setting: {reason}")]
    OutOfReach {
        /// The accountant's name.
        accountant: &'static str,
        /// Why.
        reason: String,
        /// Who can.
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
    /// An accountant that assumes fresh batches refuses steps that remember earlier ones.
    pub(crate) fn stateful(accountant: &'static str, entry: &crate::Entry) -> Self {
        Self::Unsupported {
            accountant,
            entry: entry.to_string(),
            reason: "a record that was sampled once moves all later releases".to_owned(),
            instead: "price it with --accountant first-participation, alone in its plan",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::OutOfRange { hint, .. } => (*hint).to_owned(),
            Self::BadEntry { .. } => "an entry is {\"noise_multiplier\", \"sample_rate\", \"steps\"}; \
                 docs/plans.md lists the other kinds of sampling"
                .to_owned(),
            Self::Unsupported { instead, .. } | Self::OutOfReach { instead, .. } => (*instead).to_owned(),
            Self::NoSolution { what: "window", .. } => {
                "a smaller batch leaves room for more groups; a window of W needs W + 1 of them".to_owned()
            }
            Self::NoSolution { what: "epsilon", .. } => "raise delta, or the limit that costs it".to_owned(),
            Self::NoSolution { .. } => "raise epsilon or delta, or take fewer steps".to_owned(),
        }
    }
}
