//! Settings made meaningful, once: data, model, plan, terms, learning.

use std::{
    collections::HashMap,
    fs,
    path::PathBuf,
    time::{Duration, UNIX_EPOCH},
};

use sordino_accounting::{
    Accountant, AccountingError, Cap, ClipNorm, Delta, Epsilon, Plan, Sampling, SamplingRate, Steps,
    calibrate::Budget,
};
use sordino_algorithms::{AlgorithmError, Choice, Noise, PLAIN, Setting, registry};
use sordino_data::{Dataset, Sets, Source};
use sordino_optim::{OptimizerConfig, Schedule};
use sordino_privacy::{ClipRule, PrivacyError, Terms};
use sordino_train::Learning;

use crate::{
    models::{Facts, Model},
    problem::Problem,
    run_files::RunFiles,
    settings::{Clipping, SamplingName, Settings},
    statement::rounded_up,
    tagged::tagged,
};

/// A run, ready to start.
pub(crate) struct Experiment {
    /// All settings, with defaults filled in; paths of what the run keeps copies of are relative to its folder.
    pub(crate) settings: Settings,
    pub(crate) files: RunFiles,
    pub(crate) records: Dataset,
    pub(crate) test: Option<Dataset>,
    pub(crate) facts: Facts,
    pub(crate) model: Model,
    pub(crate) algorithm: Choice,
    pub(crate) setting: Setting,
    pub(crate) terms: Terms,
    pub(crate) learning: Learning,
    pub(crate) measure_every: u64,
    pub(crate) checkpoint_every: Duration,
}

impl Experiment {
    /// Fills in defaults, reads the data, chooses the model, and prices the plan before a record is used.
    ///
    /// A run that goes on keeps the plan it began with.
    pub(crate) fn prepare(mut settings: Settings, known: Option<&Plan>) -> Result<Self, Problem> {
        let algorithm = algorithm(&mut settings)?;
        refuse_idle(&settings, &algorithm)?;
        let clip = clip(&mut settings, &algorithm)?;
        let learning = learning(&mut settings, &algorithm, clip)?;
        let (records, test, schema) = read(&mut settings)?;
        let facts = Facts::of(&records);
        let name = match &settings.model {
            Some(name) => name.clone(),
            None => Model::default_name(&facts)?.to_owned(),
        };
        let model = Model::choose(&name, settings.hidden.as_deref(), &facts)?;
        let network = name.ends_with(".toml").then(|| fs::read_to_string(&name)).transpose();
        let network =
            network.map_err(|error| Problem::refused(format!("{name}: {error}"), "is it still there?"))?;
        settings.model = Some(if network.is_some() { RunFiles::NETWORK.to_owned() } else { name });
        let files = RunFiles { schema, network };
        let pace = Pace::new(&mut settings, records.len())?;
        let network = model.network()?;
        let mut setting = Setting {
            sampling: sampling(&mut settings, &pace, records.len(), &algorithm)?,
            steps: pace.steps,
            expected_batch_size: pace.batch_size,
            clip,
            layers: (settings.clipping == Some(Clipping::PerLayer)).then_some(network.layers().len()),
            dimension: network.layout().trainable().iter().map(ExactSizeIterator::len).sum(),
            noise_multiplier: None,
        };
        let terms = match priced(&mut settings, &algorithm, &setting, known, records.len() as u64)? {
            Some(terms) => terms,
            None => Terms::unprotected(records.len() as u64, pace.rate(records.len())?, pace.steps, PLAIN),
        };
        setting.noise_multiplier =
            terms.plan().and_then(|plan| plan.entries().first()?.releases().first().copied());
        let seconds = *settings.checkpoint_seconds.get_or_insert(10.0);
        let checkpoint_every = Duration::try_from_secs_f64(seconds).map_err(|_| {
            Problem::refused(
                format!("checkpoint_seconds must be a number of at least 0, got {seconds}"),
                "10 loses at most 10 seconds",
            )
        })?;
        let terms = terms.about(&(files.about(&settings) + &last_changed(&settings)));
        Ok(Self {
            records,
            test,
            facts,
            model,
            algorithm,
            terms,
            setting,
            learning,
            measure_every: pace.epoch.max(pace.steps.get() / 20).max(1),
            checkpoint_every,
            settings,
            files,
        })
    }

    /// The settings as the text of `config.toml`.
    pub(crate) fn config(&self) -> String {
        match self.not_private() {
            Some(why) => format!("# NOT PRIVATE: {why}\n{}", self.settings.to_toml()),
            None => self.settings.to_toml(),
        }
    }

