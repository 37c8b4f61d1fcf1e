//! Privacy accounting: the epsilon of a plan, and the least noise that meets a privacy budget.
//!
//! A [`Plan`] is public data. It states how records are sampled and how much noise is added to each release. An [`Accountant`] is
//! a pure function of a plan. An entry that an accountant cannot bound is an error that names the entry; it is never
//! approximated silently.
#![forbid(unsafe_code)]
#![warn(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss
)]

mod accountant;
mod binomial;
pub mod calibrate;
pub mod concentrated;
mod error;
pub mod factorization;
pub mod gaussian;
pub mod gdp;
#[cfg(test)]
mod golden;
mod number;
pub mod participation;
mod plan;
pub mod pld;
pub mod profile;
mod quantities;
pub mod rdp;
pub mod search;
pub mod secure_aggregation;
pub mod total;
pub mod tuning;

pub use accountant::{Accountant, Guarantee};
pub use error::AccountingError;
pub use plan::{Cap, Entry, EntryText, Plan, Relation, Sampling, SamplingKind};
pub use quantities::{Bracket, ClipNorm, Delta, Epsilon, Mu, NoiseMultiplier, SamplingRate, Steps};
