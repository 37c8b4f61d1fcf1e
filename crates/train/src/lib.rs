//! The training loop: runs, checkpoints, resuming.
//!
//! A [`Run`] is decided before it starts: records, network, algorithm, terms, [`Learning`]. It trains inside the
//! [`Vault`](sordino_privacy::Vault) of the trusted base; everything here sees releases and public values only.
//!
//! A loop of one's own needs no more than the vault and an optimizer:
//!
//! ```
//! use sordino_accounting::{Accountant, ClipNorm, Delta, NoiseMultiplier, Plan, SamplingRate, Steps};
//! use sordino_nn::{Engine, Loss, models};
//! use sordino_optim::{Optimizer, OptimizerConfig};
//! use sordino_privacy::{ClipRule, Randomness, Terms, Vault};
//! use sordino_train::NetworkGradients;
//!
//! let (data, _test) = sordino_data::embedded::mushroom()?.split(0.2, 0)?;
//! let engine = Engine::new(models::linear(data.shape().len())?, Loss::Logistic)?;
//! let mut params = engine.network().init(0);
//! let (trainable, dimension) = (params.layout().trainable(), params.layout().len());
//! let records = engine.records(data.inputs(), data.targets().ok_or("no labels")?)?;
//!
//! // Priced before a record is used.
//! let rate = SamplingRate::new(256.0 / data.len() as f64)?;
//! let plan = Plan::dp_sgd(NoiseMultiplier::new(5.4)?, rate, Steps::new(50)?);
//! let terms = Terms::price(plan, data.len() as u64, Delta::new(1e-5)?, None, Accountant::Pld)?;
//! # let ledger = std::env::temp_dir().join(format!("sordino-doc-{}", std::process::id()));
//! # let _ = std::fs::remove_file(&ledger);
//! let mut vault =
//!     Vault::seal(NetworkGradients::new(engine, records), &terms, Randomness::from_os()?, &ledger)?;
//!
//! let rule = ClipRule::flat(ClipNorm::new(0.1)?)?;
//! let mut optimizer = Optimizer::new(&OptimizerConfig::named("sgd")?, trainable, dimension)?;
//! while let Some(release) = vault.round(|round| {
//!     let sum = round.gradients(&params).clipped_sum(&rule)?;
//!     round.release(sum)
//! })? {
//!     vault.reuse(optimizer.step(release?.scaled(1.0 / 256.0), 40.0, params.values_mut()));
//! }
//! assert!(vault.close()?.is_closed());
//! # std::fs::remove_file(&ledger)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod error;
mod evaluation;
mod folder;
mod gradients;
mod inspection;
mod learner;
mod run;
mod seal;

pub use error::TrainError;
pub use evaluation::{Examination, Score, class_of};
pub use folder::{RunFolder, write_whole};
pub use gradients::NetworkGradients;
pub use inspection::{Inspection, inspect, model_notes};
pub use learner::Learning;
pub use run::{Ending, Measurement, Observer, Run, steps_per_charge};