    /// What is noted in the file of the weights.
    pub(crate) fn notes(&self) -> HashMap<String, String> {
        let guarantee = match (self.not_private(), self.terms.guarantee()) {
            (None, Some(guarantee)) => format!(
                "({}, {})-differential privacy, {}, for the whole run",
                rounded_up(guarantee.epsilon.get()),
                guarantee.delta,
                guarantee.relation
            ),
            (why, _) => format!("NOT PRIVATE: {}", why.unwrap_or_default()),
        };
        let facts = serde_json::to_string(&self.facts).expect("shapes and names are JSON");
        HashMap::from([("guarantee".to_owned(), guarantee), ("facts".to_owned(), facts)])
    }

    fn not_private(&self) -> Option<&'static str> {
        match self.settings.seed {
            _ if !self.algorithm.is_private() => Some(PLAIN),
            Some(_) => Some("noise and batches come from a fixed seed"),
            None => None,
        }
    }
}

/// The data's source as the settings have it.
pub(crate) fn source(settings: &Settings) -> Source {
    Source {
        path: settings.data.clone().unwrap_or_else(|| "mushroom".into()),
        schema: settings.schema.clone(),
        target: settings.target.clone(),
        classes: settings.classes,
        features: settings.features,
    }
}

/// The private records and the public ones, and the schema of a table.
fn read(settings: &mut Settings) -> Result<(Dataset, Option<Dataset>, Option<String>), Problem> {
    // A run can be resumed from any folder.
    settings.data = settings.data.take().map(|path| path.canonicalize().unwrap_or(path));
    let source = source(settings);
    if source.path.to_str().is_none() {
        return Err(Problem::refused(
            format!("the path {} is not UTF-8, so settings cannot name it", source.path.display()),
            "rename it, or put a link beside it",
        ));
    }
    settings.data = Some(source.path.clone());
    let Sets { train, test, schema } = sordino_data::read(&source)?;
    if schema.is_some() {
        // The schema says it all.
        settings.schema = Some(RunFiles::SCHEMA.into());
        (settings.target, settings.classes, settings.features) = (None, None, None);
    }
    let schema =
        schema.map(|schema| toml::to_string(&schema).expect("a schema of numbers and strings is TOML"));
    if test.is_some() {
        return match settings.test_fraction {
            None => Ok((train, test, schema)),
            Some(fraction) => Err(Problem::refused(
                format!("test_fraction is {fraction}, but the data has a test set of its own"),
                "leave it out",
            )),
        };
    }
    let fraction = *settings.test_fraction.get_or_insert(0.2);
    if fraction == 0.0 {
        return Ok((train, None, schema));
    }
    let (records, test) = train.split(fraction, *settings.split_seed.get_or_insert(0))?;
    Ok((records, Some(test), schema))
}

/// When the data was last changed, as the ledger keeps it: a run must go on with the records it began with, and nothing that is
/// computed from them may stand in a file to tell.
pub(crate) fn last_changed(settings: &Settings) -> String {
    let Some(path) = &settings.data else { return String::new() };
    // Of a folder, the IDX files in it.
    let of_images =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains("-idx"));
    let mut files = vec![path.clone()];
    if let Ok(entries) = fs::read_dir(path) {
        files = entries.flatten().map(|entry| entry.path()).filter(of_images).collect();
    }
    let changed = |path: &PathBuf| fs::metadata(path).and_then(|found| found.modified()).ok();
    let last = files.iter().filter_map(changed).max().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    last.map_or(String::new(), |time| {
        format!("# data last changed at {}.{:09}\n", time.as_secs(), time.subsec_nanos())
    })
}

/// How many records at a time, and how often.
struct Pace {
    batch_size: f64,
    steps: Steps,
    /// The steps of an epoch, at least 1.
    epoch: u64,
}

impl Pace {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts"
    )]
    fn new(settings: &mut Settings, records: usize) -> Result<Self, Problem> {
        let records = records as u64;
        let full = settings.sampling == Some(SamplingName::FullBatch);
        if full && settings.batch_size.is_some_and(|size| size != records) {
            return Err(Problem::refused(
                format!("batch_size must be left out for full batches of {records} records"),
                "leave it out, or use --sampling poisson",
            ));
        }
        let default = if full { records } else { default_batch_size(records) };
        let batch_size = *settings.batch_size.get_or_insert(default);
        if batch_size == 0 || batch_size > records {
            return Err(Problem::refused(
                format!(
                    "batch_size must be between 1 and the number of training records, {records}; got {batch_size}"
                ),
                "256 is a good start",
            ));
        }
        let per_epoch = records as f64 / batch_size as f64;
        let steps = match settings.steps {
            Some(steps) => steps,
            None => {
                let epochs = *settings.epochs.get_or_insert(50.0);
                let steps = (epochs * per_epoch).round();
                if !(epochs > 0.0 && steps <= Steps::MAX as f64) {
                    return Err(Problem::refused(
                        format!("epochs must be a number above 0, got {epochs}"),
                        "50 is the default; more epochs need more noise for the same epsilon",
                    ));
                }
                Steps::new((steps as u64).max(1))?
            }
        };
        Ok(Self { batch_size: batch_size as f64, steps, epoch: per_epoch.ceil() as u64 })
    }

    #[expect(clippy::cast_precision_loss, reason = "a count")]
    fn rate(&self, records: usize) -> Result<SamplingRate, Problem> {
        Ok(SamplingRate::new(self.batch_size / records as f64)?)
    }
}

