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

use clap::Args;
use sordino::{
    report::{Column, json, table},
    reproduction::{Cell, Experiment, Finished, SideBySide, Store, Table, catalogue, find, run as train},
};
use sordino_train::write_whole;

use crate::{
    interruption::{STOPPED, listen},
    problem::Problem,
};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Name of a table or figure; without it, all of them are listed
    table: Option<String>,
    /// Folder that contains the data sets; without it, only the included data set is used for training
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Number of runs of each experiment, with the seeds 1, 2, ...
    #[arg(long, value_name = "R", default_value_t = 3)]
    runs: u64,
    /// Train once with a tenth of the steps, to check that everything works
    #[arg(long)]
    quick: bool,
    /// Only cells whose data set or algorithm contains this text; if repeated, all texts must match
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
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
    let Some(name) = &arguments.table else { return list(arguments) };
    if arguments.runs == 0 {
        return Err(Problem::refused("runs must be at least 1, got 0", "3 is the default"));
    }
    if let Some(folder) = arguments.data.as_ref().filter(|folder| !folder.is_dir()) {
        return Err(Problem::refused(
            format!("{} is not a folder", folder.display()),
            "give the folder that contains the data sets, such as mnist",
        ));
    }
    let table = find(name)?;
    let cells = selected(&table, arguments)?;
    let runs = if arguments.quick { 1 } else { arguments.runs };
    let store = Store::open(&arguments.results);
    let mut experiments: Vec<Experiment> = Vec::new();
    for (_, experiment) in cells.iter().flat_map(|cell| &cell.experiments) {
        let experiment = if arguments.quick { experiment.clone().shortened() } else { experiment.clone() };
        if !experiments.contains(&experiment) {
            experiments.push(experiment);
        }
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
    let (done, skipped) = (AtomicU64::new(0), Mutex::new(BTreeMap::<String, usize>::new()));
    let report = |finished: Finished<'_>| match finished {
        Finished::Run(experiment, record) => {
            let number = done.fetch_add(1, Ordering::Relaxed) + 1;
            let (accuracy, seconds) = (100.0 * record.accuracy, record.seconds);
            let key = experiment.key();
            let line =
                format!("run {number}: {key}, seed {}: {accuracy:.2} % in {seconds:.0} s", record.seed);
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

/// All tables and figures.
fn list(arguments: &Arguments) -> Result<String, Problem> {
    let mut rows = vec![["table", "shows", "data", "available"].map(str::to_owned).to_vec()];
    for table in catalogue()? {
        let sets = table.data_sets()?;
        let missing: Vec<&str> = sets
            .iter()
            .filter(|set| set.place(arguments.data.as_deref()).is_none())
            .map(|set| set.name)
            .collect();
        let here = match (arguments.data.is_some(), missing.as_slice()) {
            (_, []) => "yes".to_owned(),
            (false, _) => "give --data".to_owned(),
            (true, missing) => format!("missing: {}", missing.join(", ")),
        };
        let names: Vec<&str> = sets.iter().map(|set| set.name).collect();
        rows.push(vec![table.name.to_owned(), table.title, names.join(", "), here]);
    }
    let columns = [Column::Left(0), Column::Left(0), Column::Left(0), Column::Left(0)];
    Ok(format!(
        "{}\n`sordino reproduce TABLE --data DIR` trains the runs of a table and prints it.\n",
        self::table(&columns, &rows)
    ))
}
