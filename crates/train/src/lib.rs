//! The training loop: runs, checkpoints, resuming.
//!
//! A [`Run`] is decided before it starts: records, network, [`Algorithm`], terms, [`Learning`]. It trains inside the
//! [`Vault`](sordino_privacy::Vault) of the trusted base; everything here sees releases and public values only.
#![forbid(unsafe_code)]

mod algorithm;
mod error;
mod evaluation;
mod folder;
mod gradients;
mod inspection;
mod learner;
mod run;
mod seal;

pub use algorithm::{Algorithm, PLAIN};
pub use error::TrainError;
pub use evaluation::{Examination, Score, class_of};
pub use folder::{RunFolder, write_whole};
pub use gradients::NetworkGradients;
pub use inspection::{Inspection, inspect, model_notes};
pub use learner::Learning;
pub use run::{Ending, Measurement, Observer, Run};