/// A sixtieth of the records, up to a power of two, but at least 256: larger batches bear more signal for the same noise,
/// smaller ones allow more steps.
fn default_batch_size(records: u64) -> u64 {
    (records / 60).next_power_of_two().max(256).min(records)
}

/// The algorithm that was chosen.
fn algorithm(settings: &mut Settings) -> Result<Choice, Problem> {
    let text = settings.algorithm.take().unwrap_or_else(|| "dp-sgd".to_owned());
    let text = settings.algorithm.insert(text.trim().to_owned());
    let choice: Choice = tagged(text).map_err(|problem| {
        let name = text.split(',').next().unwrap_or_default();
        let keys = text
            .split(',')
            .skip(1)
            .filter_map(|part| part.split_once('='))
            .map(|(key, _)| key.trim().replace('-', "_"));
        let known = registry::ALGORITHMS.iter().find(|algorithm| algorithm.name == name);
        let foreign = keys
            .map(|key| (registry::owners(&key), key))
            .find(|(owners, _)| !owners.is_empty() && !owners.contains(&name));
        match (known, foreign) {
            (None, _) => Problem::refused(
                format!("algorithm must be one of {}, got {name}", names().join(", ")),
                "`sordino algorithms` describes them",
            ),
            (Some(_), Some((owners, key))) => Problem::refused(
                format!("{key} belongs to {}, not to {name}", owners.join(" and ")),
                "`sordino algorithms` lists the options of each",
            ),
            _ => Problem::refused(
                format!("algorithm {text:?}: {problem}"),
                "`sordino algorithms` lists the options of each",
            ),
        }
    })?;
    choice.check()?;
    Ok(choice)
}

fn names() -> Vec<&'static str> {
    registry::ALGORITHMS.iter().map(|algorithm| algorithm.name).collect()
}

