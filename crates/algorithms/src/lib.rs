//! Algorithms of private training, one file each, on the trusted base.
//!
//! A [`Choice`] names an algorithm and its options. It says how noise is spread over steps and releases ([`Choice::plan`]) and
//! [begins](Choice::begin) an [`Algorithm`], whose every step sees the batch through a [`Round`] and returns a release. What
//! they adapt, they adapt to releases alone.
//!
//! The [registry] describes all of them; the command line and its help follow from it.
#![forbid(unsafe_code)]

mod anchored;
mod choice;
mod dc_sgd;
mod dice;
mod dice_published;
mod dp_c4;
mod dp_c4_published;
mod dp_sgd;
mod dp_svrg;
mod dynamic;
mod error;
mod plain;
mod plan;
mod quantile;
pub mod registry;

pub use choice::{Choice, CoupledOptions};
pub use dice_published::{DicePublishedOptions, Thresholds};
pub use dp_c4_published::THRESHOLDS_LEAK;
pub use dynamic::{Allocation, Curve, DynamicOptions};
pub use error::AlgorithmError;
pub use plain::PLAIN;
pub use plan::{Noise, Setting};
use sordino_optim::State;
use sordino_privacy::{Gradients, PrivacyError, Release, Round};

/// An algorithm at work.
pub trait Algorithm<G: Gradients> {
    /// One step of the plan: the sum of gradients that the optimizer will see, or nothing if the step only prepares the next.
    ///
    /// # Errors
    /// As the trusted base has them.
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        number: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError>;

    /// What it has learned from releases, for a checkpoint.
    fn state(&self) -> State {
        State::default()
    }

    /// Takes up what was learned before. Names it does not know are passed over.
    fn restore(&mut self, _state: &State) {}
}
