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
    time::Duration,
};

use crate::{
    report::json,
    reproduction::{
        Cell, DEFAULT_RUNS, Experiment, Finished, Kind, SideBySide, Store, Table, catalogue, find,
        run as train,
    },
};
use clap::Args;
use serde::Serialize;
use sordino_train::write_whole;

use crate::cli::{
    interruption::{STOPPED, listen},
    outputs::{check_outputs, same_file},
    problem::Problem,
    progress::bar,
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
    #[arg(long, value_name = "R", default_value_t = DEFAULT_RUNS, allow_hyphen_values = true, conflicts_with = "quick")]
    runs: u64,
    /// Train once for 20 steps, to check that everything works
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
            "give the folder that has a folder for each data set, such as DIR/mnist",
        ));
    }
    let Some(name) = &arguments.table else {
        let options = [
            ("--only", !arguments.only.is_empty()),
            ("--column", !arguments.column.is_empty()),
            ("--markdown", arguments.markdown.is_some()),
            ("--quick", arguments.quick),
        ];
        return match options.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Problem::refused(
                format!("{option} needs a table"),
                "`sordino reproduce` lists the tables",
            )),
            None => list(arguments),
        };
    };
    // Checked before hours of training.
    check_outputs(&[("--markdown", arguments.markdown.as_deref())])?;
    if arguments.markdown.as_deref().is_some_and(|path| same_file(path, &arguments.results)) {
        return Err(Problem::refused(
            format!("--markdown and --results both name {}", arguments.results.display()),
            "choose a different name for each",
        ));
    }
    let table = find(name)?;
    let cells = selected(&table, arguments)?;
    let runs = if arguments.quick { 1 } else { arguments.runs };
    if arguments.results.exists() && !arguments.results.is_dir() {
        return Err(Problem::refused(
            format!("{} is not a folder", arguments.results.display()),
            "give a folder for the results with --results",
        ));
    }
    let store = Store::open(&arguments.results);
    // Reads all results that the table shows, so that an unreadable file is reported before training.
    for (_, experiment) in cells.iter().flat_map(|cell| &cell.experiments) {
        let shown = if arguments.quick { experiment.clone().shortened() } else { experiment.clone() };
        store.runs(&shown)?;
    }
    let stop = listen("after the current steps; unfinished runs are discarded", "without the table");
    train_missing(&distinct(&cells, arguments), runs, arguments, &store, stop)?;
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

/// The experiments to train, each once, with a label that names the first cell in which it occurs.
fn distinct(cells: &[Cell], arguments: &Arguments) -> Vec<(Experiment, String)> {
    let mut experiments: Vec<(Experiment, String)> = Vec::new();
    for cell in cells {
        for (kind, experiment) in &cell.experiments {
            if !arguments.column.is_empty() && !arguments.column.contains(kind) {
                continue;
            }
            let experiment =
                if arguments.quick { experiment.clone().shortened() } else { experiment.clone() };
            if experiments.iter().any(|(known, _)| *known == experiment) {
                continue;
            }
            let label = match kind {
                Kind::Published => format!("{}, {}, as published", cell.column, cell.row),
                Kind::Proved => format!("{}, {}, proved", cell.column, cell.row),
                Kind::Best => format!("{}, best", cell.column),
            };
            experiments.push((experiment, label));
        }
    }
    experiments
}

/// The cells that are shown.
fn selected(table: &Table, arguments: &Arguments) -> Result<Vec<Cell>, Problem> {
    let mut cells = table.cells()?;
    for text in &arguments.only {
        let has = |name: &str| name.to_lowercase().contains(&text.to_lowercase());
        cells.retain(|cell| has(&cell.row) || has(&cell.column));
        if cells.is_empty() {
            let mut labels: Vec<String> = table.cells()?.into_iter().map(|cell| cell.column).collect();
            labels.dedup();
            return Err(Problem::refused(
                format!("no cell of {} matches {}", table.name, arguments.only.join(" and ")),
                format!(
                    "give part of the name of an algorithm or of a column; the columns are {}",
                    labels.join("; ")
                ),
            ));
        }
    }
    Ok(cells)
}

