//! Experiments: settings on a data set, trained several times.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use sha2::{Digest, Sha256};
use sordino_accounting::Steps;
use sordino_data::Encoding;
use sordino_nn::Shape;
use sordino_train::{
    DataDescription, DataFacts, Ending, PricedRun, Run, RunData, Score, Settings, SeveralRuns, TrainError,
    price, public_folder, resolve,
};

use super::{DataSet, RunRecord, Store};
use crate::comparison::simultaneous_runs;

/// Before the name of a folder with a public pre-trained model, below the folder of data.
pub(super) const WEIGHTS: &str = "weights:";

/// The number of steps in a quick check. Large models take seconds for a step.
pub(super) const QUICK_STEPS: u64 = 20;

/// Settings on a data set. They have no path and no seed.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// The data set.
    pub data: &'static DataSet,
    /// Everything else.
    pub settings: Settings,
}

impl Experiment {
    /// A short name that tells it from all others: the data set, the algorithm and a part of a hash of the settings.
    pub fn key(&self) -> String {
        let algorithm = self.settings.algorithm.as_deref().unwrap_or("dp-sgd");
        let algorithm = algorithm.split(',').next().unwrap_or_default();
        let text = format!("{}\n{}", self.data.name, self.settings.to_toml());
        let hash: String =
            Sha256::digest(text.as_bytes()).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{algorithm}-{hash}", self.data.name)
    }

    /// The same experiment with few steps, for a quick check.
    #[must_use]
    pub fn shortened(mut self) -> Self {
        self.settings.epochs = None;
        self.settings.steps = Steps::new(QUICK_STEPS).ok();
        self
    }

    /// The settings, with fixed values for those that papers do not use and therefore leave out. The defaults of other runs may change, but
    /// those of an experiment must not.
    fn pinned(&self) -> Settings {
        let unused = Settings {
            optimizer: Some("sgd".to_owned()),
            schedule: Some("linear".to_owned()),
            average: Some(0.0),
            ..Settings::default()
        };
        self.settings.clone().or(unused)
    }

    /// The settings with paths; the missing data or weights if they are not in the folder.
    fn located(&self, folder: Option<&Path>) -> Result<Settings, String> {
        let mut missing = Vec::new();
        let data = self.data.settings(folder).unwrap_or_else(|| {
            missing.push(format!("{} ({})", self.data.usual_place(), self.data.needs));
            Settings::default()
        });
        let mut settings = self.pinned().or(data);
        let mut find = |name: &str| -> PathBuf {
            let path = folder.map(|folder| folder.join(name)).filter(|path| path.is_dir());
            path.unwrap_or_else(|| {
                missing.push(format!("{name} (a pre-trained model, as Hugging Face stores it)"));
                PathBuf::new()
            })
        };
        if let Some(name) = settings.model.as_ref().and_then(|model| model.strip_prefix(WEIGHTS)) {
            settings.model = Some(find(name).display().to_string());
        }
        let encoder = settings.encoder.as_ref().and_then(|encoder| encoder.to_str());
        if let Some(name) = encoder.and_then(|encoder| encoder.strip_prefix(WEIGHTS)) {
            settings.encoder = Some(find(name));
        }
        match (missing.is_empty(), folder) {
            (true, _) => Ok(settings),
            (false, Some(folder)) => {
                Err(format!("{} does not contain {}", folder.display(), missing.join("; ")))
            }
            (false, None) => {
                Err(format!("no folder of data is given; it must contain {}", missing.join("; ")))
            }
        }
    }

