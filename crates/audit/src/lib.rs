//! Audits of private training: attacks with synthetic records, and the lower bounds on epsilon that follow from them.
//!
//! A guarantee is an upper bound on epsilon. An audit gives a lower bound: if an attack succeeds more often than the guarantee
//! permits, the guarantee is false. Attacks use *canaries*: synthetic records in slots of their own, beside the real records. No score
//! of a real record is computed.
//!
//! | attack | what the attacker sees | file |
//! | --- | --- | --- |
//! | step audit | every release, and which canaries each batch contains | `steps/` |
//! | whole run | every release | `whole_run.rs` |
//! | data set of the attacker's choice | every update, in many runs | `distinguish.rs` |
//! | final model | the model | `final_model.rs` |
//!
//! [`audit`] runs the attacks that apply to an algorithm, and [`estimators`] compute bounds from scores.
#![forbid(unsafe_code)]

mod audit;
mod auditor_coins;
mod canaries;
mod distinguish;
mod error;
pub mod estimators;
mod final_model;
mod mechanism;
mod network;
mod regression;
mod result;
mod steps;
mod synthetic;
mod whole_run;

pub use audit::{AuditOptions, Progress, audit};
pub use canaries::{Canaried, Canaries, NoRecords};
pub use error::AuditError;
pub use estimators::{Confidence, Guesses, LowerBound, Scored};
pub use mechanism::{
    Content, Mechanism, ObservedRelease, ObservedStep, Projections, Subject, VaultMechanism,
};
pub use network::largest_contribution;
pub use result::{Attack, AuditResult, Check, Claim, Observation, TradeOffPoint};
pub use steps::{Kind, Observations, StepEvidence, copies, counted_kinds, kinds};
pub use whole_run::whole_run_scores;
