//! The second stage: every setting gets a value, from the user, from a default, or from public facts about the data.

mod batches;
mod learning;
mod privacy;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use batches::Batches;
pub(crate) use learning::of_every_client;
pub use learning::parse_schedule;
use learning::{LearningFacts, LearningSettings};
pub(crate) use privacy::algorithm_text;
pub use privacy::without_unused;
use privacy::{BudgetSettings, reject_unused};
use sordino_accounting::{Accountant, NoiseMultiplier, Steps, calibrate::Budget, gaussian};
use sordino_algorithms::{Algorithm, AlgorithmConfig, Defaults, Options, RunFacts};
use sordino_nn::{Description, Views};
use sordino_privacy::ClipRule;

use crate::{
    Clipping, DataDescription, DataFacts, Footprint, Learning, LocalTraining, NetworkAlgorithm, Origin,
    PublicModel, ResolvedModel, RunFiles, SamplingName, SettingValues, Settings, TestSetName, TrainError,
    UnitGradient, Value, augmentation::views, clients, features::parse_features, parse_algorithm,
    schedule_files, settings::given,
};

/// A run whose settings all have values. No record is needed for this.
#[derive(Debug, Clone)]
pub struct ResolvedSettings {
    /// The value of every setting that the run uses, and where it comes from. Paths of files that the run stores are relative to its
    /// folder.
    pub values: SettingValues,
    /// The public facts about the data.
    pub data: DataFacts,
    /// The network.
    pub model: ResolvedModel,
    /// The algorithm with its options.
    pub algorithm: Arc<dyn NetworkAlgorithm>,
    /// How releases become steps.
    pub learning: Learning,
    /// The public facts that the plan and the steps depend on.
    pub facts: RunFacts,
    /// The privacy budget; none if the noise multiplier is given instead, and for algorithms without noise.
    pub budget: Option<Budget>,
    /// The noise multiplier, if it is given.
    pub noise_multiplier: Option<NoiseMultiplier>,
    /// The accountant that prices the plan.
    pub accountant: Accountant,
    /// How clients train; none unless the run is federated.
    pub local: Option<LocalTraining>,
    /// The random views of images.
    pub views: Option<Views>,
    /// The memory that training takes.
    pub footprint: Footprint,
    /// The steps between two measurements on test records.
    pub measure_every: u64,
    /// The time between two checkpoints.
    pub checkpoint_every: Duration,
    /// The public files that the run stores.
    pub files: RunFiles,
    /// When the data was last changed, as the ledger stores it.
    pub(crate) last_changed: String,
}

impl ResolvedSettings {
    /// The factor for the loss of each class; empty without class weights.
    ///
    /// A gradient that is clipped does not grow with its weight. So the largest weight becomes 1, or `max_grad_norm` if that is
    /// smaller: then gradients with a norm of up to 1 are not clipped, and classes contribute in proportion to their weights.
    pub fn loss_factors(&self) -> Vec<f32> {
        let Some(weights) = &self.values.class_weights else { return Vec::new() };
        let largest = weights.value.iter().copied().fold(0.0, f64::max);
        // The update of a client is clipped, not the gradients of its local steps.
        let unclipped = self.algorithm.is_plain() || self.local.is_some();
        let clip = if unclipped { 1.0 } else { self.facts.max_grad_norm.get().min(1.0) };
        weights.value.iter().map(|weight| (clip * weight / largest) as f32).collect()
    }
}

/// Parts of a run that are given as values, because they cannot be written as settings.
#[derive(Debug, Clone, Default)]
pub struct Custom {
    /// The algorithm, in place of the setting.
    pub algorithm: Option<Arc<dyn NetworkAlgorithm>>,
    /// The network, in place of the setting `model`.
    pub network: Option<Description>,
    /// The bytes of a safetensors file, in place of the setting `initial_weights`.
    pub initial_weights: Option<Vec<u8>>,
}

/// Checks everything about the settings that does not depend on the data.
///
/// # Errors
/// The first setting that is out of range, excludes another, or is not used by the algorithm.
pub fn check(settings: &Settings) -> Result<(), TrainError> {
    checked(settings, &Custom::default()).map(drop)
}

/// The settings that do not depend on the data.
struct Checked {
    algorithm_name: Value<String>,
    /// The schedules that the algorithm reads from files.
    schedules: schedule_files::Stored,
    algorithm: Arc<dyn NetworkAlgorithm>,
    defaults: Defaults,
    budget: BudgetSettings,
    checkpoint_seconds: Value<f64>,
    checkpoint_every: Duration,
}

