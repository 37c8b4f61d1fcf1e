//! Training runs in four stages, each a function of the one before:
//!
//! | stage | content | made by |
//! | --- | --- | --- |
//! | [`Settings`] | what the user set; everything is optional | flags, a TOML file, code |
//! | [`ResolvedSettings`] | every value, and where it comes from | [`resolve`], from settings and public facts about the data |
//! | [`PricedRun`] | the plan, its guarantee and the terms of the run | [`price`], before any record is used |
//! | [`Run`] | the training loop, with checkpoints | [`PricedRun::run`], from private records |
//!
//! A run trains inside the [`Vault`](sordino_privacy::Vault) of the trusted base. Everything in this crate handles releases and public
//! values only.
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use sordino_train::{RunData, Settings, price, resolve};
//!
//! let settings = Settings::parse("data = 'mushroom'\nsteps = 20\nepsilon = 2.0")?;
//! let RunData { train, test, description } = RunData::read(&settings)?;
//! let resolved = resolve(&settings, &description)?;
//! let priced = price(resolved, None)?;
//! assert!(priced.terms.guarantee().is_some_and(|guarantee| guarantee.epsilon.get() <= 2.0));
//! let ending = priced.run(&train, test.as_ref(), None).begin(&AtomicBool::new(false), &mut ())?;
//! assert!(ending.finished && ending.score.is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Your own training loop needs only the vault and an optimizer:
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
//! // The plan is priced before a record is used.
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

mod algorithm;
mod augmentation;
mod claim;
mod client_updates;
mod clients;
mod data;
mod encoder;
mod error;
mod evaluation;
mod features;
mod folder;
mod footprint;
pub mod format;
mod gradients;
mod hint;
mod inspection;
mod learner;
mod loss;
pub mod measurement;
mod metrics;
mod model;
mod price;
mod public_defaults;
mod public_model;
mod ranks;
mod record_level;
mod resolve;
mod run;
mod run_files;
mod schedule_files;
mod seal;
mod search;
mod settings;
mod several_runs;
mod state;
mod unchanged_facts;

pub use algorithm::{NetworkAlgorithm, parse_algorithm, parse_algorithm_config};
pub use claim::Claim;
pub use client_updates::LocalTraining;
pub use data::{DataDescription, DataFacts, RunData, UnitFacts, data_source};
pub use encoder::Encoder;
pub use error::TrainError;
pub use evaluation::{Evaluator, Score, class_of};
pub use features::parse_features;
pub use folder::{RunFolder, check_writable, write_whole};
pub use footprint::Footprint;
pub use gradients::NetworkGradients;
pub use hint::{Hint, HintPart};
pub use inspection::{Inspection, inspect, model_notes, parameter_count, temperature};
pub use learner::Learning;
pub use measurement::Metrics;
pub use metrics::{Measurement, measurements};
pub use model::{ResolvedModel, parse_model};
pub use price::{PricedRun, Provable, price, read_published_noise};
pub use public_defaults::public_folder;
pub use public_model::PublicModel;
pub use ranks::Share;
pub use record_level::{Federation, FederationEnding};
pub use resolve::{Custom, ResolvedSettings, check, parse_schedule, resolve, resolve_with, without_unused};
pub use run::{Ending, Observer, Run, steps_per_charge};
pub use run_files::{PublicFile, RunFiles, check_unchanged_data, public_files, verified_settings};
pub use seal::{read_weights, write_weights};
pub use search::{PricedSearch, SearchSettings, Selected, noise_multiplier, price_search};
pub use settings::{
    ClientSource, Clipping, LossName, Origin, PoolingName, ProtectedUnit, SamplingName, SettingInfo,
    SettingValue, SettingValues, Settings, TestSetName, TruncationName, UnitGradient, Value,
};
pub use several_runs::SeveralRuns;
pub use unchanged_facts::check_unchanged_facts;
