//! Audits of private training: attacks with synthetic records, and the lower bounds on epsilon that follow from them.
//!
//! A guarantee is an upper bound on epsilon. An audit gives a lower bound: if an attack succeeds more often than the guarantee
//! permits, the guarantee is false. Attacks use *canaries*: synthetic records in slots of their own, beside the real records. No score
//! of a real record is computed.
#![forbid(unsafe_code)]

mod canaries;
mod error;
mod mechanism;
mod normal;
mod regression;
mod result;
mod steps;

pub use canaries::{Canaried, Canaries, NoRecords};
pub use error::AuditError;
pub use mechanism::{Content, Mechanism, ObservedRelease, ObservedStep, Projections, Subject, VaultMechanism};
pub use steps::{Kind, Observations, StepEvidence, copies, counted_kinds, kinds};
pub use result::{Attack, AuditResult, Check, Claim, Observation, TradeOffPoint};
