//! `sordino train`: a private model in one command.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process,
};

use clap::Args;
use sordino_privacy::Account;
use sordino_train::{Ending, RunFolder, write_whole};

use crate::{
    data_account::DataAccount,
    data_settings::last_changed,
    experiment::Experiment,
    interruption::{STOPPED, listen},
    problem::Problem,
    progress::Progress,
    report::Report,
    run_files::verified_settings,
    settings::Settings,
};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    settings: Settings,
    /// Settings from a TOML file, with the same names; flags go before it
    #[arg(long, value_name = "FILE", help_heading = "Run")]
    config: Option<PathBuf>,
    /// A new folder for the run [default: runs/1, runs/2, ...]
    #[arg(long, value_name = "DIR", help_heading = "Run")]
    out: Option<PathBuf>,
    /// Go on with a run that was stopped or killed
    #[arg(long, value_name = "DIR", help_heading = "Run", conflicts_with_all = ["config", "out"])]
    resume: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long, help_heading = "Run")]
    json: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result<String, Problem> {
    let json = arguments.json;
    let (experiment, folder, resumed) = prepare(arguments)?;
    let settings = &experiment.settings;
    let stop = listen("after this step", "without a checkpoint");
    if let Some(warning) = experiment.warning() {
        let _ = writeln!(io::stderr(), "warning: {warning}");
    }
    let mut progress = Progress::new(&experiment.terms);
    let ending = experiment.run(&folder, |run| match resumed {
        false => run.begin(stop, &mut progress),
        true => run.resume(stop, &mut progress),
    });
    progress.finish();
    let Ending { score, account, finished, seconds } =
        ending.map_err(|error| with_a_way_on(error.into(), &folder))?;
    let report = Report {
        settings,
        account: &account,
        score,
        seconds: Some(seconds),
        folder: folder.path(),
        test_records: Some(experiment.facts.test_records),
        weights_covered: true,
        data: DataAccount::of(&folder, settings),
    };
    let text = if json { report.json()? } else { report.text()? };
    if finished {
        return Ok(text);
    }
    let _ = write!(io::stdout(), "{text}");
    let _ =
        writeln!(io::stderr(), "\nstopped; go on with: sordino train --resume {}", folder.path().display());
    process::exit(STOPPED)
}

fn prepare(arguments: Arguments) -> Result<(Experiment, RunFolder, bool), Problem> {
    let Arguments { settings, config, out, resume, .. } = arguments;
    if let Some(path) = resume {
        if !settings.is_empty() {
            return Err(Problem::refused(
                "a resumed run keeps its settings",
                "give --resume alone, or start a new run with --config and --out",
            ));
        }
        let folder = RunFolder::open(&path)?;
        let account = Account::read(&folder.ledger())?;
        let settings = verified_settings(&folder, &account)?;
        same_data(&settings, &account)?;
        let experiment = Experiment::prepare(Settings::read(&folder.config())?, account.plan())?;
        return Ok((experiment, folder, true));
    }
    let settings = match config {
        Some(path) => settings.or(Settings::read(&path)?),
        None => settings,
    };
    let experiment = Experiment::prepare(settings, None)?;
    let folder = match out {
        Some(path) => RunFolder::create(&path)?,
        None => next_folder()?,
    };
    let written = experiment
        .files
        .write(&folder)
        .and_then(|()| Ok(write_whole(&folder.config(), experiment.config().as_bytes())?));
    written.map_err(|problem| with_a_way_on(problem, &folder))?;
    Ok((experiment, folder, false))
}

/// Adds a hint to the problem of a failed run. A run without a ledger never began, and its folder is removed.
fn with_a_way_on(problem: Problem, folder: &RunFolder) -> Problem {
    let never_began = folder.never_began();
    if never_began {
        let _ = fs::remove_dir_all(folder.path());
    }
    problem.or_on_a_full_disk(|| match never_began {
        true => {
            "free some space, then start again: no step was taken, and no privacy budget was spent".to_owned()
        }
        false => {
            format!("free some space, then go on with: sordino train --resume {}", folder.path().display())
        }
    })
}

/// Refuses data that was changed after the run began: records would move from training to testing, and the guarantee is for
/// those that the run began with.
fn same_data(settings: &Settings, account: &Account) -> Result<(), Problem> {
    let (now, then) = (last_changed(settings), account.about());
    if then.ends_with(&now) {
        return Ok(());
    }
    let when = then.rsplit(' ').next().unwrap_or_default().trim();
    Err(Problem::refused(
        format!("{} was changed after the run began", settings.data.clone().unwrap_or_default().display()),
        format!("start a new run; if not a byte is different, say so by `touch -d @{when}` on it"),
    ))
}

/// The first of `runs/1`, `runs/2`, ... that does not exist.
fn next_folder() -> Result<RunFolder, Problem> {
    let runs = Path::new("runs");
    let cannot = |error| {
        Problem::refused(
            format!("cannot make a folder in {}: {error}", runs.display()),
            "choose one with --out",
        )
    };
    fs::create_dir_all(runs).map_err(cannot)?;
    for number in 1_u64.. {
        let path = runs.join(number.to_string());
        match fs::create_dir(&path) {
            Ok(()) => return Ok(RunFolder::create(&path)?),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(cannot(error)),
        }
    }
    unreachable!("numbers do not end")
}
