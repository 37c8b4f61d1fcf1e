//! The trusted base: sampling, clipping, noise, ledger; only a release leaves.
#![forbid(unsafe_code)]

mod release;

pub use release::Release;
