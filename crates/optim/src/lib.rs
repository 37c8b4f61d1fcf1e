//! What may happen after the noise: optimizers as chains of transforms, schedules, averages.
//!
//! Everything here is post-processing. A step reads a [`Release`](sordino_privacy::Release), which was noised and paid
//! for when it was made, and public values: settings, the step's number, parameters that are themselves made of earlier
//! releases. Differential privacy is closed under such computations, so no choice made in this crate changes an epsilon.
//!
//! ```
//! use sordino_optim::{Optimizer, OptimizerConfig, Schedule};
//! use sordino_privacy::Release;
//!
//! /// One step of training: the noisy sum becomes a mean over the *expected* batch, the mean an update.
//! fn learn(optimizer: &mut Optimizer, noisy_sum: Release<Vec<f32>>, rate: f64, params: &mut [f32]) {
//!     optimizer.step(noisy_sum.scaled(1.0 / 250.0), rate, params);
//! }
//!
//! let config: OptimizerConfig = toml::from_str("type = 'adam'\nnoise_correction = true").unwrap();
//! let schedule: Schedule = toml::from_str("type = 'linear'\nwarmup = 10\nlast = 0.1").unwrap();
//! schedule.check().unwrap();
//! // The first 100 parameters are frozen.
//! let optimizer = Optimizer::new(&config, std::iter::once(100..150).collect(), 150).unwrap();
//! assert_eq!(optimizer.state().vectors["adam.first_moment"].len(), 50);
//! ```
#![forbid(unsafe_code)]

mod adagrad;
mod adam;
mod average;
mod blocks;
mod config;
mod descent;
mod error;
#[cfg(test)]
mod golden;
mod momentum;
mod nesterov;
mod optimizer;
#[cfg(test)]
mod reference;
mod rmsprop;
mod schedule;
mod state;
mod transform;

pub use average::Average;
pub use config::OptimizerConfig;
pub use error::OptimError;
pub use optimizer::Optimizer;
pub use schedule::Schedule;
pub use state::State;
