//! `sordino predict`: applies a trained model to records.

use std::{
    collections::BTreeSet,
    io::{self, Write as _},
    path::PathBuf,
    process,
};

use crate::{Fitted, GuaranteeStatus};
use clap::Args;
use sordino_data::{Dataset, PredictionOptions, Row, Schema, Source, UnlabelledRows};
use sordino_train::{DataFacts, Hint, RunFolder, Settings, data_source, format::grouped};

use crate::cli::{
    predictions::{table, texts},
    problem::{Problem, flag},
};

/// The exit code if some rows could not be read.
const INCOMPLETE: i32 = 1;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Folder of a run
    #[arg(long, value_name = "DIR")]
    run: PathBuf,
    /// Records to predict, in the format of the run's data; labels are not needed. From an NPZ file, the array x is read. For images, also a
    /// folder of PNG and JPEG files, or one such file; for texts, also any table, a folder, or the lines of a .txt file. A language model
    /// generates a continuation of each record
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Column of a table that identifies its rows, by name or by number from 1 [default: rows are numbered from 1]
    #[arg(long, value_name = "COLUMN")]
    id: Option<String>,
    /// Read a category that the schema does not list as all zeros, and report how often that happened
    #[arg(long)]
    ignore_unknown: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, Problem> {
    let fitted = Fitted::open(&arguments.run)?;
    let settings = Settings::read(&RunFolder::open(&arguments.run)?.config())?;
    let mut unlabelled = read(arguments, &settings, fitted.facts())?;
    let text = match (&unlabelled.records, fitted.is_language_model()) {
        (Some(records), true) => texts(&unlabelled.rows, written(&fitted, &settings, records)?),
        (None, true) => texts(&unlabelled.rows, Vec::new()),
        (Some(records), false) => {
            let predictions = fitted.predictions(records)?;
            table(&fitted, &mut unlabelled.rows, &predictions)
        }
        (None, false) => table(&fitted, &mut unlabelled.rows, &[]),
    };
    note_model(&fitted);
    note_reading(&unlabelled);
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
fn read(arguments: &Arguments, settings: &Settings, facts: &DataFacts) -> Result<UnlabelledRows, Problem> {
    let source = Source { path: arguments.data.clone(), ..data_source(settings) };
    let reading = PredictionOptions {
        id: arguments.id.clone(),
        ignore_unknown: arguments.ignore_unknown,
        encoding: Some(facts.encoding),
        shape: Some(facts.input),
    };
    let unlabelled = sordino_data::read_unlabelled(&source, &reading)?;
    match &unlabelled.records {
        Some(records) if records.shape() != facts.input => Err(Problem::refused(
            format!(
                "{} has records of {}, but the model reads {}",
                arguments.data.display(),
                records.shape(),
                facts.input
            ),
            "give records like those that the model was trained on",
        )),
        _ => Ok(unlabelled),
    }
}

/// The continuation that a language model generates for each record.
fn written(fitted: &Fitted, settings: &Settings, records: &Dataset) -> Result<Vec<String>, Problem> {
    let schema = settings.schema.as_deref().map(Schema::read).transpose()?;
    let Some(encoder) = schema.as_ref().map(Schema::encoder).transpose()?.flatten() else {
        return Err(Problem::refused(
            "the run has no tokenizer",
            "its records were not texts; use Fitted::continuations in a Rust program",
        ));
    };
    encoder.check_decodable()?;
    let texts = fitted.continuations(records, encoder.separator()?)?;
    Ok(texts.iter().map(|tokens| encoder.decode(tokens)).collect::<Result<_, _>>()?)
}

fn note(text: &str) {
    let _ = writeln!(io::stderr(), "note: {text}");
}

/// Prints warnings about the model.
fn note_model(fitted: &Fitted) {
    if let GuaranteeStatus::NotPrivate(why) = fitted.guarantee().status() {
        note(&format!("this model is NOT PRIVATE: {why}"));
    }
    if !fitted.weights_are_covered() {
        note(
            "an earlier version trained this model; its ledger has no hash, so the weights cannot be checked",
        );
    }
    if !fitted.is_finished() {
        note("the run is not finished; these are the predictions of its last checkpoint");
    }
}

/// Prints which records were read, and what was ignored.
fn note_reading(unlabelled: &UnlabelledRows) {
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
    let hints: String =
        hints.into_iter().map(|hint| format!("\nhint: {}", Hint::new(hint).render(flag))).collect();
    let count = format!("{} of {} rows", grouped(refused.len() as u64), grouped(rows.len() as u64));
    Some(format!("{messages}error: {count} could not be read; their predictions are empty\n{hints}\n"))
}