/// The name and the options of an algorithm that was given as a value, as settings have them.
fn custom_algorithm_text(algorithm: &dyn NetworkAlgorithm) -> Result<String, TrainError> {
    let name = algorithm.about().name;
    let known = AlgorithmConfig::all();
    let taken = known.iter().find(|known| known.about().name == name);
    if taken.is_some_and(|known| known.summary() != algorithm.summary()) {
        return Err(TrainError::refused(
            format!("an algorithm of Sordino has the name {name}"),
            "give your algorithm another name",
        ));
    }
    let options = algorithm.set_options().into_iter().map(|(key, value)| format!(",{key}={value}"));
    Ok(name.to_owned() + &options.collect::<String>())
}

fn checked(settings: &Settings, custom: &Custom) -> Result<Checked, TrainError> {
    settings.check_values()?;
    settings.features.as_deref().map(parse_features).transpose()?;
    let (algorithm_name, schedules, algorithm) = match &custom.algorithm {
        Some(algorithm) => {
            algorithm.check()?;
            let name = Value::new(custom_algorithm_text(&**algorithm)?, Origin::User);
            (name, Vec::new(), algorithm.clone())
        }
        None => {
            let text = algorithm_text(settings);
            let algorithm = parse_algorithm(&text.value)?;
            let (name, schedules) = schedule_files::stored(&text.value)?;
            (Value { value: name, ..text }, schedules, algorithm)
        }
    };
    reject_unused(settings, &*algorithm)?;
    let defaults = algorithm.defaults(settings.max_grad_norm)?;
    ClipRule::flat(defaults.max_grad_norm)?;
    learning::check(settings)?;
    let (checkpoint_seconds, checkpoint_every) = checkpoint_interval(settings)?;
    Ok(Checked {
        budget: BudgetSettings::new(settings, &*algorithm)?,
        algorithm_name,
        schedules,
        algorithm,
        defaults,
        checkpoint_seconds,
        checkpoint_every,
    })
}

/// Gives every setting a value.
///
/// # Errors
/// As for [`check`], and settings that do not fit the data.
pub fn resolve(settings: &Settings, data: &DataDescription) -> Result<ResolvedSettings, TrainError> {
    resolve_with(settings, data, &Custom::default())
}