    /// The plan and its price. They depend on the number of records and on no record, so the data is not needed.
    ///
    /// # Errors
    /// Settings that cannot be priced.
    pub fn priced(&self) -> Result<PricedRun, TrainError> {
        let facts = DataFacts {
            input: Shape::Features(1),
            classes: vec!["0".to_owned(), "1".to_owned()],
            observed_classes: false,
            numbers: Vec::new(),
            encoding: Encoding::Floats,
            normalisation: Vec::new(),
            test_records: 0,
            unit: None,
            preparation: None,
        };
        let description = DataDescription::public(facts, self.data.records);
        // The plan does not depend on how data is read, nor on the model.
        let settings = self.pinned().retain(|info| !["Data", "Model"].contains(&info.heading));
        price(resolve(&settings, &description)?, None)
    }
}

/// A run that was finished, or an experiment that could not run.
#[derive(Debug, Clone)]
pub enum Finished<'a> {
    /// A run with this seed has ended with this result.
    Run(&'a Experiment, RunRecord),
    /// The experiment cannot run, for this reason.
    Skipped(&'a Experiment, String),
}

/// Trains what the store does not have yet: `runs` runs of each experiment, with the seeds 1, 2, ... `report` is called after each run. Finished
/// runs are stored at once, so an interrupted reproduction loses only the unfinished runs.
///
/// # Errors
/// The first error of a run, or of the store.
pub fn run(
    experiments: &[Experiment],
    runs: u64,
    folder: Option<&Path>,
    store: &Store,
    stop: &AtomicBool,
    report: &(dyn Fn(Finished<'_>) + Sync),
) -> Result<(), TrainError> {
    // Experiments that read the same data in the same way are grouped, so that it is read once.
    let mut groups: BTreeMap<_, Vec<(&Experiment, Settings)>> = BTreeMap::new();
    for experiment in experiments {
        if store.missing_seeds(experiment, runs)?.is_empty() {
            continue;
        }
        match experiment.located(folder) {
            Err(reason) => report(Finished::Skipped(experiment, reason)),
            Ok(settings) => groups.entry(reading(&settings)).or_default().push((experiment, settings)),
        }
    }
    if !groups.is_empty() {
        // Checked before hours of training.
        store.create()?;
    }
    for group in groups.into_values() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let data = match RunData::read(&group[0].1) {
            Ok(data) => data,
            Err(error) => {
                let skip = |(experiment, _)| report(Finished::Skipped(experiment, error.to_string()));
                group.into_iter().for_each(skip);
                continue;
            }
        };
        let records = data.train.len();
        let mut jobs = Vec::new();
        for (experiment, settings) in group {
            if records != experiment.data.records {
                let (name, expected) = (experiment.data.name, experiment.data.records);
                report(Finished::Skipped(
                    experiment,
                    format!("{name} has {records} training records here, and {expected} in the paper"),
                ));
                continue;
            }
            let settings = Settings { seed: Some(0), ..settings };
            match resolve(&settings, &data.description).and_then(|resolved| price(resolved, None)) {
                Ok(priced) => {
                    let priced = Arc::new(priced);
                    let seeds = store.missing_seeds(experiment, runs)?;
                    jobs.extend(seeds.into_iter().map(|seed| (seed, experiment, priced.clone())));
                }
                Err(error) => report(Finished::Skipped(experiment, error.to_string())),
            }
        }
        // The first run of every experiment comes first.
        jobs.sort_by_key(|(seed, ..)| *seed);
        train_all(&jobs, &data, store, stop, report)?;
    }
    Ok(())
}

/// What determines how records are read: the settings of the data, and the public model, whose tokenizer or normalisation is used.
fn reading(settings: &Settings) -> (String, Option<PathBuf>) {
    let data = settings.clone().retain(|info| info.heading == "Data");
    (data.to_toml(), public_folder(settings))
}

/// The version of Sordino, and the commit that it is built from if that is known.
fn build() -> String {
    match env!("SORDINO_COMMIT") {
        "" => env!("CARGO_PKG_VERSION").to_owned(),
        commit => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
    }
}

type Job<'a> = (u64, &'a Experiment, Arc<PricedRun>);

/// One run at a time on each core.
fn train_all(
    jobs: &[Job<'_>],
    data: &RunData,
    store: &Store,
    stop: &AtomicBool,
    report: &(dyn Fn(Finished<'_>) + Sync),
) -> Result<(), TrainError> {
    let (next, first_error, runs) = (AtomicUsize::new(0), Mutex::new(None), SeveralRuns::new(data));
    let train = |(seed, experiment, priced): &Job<'_>| -> Result<(), TrainError> {
        // Another process may have finished it in the meantime.
        if !store.missing_seeds(experiment, *seed)?.contains(seed) {
            return Ok(());
        }
        let begin = |run: Run<'_>| run.with_seed_offset(*seed).measured_once().begin(stop, &mut ());
        let Ending { score, finished, seconds, .. } = runs.run(priced, begin)?;
        if let Some(Score { accuracy, token_loss: loss, .. }) = score.filter(|_| finished) {
            let record = RunRecord { seed: *seed, accuracy, loss, seconds, version: build() };
            store.add(experiment, record.clone())?;
            report(Finished::Run(experiment, record));
        }
        Ok(())
    };
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            if let Err(error) = train(job) {
                next.store(usize::MAX / 2, Ordering::Relaxed);
                first_error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..simultaneous_runs() {
            scope.spawn(work);
        }
    });
    match first_error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::reproduction::data_sets;

    #[test]
    fn weights_are_found_in_the_folder_of_data_and_named_if_they_are_missing() {
        let folder = std::env::temp_dir().join(format!("sordino-weights-{}", std::process::id()));
        fs::create_dir_all(folder.join("sst2")).unwrap();
        let data = data_sets().iter().find(|set| set.name == "sst2").unwrap();
        let weights = |name: &str| Some(format!("{WEIGHTS}{name}"));
        let model = Experiment { data, settings: Settings { model: weights("bert"), ..Settings::default() } };
        let encoder = Settings { encoder: weights("minilm").map(PathBuf::from), ..Settings::default() };
        let encoder = Experiment { data, settings: encoder };
        let missing = model.located(Some(&folder)).unwrap_err();
        assert!(missing.contains("does not contain bert (a pre-trained model"), "{missing}");
        assert!(encoder.located(None).unwrap_err().contains("minilm"));
        for name in ["bert", "minilm"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        let found = folder.join("bert").display().to_string();
        assert_eq!(model.located(Some(&folder)).unwrap().model, Some(found));
        assert_eq!(encoder.located(Some(&folder)).unwrap().encoder, Some(folder.join("minilm")));
        fs::remove_dir_all(&folder).unwrap();
    }

    /// A tokenizer of a public model must not be used for records of a network that reads bytes.
    #[test]
    fn experiments_with_different_public_models_do_not_share_records() {
        let folder = std::env::temp_dir().join(format!("sordino-reading-{}", std::process::id()));
        for name in ["bert", "minilm"] {
            fs::create_dir_all(folder.join(name)).unwrap();
            fs::write(folder.join(name).join("config.json"), "{}").unwrap();
        }
        let path = |name: &str| folder.join(name);
        let model = |model: &str| Settings { model: Some(model.to_owned()), ..Settings::default() };
        let readings = [
            reading(&model("gpt")),
            reading(&model(&path("bert").display().to_string())),
            reading(&Settings { encoder: Some(path("minilm")), ..Settings::default() }),
        ];
        assert!(readings[0] != readings[1] && readings[1] != readings[2] && readings[0] != readings[2]);
        assert_eq!(readings[0], reading(&Settings { learning_rate: Some(1.0), ..model("lstm") }));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn quick_experiments_have_few_steps() {
        let settings = Settings { epochs: Some(100.0), ..Settings::default() };
        let quick = Experiment { data: &data_sets()[0], settings }.shortened();
        assert_eq!((quick.settings.epochs, quick.settings.steps), (None, Steps::new(QUICK_STEPS).ok()));
    }
}
