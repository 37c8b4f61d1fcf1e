//! Training with differential privacy and proved guarantees.
//!
//! ```
//! use sordino::{Dataset, Model, Trainer};
//!
//! # let x: Vec<[f32; 2]> = (0..2000).map(|i| [(i % 10) as f32 / 10.0, (i % 7) as f32 / 7.0]).collect();
//! # let y: Vec<bool> = x.iter().map(|row| row[0] > 0.5).collect();
//! # let new_rows = [[0.9, 0.5], [0.1, 0.5]];
//! let data = Dataset::from_rows(&x, &y)?;
//! let fitted = Trainer::new(Model::mlp(&[64])).budget(1.0, 1e-5)?.fit(&data)?;
//! println!("{}", fitted.guarantee());
//! let classes = fitted.predict(&new_rows)?;
//! # assert!(fitted.guarantee().to_string().starts_with("This mlp model satisfies ("));
//! # assert_eq!(classes, ["true", "false"]);
//! # Ok::<(), sordino::Error>(())
//! ```
//!
//! All records given to [`Trainer::fit`] are private. The guarantee is printed as `sordino train` prints it:
//!
//! ```text
//! This mlp model satisfies (0.9998, 1e-5)-differential privacy.
//!
//!   epsilon      0.9998
//!   delta        1e-5
//!   protects     one training record, relation add/remove with public N (zero-out): present, or replaced by nothing
//!   sampling     Poisson sampling at rate 0.128, fresh at each of 391 steps
//!   ...
//! ```
//!
//! # Where to find things
//!
//! | | |
//! | --- | --- |
//! | [`Dataset`], [`Labels`] | records in memory; [`data`] reads files |
//! | [`Model`] | what is trained; [`nn`] describes networks layer by layer |
//! | [`Trainer`] | all settings, each with a default |
//! | [`Fitted`] | predictions, scores, `save` and `load` |
//! | [`Guarantee`] | epsilon, delta, and the statement to publish |
//! | [`algorithms`] | DP-SGD and its variants, what is proved about each, and the trait for your own |
//! | [`accounting`] | the price of a plan, without training |
//! | [`own_loop`] | the vault, for your own training loop |
//! | [`train`] | the stages behind [`Trainer`]: settings, resolved settings, priced run, run |
//!
//! # How training works
//!
//! 1. The settings are resolved: what is not set gets a default, from public facts about the data such as the number of records.
//! 2. The plan (how many steps, how many records, how much noise) is priced. If it exceeds the privacy budget, training is refused before any
//!    record is used.
//! 3. In each step, the vault charges the ledger, draws a batch, and computes per-record gradients. Each gradient is clipped; noise is added
//!    to their sum. Only the noisy sum leaves the vault, as a [`Release`](own_loop::Release).
//! 4. The optimizer sees releases only, so everything that follows has the same guarantee.
//!
//! Without a [run folder](Trainer::run_folder) the ledger is in memory: the whole plan counts as spent from the first step on, and the
//! statement mentions this. With one, a run can be resumed after a crash, and `sordino show` verifies it.
//!
//! # Errors
//!
//! The message of an [`Error`] states the value and the permitted range; [`Error::hint`] states the remedy.
//!
//! ```
//! use sordino::{Model, Trainer};
//!
//! let error = Trainer::new(Model::logistic()).budget(1.0, 2.0).err().unwrap();
//! assert!(error.to_string().starts_with("delta must be between 0 and 1"));
//! println!("{error}\nhint: {}", error.hint());
//! ```
//!
//! # Features
//!
//! - `cli` (default): the command `sordino`. Libraries can disable default features.
//! - `ndarray`: data sets from `ndarray` views.
#![forbid(unsafe_code)]

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
mod combinations;
pub mod comparison;
mod continuation;
mod fitted;
mod guarantee;
mod model;
pub mod report;
pub mod reproduction;
mod trainer;

