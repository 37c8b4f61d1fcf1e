//! How the batches of a plan are sampled.

use std::fmt;

use crate::SamplingRate;

/// A limit on the size of Poisson batches. Records beyond it are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cap {
    /// The largest number of records in a batch.
    pub max_batch_size: u64,
    /// The public number of records.
    pub population: u64,
}

/// How the batch of a step is sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sampling {
    /// Every record joins the batch independently with this probability, and all steps are independent.
    Poisson {
        /// The probability.
        rate: SamplingRate,
        /// The limit on the batch size, if there is one.
        cap: Option<Cap>,
    },
    /// A uniformly random set of exactly `batch_size` of `population` records. All steps are independent.
    FixedSize {
        /// The number of records in every batch.
        batch_size: u64,
        /// The public number of records.
        population: u64,
    },
    /// Every batch contains all records.
    FullBatch,
    /// Records are divided into `groups` groups by their position. Step `t` of the entry samples only the records of group
    /// `t mod groups`, each with this probability.
    ///
    /// The contribution of a record may be spread over `groups` steps, from the step that samples it to the one before its group's
    /// next turn. The sensitivity is then that of these steps together. A record is exposed `ceil(steps / groups)` times.
    ///
    /// A rate of 1 is a fixed public partition into `groups` disjoint batches, which are taken in turn. Their sizes differ by at most one
    /// record. There is no randomness and no amplification: each rotation costs a record as much as one full batch.
    Rotating {
        /// The probability.
        rate: SamplingRate,
        /// The number of groups, at least 2.
        groups: u64,
    },
    /// Poisson sampling by an algorithm with a state to which no noise is added: a release may depend on all records that were sampled so
    /// far. A record shifts the release of the step that samples it first by one sensitivity, and every later release by up to
    /// `later_shift` sensitivities.
    Stateful {
        /// The probability.
        rate: SamplingRate,
        /// How far a record can shift later releases, in sensitivities; at least 1.
        later_shift: f64,
    },
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poisson { rate, cap: None } => write!(f, "Poisson sampling at rate {rate}"),
            Self::Poisson { rate, cap: Some(cap) } => {
                write!(f, "Poisson sampling at rate {rate}, capped at {} records", cap.max_batch_size)
            }
            Self::FixedSize { batch_size, population } => {
                write!(f, "fixed-size sampling of {batch_size} of {population} records")
            }
            Self::FullBatch => f.write_str("the full batch"),
            Self::Rotating { rate, groups } if rate.get() >= 1.0 => {
                write!(f, "a fixed partition into {groups} batches, taken in turn")
            }
            Self::Rotating { rate, groups } => {
                write!(f, "Poisson sampling at rate {rate} of {groups} groups in rotation")
            }
            Self::Stateful { rate, later_shift } => {
                write!(
                    f,
                    "Poisson sampling at rate {rate}, with a state that depends on all earlier batches (a record shifts later releases \
                     up to {later_shift} times as far)"
                )
            }
        }
    }
}
