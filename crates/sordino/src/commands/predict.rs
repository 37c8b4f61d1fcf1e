//! `sordino predict`: applies a trained model to records.

use std::{
    collections::BTreeSet,
    io::{self, Write as _},
    path::PathBuf,
    process,
};

use clap::Args;
use sordino_data::{Reading, Row, Source, Unlabelled};
use sordino_nn::{Engine, Params};
use sordino_privacy::{Account, PrivacyStatus};
use sordino_train::{Inspection, RunFolder, inspect};

use crate::{
    data_settings::source,
    models::{Facts, Model},
    predictions::table,
    problem::Problem,
    run_files::verified_settings,
    settings::Settings,
    statement::grouped,
};

/// The exit code if some rows could not be read.
const INCOMPLETE: i32 = 1;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The folder of a run
    #[arg(long, value_name = "DIR")]
    run: PathBuf,
    /// Records to predict, in the format of the run's data; labels are not needed. From an NPZ file, the array x is read
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// The column of a table that identifies its rows, by name or by number from 1 [default: rows are numbered from 1]
    #[arg(long, value_name = "COLUMN")]
    id: Option<String>,
    /// Read a category that the schema does not list as all zeros, and report how often that happened
    #[arg(long)]
    ignore_unknown: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, Problem> {
    let folder = RunFolder::open(&arguments.run)?;
    let Inspection { account, weights_covered, .. } = inspect(&folder)?;
    verified_settings(&folder, &account)?;
    let settings = Settings::read(&folder.config())?;
    let (facts, name) = (Facts::read(&folder)?, settings.model.as_deref().unwrap_or("logistic"));
    let model = Model::choose(name, settings.hidden.as_deref(), &facts)?;
    let mut engine = Engine::new(model.network()?, model.loss)?;
    let params = Params::load(engine.network().layout().clone(), &folder.model())?;
    let mut unlabelled = read(arguments, &settings, &facts)?;
    let outputs = match &unlabelled.records {
        Some(records) => {
            let all: Vec<usize> = (0..records.len()).collect();
            let inputs = engine.unlabelled(records.inputs())?;
            engine.outputs(&params, &inputs, &all)?
        }
        None => Vec::new(),
    };
    note_standing(&account, weights_covered)?;
    note_reading(&unlabelled);
    let text = table(&facts, &mut unlabelled.rows, &outputs, engine.network().outputs());
    match refusals(&unlabelled.rows) {
        None => Ok(text),
        Some(summary) => {
            let _ = io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush());
            let _ = write!(io::stderr(), "{summary}");
            process::exit(INCOMPLETE)
        }
    }
}

/// Reads records of the same kind as the training records.
fn read(arguments: &Arguments, settings: &Settings, facts: &Facts) -> Result<Unlabelled, Problem> {
    let source = Source { path: arguments.data.clone(), ..source(settings) };
    let reading = Reading {
        id: arguments.id.clone(),
        ignore_unknown: arguments.ignore_unknown,
        encoding: Some(facts.encoding),
    };
    let unlabelled = sordino_data::read_unlabelled(&source, &reading)?;
    match &unlabelled.records {
        Some(records) if records.shape() != facts.input => Err(Problem::refused(
            format!(
                "{} has records of {}, the model reads {}",
                arguments.data.display(),
                records.shape(),
                facts.input
            ),
            "give records like those that the model was trained on",
        )),
        _ => Ok(unlabelled),
    }
}

fn note(text: &str) {
    let _ = writeln!(io::stderr(), "note: {text}");
}

/// Prints warnings about the model.
fn note_standing(account: &Account, weights_covered: bool) -> Result<(), Problem> {
    if let PrivacyStatus::NotPrivate(why) = account.privacy_status()? {
        note(&format!("this model is NOT PRIVATE: {why}"));
    }
    if !weights_covered {
        note(
            "an earlier version trained this model; its ledger has no hash, so the weights cannot be checked",
        );
    }
    if !account.is_closed() {
        note("the run is not finished; these are the predictions of its last checkpoint");
    }
    Ok(())
}

/// Prints which records were read, and what was ignored.
fn note_reading(unlabelled: &Unlabelled) {
    if let Some(part) = &unlabelled.part {
        note(&format!("the predictions are for {part}"));
    }
    let unknown: Vec<String> =
        unlabelled.unknown.iter().map(|(column, count)| format!("{} in {column}", grouped(*count))).collect();
    if !unknown.is_empty() {
        note(&format!(
            "categories that the schema does not list were read as all zeros: {}",
            unknown.join(", ")
        ));
    }
}

/// A message for every row that could not be read, the number of such rows, and hints.
fn refusals(rows: &[Row]) -> Option<String> {
    let refused: Vec<_> = rows.iter().filter_map(|row| row.refused.as_ref()).collect();
    if refused.is_empty() {
        return None;
    }
    let messages: String = refused.iter().map(|error| format!("error: {error}\n")).collect();
    let hints: BTreeSet<&str> = refused.iter().map(|error| error.hint()).collect();
    let hints: String = hints.into_iter().map(|hint| format!("\nhint: {hint}")).collect();
    let count = format!("{} of {} rows", grouped(refused.len() as u64), grouped(rows.len() as u64));
    Some(format!("{messages}error: {count} could not be read; their predictions are empty\n{hints}\n"))
}