pub use fitted::{Fitted, Prediction};
pub use guarantee::{Guarantee, GuaranteeStatus};
pub use model::Model;
/// Plans, accountants and calibration.
pub use sordino_accounting as accounting;
pub use sordino_accounting::Accountant;
/// The algorithms, and the trait for your own.
pub use sordino_algorithms as algorithms;
/// Readers for files of records.
pub use sordino_data as data;
pub use sordino_data::{Dataset, Labels};
/// Networks with per-record gradients.
pub use sordino_nn as nn;
pub use sordino_nn::Shape;
/// Optimizers and learning rate schedules.
pub use sordino_optim as optim;
/// The stages of a run.
pub use sordino_train as train;
pub use sordino_train::{
    Clipping, Hint, LossName as Loss, PoolingName as Pooling, SamplingName as Sampling, Score, Settings,
    TestSetName as TestSet, TrainError as Error,
};
pub use trainer::{StopHandle, Trainer, TrainingProgress};

pub mod own_loop {
    //! The vault, for your own training loop.
    //!
    //! A [`Vault`] holds private records behind a priced plan. It opens for one [`Round`] per step of the plan. In a round, per-record
    //! gradients can be clipped and summed, but not read. Only a [`Release`], a sum with the plan's noise, leaves the round.
    //!
    //! ```
    //! use sordino::accounting::{Accountant, ClipNorm, Delta, Epsilon, Plan, SamplingRate, Steps, calibrate};
    //! use sordino::nn::{Engine, Loss, models};
    //! use sordino::optim::{Optimizer, OptimizerConfig};
    //! use sordino::own_loop::{ClipRule, NetworkGradients, Randomness, Terms, Vault};
    //!
    //! # fn main() -> Result<(), Box<dyn std::error::Error>> {
    //! let (data, _test) = sordino::data::embedded::mushroom()?.split(0.2, 0)?;
    //! let engine = Engine::new(models::linear(data.shape().len())?, Loss::Logistic)?;
    //! let mut params = engine.network().init(0);
    //! let (trainable, dimension) = (params.layout().trainable(), params.layout().len());
    //! let records = engine.records(data.inputs(), data.targets().ok_or("no labels")?)?;
    //!
    //! // The plan is priced before a record is used.
    //! let (batch_size, steps) = (256.0, Steps::new(50)?);
    //! let rate = SamplingRate::new(batch_size / data.len() as f64)?;
    //! let budget = calibrate::Budget { epsilon: Epsilon::new(1.0)?, delta: Delta::new(1e-5)? };
    //! let noise = calibrate::noise_multiplier(budget, rate, steps, Accountant::Pld)?.value;
    //! let plan = Plan::dp_sgd(noise, rate, steps);
    //! let terms = Terms::price(plan, data.len() as u64, budget.delta, Some(budget.epsilon), Accountant::Pld)?;
    //!
    //! // `Vault::seal` writes the ledger to a file instead, so that the run can be resumed.
    //! let gradients = NetworkGradients::new(engine, records);
    //! let mut vault = Vault::seal_in_memory(gradients, &terms, Randomness::from_os()?)?;
    //! let rule = ClipRule::flat(ClipNorm::new(0.1)?)?;
    //! let mut optimizer = Optimizer::new(&OptimizerConfig::named("sgd")?, trainable, dimension)?;
    //! while let Some(release) = vault.round(|round| {
    //!     let sum = round.gradients(&params).clipped_sum(&rule)?;
    //!     round.release(sum)
    //! })? {
    //!     // The mean over the expected batch size; the size that was drawn is private.
    //!     let mean = release?.scaled(1.0 / batch_size as f32);
    //!     vault.reuse(optimizer.step(mean, 40.0, params.values_mut()));
    //! }
    //! assert!(vault.close()?.is_closed());
    //! # Ok(())
    //! # }
    //! ```
    //!
    //! Misuse does not compile: reading a sum before noise is added, keeping it for another round, releasing it twice, or passing it to an
    //! optimizer.

    pub use sordino_privacy::{
        Account, ClipRule, Gradients, PrivacyError, PrivacyStatus, Randomness, Release, Round, Sum, Terms,
        Vault, WeightRule,
    };
    pub use sordino_train::NetworkGradients;
}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
