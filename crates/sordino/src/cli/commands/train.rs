//! `sordino train`: a private model in one command.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process,
};

use crate::report::{DataAccount, RunReport};
use clap::Args;
use sordino_privacy::Account;
use sordino_train::{
    Ending, Hint, PricedRun, RunData, RunFolder, Settings, TrainError, check, check_unchanged_data,
    check_unchanged_facts, inspect, price, resolve, verified_settings,
};

use super::report;
use crate::cli::{
    interruption::{STOPPED, listen},
    problem::{Problem, flag},
    progress::ProgressDisplay,
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

/// A run, its records and its folder.
struct Prepared {
    priced: PricedRun,
    data: RunData,
    folder: RunFolder,
    resumed: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result<String, Problem> {
    train("train", arguments.settings.settings()?, arguments.run)
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

/// Trains with these settings, for a command of this name.
pub(super) fn train(
    command: &'static str,
    settings: Settings,
    arguments: RunArguments,
) -> Result<String, Problem> {
    let json = arguments.json;
    let Prepared { priced, data, folder, resumed } = prepare(command, settings, arguments)?;
    let stop = listen("after this step", "without a checkpoint");
    if let Some(warning) = priced.warning() {
        let _ = writeln!(io::stderr(), "warning: {}", Hint::new(warning).render(flag));
    }
    for note in priced.algorithm_notes() {
        let _ = writeln!(io::stderr(), "note: {}", note.render(flag));
    }
    let mut progress = ProgressDisplay::new(&priced.terms);
    let run = priced.run(&data.train, data.test.as_ref(), Some(&folder));
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
        return Ok(if json { text } else { text + &report::mention(folder.path()) });
    }
    let _ = write!(io::stdout(), "{text}");
    let folder = folder.path().display();
    let _ = writeln!(io::stderr(), "\nstopped; resume with: sordino {command} --resume {folder}");
    process::exit(STOPPED)
}

fn prepare(command: &str, settings: Settings, arguments: RunArguments) -> Result<Prepared, Problem> {
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
    let folder = match arguments.out {
        Some(path) => RunFolder::create(&path)?,
        None => next_folder()?,
    };
    priced.write_settings(&folder).map_err(|error| with_next_step(command, error, &folder))?;
    Ok(Prepared { priced, data, folder, resumed: false })
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
    Ok(Prepared { priced, data, folder, resumed: true })
}

/// The error of a failed run, with a hint on how to continue. The folder of a run that never began is removed.
fn with_next_step(command: &str, error: TrainError, folder: &RunFolder) -> Problem {
    let never_began = folder.remove_if_never_began();
    Problem::from(error).with_disk_hint(|| match never_began {
        true => {
            "free some space, then start again: no step was taken, and no privacy budget was spent".to_owned()
        }
        false => {
            format!(
                "free some space, then resume with: sordino {command} --resume {}",
                folder.path().display()
            )
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
