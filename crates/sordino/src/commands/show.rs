//! `sordino show`: what a run was and what it guarantees, after checking its ledger.

use std::path::PathBuf;

use clap::Args;
use sordino_train::{RunFolder, inspect};

use crate::{problem::Problem, report::Report, settings::Settings};

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
    let settings = Settings::read(&folder.config())?;
    if settings.to_toml() != inspection.account.about() {
        return Err(Problem::refused(
            format!("{} is not what the ledger says it was", folder.config().display()),
            "the settings were changed after the run began; restore them, they stand in the ledger's first line",
        ));
    }
    let report = Report {
        settings: &settings,
        account: &inspection.account,
        score: inspection.score,
        seconds: inspection.seconds,
        folder: folder.path(),
    };
    if arguments.json { report.json() } else { report.text() }
}