/// Trains the missing runs. Prints a line for each run and for each reason why experiments cannot run. Without `--data`, only the included
/// data set is used.
fn train_missing(
    labelled: &[(Experiment, String)],
    runs: u64,
    arguments: &Arguments,
    store: &Store,
    stop: &AtomicBool,
) -> Result<(), Problem> {
    let experiments: Vec<Experiment> = labelled.iter().map(|(experiment, _)| experiment.clone()).collect();
    let mut missing = 0;
    for experiment in &experiments {
        missing += store.missing_seeds(experiment, runs)?.len() as u64;
    }
    let bar = bar(missing, "run");
    bar.enable_steady_tick(Duration::from_secs(1));
    let (done, skipped) = (AtomicU64::new(0), Mutex::new(BTreeMap::<String, usize>::new()));
    let report = |finished: Finished<'_>| match finished {
        Finished::Run(experiment, record) => {
            let number = done.fetch_add(1, Ordering::Relaxed) + 1;
            let result = match (record.accuracy, record.loss) {
                (Some(accuracy), _) => format!("{:.2} %", 100.0 * accuracy),
                (None, Some(loss)) => format!("loss {loss:.3}"),
                (None, None) => "no result".to_owned(),
            };
            let label =
                labelled.iter().find(|(known, _)| known == experiment).map(|(_, label)| label.as_str());
            let line = format!(
                "run {number} of at most {missing}: {}, seed {}: {result} in {:.1} s",
                label.unwrap_or_default(),
                record.seed,
                record.seconds
            );
            bar.inc(1);
            bar.suspend(|| {
                let _ = writeln!(io::stderr(), "{line}");
            });
        }
        Finished::Skipped(_, reason) => {
            *skipped.lock().unwrap_or_else(PoisonError::into_inner).entry(reason).or_default() += 1;
        }
    };
    let trained = train(&experiments, runs, arguments.data.as_deref(), store, stop, &report);
    bar.finish_and_clear();
    trained?;
    let skipped = skipped.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (reason, count) in &skipped {
        let _ =
            writeln!(io::stderr(), "note: {count} of {} experiments cannot run: {reason}", experiments.len());
    }
    if arguments.data.is_none() && !skipped.is_empty() {
        let _ = writeln!(io::stderr(), "note: give the folder that contains the data sets with --data DIR");
    }
    Ok(())
}

/// A table or figure of the list.
#[derive(Serialize)]
struct Listed {
    table: &'static str,
    title: String,
    source: String,
    /// The data sets, and the folders of pre-trained models.
    data: Vec<String>,
    missing: Vec<String>,
    /// The number of experiments, and how many of them have a finished run; none without a folder of results.
    progress: Option<Progress>,
}

#[derive(Serialize)]
struct Progress {
    experiments: usize,
    trained: usize,
}

fn progress(table: &Table, arguments: &Arguments) -> Result<Progress, Problem> {
    let store = Store::open(&arguments.results);
    let experiments = distinct(&table.cells()?, arguments);
    let mut trained = 0;
    for (experiment, _) in &experiments {
        trained += usize::from(!store.runs(experiment)?.is_empty());
    }
    Ok(Progress { experiments: experiments.len(), trained })
}

/// All tables and figures.
fn list(arguments: &Arguments) -> Result<String, Problem> {
    let mut listed = Vec::new();
    for table in catalogue()? {
        let (mut data, mut missing) = (Vec::new(), Vec::new());
        let mut need = |name: &str, is_there: bool| {
            data.push(name.to_owned());
            if !is_there {
                missing.push(name.to_owned());
            }
        };
        let folder = arguments.data.as_deref();
        table.data_sets()?.iter().for_each(|set| need(set.name, set.place(folder).is_some()));
        let is_folder = |name: &str| folder.is_some_and(|folder| folder.join(name).is_dir());
        table.weights()?.iter().for_each(|name| need(name, is_folder(name)));
        let progress = arguments.results.is_dir().then(|| progress(&table, arguments)).transpose()?;
        let (title, source) = (table.title, table.source);
        listed.push(Listed { table: table.name, title, source, data, missing, progress });
    }
    if arguments.json {
        return Ok(json(&listed));
    }
    let mut text = String::new();
    let mut last = String::new();
    for table in listed {
        // A source names a paper, and the number of a table or figure in it.
        let paper = table.source.rsplit_once(", ").map_or(table.source.as_str(), |(paper, _)| paper);
        if last != paper {
            text += &format!("\n{paper}\n");
            last = paper.to_owned();
        }
        let available = match (arguments.data.is_some(), table.missing.as_slice()) {
            (_, []) => String::new(),
            (false, _) => format!("  [{}]", table.data.join(", ")),
            (true, missing) => format!("  [missing: {}]", missing.join(", ")),
        };
        let trained = match table.progress {
            Some(Progress { experiments, trained }) if trained > 0 => {
                format!("  ({trained} of {experiments} experiments have results)")
            }
            _ => String::new(),
        };
        text += &format!("  {:<18}  {}{trained}{available}\n", table.table, table.title);
    }
    Ok(format!(
        "{}\n`sordino reproduce TABLE --data DIR` trains the runs of a table. Names in brackets are the data sets and\n\
         pre-trained models that DIR must contain. If some of them are missing, the cells that do not need them are trained.\n\
         docs/reproduction has the finished tables.\n\
         `sordino schedule --figure FILE` draws Figures 2 and 4 of dynamic DP-SGD, which need no training.\n",
        text.trim_start()
    ))
}
