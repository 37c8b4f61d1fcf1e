//! Training a model on records in memory.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use sordino_accounting::{Accountant, ClipNorm, Delta, Epsilon, NoiseMultiplier, Steps};
use sordino_algorithms::Algorithm;
use sordino_data::Dataset;
use sordino_nn::Params;
use sordino_privacy::Account;
use sordino_train::{
    Clipping, Custom, DataDescription, Ending, LossName, Measurement, Observer, PoolingName, PricedRun,
    RunFolder, SamplingName, Score, Settings, TestSetName, check_unchanged_facts, price, resolve_with,
    verified_settings,
};

use crate::{
    Error, Fitted, Guarantee, Model,
    fitted::ModelRecipe,
    report::{DataAccount, RunReport},
};

/// Trains a model with differential privacy.
///
/// The setters collect [`Settings`]; settings that are not set have the defaults of `sordino train`. [`fit`](Self::fit) checks the
/// settings, prices the plan, and only then uses the records.
///
/// ```
/// use sordino::{Dataset, Model, Trainer};
///
/// let x: Vec<[f32; 2]> = (0..1000).map(|i| [(i % 10) as f32 / 10.0, (i % 7) as f32 / 7.0]).collect();
/// let y: Vec<bool> = x.iter().map(|row| row[0] > 0.5).collect();
/// let data = Dataset::from_rows(&x, &y)?;
///
/// let fitted = Trainer::new(Model::logistic()).budget(1.0, 1e-5)?.epochs(10.0).fit(&data)?;
/// assert!(fitted.guarantee().epsilon().is_some_and(|epsilon| epsilon.get() <= 1.0));
/// assert_eq!(fitted.predict(&[[0.9, 0.5], [0.1, 0.5]])?, ["true", "false"]);
/// # Ok::<(), sordino::Error>(())
/// ```
///
/// # Guarantees
/// All records given to `fit` are private and are trained on. Nothing that is computed from them leaves the
/// [vault](crate::own_loop) without noise that is priced in the plan.
#[must_use]
pub struct Trainer<'a> {
    settings: Settings,
    custom: Custom,
    target: Target,
    test: Option<&'a Dataset>,
    on_progress: Option<ProgressCallback<'a>>,
    stop: StopHandle,
}

type ProgressCallback<'a> = Box<dyn Fn(&TrainingProgress) + 'a>;

/// Where a run is stored.
enum Target {
    Memory,
    NewFolder(PathBuf),
    Resumed(PathBuf),
}

/// The progress of training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrainingProgress {
    /// The number of steps taken.
    pub step: u64,
    /// The number of steps of the plan.
    pub steps: u64,
    /// The last score on the test records, if there are any.
    pub score: Option<Score>,
    /// The number of steps taken when the last score was measured.
    pub scored_step: u64,
}

/// Stops training from another thread or from a callback.
#[derive(Debug, Clone, Default)]
pub struct StopHandle(Arc<AtomicBool>);

impl StopHandle {
    /// Stops training after the current step, or the next training run after its first steps. The model so far is returned; the whole plan
    /// counts as spent. A later call of `fit` is not stopped.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<'a> Trainer<'a> {
    /// A trainer for this model, with the defaults of `sordino train`.
    pub fn new(model: Model) -> Self {
        let Model { name, hidden, network } = model;
        Self {
            settings: Settings { model: name, hidden, ..Settings::default() },
            custom: Custom { network, ..Custom::default() },
            target: Target::Memory,
            test: None,
            on_progress: None,
            stop: StopHandle::default(),
        }
    }

    /// A trainer that resumes the run in this folder. The run keeps its settings. `fit` must be given the records that the run began with,
    /// and [`test_data`](Self::test_data) or [`public_test_data`](Self::public_test_data) the same test records.
    pub fn resume(folder: impl AsRef<Path>) -> Self {
        Self { target: Target::Resumed(folder.as_ref().to_owned()), ..Self::new(Model::for_data()) }
    }

    /// The loss for two classes that share one output. [`Model::linear`] with the hinge loss is a support vector machine.
    pub fn loss(mut self, loss: LossName) -> Self {
        self.settings.loss = Some(loss);
        self
    }

    /// The part of a [pre-trained model](Model::pretrained) that is trained: `head` (the default), `last,layers=2`, `lora,rank=8` or `all`.
    pub fn trained_part(mut self, part: &str) -> Self {
        self.settings.train = Some(part.to_owned());
        self
    }

    /// A folder with a public pre-trained model that is not trained. It is applied once to all records, and the model is trained on its
    /// outputs, which stay in memory.
    pub fn encoder(mut self, folder: impl AsRef<Path>) -> Self {
        self.settings.encoder = Some(folder.as_ref().to_owned());
        self
    }

