//! `sordino train`: a private model in one command.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process,
    sync::{Arc, atomic::AtomicBool},
};

use crate::report::{DataAccount, RunReport};
use clap::Args;
use sordino_data::Dataset;
use sordino_privacy::{Account, Communicator};
use sordino_train::{
    Ending, Hint, PricedRun, RunData, RunFolder, Settings, Share, TrainError, check, check_unchanged_data,
    check_unchanged_facts, inspect, price, resolve, verified_settings,
};

use super::report;
use crate::cli::{
    interruption::{STOPPED, listen},
    problem::{Problem, flag},
    progress::ProgressDisplay,
    ranks::{self, Connection},
    settings_arguments::SettingsArguments,
};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    settings: SettingsArguments,
    #[command(flatten)]
    run: RunArguments,
}

/// Where the settings of a run come from, and where its results go.
#[derive(Args)]
pub(super) struct RunArguments {
    /// TOML file with settings of the same names; flags override it
    #[arg(long, value_name = "FILE", help_heading = "Run")]
    config: Option<PathBuf>,
    /// New folder for the run [default: runs/1, runs/2, ...]
    #[arg(long, value_name = "DIR", help_heading = "Run")]
    pub(super) out: Option<PathBuf>,
    /// Resume a run that was stopped or killed
    #[arg(long, value_name = "DIR", help_heading = "Run", conflicts_with_all = ["config", "out"])]
    pub(super) resume: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long, help_heading = "Run")]
    pub(super) json: bool,
}

impl RunArguments {
    /// These settings, and those of the file.
    pub(super) fn with_config(&self, settings: Settings) -> Result<Settings, Problem> {
        Ok(match &self.config {
            Some(path) => settings.or(Settings::read(path)?),
            None => settings,
        })
    }
}

/// A run and its records.
struct Prepared {
    priced: PricedRun,
    data: RunData,
    place: Place,
}

/// Where a run is stored.
enum Place {
    /// A new folder: this one, or the next of `runs/1`, `runs/2`, ...
    New(Option<PathBuf>),
    /// The folder of the run that is resumed.
    Resumed(RunFolder),
}

pub(crate) fn run(arguments: Arguments) -> Result<String, Problem> {
    let settings = arguments.settings.settings()?;
    let Some(connection) = ranks::connect()? else { return run_alone("train", settings, arguments.run) };
    let rank = format!("rank {}", connection.communicator.rank());
    match run_among(settings, arguments.run, &connection) {
        Err(problem) => {
            let _ = writeln!(io::stderr(), "{}", problem.about(&rank));
            (connection.abort)(2);
            process::exit(2)
        }
        Ok(Ended::Stopped) => {
            drop(connection);
            process::exit(STOPPED)
        }
        Ok(Ended::Finished(text)) => Ok(text),
    }
}

/// Trains in this process with these settings, for a command of this name.
pub(super) fn run_alone(
    command: &str,
    settings: Settings,
    arguments: RunArguments,
) -> Result<String, Problem> {
    let json = arguments.json;
    let Prepared { priced, data, place } = prepare(settings, arguments)?;
    match train(command, &priced, (&data.train, data.test.as_ref()), place, json, None)? {
        Ended::Finished(text) => Ok(text),
        Ended::Stopped => process::exit(STOPPED),
    }
}

/// Trains as one of several ranks. Rank 0 prints and writes everything.
fn run_among(settings: Settings, arguments: RunArguments, connection: &Connection) -> Result<Ended, Problem> {
    let json = arguments.json;
    let Prepared { priced, mut data, place } = prepare(settings, arguments)?;
    if priced.settings().protects_clients() {
        return Err(ranks::refusal());
    }
    let test = data.test.take().filter(|_| connection.is_first());
    let Share { records, communicator } = priced.share(data, connection.communicator.clone())?;
    if connection.is_first() {
        return train("train", &priced, (&records, test.as_ref()), place, json, Some(&communicator));
    }
    let run = priced.run(&records, None, None).among(&communicator);
    // Rank 0 decides when to stop.
    listen("when rank 0 stops", "without a checkpoint");
    let never = AtomicBool::new(false);
    let ending = match place {
        Place::New(_) => run.begin(&never, &mut ()),
        Place::Resumed(_) => run.resume(&never, &mut ()),
    };
    Ok(if ending?.finished { Ended::Finished(String::new()) } else { Ended::Stopped })
}

/// How a run ended.
enum Ended {
    /// What is printed.
    Finished(String),
    /// Everything was printed.
    Stopped,
}

