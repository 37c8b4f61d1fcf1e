//! `sordino show`: a run and its guarantee, after checking its ledger.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use crate::report::{self, DataAccount, RunReport};
use clap::Args;
use serde::Serialize;
use sordino_privacy::Account;
use sordino_train::{
    DataFacts, Provable, RunFolder, Settings, inspect, read_published_noise, verified_settings,
};

use crate::cli::problem::{Problem, flag};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Folder of a run
    #[arg(value_name = "DIR")]
    run: PathBuf,
    /// List the numbers of the rows, from 1, that were held back for testing, one per line
    #[arg(long)]
    held_back: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The rows that were held back, as they appear in JSON.
#[derive(Serialize)]
struct HeldBack<'a> {
    run: &'a Path,
    /// The number of rows of the data.
    rows: usize,
    /// The numbers, from 1, of the rows that were held back.
    held_back: Vec<usize>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, Problem> {
    let folder = RunFolder::open(&arguments.run)?;
    let inspection = inspect(&folder)?;
    let settings = verified_settings(&folder, &inspection.account)?;
    if arguments.held_back {
        return held_back(&folder, &inspection.account, &settings, arguments.json);
    }
    // A run that was killed early has no weights and no facts.
    let facts = DataFacts::read(&folder).ok();
    let report = RunReport {
        settings: &settings,
        account: &inspection.account,
        score: inspection.score,
        metrics: inspection.metrics.as_ref(),
        seconds: inspection.seconds,
        folder: Some(folder.path()),
        facts: facts.as_ref(),
        weights_covered: inspection.weights_covered,
        provable: Provable::read(&folder),
        published_noise: read_published_noise(&folder),
        data: Some(DataAccount::new(&folder, &settings)),
    };
    Ok(if arguments.json { report.json()? } else { report.text()?.render(flag) })
}

/// The rows that were held back. They follow from the number of rows, the fraction and the public seed.
fn held_back(
    folder: &RunFolder,
    account: &Account,
    settings: &Settings,
    json: bool,
) -> Result<String, Problem> {
    if let Some(unit) = &settings.unit {
        return Err(Problem::refused(
            format!(
                "this run held back whole units ({unit}), and the rows of a unit are known from the data alone"
            ),
            "the split depends on the number of units and on split_seed; see docs/units.md",
        ));
    }
    let tests =
        settings.test_fraction.map_or(Ok(0), |_| DataFacts::read(folder).map(|facts| facts.test_records))?;
    let rows = usize::try_from(account.records().saturating_add(tests)).unwrap_or(usize::MAX);
    let mut held_back = Vec::new();
    if tests > 0 {
        let (fraction, seed) = (settings.test_fraction, settings.split_seed);
        held_back = sordino_data::held_out(rows, fraction.unwrap_or_default(), seed.unwrap_or_default())?;
        held_back.iter_mut().for_each(|row| *row += 1);
    }
    if held_back.len() as u64 != tests {
        return Err(Problem::refused(
            format!("{} and config.toml disagree about which rows were held back", folder.model().display()),
            "one of them was changed after the run began",
        ));
    }
    if json {
        return Ok(report::json(&HeldBack { run: folder.path(), rows, held_back }));
    }
    if held_back.is_empty() {
        let _ = writeln!(std::io::stderr(), "note: no row was held back: all {rows} rows were trained on");
    }
    Ok(held_back.iter().map(|row| format!("{row}\n")).collect())
}
