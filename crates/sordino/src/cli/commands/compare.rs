//! `sordino compare`: algorithms side by side at equal privacy budgets.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    path::PathBuf,
    process,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use crate::{
    comparison::{Grid, algorithms, check_picture, compare, prepare},
    report::json,
};
use clap::Args;
use sordino_train::write_whole;

use super::report;
use crate::cli::{
    interruption::{STOPPED, listen},
    outputs::check_outputs,
    problem::{Problem, flag},
    progress::{Log, bar},
    settings_arguments::SettingsArguments,
};

#[derive(Args)]
// A comparison has --algorithms in place of --algorithm.
#[command(mut_arg("algorithm", |argument| argument.hide(true)))]
pub(crate) struct Arguments {
    #[command(flatten)]
    settings: SettingsArguments,
    /// Algorithms with their options, such as dp-sgd,dynamic,mu_growth=3,quantile [default: all sound ones]
    #[arg(long, value_name = "NAME[,K=V],..", help_heading = "Comparison")]
    algorithms: Option<String>,
    /// Number of runs of each
    #[arg(
        long,
        value_name = "R",
        default_value_t = 10,
        help_heading = "Comparison",
        allow_hyphen_values = true
    )]
    repeats: usize,
    /// TOML file with lists of settings to try for each algorithm; shows the best by test accuracy and tables of all results
    #[arg(long, value_name = "FILE", help_heading = "Comparison")]
    tune: Option<PathBuf>,
    /// Write all results to a JSON file
    #[arg(long, value_name = "FILE", help_heading = "Comparison")]
    out: Option<PathBuf>,
    /// Write heat maps of all settings of --tune to an SVG file
    #[arg(long, value_name = "FILE", requires = "tune", help_heading = "Comparison")]
    figure: Option<PathBuf>,
    /// Print the tables as Markdown
    #[arg(long, conflicts_with = "json", help_heading = "Comparison")]
    markdown: bool,
    /// Print one JSON object
    #[arg(long, help_heading = "Comparison")]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, Problem> {
    let settings = arguments.settings.settings()?;
    if let Some(algorithm) = &settings.algorithm {
        return Err(Problem::refused(
            format!("a comparison takes --algorithms, got --algorithm {algorithm}"),
            format!("give all algorithms in one list: --algorithms dp-sgd,{algorithm}"),
        ));
    }
    if arguments.repeats == 0 {
        return Err(Problem::refused("repeats must be at least 1, got 0", "10 is the default"));
    }
    for (path, name) in [(&arguments.out, "--out"), (&arguments.figure, "--figure")] {
        if let Some(path) = path.as_ref().filter(|path| path.exists()) {
            return Err(Problem::refused(
                format!("{} exists already", path.display()),
                format!("choose another name for {name}, or remove it"),
            ));
        }
    }
    let names = algorithms(arguments.algorithms.as_deref());
    if names.is_empty() {
        return Err(Problem::refused("--algorithms is empty", "`sordino algorithms` lists them"));
    }
    let grid = arguments.tune.as_deref().map(Grid::read).transpose()?;
    if let Some(grid) = &grid {
        grid.check(&names)?;
    }
    let (data, candidates, rejected) = prepare(&names, &settings, grid.as_ref())?;
    for rejected in rejected {
        let problem = Problem::from(rejected.error);
        if arguments.algorithms.is_some() {
            return Err(problem.about(&rejected.algorithm));
        }
        // Without a list, algorithms that cannot run on this data are skipped.
        let _ = writeln!(io::stderr(), "note: {} is skipped: {}", rejected.algorithm, problem.message());
    }
    // Several settings of a grid often give the same note.
    let notes = candidates.iter().flat_map(|candidate| {
        let notes = candidate.priced.algorithm_notes().into_iter();
        notes.map(|note| format!("{}: {}", candidate.algorithm, note.render(flag)))
    });
    for note in notes.collect::<BTreeSet<_>>() {
        let _ = writeln!(io::stderr(), "note: {note}");
    }
    if arguments.figure.is_some() {
        check_picture(&candidates)?;
    }
    check_outputs(&[("--out", arguments.out.as_deref()), ("--figure", arguments.figure.as_deref())])?;
    let stop = listen("after the current steps", "without any results");
    let (bar, log) =
        (bar((candidates.len() * arguments.repeats) as u64, "run"), Mutex::new(Log::new(Instant::now())));
    let progress = |done: usize| {
        bar.set_position(done as u64);
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        let line = log.line("run", done as u64, bar.length().unwrap_or_default(), Instant::now());
        if let Some(line) = line.filter(|_| bar.is_hidden()) {
            let _ = writeln!(io::stderr(), "{line}");
        }
    };
    let comparison = compare(&candidates, &data, arguments.repeats, stop, &progress)?;
    bar.finish_and_clear();
    if let Some(path) = &arguments.out {
        write_whole(path, json(&comparison).as_bytes())?;
    }
    if let Some(path) = &arguments.figure {
        write_whole(path, comparison.picture().to_svg().as_bytes())?;
    }
    let text = match arguments {
        Arguments { json: true, .. } => json(&comparison),
        Arguments { markdown: true, .. } => comparison.markdown(),
        _ => comparison.text(),
    };
    let (finished, planned) = comparison.progress();
    if finished == planned {
        let stored = arguments.out.as_deref().filter(|_| !arguments.json);
        return Ok(text + &stored.map(report::mention).unwrap_or_default());
    }
    let _ = write!(io::stdout(), "{text}");
    let _ = writeln!(
        io::stderr(),
        "\nstopped: {finished} of {planned} runs are finished, and the others are not shown"
    );
    process::exit(STOPPED)
}