/// Gives every setting a value, for a run with parts that are given as values.
///
/// # Errors
/// As for [`resolve`].
pub fn resolve_with(
    settings: &Settings,
    data: &DataDescription,
    custom: &Custom,
) -> Result<ResolvedSettings, TrainError> {
    let Checked {
        algorithm_name,
        schedules,
        algorithm,
        defaults,
        budget,
        checkpoint_seconds,
        checkpoint_every,
    } = checked(settings, custom)?;
    let (model_name, model, network_text) = model(settings, custom, &data.facts)?;
    let initial_weights = initial_weights(settings, custom)?;
    let model = match &initial_weights {
        Some(weights) => model.beginning_with(weights)?,
        None => model,
    };
    if settings.augment.is_some() && model.features().is_some() {
        return Err(TrainError::refused(
            "augment changes pixels in every step, but features are computed once before training",
            "leave out one of them; scattering,mirror=true treats an image and its mirror image alike",
        ));
    }
    let network = model.network()?;
    let batches = Batches::new(settings, data.records, &*algorithm)?;
    let sampling = Value::given_or(settings.sampling, SamplingName::Poisson, Origin::Default);
    let clipping = Value::given_or(settings.clipping, Clipping::Flat, Origin::Default);
    let (dimension, records) =
        (network.layout().trainable().iter().map(ExactSizeIterator::len).sum(), data.records as u64);
    let rate = batches.size.value as f64 / records as f64;
    let LearningSettings { optimizer, schedule, learning_rate, average, learning } = LearningSettings::new(
        settings,
        &LearningFacts {
            contribution: defaults.contribution,
            mu: noise_of_run(budget.budget(), settings.noise_multiplier, rate, batches.steps),
            steps: batches.steps.get(),
            records,
            dimension,
            outputs: network.output().len() / network.output().steps(),
            regression: !data.facts.numbers.is_empty(),
        },
    )?;
    let facts = RunFacts {
        sampling: batches.sampling(sampling.value, settings.max_batch_size)?,
        steps: batches.steps,
        expected_batch_size: batches.size.value as f64,
        max_grad_norm: defaults.max_grad_norm,
        layers: (clipping.value == Clipping::PerLayer).then_some(network.layers().len()),
        dimension,
        records,
        momentum: learning.optimizer.momentum(),
        claim: budget.budget(),
    };
    let footprint = Footprint::new(network.layout().len(), &learning, algorithm.kept_vectors());
    let footprint = if settings.protect.is_some() { footprint.with_clients() } else { footprint };
    footprint.check(1)?;
    let max_grad_norm = Value::given_or(settings.max_grad_norm, defaults.max_grad_norm, Origin::Default);
    let default_accountant = algorithm.accountant(facts.sampling);
    let accountant = Value::given_or(settings.accountant, default_accountant, Origin::Default);
    let private = !algorithm.is_plain();
    let measurements = planned_measurements(settings, data, &*algorithm, batches.steps)?;
    let mut values = data.values.clone();
    let local = clients::local_training(settings, &data.facts, &mut values)?;
    Ok(ResolvedSettings {
        budget: budget.budget(),
        noise_multiplier: settings.noise_multiplier,
        accountant: accountant.value,
        measure_every: batches.steps_per_epoch.max(batches.steps.get() / 20).max(1),
        values: SettingValues {
            model: Some(model_name),
            hidden: given(settings.hidden.clone()),
            loss: given(settings.loss),
            train: given(settings.train.clone()),
            encoder: given(settings.encoder.as_deref().map(absolute)),
            features: model.features().map(|features| {
                let origin = if settings.features.is_some() { Origin::User } else { Origin::PublicFact };
                Value::new(features.config().to_string(), origin)
            }),
            pooling: given(settings.pooling),
            initial_weights: given(initial_weights.as_ref().map(|_| RunFiles::INITIAL_WEIGHTS.into())),
            algorithm: Some(algorithm_name),
            epsilon: budget.epsilon,
            delta: budget.delta,
            noise_multiplier: given(settings.noise_multiplier),
            max_grad_norm: Some(max_grad_norm).filter(|_| private),
            clipping: Some(clipping).filter(|_| private),
            sampling: Some(sampling).filter(|_| private),
            max_batch_size: given(settings.max_batch_size),
            measurements,
            accountant: Some(accountant).filter(|_| algorithm.about().verdict.is_sound()),
            epochs: batches.epochs,
            steps: batches.given_steps,
            batch_size: Some(batches.size),
            unit_gradient: unit_gradient(settings, data)?.filter(|_| local.is_none()),
            augment: given(settings.augment.clone()),
            learning_rate: Some(learning_rate),
            class_weights: class_weights(settings, &data.facts)?,
            optimizer: Some(optimizer),
            schedule: Some(schedule),
            average: Some(average),
            seed: given(settings.seed),
            checkpoint_seconds: Some(checkpoint_seconds),
            ..values
        },
        data: data.facts.clone(),
        files: RunFiles {
            schema: data.schema.clone(),
            network: network_text,
            public_model: model.public().map(PublicModel::listing),
            initial_weights,
            tokenizer: data.tokenizer.clone(),
            schedules,
        },
        last_changed: data.last_changed.clone(),
        views: settings.augment.as_ref().map(|text| views(text, network.input())).transpose()?,
        local,
        model,
        algorithm,
        learning,
        facts,
        footprint,
        checkpoint_every,
    })
}

/// The parameter mu of Gaussian differential privacy that corresponds to the noise of a run: that of the privacy budget, or `q sqrt(T) / z` if
/// the noise multiplier is given instead. It is used only for the default learning rate, so the second form may be approximate.
fn noise_of_run(
    budget: Option<Budget>,
    multiplier: Option<NoiseMultiplier>,
    rate: f64,
    steps: Steps,
) -> Option<f64> {
    match (budget, multiplier) {
        (Some(budget), _) => Some(gaussian::mu(budget.epsilon, budget.delta).get()),
        (None, Some(multiplier)) => Some(rate * (steps.get() as f64).sqrt() / multiplier.get()),
        (None, None) => None,
    }
}

/// How the gradients of a unit are combined; none if every record is a unit.
fn unit_gradient(
    settings: &Settings,
    data: &DataDescription,
) -> Result<Option<Value<UnitGradient>>, TrainError> {
    match (settings.unit_gradient, &data.facts.unit) {
        (Some(_), None) => Err(TrainError::refused(
            "unit_gradient needs a unit of privacy",
            "name the column that identifies it with {unit}, or leave out {unit_gradient}",
        )),
        (_, None) => Ok(None),
        (chosen, Some(_)) => Ok(Some(Value::given_or(chosen, UnitGradient::Mean, Origin::Default))),
    }
}