/// The threshold, or where it begins: small and fixed, or 1 and on its way.
fn clip(settings: &mut Settings, algorithm: &Choice) -> Result<ClipNorm, Problem> {
    let default = if algorithm.adapts_threshold() { 1.0 } else { 0.1 };
    let clip = match settings.max_grad_norm {
        Some(clip) => clip,
        None => ClipNorm::new(default)?,
    };
    ClipRule::flat(clip)?;
    if algorithm.is_private() {
        settings.max_grad_norm = Some(clip);
        settings.clipping.get_or_insert(Clipping::Flat);
    }
    Ok(clip)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a batch size is a whole number")]
fn sampling(
    settings: &mut Settings,
    pace: &Pace,
    records: usize,
    algorithm: &Choice,
) -> Result<Sampling, Problem> {
    let population = records as u64;
    let kind = settings.sampling.unwrap_or(SamplingName::Poisson);
    if algorithm.is_private() {
        settings.sampling = Some(kind);
    }
    Ok(match (kind, settings.max_batch_size) {
        (SamplingName::Poisson, None) => Sampling::Poisson { rate: pace.rate(records)?, cap: None },
        (SamplingName::Poisson, Some(max_batch_size)) => {
            let cap = Some(Cap { max_batch_size, population });
            Sampling::Poisson { rate: pace.rate(records)?, cap }
        }
        (SamplingName::FixedSize, None) => {
            Sampling::FixedSize { batch_size: pace.batch_size as u64, population }
        }
        (SamplingName::FullBatch, None) => Sampling::Everybody,
        (_, Some(_)) => {
            return Err(Problem::refused(
                "max_batch_size belongs to Poisson sampling",
                "other batches have a size that is known; leave it out",
            ));
        }
    })
}

/// The plan and its price, with the least noise that the budget allows or the noise that was asked for; none for plain training.
fn priced(
    settings: &mut Settings,
    algorithm: &Choice,
    setting: &Setting,
    known: Option<&Plan>,
    records: u64,
) -> Result<Option<Terms>, Problem> {
    if !algorithm.is_private() {
        return Ok(None);
    }
    let default = match algorithm {
        Choice::NoiseDecayZcdp { .. } => Accountant::Zcdp,
        Choice::NoiseDecayTcdp { .. } => Accountant::Tcdp,
        _ if matches!(setting.sampling, Sampling::FixedSize { .. }) => Accountant::Rdp,
        _ => Accountant::Pld,
    };
    let accountant = *settings.accountant.get_or_insert(default);
    if !accountant.proves() {
        return Err(PrivacyError::NoBound(accountant.name()).into());
    }
    let delta = match settings.delta {
        Some(delta) => delta,
        None => Delta::new(1e-5)?,
    };
    settings.delta = Some(delta);
    let noise = match settings.noise_multiplier {
        Some(noise) => Noise::Multiplier(noise),
        None => {
            let epsilon = match settings.epsilon {
                Some(epsilon) => epsilon,
                None => Epsilon::new(1.0)?,
            };
            settings.epsilon = Some(epsilon);
            Noise::Budget(Budget { epsilon, delta }, accountant)
        }
    };
    let plan = match known {
        Some(plan) => Some(plan.clone()),
        None => algorithm.plan(setting, noise).map_err(|error| too_tight(error, settings.max_batch_size))?,
    };
    let price = |plan| Terms::price(plan, records, delta, settings.epsilon, accountant);
    Ok(plan.map(price).transpose()?)
}

/// Where no noise is enough and batches are cut, the cap is the likely reason.
fn too_tight(error: AlgorithmError, cap: Option<u64>) -> Problem {
    match (error, cap) {
        (error @ AlgorithmError::Accounting(AccountingError::NoSolution { .. }), Some(cap)) => {
            Problem::refused(
                error.to_string(),
                format!(
                    "a cap of {cap} is felt too often, and that alone costs more than delta; raise max_batch_size"
                ),
            )
        }
        (error, _) => error.into(),
    }
}

fn learning(settings: &mut Settings, algorithm: &Choice, clip: ClipNorm) -> Result<Learning, Problem> {
    let optimizer = settings.optimizer.get_or_insert_with(|| "sgd".to_owned());
    let optimizer: OptimizerConfig = tagged(optimizer).map_err(|problem| {
        let names = OptimizerConfig::NAMES.join(", ");
        Problem::refused(
            format!("optimizer {optimizer:?}: {problem}"),
            format!("permitted are {names}; settings follow as in adam,beta2=0.99"),
        )
    })?;
    optimizer.check()?;
    let schedule = settings.schedule.get_or_insert_with(|| "linear".to_owned());
    let schedule: Schedule = tagged(schedule).map_err(|problem| {
        Problem::refused(
            format!("schedule {schedule:?}: {problem}"),
            "permitted are constant, step,every=N,factor=F, cosine, linear,warmup=N and cyclic,period=N,lowest=F",
        )
    })?;
    schedule.check()?;
    let learning_rate =
        *settings.learning_rate.get_or_insert(default_rate(&optimizer, algorithm.is_private(), clip));
    sordino_optim::Optimizer::check_learning_rate(learning_rate)?;
    if let Some(decay) = settings.average {
        sordino_optim::Average::new(decay)?;
    }
    Ok(Learning { optimizer, learning_rate, schedule, average: settings.average })
}

/// A step of length 4 if all gradients are clipped and agree; a tenth of that where momentum adds up ten of them. Optimizers that
/// divide by the size of gradients do not care about thresholds.
fn default_rate(optimizer: &OptimizerConfig, private: bool, clip: ClipNorm) -> f64 {
    let step = if private { 4.0 / clip.get() } else { 1.0 };
    match optimizer {
        OptimizerConfig::Sgd { .. } => step,
        OptimizerConfig::Momentum { .. } | OptimizerConfig::Nesterov { .. } => step / 10.0,
        _ => 0.01,
    }
}

/// Refuses settings that plain training has no use for: whoever gives them expects them to count.
fn refuse_idle(settings: &Settings, algorithm: &Choice) -> Result<(), Problem> {
    if algorithm.is_private() {
        return Ok(());
    }
    let given = [
        ("epsilon", settings.epsilon.is_some()),
        ("delta", settings.delta.is_some()),
        ("noise_multiplier", settings.noise_multiplier.is_some()),
        ("max_grad_norm", settings.max_grad_norm.is_some()),
        ("clipping", settings.clipping.is_some()),
        ("accountant", settings.accountant.is_some()),
        ("max_batch_size", settings.max_batch_size.is_some()),
        ("sampling", settings.sampling.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((name, _)) => Err(Problem::refused(
            format!(
                "{name} belongs to private algorithms; plain training (--algorithm none) has no use for it"
            ),
            "leave it out, or train privately with --algorithm dp-sgd",
        )),
    }
}
