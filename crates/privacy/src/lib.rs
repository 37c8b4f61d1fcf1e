//! The trusted base: sampling, clipping, noise, ledger; only a release leaves.
//!
//! A [`Plan`](sordino_accounting::Plan) becomes [`Terms`] by being priced. A [`Vault`] holds private records under these terms
//! and opens for one [`Round`] after another: each is charged to the ledger, draws its batch, and may let go what the plan
//! says, noised. Everything else that is computed from records is [`Sensitive`] or [`Bounded`] and cannot be read.
//!
//! `PROOF.md`, beside this crate, argues why what is released satisfies the guarantee that is printed.
#![forbid(unsafe_code)]

mod clip;
mod error;
mod gradients;
mod ledger;
mod memory;
#[cfg(doctest)]
mod misuse;
mod noise;
mod per_record;
mod randomness;
mod release;
mod sampling;
mod sensitive;
mod statistic;
mod terms;
mod vault;

pub use clip::ClipRule;
pub use error::PrivacyError;
pub use gradients::{Gradients, Sum, WeightRule};
pub use ledger::Account;
pub use per_record::PerRecord;
pub use randomness::Randomness;
pub use release::Release;
pub use sensitive::{Bounded, Sensitive};
pub use statistic::NormStatistic;
pub use terms::{Standing, Terms};
pub use vault::{Round, Vault};
