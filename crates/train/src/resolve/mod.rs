//! The second stage: every setting gets a value, from the user, from a default, or from public facts about the data.

mod batches;
mod learning;
mod privacy;

use std::{fs, time::Duration};

use batches::Batches;
use learning::LearningSettings;
use privacy::{BudgetSettings, algorithm_text, clip_norm, reject_unused};
pub use privacy::{parse_algorithm, without_unused};
use sordino_accounting::{Accountant, NoiseMultiplier, calibrate::Budget};
use sordino_algorithms::{Choice, Setting};

use crate::{
    Clipping, DataDescription, DataFacts, Footprint, Learning, Origin, ResolvedModel, RunFiles, SamplingName,
    SettingValues, Settings, TrainError, Value, settings::given,
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
    pub algorithm: Choice,
    /// How releases become steps.
    pub learning: Learning,
    /// What the algorithm is told about the run.
    pub facts: Setting,
    /// The privacy budget; none if the noise multiplier is given instead, and for algorithms without noise.
    pub budget: Option<Budget>,
    /// The noise multiplier, if it is given.
    pub noise_multiplier: Option<NoiseMultiplier>,
    /// The accountant that prices the plan.
    pub accountant: Accountant,
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

/// Checks everything about the settings that does not depend on the data.
///
/// # Errors
/// The first setting that is out of range, excludes another, or is not used by the algorithm.
pub fn check(settings: &Settings) -> Result<(), TrainError> {
    settings.check_values()?;
    let algorithm = parse_algorithm(&algorithm_text(settings).value)?;
    reject_unused(settings, &algorithm)?;
    let clip = clip_norm(settings, &algorithm)?;
    LearningSettings::new(settings, &algorithm, clip.value)?;
    checkpoint_interval(settings)?;
    Ok(())
}

/// Gives every setting a value.
///
/// # Errors
/// As for [`check`], and settings that do not fit the data.
pub fn resolve(settings: &Settings, data: &DataDescription) -> Result<ResolvedSettings, TrainError> {
    check(settings)?;
    let algorithm_value = algorithm_text(settings);
    let algorithm = parse_algorithm(&algorithm_value.value)?;
    let clip = clip_norm(settings, &algorithm)?;
    let budget = BudgetSettings::new(settings, &algorithm)?;
    let LearningSettings { optimizer, schedule, learning_rate, learning } =
        LearningSettings::new(settings, &algorithm, clip.value)?;
    let (model_value, model, network_text) = model(settings, &data.facts)?;
    let network = model.network()?;
    let footprint = Footprint::new(network.layout().len(), &learning, &algorithm);
    footprint.check(1)?;
    let batches = Batches::new(settings, data.records)?;
    let sampling = Value::given_or(settings.sampling, SamplingName::Poisson, Origin::Default);
    let clipping = Value::given_or(settings.clipping, Clipping::Flat, Origin::Default);
    let facts = Setting {
        sampling: batches.sampling(sampling.value, settings.max_batch_size)?,
        steps: batches.steps,
        expected_batch_size: batches.size.value as f64,
        clip: clip.value,
        layers: (clipping.value == Clipping::PerLayer).then_some(network.layers().len()),
        dimension: network.layout().trainable().iter().map(ExactSizeIterator::len).sum(),
        noise_multiplier: None,
        records: data.records as u64,
        claim: budget.budget(),
    };
    let accountant = Value::given_or(settings.accountant, algorithm.accountant(&facts), Origin::Default);
    let (seconds, checkpoint_every) = checkpoint_interval(settings)?;
    let private = !algorithm.is_plain();
    Ok(ResolvedSettings {
        budget: budget.budget(),
        noise_multiplier: settings.noise_multiplier,
        accountant: accountant.value,
        measure_every: batches.steps_per_epoch.max(batches.steps.get() / 20).max(1),
        values: SettingValues {
            model: Some(model_value),
            hidden: given(settings.hidden.clone()),
            algorithm: Some(algorithm_value),
            epsilon: budget.epsilon,
            delta: budget.delta,
            noise_multiplier: given(settings.noise_multiplier),
            max_grad_norm: Some(clip).filter(|_| private),
            clipping: Some(clipping).filter(|_| private),
            sampling: Some(sampling).filter(|_| private),
            max_batch_size: given(settings.max_batch_size),
            accountant: Some(accountant).filter(|_| algorithm.unprotected().is_none()),
            epochs: batches.epochs,
            steps: batches.given_steps,
            batch_size: Some(batches.size),
            learning_rate: Some(learning_rate),
            optimizer: Some(optimizer),
            schedule: Some(schedule),
            average: given(settings.average),
            seed: given(settings.seed),
            checkpoint_seconds: Some(seconds),
            ..data.values.clone()
        },
        data: data.facts.clone(),
        files: RunFiles { schema: data.schema.clone(), network: network_text },
        last_changed: data.last_changed.clone(),
        model,
        algorithm,
        learning,
        facts,
        footprint,
        checkpoint_every,
    })
}

/// The model setting, the model, and the text of the file that describes it.
fn model(
    settings: &Settings,
    facts: &DataFacts,
) -> Result<(Value<String>, ResolvedModel, Option<String>), TrainError> {
    let default = ResolvedModel::default_name(facts).to_owned();
    let name = Value::given_or(settings.model.clone(), default, Origin::PublicFact);
    let model = ResolvedModel::choose(&name.value, settings.hidden.as_deref(), facts)?;
    if !name.value.ends_with(".toml") {
        return Ok((name, model, None));
    }
    let text = fs::read_to_string(&name.value)
        .map_err(|error| TrainError::refused(format!("{}: {error}", name.value), "restore the file"))?;
    Ok((Value::new(RunFiles::NETWORK.to_owned(), Origin::User), model, Some(text)))
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
