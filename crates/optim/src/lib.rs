//! Optimizers, learning-rate schedules and parameter averages: everything that happens after the noise.
//!
//! All of it is post-processing. A step reads a [`Release`](sordino_privacy::Release), whose noise was added and whose cost
//! was charged when it was made, and public values: the settings, the number of the step, and parameters that were computed
//! from earlier releases. Differential privacy is preserved under post-processing, so no choice in this crate changes epsilon.
//!
//! ```
//! use sordino_optim::{Optimizer, OptimizerConfig, Schedule};
//! use sordino_privacy::Release;
//!
//! /// One step of training. The noisy sum is divided by the *expected* batch size, not by the realised one.
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

pub use adam::AdamSettings;
pub use average::Average;
pub use config::OptimizerConfig;
pub use error::OptimError;
pub use optimizer::Optimizer;
pub use schedule::Schedule;
pub use state::State;
