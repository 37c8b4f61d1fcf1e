//! Algorithms of private training, one file each, on the trusted base.
//!
//! A [`Choice`] names an algorithm and its options. It says how noise is spread over steps and releases ([`Choice::plan`]) and
//! [begins](Choice::begin) an [`Algorithm`], whose every step sees the batch through a [`Round`] and returns a release. What
//! they adapt, they adapt to releases alone.
//!
//! The [registry] describes all of them; the command line and its help follow from it.
#![forbid(unsafe_code)]

mod choice;
mod dc_sgd;
mod dp_sgd;
mod dynamic;
mod error;
mod plain;
mod plan;
mod quantile;
pub mod registry;

use std::collections::BTreeMap;

pub use choice::Choice;
pub use error::AlgorithmError;
pub use plain::PLAIN;
pub use plan::{Noise, Setting};
use sordino_privacy::{Gradients, PrivacyError, Release, Round};

/// An algorithm at work.
pub trait Algorithm<G: Gradients> {
    /// One step: the sum of gradients that the optimizer will see.
    ///
    /// # Errors
    /// As the trusted base has them.
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        number: u64,
    ) -> Result<Release<Vec<f32>>, PrivacyError>;

    /// What it has learned from releases, for a checkpoint.
    fn state(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }

    /// Takes up what was learned before. Names it does not know are passed over.
    fn restore(&mut self, _state: &BTreeMap<String, f64>) {}
}