fn train(
    command: &str,
    priced: &PricedRun,
    (records, test): (&Dataset, Option<&Dataset>),
    place: Place,
    json: bool,
    communicator: Option<&Arc<dyn Communicator>>,
) -> Result<Ended, Problem> {
    let (folder, resumed) = match place {
        Place::New(path) => (new_folder(command, priced, path)?, false),
        Place::Resumed(folder) => (folder, true),
    };
    let stop = listen("after this step", "without a checkpoint");
    if let Some(warning) = priced.warning() {
        let kind = if priced.claim_holds() { "note" } else { "warning" };
        let _ = writeln!(io::stderr(), "{kind}: {}", Hint::new(warning).render(flag));
    }
    for note in priced.algorithm_notes() {
        let _ = writeln!(io::stderr(), "note: {}", note.render(flag));
    }
    let mut progress = ProgressDisplay::new(&priced.terms);
    let run = priced.run(records, test, Some(&folder));
    let run = communicator.map_or(run, |communicator| run.among(communicator));
    let ending = match resumed {
        false => run.begin(stop, &mut progress),
        true => run.resume(stop, &mut progress),
    };
    progress.finish();
    let Ending { score, metrics, account, finished, seconds, .. } =
        ending.map_err(|error| with_next_step(command, error, &folder))?;
    let settings = priced.settings();
    let run_report = RunReport {
        settings: &settings,
        account: &account,
        score,
        metrics: metrics.as_ref(),
        seconds: Some(seconds),
        folder: Some(folder.path()),
        facts: Some(&priced.resolved.data),
        weights_covered: true,
        provable: priced.provable,
        published_noise: priced.published_noise.clone(),
        data: Some(DataAccount::new(&folder, &settings)),
    };
    let text = if json { run_report.json()? } else { run_report.text()?.render(flag) };
    if finished {
        return Ok(Ended::Finished(if json { text } else { text + &report::mention(folder.path()) }));
    }
    let _ = write!(io::stdout(), "{text}");
    let folder = folder.path().display();
    let _ = writeln!(io::stderr(), "\nstopped; resume with: sordino {command} --resume {folder}");
    Ok(Ended::Stopped)
}

fn prepare(settings: Settings, arguments: RunArguments) -> Result<Prepared, Problem> {
    if let Some(path) = arguments.resume {
        if !settings.is_empty() {
            return Err(Problem::refused(
                "a resumed run keeps its settings",
                "give --resume alone, or start a new run with --config and --out",
            ));
        }
        return resumed(&path);
    }
    let settings = arguments.with_config(settings)?;
    check(&settings)?;
    let data = RunData::read(&settings)?;
    let priced = price(resolve(&settings, &data.description)?, None)?;
    Ok(Prepared { priced, data, place: Place::New(arguments.out) })
}

/// A new folder with the settings of the run.
fn new_folder(command: &str, priced: &PricedRun, path: Option<PathBuf>) -> Result<RunFolder, Problem> {
    let folder = match path {
        Some(path) => RunFolder::create(&path)?,
        None => next_folder()?,
    };
    priced.write_settings(&folder).map_err(|error| with_next_step(command, error, &folder))?;
    Ok(folder)
}

fn resumed(path: &Path) -> Result<Prepared, Problem> {
    let folder = RunFolder::open(path)?;
    let account = Account::read(&folder.ledger())?;
    if account.search().is_some() {
        return Err(Problem::refused(
            format!("{} has the ledger of a search, which cannot be resumed", path.display()),
            "when a search ends may depend on its secret number of trials, so its whole budget is spent; a new search needs a new budget",
        ));
    }
    let written = verified_settings(&folder, &account)?;
    if written.data.is_none() {
        return Err(Problem::refused(
            format!("the records of the run in {} were given in memory", path.display()),
            "resume it from the program that started it",
        ));
    }
    check_unchanged_data(&written, &account)?;
    let settings = Settings::read(&folder.config())?;
    let data = RunData::read(&settings)?;
    // Weights that were changed state no facts, and are written again. The settings and the files are those that the run began with.
    if inspect(&folder).is_ok() {
        check_unchanged_facts(&folder, &data.description.facts)?;
    }
    let priced = price(resolve(&settings, &data.description)?, Some(&account))?;
    Ok(Prepared { priced, data, place: Place::Resumed(folder) })
}

/// The error of a failed run, with a hint on how to continue. The folder of a run that never began is removed.
fn with_next_step(command: &str, error: TrainError, folder: &RunFolder) -> Problem {
    let never_began = folder.remove_if_never_began();
    Problem::from(error).with_disk_hint(|| match never_began {
        true => {
            "free some space, then start again: no step was taken, and no privacy budget was spent".to_owned()
        }
        false => {
            let folder = folder.path().display();
            format!("free some space, then resume with: sordino {command} --resume {folder}")
        }
    })
}

/// The first of `runs/1`, `runs/2`, ... that does not exist.
pub(super) fn next_folder() -> Result<RunFolder, Problem> {
    let runs = Path::new("runs");
    let cannot = |error| {
        Problem::refused(
            format!("cannot create a folder in {}: {error}", runs.display()),
            "choose one with --out",
        )
    };
    fs::create_dir_all(runs).map_err(cannot)?;
    for number in 1_u64.. {
        let path = runs.join(number.to_string());
        match fs::create_dir(&path) {
            Ok(()) => return Ok(RunFolder::create(&path)?),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(cannot(error)),
        }
    }
    unreachable!("numbers do not end")
}
