//! Audits of private training: attacks with synthetic records, and the lower bounds on epsilon that follow from them.
//!
//! A guarantee is an upper bound on epsilon. An audit gives a lower bound: if an attack succeeds more often than the guarantee
//! permits, the guarantee is false. Attacks use *canaries*: synthetic records in slots of their own, beside the real records. No score
//! of a real record is computed.
#![forbid(unsafe_code)]

pub mod estimators;
mod result;

pub use estimators::{Confidence, Guesses, LowerBound, Scored};
pub use result::{Attack, AuditResult, Check, Claim, Observation, TradeOffPoint};