/// The model setting, the model, and the text of the file that describes it.
fn model(
    settings: &Settings,
    custom: &Custom,
    facts: &DataFacts,
) -> Result<(Value<String>, ResolvedModel, Option<String>), TrainError> {
    let stored = || Value::new(RunFiles::NETWORK.to_owned(), Origin::User);
    if let Some(network) = &custom.network {
        let model = ResolvedModel::described_with(network.clone(), settings, facts)?;
        // A network with own layers has no text: they are Rust code.
        return Ok((stored(), model, toml::to_string(network).ok()));
    }
    let (name, model) = ResolvedModel::from_settings(settings, facts)?;
    let name = match settings.model.is_some() {
        // Absolute, so that the run can be used from any folder.
        true if model.public().is_some() && Path::new(&name).is_dir() => {
            Value::new(absolute(Path::new(&name)).display().to_string(), Origin::User)
        }
        true => Value::new(name, Origin::User),
        false => Value::new(name, Origin::PublicFact),
    };
    if !name.value.ends_with(".toml") {
        return Ok((name, model, None));
    }
    let text = fs::read_to_string(&name.value)
        .map_err(|error| TrainError::refused(format!("{}: {error}", name.value), "restore the file"))?;
    Ok((stored(), model, Some(text)))
}

/// The bytes of the safetensors file with the initial weights; `None` if the initial weights are random.
fn initial_weights(settings: &Settings, custom: &Custom) -> Result<Option<Vec<u8>>, TrainError> {
    match (&custom.initial_weights, &settings.initial_weights) {
        (Some(weights), _) => Ok(Some(weights.clone())),
        (None, None) => Ok(None),
        (None, Some(path)) => fs::read(path).map(Some).map_err(|error| {
            TrainError::refused(
                format!("initial_weights is {}, which cannot be read: {error}", path.display()),
                "give a safetensors file with the weights of the model",
            )
        }),
    }
}

/// The weights of the classes.
fn class_weights(settings: &Settings, facts: &DataFacts) -> Result<Option<Value<Vec<f64>>>, TrainError> {
    let Some(weights) = &settings.class_weights else { return Ok(None) };
    let names = &facts.classes;
    if weights.len() != names.len() {
        return Err(TrainError::refused(
            format!("class_weights has {} numbers, but there are {} classes", weights.len(), names.len()),
            match names.len() {
                0 => "class weights are for classification; leave them out".to_owned(),
                count => format!("give a number for each of the {count} classes, in their order"),
            },
        ));
    }
    match weights.iter().find(|weight| !(1e-6..=1e6).contains(*weight)) {
        Some(wrong) => Err(TrainError::refused(
            format!("class_weights must be between 1e-6 and 1e6, got {wrong}"),
            "1,10 gives records of the second class ten times the weight",
        )),
        None => Ok(given(settings.class_weights.clone())),
    }
}

/// The number of measurements on protected test records. Public test records, and all test records of a run that is not private, are
/// measured exactly and without limit.
fn planned_measurements(
    settings: &Settings,
    data: &DataDescription,
    algorithm: &dyn NetworkAlgorithm,
    steps: Steps,
) -> Result<Option<Value<u64>>, TrainError> {
    let protected = data.values.test_set.as_ref().is_some_and(|set| set.value == TestSetName::Protected);
    let private = settings.seed.is_none() && algorithm.about().verdict.is_sound();
    match settings.measurements {
        Some(0) => Err(TrainError::refused(
            format!("measurements must be from 1 to the number of steps, {steps}, got 0"),
            "hold back no records with {test_fraction=0}",
        )),
        Some(count) if count > steps.get() => Err(TrainError::refused(
            format!("measurements must be from 1 to the number of steps, {steps}, got {count}"),
            "few measurements have little noise: each has an equal part of epsilon",
        )),
        Some(count) if !(protected && private) => Err(TrainError::refused(
            format!("measurements is {count}, but this run has no protected test records or is not private"),
            "leave out {measurements}; it needs protected test records, a sound algorithm and no {seed}",
        )),
        given => Ok((protected && private).then(|| Value::given_or(given, 1, Origin::Default))),
    }
}

fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn checkpoint_interval(settings: &Settings) -> Result<(Value<f64>, Duration), TrainError> {
    let seconds = Value::given_or(settings.checkpoint_seconds, 10.0, Origin::Default);
    let interval = Duration::try_from_secs_f64(seconds.value).map_err(|_| {
        TrainError::refused(
            format!("checkpoint_seconds must be a number of at least 0, got {}", seconds.value),
            "10 loses at most 10 seconds",
        )
    })?;
    Ok((seconds, interval))
}
