//! Settings made meaningful, once: data, model, plan, terms, learning.

use std::{
    collections::HashMap,
    fs,
    path::PathBuf,
    time::{Duration, UNIX_EPOCH},
};

use sordino_accounting::{
    Accountant, AccountingError, Cap, ClipNorm, Delta, Entry, Epsilon, NoiseMultiplier, Plan, Sampling,
    SamplingRate, Steps,
    calibrate::{self, Budget},
};
use sordino_data::{Dataset, Sets, Source};
use sordino_optim::{OptimizerConfig, Schedule};
use sordino_privacy::{ClipRule, Terms};
use sordino_train::{Algorithm, Learning, PLAIN};

use crate::{
    models::{Facts, Model},
    problem::Problem,
    run_files::RunFiles,
    settings::{AlgorithmName, Clipping, SamplingName, Settings},
    statement::{rounded_up, short},
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
    pub(crate) algorithm: Algorithm,
    pub(crate) terms: Terms,
    pub(crate) expected_batch_size: f64,
    pub(crate) learning: Learning,
    pub(crate) measure_every: u64,
    pub(crate) checkpoint_every: Duration,
}

impl Experiment {
    /// Fills in defaults, reads the data, chooses the model, and prices the plan before a record is used.
    ///
    /// A run that goes on keeps the noise it began with.
    pub(crate) fn prepare(mut settings: Settings, noise: Option<NoiseMultiplier>) -> Result<Self, Problem> {
        refuse_idle(&settings)?;
        let learning = learning(&mut settings)?;
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
        let (algorithm, terms) = match *settings.algorithm.get_or_insert(AlgorithmName::DpSgd) {
            AlgorithmName::DpSgd => {
                let layers = model.network()?.layers().len();
                let algorithm = Algorithm::DpSgd { rule: rule(&mut settings, layers)? };
                (algorithm, priced(&mut settings, noise, &pace, records.len())?)
            }
            AlgorithmName::None => {
                let rate = pace.rate(records.len())?;
                (Algorithm::Plain, Terms::unprotected(records.len() as u64, rate, pace.steps, PLAIN))
            }
        };
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
            expected_batch_size: pace.batch_size,
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
        match (self.settings.seed, &self.algorithm) {
            (_, Algorithm::Plain) => Some(PLAIN),
            (Some(_), _) => Some("noise and batches come from a fixed seed"),
            _ => None,
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

fn rule(settings: &mut Settings, layers: usize) -> Result<ClipRule, Problem> {
    let norm = match settings.max_grad_norm {
        Some(norm) => norm,
        None => ClipNorm::new(0.1)?,
    };
    settings.max_grad_norm = Some(norm);
    Ok(match *settings.clipping.get_or_insert(Clipping::Flat) {
        Clipping::Flat => ClipRule::flat(norm)?,
        Clipping::PerLayer => {
            #[expect(clippy::cast_precision_loss, reason = "a count")]
            let share = ClipNorm::new(norm.get() / (layers as f64).sqrt())?;
            ClipRule::per_layer(&vec![share; layers])?
        }
    })
}

/// The plan, with the least noise that the budget allows or the noise that was asked for.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a batch size is a whole number")]
fn priced(
    settings: &mut Settings,
    noise: Option<NoiseMultiplier>,
    pace: &Pace,
    records: usize,
) -> Result<Terms, Problem> {
    let population = records as u64;
    let kind = *settings.sampling.get_or_insert(SamplingName::Poisson);
    let sampling = match (kind, settings.max_batch_size) {
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
    };
    let default = if kind == SamplingName::FixedSize { Accountant::Rdp } else { Accountant::Pld };
    let accountant = *settings.accountant.get_or_insert(default);
    let delta = match settings.delta {
        Some(delta) => delta,
        None => Delta::new(1e-5)?,
    };
    settings.delta = Some(delta);
    let with_noise =
        |z: NoiseMultiplier| Entry::new(sampling, vec![z], pace.steps).map(|entry| Plan::new(vec![entry]));
    let plan = match (settings.noise_multiplier.or(noise), settings.epsilon) {
        (Some(noise), _) => with_noise(noise)?,
        (None, wanted) => {
            let epsilon = match wanted {
                Some(epsilon) => epsilon,
                None => Epsilon::new(1.0)?,
            };
            settings.epsilon = Some(epsilon);
            if !accountant.proves() {
                // Refused below, in words that say why.
                with_noise(NoiseMultiplier::new(1.0)?)?
            } else {
                let unit = with_noise(NoiseMultiplier::new(1.0)?)?;
                let least = calibrate::noise_scale(&unit, Budget { epsilon, delta }, accountant)
                    .map_err(|error| too_tight(error, settings.max_batch_size))?;
                with_noise(NoiseMultiplier::new(short(least.value))?)?
            }
        }
    };
    Ok(Terms::price(plan, population, delta, settings.epsilon, accountant)?)
}

/// Where no noise is enough and batches are cut, the cap is the likely reason.
fn too_tight(error: AccountingError, cap: Option<u64>) -> Problem {
    match (error, cap) {
        (error @ AccountingError::NoSolution { .. }, Some(cap)) => Problem::refused(
            error.to_string(),
            format!(
                "a cap of {cap} is felt too often, and that alone costs more than delta; raise max_batch_size"
            ),
        ),
        (error, _) => error.into(),
    }
}

fn learning(settings: &mut Settings) -> Result<Learning, Problem> {
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
    let learning_rate = *settings.learning_rate.get_or_insert(40.0);
    sordino_optim::Optimizer::check_learning_rate(learning_rate)?;
    if let Some(decay) = settings.average {
        sordino_optim::Average::new(decay)?;
    }
    Ok(Learning { optimizer, learning_rate, schedule, average: settings.average })
}

/// Refuses settings that plain training has no use for: whoever gives them expects them to count.
fn refuse_idle(settings: &Settings) -> Result<(), Problem> {
    if settings.algorithm != Some(AlgorithmName::None) {
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
            format!("{name} belongs to dp-sgd; plain training (--algorithm none) has no use for it"),
            "leave it out, or train privately with --algorithm dp-sgd",
        )),
    }
}