    /// A fixed public transform of the records, such as `scattering` or `scattering,mirror=true`. It is computed once for each record, and the
    /// model is trained on its outputs, which stay in memory. `none` is no transform, also for images that have one by default.
    pub fn features(mut self, features: &str) -> Self {
        self.settings.features = Some(features.to_owned());
        self
    }

    /// How the outputs of a pre-trained model or encoder are pooled into one vector for each record.
    pub fn pooling(mut self, pooling: PoolingName) -> Self {
        self.settings.pooling = Some(pooling);
        self
    }

    /// Sets the weights from which training starts, for example those of a [fitted model](Fitted::params). They must be public. If they were trained
    /// on the same records, the privacy costs of both runs add up.
    ///
    /// # Errors
    /// The weights cannot be written as a safetensors file.
    pub fn initial_weights(mut self, weights: &Params) -> Result<Self, Error> {
        self.custom.initial_weights = Some(weights.to_safetensors()?);
        Ok(self)
    }

    /// The privacy budget. For algorithms as published, it is the guarantee that the paper claims. The default is (1, 1e-5).
    ///
    /// # Errors
    /// An epsilon below 0, or a delta outside (0, 1).
    pub fn budget(mut self, epsilon: f64, delta: f64) -> Result<Self, Error> {
        self.settings.epsilon = Some(Epsilon::new(epsilon)?);
        self.settings.delta = Some(Delta::new(delta)?);
        Ok(self)
    }

    /// The noise multiplier: the standard deviation of a step's noise divided by its sensitivity. Without it, the smallest multiplier that the
    /// budget allows is used; with both, the plan must fit the budget.
    ///
    /// # Errors
    /// A multiplier that is not positive.
    pub fn noise_multiplier(mut self, noise_multiplier: f64) -> Result<Self, Error> {
        self.settings.noise_multiplier = Some(NoiseMultiplier::new(noise_multiplier)?);
        Ok(self)
    }

    /// The delta, if the noise multiplier is given in place of a budget.
    ///
    /// # Errors
    /// A delta outside (0, 1).
    pub fn delta(mut self, delta: f64) -> Result<Self, Error> {
        self.settings.delta = Some(Delta::new(delta)?);
        Ok(self)
    }

    /// The algorithm by name, with options: `dynamic,mu_growth=3`. The default is `dp-sgd`.
    pub fn algorithm(mut self, name_and_options: &str) -> Self {
        self.settings.algorithm = Some(name_and_options.to_owned());
        self
    }

    /// An algorithm as a value: one of [`algorithms`](crate::algorithms), or your own. The vault protects the records in either case.
    pub fn with_algorithm(mut self, algorithm: impl Algorithm + 'static) -> Self {
        self.custom.algorithm = Some(Arc::new(algorithm));
        self
    }

    /// The norm to which each record's gradient is clipped, at the start if the algorithm adapts it.
    ///
    /// # Errors
    /// A norm that is not positive.
    pub fn max_grad_norm(mut self, max_grad_norm: f64) -> Result<Self, Error> {
        self.settings.max_grad_norm = Some(ClipNorm::new(max_grad_norm)?);
        Ok(self)
    }

    /// Whether the whole gradient or each layer is clipped.
    pub fn clipping(mut self, clipping: Clipping) -> Self {
        self.settings.clipping = Some(clipping);
        self
    }

    /// How batches are drawn.
    pub fn sampling(mut self, sampling: SamplingName) -> Self {
        self.settings.sampling = Some(sampling);
        self
    }

    /// Truncates Poisson batches to this size, which adds to delta.
    pub fn max_batch_size(mut self, max_batch_size: u64) -> Self {
        self.settings.max_batch_size = Some(max_batch_size);
        self
    }

    /// The accountant that prices the plan.
    pub fn accountant(mut self, accountant: Accountant) -> Self {
        self.settings.accountant = Some(accountant);
        self
    }

    /// The expected number of passes over the data.
    pub fn epochs(mut self, epochs: f64) -> Self {
        (self.settings.epochs, self.settings.steps) = (Some(epochs), None);
        self
    }

    /// The number of steps, in place of epochs.
    ///
    /// # Errors
    /// Zero steps, or too many.
    pub fn steps(mut self, steps: u64) -> Result<Self, Error> {
        (self.settings.epochs, self.settings.steps) = (None, Some(Steps::new(steps)?));
        Ok(self)
    }

