//! `sordino predict`: applies a trained model to records.

use std::{fmt::Write as _, io::Write as _, path::PathBuf};

use clap::Args;
use sordino_data::Source;
use sordino_nn::{Engine, Params};
use sordino_privacy::{Account, Standing};
use sordino_train::{Inspection, RunFolder, class_of, inspect, model_notes};

use crate::{
    data_settings::source,
    models::{Facts, Model},
    problem::Problem,
    run_files::verified_settings,
    settings::Settings,
};

#[derive(Args)]
pub(crate) struct Arguments {
    /// The folder of a run
    #[arg(long, value_name = "DIR")]
    run: PathBuf,
    /// Records to predict, in the format of the run's data; labels are not needed
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, Problem> {
    let folder = RunFolder::open(&arguments.run)?;
    let Inspection { account, weights_covered, .. } = inspect(&folder)?;
    verified_settings(&folder, &account)?;
    let settings = Settings::read(&folder.config())?;
    let (facts, name) = (facts(&folder)?, settings.model.as_deref().unwrap_or("logistic"));
    let model = Model::choose(name, settings.hidden.as_deref(), &facts)?;
    let mut engine = Engine::new(model.network()?, model.loss)?;
    let params = Params::load(engine.network().layout().clone(), &folder.model())?;
    let source = Source { path: arguments.data.clone(), ..source(&settings) };
    let records = sordino_data::read_unlabelled(&source)?;
    if records.shape() != facts.input {
        return Err(Problem::refused(
            format!(
                "{} has records of {}, the model reads {}",
                arguments.data.display(),
                records.shape(),
                facts.input
            ),
            "give records like those that the model was trained on",
        ));
    }
    let all: Vec<usize> = (0..records.len()).collect();
    let inputs = engine.unlabelled(records.inputs())?;
    let outputs = engine.outputs(&params, &inputs, &all)?;
    note_standing(&account, weights_covered)?;
    Ok(table(&facts, &outputs, engine.network().outputs()))
}

/// Says what whoever uses the predictions should know.
fn note_standing(account: &Account, weights_covered: bool) -> Result<(), Problem> {
    let note = |text: &str| {
        let _ = writeln!(std::io::stderr(), "note: {text}");
    };
    if let Standing::NotPrivate(why) = account.standing()? {
        note(&format!("this model is NOT PRIVATE: {why}"));
    }
    if !weights_covered {
        note("an earlier version trained this model; its ledger has no hash to check the weights by");
    }
    if !account.is_closed() {
        note("the run is not finished; these are the predictions of its last checkpoint");
    }
    Ok(())
}

/// What the model was told about its data.
fn facts(folder: &RunFolder) -> Result<Facts, Problem> {
    let refused = |problem: &str| {
        Problem::refused(
            format!("{}: {problem}", folder.model().display()),
            "give a folder in which `sordino train` has written a model",
        )
    };
    let notes = model_notes(folder)?;
    let text = notes.get("facts").ok_or_else(|| refused("does not say what it reads"))?;
    serde_json::from_str(text).map_err(|error| refused(&error.to_string()))
}

/// CSV with a line for each record: the class and its probability, or the numbers.
fn table(facts: &Facts, outputs: &[f32], width: usize) -> String {
    let mut text = match facts.numbers.len() {
        0 => "prediction,probability".to_owned(),
        1 => "prediction".to_owned(),
        n => (1..=n).map(|number| format!("prediction_{number}")).collect::<Vec<_>>().join(","),
    };
    text.push('\n');
    for outputs in outputs.chunks_exact(width) {
        let written = if facts.numbers.is_empty() {
            let class = class_of(outputs) as usize;
            writeln!(text, "{},{:.4}", quoted(&facts.classes[class]), probability(outputs, class))
        } else {
            let numbers = outputs.iter().zip(&facts.numbers).map(|(z, scale)| scale.undo(*z).to_string());
            writeln!(text, "{}", numbers.collect::<Vec<_>>().join(","))
        };
        written.expect("writing to a string");
    }
    text
}

/// The softmax, or for one output the logistic function.
fn probability(outputs: &[f32], class: usize) -> f64 {
    let outputs: Vec<f64> = match outputs {
        [only] => vec![0.0, f64::from(*only)],
        _ => outputs.iter().copied().map(f64::from).collect(),
    };
    1.0 / outputs.iter().map(|output| (output - outputs[class]).exp()).sum::<f64>()
}

/// A name as a field of CSV.
fn quoted(name: &str) -> String {
    match name.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", name.replace('"', "\"\"")),
        false => name.to_owned(),
    }
}
