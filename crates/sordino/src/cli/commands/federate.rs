//! `sordino federate`: federated training, simulated on one machine.

use std::{
    io::{self, Write},
    path::Path,
    process,
};

use clap::Args;
use sordino_privacy::Account;
use sordino_train::{
    Federation, FederationEnding, ProtectedUnit, RunData, RunFolder, Settings, check, check_unchanged_data,
    write_whole,
};

use super::train::{RunArguments, next_folder, run_alone};
use crate::cli::{
    interruption::{STOPPED, listen},
    problem::Problem,
    progress::ProgressDisplay,
    settings_arguments::FederatedArguments,
};
use crate::report::FederationReport;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    settings: FederatedArguments,
    #[command(flatten)]
    run: RunArguments,
}

pub(crate) fn run(arguments: Arguments) -> Result<String, Problem> {
    let flags = arguments.settings.settings()?;
    let run = arguments.run;
    if let Some(path) = &run.resume {
        // If records are protected, each client has its own folder with its own ledger.
        return match path.join(CLIENTS).is_dir() {
            true if flags.is_empty() => resume(path, run.json),
            true => Err(Problem::refused(
                "a resumed run keeps its settings",
                "give --resume alone, or start a new run with --config and --out",
            )),
            false => run_alone("federate", flags, run),
        };
    }
    let protect = run.with_config(flags.clone())?.protect.unwrap_or(ProtectedUnit::Clients);
    let flags = Settings { protect: Some(protect), ..flags };
    match protect {
        ProtectedUnit::Clients => run_alone("federate", flags, run),
        ProtectedUnit::Records => begin(&run.with_config(flags)?, run),
    }
}

/// The folder with the folders of the clients.
const CLIENTS: &str = "clients";

/// Begins a run in which each client protects its own records.
fn begin(settings: &Settings, run: RunArguments) -> Result<String, Problem> {
    check(settings)?;
    let data = RunData::read(settings)?;
    let federation = Federation::price(settings, data, None)?;
    let folder = match run.out {
        Some(path) => RunFolder::create(&path)?,
        None => next_folder()?,
    };
    // If no data was given, this is the name of the included data.
    let data = federation.clients().next().and_then(|client| client.settings().data);
    let settings = &absolute(&Settings { data, ..settings.clone() });
    write_whole(&folder.config(), settings.to_toml().as_bytes())?;
    federate(&federation, settings, folder.path(), false, run.json)
}

fn resume(path: &Path, json: bool) -> Result<String, Problem> {
    let settings = Settings::read(&path.join("config.toml"))?;
    let folders = (1..).map(|client: usize| path.join(CLIENTS).join(client.to_string()));
    let accounts = folders
        .take_while(|folder| folder.is_dir())
        .map(|folder| Ok(Account::read(&RunFolder::open(&folder)?.ledger())?))
        .collect::<Result<Vec<Account>, Problem>>()?;
    if let Some(account) = accounts.first() {
        check_unchanged_data(&settings, account)?;
    }
    let data = RunData::read(&settings)?;
    if data.train.slots() != accounts.len() {
        return Err(Problem::refused(
            format!(
                "{} has {} clients, but the data has {}",
                path.display(),
                accounts.len(),
                data.train.slots()
            ),
            "a federation needs the ledgers of all its clients; start a new one with --out",
        ));
    }
    federate(&Federation::price(&settings, data, Some(&accounts))?, &settings, path, true, json)
}

fn federate(
    federation: &Federation,
    settings: &Settings,
    folder: &Path,
    resumed: bool,
    json: bool,
) -> Result<String, Problem> {
    let stop = listen("after this round", "without a checkpoint");
    let first = federation.clients().next();
    let mut progress = first.map(|first| ProgressDisplay::new(&first.terms));
    let ending = match &mut progress {
        Some(progress) => federation.run(&folder.join(CLIENTS), resumed, stop, progress),
        None => federation.run(&folder.join(CLIENTS), resumed, stop, &mut ()),
    };
    progress.iter().for_each(ProgressDisplay::finish);
    let FederationEnding { accounts, score, finished, seconds } = ending?;
    let report = FederationReport { settings, accounts: &accounts, score, seconds, folder };
    let text = if json { report.json()? } else { report.text()? };
    if finished {
        return Ok(text);
    }
    let _ = write!(io::stdout(), "{text}");
    let _ = writeln!(io::stderr(), "\nstopped; resume with: sordino federate --resume {}", folder.display());
    process::exit(STOPPED)
}

/// The settings with absolute paths, so that a federation can be resumed from any folder.
fn absolute(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    let paths = [&mut settings.data, &mut settings.test_data, &mut settings.schema];
    let paths = paths.into_iter().chain([&mut settings.encoder, &mut settings.initial_weights]);
    for path in paths.flatten() {
        *path = path.canonicalize().unwrap_or_else(|_| path.clone());
    }
    for text in [&mut settings.model, &mut settings.tokenizer].into_iter().flatten() {
        if let Ok(path) = Path::new(&*text).canonicalize() {
            *text = path.display().to_string();
        }
    }
    settings
}
