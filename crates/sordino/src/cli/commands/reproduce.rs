//! `sordino reproduce`: the papers' tables, with their true epsilon and Sordino's results.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::PathBuf,
    process,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crate::{
    report::{Column, json, table},
    reproduction::{
        Cell, Experiment, Finished, Kind, SideBySide, Store, Table, catalogue, find, run as train,
    },
};
use clap::Args;
use serde::Serialize;
use sordino_train::{check_writable, write_whole};

use crate::cli::{
    interruption::{STOPPED, listen},
    problem::Problem,
};

/// The most runs of an experiment.
const MOST_RUNS: u64 = 1000;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Name of a table or figure; without it, all of them are listed
    table: Option<String>,
    /// Folder that contains the data sets; without it, only the included data set is used for training
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Number of runs of each experiment, with the seeds 1, 2, ...
    #[arg(long, value_name = "R", default_value_t = 3, allow_hyphen_values = true)]
    runs: u64,
    /// Train once with a tenth of the steps, to check that everything works
    #[arg(long)]
    quick: bool,
    /// Only cells whose data set or algorithm contains this text; if repeated, all texts must match
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Train only this column of the table; if repeated, these columns
    #[arg(long, value_name = "COLUMN", value_enum)]
    column: Vec<Kind>,
    /// Folder in which finished runs are stored
    #[arg(long, value_name = "DIR", default_value = "reproduction")]
    results: PathBuf,
    /// Write the table to a Markdown file
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, Problem> {
    if !(1..=MOST_RUNS).contains(&arguments.runs) {
        return Err(Problem::refused(
            format!("runs must be between 1 and {MOST_RUNS}, got {}", arguments.runs),
            "3 is the default",
        ));
    }
    if let Some(folder) = arguments.data.as_ref().filter(|folder| !folder.is_dir()) {
        return Err(Problem::refused(
            format!("{} is not a folder", folder.display()),
            "give the folder that contains the data sets, such as mnist",
        ));
    }
    let Some(name) = &arguments.table else { return list(arguments) };
    // Found before hours of work.
    let folder = arguments.markdown.as_ref().and_then(|path| path.parent());
    if let Some(folder) = folder.filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        return Err(Problem::refused(
            format!("the Markdown file cannot be written: {} is not a folder", folder.display()),
            "make the folder, or choose another place",
        ));
    }
    let table = find(name)?;
    let cells = selected(&table, arguments)?;
    let runs = if arguments.quick { 1 } else { arguments.runs };
    let store = Store::open(&arguments.results);
    let mut experiments: Vec<Experiment> = Vec::new();
    let is_trained = |kind: &Kind| arguments.column.is_empty() || arguments.column.contains(kind);
    let trained = cells.iter().flat_map(|cell| &cell.experiments).filter(|(kind, _)| is_trained(kind));
    for (_, experiment) in trained {
        let experiment = if arguments.quick { experiment.clone().shortened() } else { experiment.clone() };
        if !experiments.contains(&experiment) {
            experiments.push(experiment);
        }
    }
    if let Some(path) = &arguments.markdown {
        check_writable(path)?;
    }
    let stop = listen("after the current steps", "without the current runs");
    train_missing(&experiments, runs, arguments, &store, stop)?;
    let result = SideBySide::new(&table, &cells, &store, runs, arguments.quick)?;
    if let Some(path) = &arguments.markdown {
        write_whole(path, result.markdown().as_bytes())?;
    }
    let text = if arguments.json { json(&result) } else { result.text() };
    if !stop.load(Ordering::Relaxed) {
        return Ok(text);
    }
    let _ = write!(io::stdout(), "{text}");
    let _ = writeln!(io::stderr(), "\nstopped: finished runs are stored; repeat the command to continue");
    process::exit(STOPPED)
}

/// The cells that are shown.
fn selected(table: &Table, arguments: &Arguments) -> Result<Vec<Cell>, Problem> {
    let mut cells = table.cells()?;
    for text in &arguments.only {
        let has = |name: &str| name.to_lowercase().contains(&text.to_lowercase());
        cells.retain(|cell| has(&cell.row) || has(&cell.column));
        if cells.is_empty() {
            return Err(Problem::refused(
                format!("no cell of {} matches {}", table.name, arguments.only.join(" and ")),
                "give a part of the name of a data set or an algorithm",
            ));
        }
    }
    Ok(cells)
}

/// Trains the missing runs. Prints a line for each run and for each reason why experiments cannot run. Without `--data`, only the included
/// data set is used.
fn train_missing(
    experiments: &[Experiment],
    runs: u64,
    arguments: &Arguments,
    store: &Store,
    stop: &AtomicBool,
) -> Result<(), Problem> {
    let mut missing = 0;
    for experiment in experiments {
        missing += runs.saturating_sub(store.runs(experiment)?.len() as u64);
    }
    let (done, skipped) = (AtomicU64::new(0), Mutex::new(BTreeMap::<String, usize>::new()));
    let report = |finished: Finished<'_>| match finished {
        Finished::Run(experiment, record) => {
            let number = done.fetch_add(1, Ordering::Relaxed) + 1;
            let (accuracy, seconds) = (100.0 * record.accuracy, record.seconds);
            let line = format!(
                "run {number} of at most {missing}: {}, seed {}: {accuracy:.2} % in {seconds:.0} s",
                experiment.title(),
                record.seed
            );
            let _ = writeln!(io::stderr(), "{line}");
        }
        Finished::Skipped(_, reason) => {
            *skipped.lock().unwrap_or_else(PoisonError::into_inner).entry(reason).or_default() += 1;
        }
    };
    train(experiments, runs, arguments.data.as_deref(), store, stop, &report)?;
    for (reason, count) in skipped.into_inner().unwrap_or_else(PoisonError::into_inner) {
        let _ =
            writeln!(io::stderr(), "note: {count} of {} experiments cannot run: {reason}", experiments.len());
    }
    Ok(())
}

/// A table or figure of the list.
#[derive(Serialize)]
struct Listed {
    table: &'static str,
    title: String,
    source: String,
    data: Vec<&'static str>,
    missing: Vec<&'static str>,
}

/// All tables and figures.
fn list(arguments: &Arguments) -> Result<String, Problem> {
    let mut listed = Vec::new();
    for table in catalogue()? {
        let sets = table.data_sets()?;
        let absent = sets.iter().filter(|set| set.place(arguments.data.as_deref()).is_none());
        let missing = absent.map(|set| set.name).collect();
        let data = sets.iter().map(|set| set.name).collect();
        listed.push(Listed { table: table.name, title: table.title, source: table.source, data, missing });
    }
    if arguments.json {
        return Ok(json(&listed));
    }
    let mut rows = vec![["table", "title", "data", "available"].map(str::to_owned).to_vec()];
    rows.extend(listed.into_iter().map(|table| {
        let available = match (arguments.data.is_some(), table.missing.as_slice()) {
            (_, []) => "yes".to_owned(),
            (false, _) => "give --data".to_owned(),
            (true, missing) => format!("missing: {}", missing.join(", ")),
        };
        vec![table.table.to_owned(), table.title, table.data.join(", "), available]
    }));
    let columns = [Column::Left(0), Column::Left(0), Column::Left(0), Column::Left(0)];
    Ok(format!(
        "{}\n`sordino reproduce TABLE --data DIR` trains the runs of a table.\n",
        table(&columns, &rows)
    ))
}
