//! `sordino show`: what a run was and what it guarantees, after checking its ledger.

use std::path::PathBuf;

use clap::Args;
use sordino_train::{RunFolder, inspect, model_notes};

use crate::{
    data_account::DataAccount, experiment::TEST_RECORDS, problem::Problem, report::Report,
    run_files::verified_settings,
};

#[derive(Args)]
pub(crate) struct Arguments {
    /// The folder of a run
    #[arg(value_name = "DIR")]
    run: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, Problem> {
    let folder = RunFolder::open(&arguments.run)?;
    let inspection = inspect(&folder)?;
    let settings = verified_settings(&folder, &inspection.account)?;
    // A run that was killed early has no weights and no notes.
    let notes = model_notes(&folder).unwrap_or_default();
    let report = Report {
        settings: &settings,
        account: &inspection.account,
        score: inspection.score,
        seconds: inspection.seconds,
        folder: folder.path(),
        test_records: notes.get(TEST_RECORDS).and_then(|count| count.parse().ok()),
        weights_covered: inspection.weights_covered,
        data: DataAccount::of(&folder, &settings),
    };
    if arguments.json { report.json() } else { report.text() }
}