    /// The expected batch size.
    pub fn batch_size(mut self, batch_size: u64) -> Self {
        self.settings.batch_size = Some(batch_size);
        self
    }

    /// The learning rate, for gradients divided by the expected batch size.
    pub fn learning_rate(mut self, learning_rate: f64) -> Self {
        self.settings.learning_rate = Some(learning_rate);
        self
    }

    /// The optimizer by name, with options: `adam,beta2=0.99`.
    pub fn optimizer(mut self, name_and_options: &str) -> Self {
        self.settings.optimizer = Some(name_and_options.to_owned());
        self
    }

    /// The learning rate schedule by name, with options: `step,every=100,factor=0.5`.
    pub fn schedule(mut self, name_and_options: &str) -> Self {
        self.settings.schedule = Some(name_and_options.to_owned());
        self
    }

    /// The decay of an exponential moving average of the parameters; the average is the model.
    pub fn average(mut self, decay: f64) -> Self {
        self.settings.average = Some(decay);
        self
    }

    /// Makes the run reproducible and NOT PRIVATE.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = Some(seed);
        self
    }

    /// Test records, other than those given to `fit`; none of those are held back. They are protected: noise is added to what is measured on them,
    /// at the end of training. For exact scores on public records, use [`public_test_data`](Self::public_test_data).
    pub fn test_data(mut self, test: &'a Dataset) -> Self {
        self.test = Some(test);
        self
    }

    /// Test records that are PUBLIC: scores on them are exact.
    pub fn public_test_data(mut self, test: &'a Dataset) -> Self {
        self.settings.test_set = Some(TestSetName::Public);
        self.test_data(test)
    }

    /// A name for the data. Runs in the same folder on data with the same name are added up for the total cost.
    pub fn data_name(mut self, name: &str) -> Self {
        self.settings.data = Some(name.into());
        self
    }

    /// Stores the run in a new folder, with a ledger on disk and checkpoints. Without it nothing is written, and the run cannot be
    /// resumed.
    pub fn run_folder(mut self, folder: impl AsRef<Path>) -> Self {
        self.target = Target::NewFolder(folder.as_ref().to_owned());
        self
    }

    /// Seconds between checkpoints, in a run folder.
    pub fn checkpoint_seconds(mut self, seconds: f64) -> Self {
        self.settings.checkpoint_seconds = Some(seconds);
        self
    }

    /// Any setting by its name and value, as text.
    ///
    /// # Errors
    /// A name that does not exist, or a value that is not permitted.
    pub fn set(mut self, name: &str, value: &str) -> Result<Self, Error> {
        self.settings.set(name, value)?;
        Ok(self)
    }

    /// Calls this function after each step and each measurement.
    pub fn on_progress(mut self, callback: impl Fn(&TrainingProgress) + 'a) -> Self {
        self.on_progress = Some(Box::new(callback));
        self
    }

    /// Sets the handle that stops training. Several trainers may have the same handle.
    pub fn stopped_by(mut self, stop: StopHandle) -> Self {
        self.stop = stop;
        self
    }

    /// A handle that stops training.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// The settings so far.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Resolves the settings and prices the plan for these records, without training. Only public facts about the records are used.
    ///
    /// # Errors
    /// Settings that are out of range or do not fit the data; a plan that exceeds the budget.
    pub fn price(&self, data: &Dataset) -> Result<PricedRun, Error> {
        let description = DataDescription::in_memory(&self.settings, data, self.test)?;
        price(resolve_with(&self.settings, &description, &self.custom)?, None)
    }

    /// Trains the model on private records.
    ///
    /// # Errors
    /// As for [`price`](Self::price); a run folder that is not empty or cannot be written. What was released before an error counts as
    /// spent.
    pub fn fit(&self, data: &Dataset) -> Result<Fitted, Error> {
        match &self.target {
            Target::Memory => self.train(&self.price(data)?, data, None),
            Target::NewFolder(path) => {
                let priced = self.price(data)?;
                if self.custom.network.is_some() && priced.resolved.files.network.is_none() {
                    return Err(Error::refused(
                        "a network with own layers cannot be stored in a run folder: the layers are Rust code",
                        "train without a run folder, and store Fitted::params",
                    ));
                }
                let folder = RunFolder::create(path).map_err(|error| new_folder_error(path, error))?;
                let fitted =
                    priced.write_settings(&folder).and_then(|()| self.train(&priced, data, Some(&folder)));
                if fitted.is_err() {
                    folder.remove_if_never_began();
                }
                fitted
            }
            Target::Resumed(path) => {
                let folder = RunFolder::open(path)?;
                self.train(&self.price_resumed(&folder, data)?, data, Some(&folder))
            }
        }
    }

    fn train(&self, priced: &PricedRun, data: &Dataset, folder: Option<&RunFolder>) -> Result<Fitted, Error> {
        let run = priced.run(data, self.test, folder);
        let mut observer = Callback {
            trainer: self,
            progress: TrainingProgress { step: 0, steps: priced.terms.steps(), score: None, scored_step: 0 },
        };
        let ending = match self.target {
            Target::Resumed(_) => run.resume(&self.stop.0, &mut observer)?,
            _ => run.begin(&self.stop.0, &mut observer)?,
        };
        // A stop ends one training, not all later ones.
        self.stop.0.store(false, Ordering::Relaxed);
        fitted(priced, folder, ending)
    }

    /// A resumed run keeps its settings and its plan.
    fn price_resumed(&self, folder: &RunFolder, data: &Dataset) -> Result<PricedRun, Error> {
        if !(Settings { test_set: None, ..self.settings.clone() }).is_empty() {
            return Err(Error::refused("a resumed run keeps its settings", "set only the test data"));
        }
        let account = Account::read(&folder.ledger())?;
        let written = verified_settings(folder, &account)?;
        self.check_test_set(written.test_set)?;
        // The name of the data is not a path.
        let settings = Settings { data: written.data, ..Settings::read(&folder.config())? };
        let description = DataDescription::in_memory(&settings, data, self.test)?;
        check_unchanged_facts(folder, &description.facts)?;
        price(resolve_with(&settings, &description, &self.custom)?, Some(&account))
    }

    /// Rejects protected test records for a run whose test records are public, and public ones for a run that protects them.
    fn check_test_set(&self, began: Option<TestSetName>) -> Result<(), Error> {
        // Runs of earlier versions, which do not state it, have public test records. Whether a run has any is checked with the other facts.
        let began = began.unwrap_or(TestSetName::Public);
        let given = self.settings.test_set.unwrap_or(TestSetName::Protected);
        let named = |kind| match kind {
            TestSetName::Public => ("public", "public_test_data"),
            TestSetName::Protected => ("protected", "test_data"),
        };
        if self.test.is_none() || given == began {
            return Ok(());
        }
        let ((began, method), (given, _)) = (named(began), named(given));
        Err(Error::refused(
            format!("the run began with {began} test records, but is resumed with {given} ones"),
            format!("give the same test records with Trainer::{method}, or start a new run"),
        ))
    }
}

/// The error for a new folder that cannot be used, in the words of the library.
fn new_folder_error(path: &Path, error: Error) -> Error {
    let is_run = RunFolder::open(path).is_ok();
    let hint = match error {
        Error::Refused { .. } if is_run => "choose another folder, or resume the run with Trainer::resume",
        _ => "choose a folder that is new or empty, where files can be written",
    };
    Error::refused(error.to_string(), hint)
}

/// The model at the end of a run, with its guarantee.
fn fitted(priced: &PricedRun, folder: Option<&RunFolder>, ending: Ending) -> Result<Fitted, Error> {
    let settings = priced.settings();
    let report = RunReport {
        settings: &settings,
        account: &ending.account,
        score: ending.score,
        metrics: ending.metrics.as_ref(),
        seconds: Some(ending.seconds),
        folder: folder.map(RunFolder::path),
        facts: Some(&priced.resolved.data),
        weights_covered: true,
        provable: priced.provable,
        published_noise: priced.published_noise.clone(),
        data: folder.map(|folder| DataAccount::new(folder, &settings)),
    };
    Ok(Fitted {
        temperature: ending.temperature(),
        guarantee: Guarantee::new(&report)?,
        recipe: ModelRecipe::new(&settings, &priced.resolved.files)?,
        model: priced.resolved.model.clone(),
        params: ending.params,
        facts: priced.resolved.data.clone(),
        test_score: ending.score,
        metrics: ending.metrics,
        finished: ending.finished,
        weights_covered: true,
    })
}

/// Passes the events of a run to the callback of a trainer.
struct Callback<'t, 'a> {
    trainer: &'t Trainer<'a>,
    progress: TrainingProgress,
}

impl Callback<'_, '_> {
    fn call(&self) {
        if let Some(callback) = &self.trainer.on_progress {
            callback(&self.progress);
        }
    }
}

impl Observer for Callback<'_, '_> {
    fn stepped(&mut self, position: u64, _account: &Account) {
        self.progress.step = position;
        self.call();
    }

    fn measured(&mut self, measurement: &Measurement) {
        self.progress.score = Some(measurement.score);
        self.progress.scored_step = measurement.step;
        self.call();
    }
}
