//! `sordino compare`: algorithms side by side at equal budgets.

use std::{
    collections::HashMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use clap::Args;
use sordino_algorithms::registry::{ALGORITHMS, Promise};
use sordino_train::{Ending, Run, RunFolder, write_whole};

use crate::{
    comparison::{AllRuns, Comparison, Row, mark_best, row, table},
    experiment::Experiment,
    interruption::{STOPPED, listen},
    problem::Problem,
    progress::{Log, bar},
    protection::{algorithm, drop_idle},
    settings::Settings,
    statement::json,
    tuning::Grid,
};

#[derive(Args)]
// A comparison has --algorithms in place of --algorithm.
#[command(mut_arg("algorithm", |argument| argument.hide(true)))]
pub(crate) struct Arguments {
    #[command(flatten)]
    settings: Settings,
    /// Algorithms with their settings: dp-sgd,dynamic,mu_growth=3,quantile [default: all sound ones]
    #[arg(long, value_name = "NAME[,K=V],..", help_heading = "Comparison")]
    algorithms: Option<String>,
    /// Runs of each
    #[arg(long, value_name = "R", default_value_t = 10, help_heading = "Comparison")]
    repeats: usize,
    /// Lists of settings to try for each algorithm; the best by test accuracy is shown
    #[arg(long, value_name = "FILE", help_heading = "Comparison")]
    tune: Option<PathBuf>,
    /// Write everything that was measured to a JSON file
    #[arg(long, value_name = "FILE", help_heading = "Comparison")]
    out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long, help_heading = "Comparison")]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, Problem> {
    let Arguments { settings, repeats, .. } = arguments;
    if let Some(algorithm) = &settings.algorithm {
        return Err(Problem::refused(
            format!("a comparison takes --algorithms, got --algorithm {algorithm}"),
            format!("give all algorithms in one list: --algorithms dp-sgd,{algorithm}"),
        ));
    }
    if *repeats == 0 {
        return Err(Problem::refused("repeats must be at least 1, got 0", "10 is the default"));
    }
    if let Some(path) = arguments.out.as_ref().filter(|path| path.exists()) {
        return Err(Problem::refused(
            format!("{} exists already", path.display()),
            "choose another name for --out, or remove it",
        ));
    }
    let names = chosen(arguments.algorithms.as_deref());
    if names.is_empty() {
        return Err(Problem::refused("--algorithms names none", "`sordino algorithms` lists them"));
    }
    let grid = arguments.tune.as_deref().map(Grid::read).transpose()?;
    if let Some(grid) = &grid {
        grid.check(&names)?;
    }
    let tried = |name: &String| match &grid {
        Some(grid) => grid.of(name, settings).map(|tried| {
            tried.into_iter().map(|(words, settings)| (name.clone(), Some(words), settings)).collect()
        }),
        None => {
            let settings = Settings { algorithm: Some(name.clone()), ..settings.clone() };
            Ok(vec![(name.clone(), None, settings)])
        }
    };
    let tried: Vec<(String, Option<String>, Settings)> =
        names.iter().map(tried).collect::<Result<Vec<_>, Problem>>()?.into_iter().flatten().collect();
    // All of them are priced before one of them starts.
    let mut experiments = Vec::new();
    let mut compared = Vec::new();
    for (name, words, settings) in tried {
        match Experiment::prepare(relevant(settings), None) {
            Ok(mut experiment) => {
                experiment.footprint.check(at_a_time())?;
                // The end alone counts.
                experiment.measure_every = u64::MAX;
                experiments.push(experiment);
                compared.push((name, words));
            }
            // Whoever names no algorithms wants those that can be had.
            Err(problem) if arguments.algorithms.is_none() => {
                let _ = writeln!(std::io::stderr(), "note: {name} is left out: {}", problem.message());
            }
            Err(problem) => return Err(problem.about(&name)),
        }
    }
    if experiments.iter().any(|experiment| experiment.test.is_none()) {
        return Err(Problem::refused("a comparison needs test records", "leave out --test-fraction 0"));
    }
    if let Some(path) = &arguments.out {
        // Before hours of work.
        write_whole(path, b"{}")?;
    }
    let stop = listen("after the steps that are under way", "and nothing is written");
    let mut endings = run_all(&experiments, *repeats, stop)?;
    let begun = compared.iter().zip(&experiments).zip(&endings);
    let all_runs = AllRuns::of(begun.map(|(((name, _), experiment), endings)| (name, experiment, endings)))?;
    for endings in &mut endings {
        endings.retain(|ending| ending.finished);
    }
    let finished: usize = endings.iter().map(Vec::len).sum();
    let mut rows: Vec<Row> = compared
        .into_iter()
        .zip(&experiments)
        .zip(endings)
        .filter(|(_, endings)| !endings.is_empty())
        .map(|(((name, words), experiment), endings)| row(name, words, &experiment.settings, &endings))
        .collect::<Result<_, _>>()?;
    if grid.is_some() {
        mark_best(&mut rows);
    }
    let comparison = Comparison { all: all_runs, rows };
    if let Some(path) = &arguments.out {
        write_whole(path, json(&comparison).as_bytes())?;
    }
    let all = experiments.len() * repeats;
    let runs = match *repeats {
        1 => "1 run".to_owned(),
        _ if finished == all => format!("{repeats} runs"),
        _ => format!("up to {repeats} runs"),
    };
    let text = if arguments.json { json(&comparison) } else { table(&comparison, &runs) };
    if finished == all {
        return Ok(text);
    }
    let _ = write!(std::io::stdout(), "{text}");
    let _ = writeln!(
        std::io::stderr(),
        "\nstopped: {finished} of {all} runs are finished, and the others are not counted"
    );
    process::exit(STOPPED)
}

/// Without what the algorithm has no use for: in a comparison settings are for those that have.
fn relevant(mut settings: Settings) -> Settings {
    if let Ok(algorithm) = algorithm(&mut settings) {
        drop_idle(&mut settings, &algorithm);
    }
    settings
}

/// The algorithms to compare, separated by commas. What has a `=` in it is a setting of the one before.
fn chosen(text: Option<&str>) -> Vec<String> {
    let Some(text) = text else {
        let sound = ALGORITHMS.iter().filter(|algorithm| algorithm.promise == Promise::Sound);
        return sound.map(|algorithm| algorithm.name.to_owned()).collect();
    };
    let mut names: Vec<String> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match names.last_mut() {
            Some(last) if part.contains('=') => *last += &format!(",{part}"),
            _ => names.push(part.to_owned()),
        }
    }
    names
}

/// How many runs are under way at the same time.
fn at_a_time() -> usize {
    thread::available_parallelism().map_or(1, |cores| cores.get().min(8))
}

/// Runs every experiment `repeats` times, one run on each core at a time. Returns the endings of each experiment's runs that began before
/// the user stopped the comparison.
fn run_all(
    experiments: &[Experiment],
    repeats: usize,
    stop: &AtomicBool,
) -> Result<Vec<Vec<Ending>>, Problem> {
    let folder = scratch()?;
    let all = (experiments.len() * repeats) as u64;
    let bar = bar(all, "run");
    let log = Mutex::new(Log::new(Instant::now()));
    let next = AtomicUsize::new(0);
    let done: Mutex<HashMap<usize, Result<Ending, Problem>>> = Mutex::new(HashMap::new());
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let job = next.fetch_add(1, Ordering::Relaxed);
            let Some(experiment) = experiments.get(job / repeats) else { break };
            let ending = run_once(experiment, &folder.join(job.to_string()), (job % repeats) as u64, stop);
            let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let failed = ending.is_err();
            done.insert(job, ending);
            bar.inc(1);
            let mut log = log.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let line = log.line("run", done.len() as u64, all, Instant::now());
            if let Some(line) = line.filter(|_| bar.is_hidden()) {
                let _ = writeln!(std::io::stderr(), "{line}");
            }
            if failed {
                // One refusal is enough.
                next.store(usize::MAX / 2, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..at_a_time() {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    let _ = fs::remove_dir_all(&folder);
    let mut done: Vec<(usize, Result<Ending, Problem>)> =
        done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).into_iter().collect();
    done.sort_by_key(|(job, _)| *job);
    let mut endings = vec![Vec::new(); experiments.len()];
    for (job, ending) in done {
        endings[job / repeats].push(ending?);
    }
    Ok(endings)
}

fn run_once(
    experiment: &Experiment,
    folder: &Path,
    repeat: u64,
    stop: &AtomicBool,
) -> Result<Ending, Problem> {
    let folder = RunFolder::create(folder)?;
    let begin = |run: &Run<'_>| {
        // Repeats of a seeded run have seeds of their own.
        let seed = run.seed.map(|seed| seed.wrapping_add(repeat));
        Run { seed, ..*run }.begin(stop, &mut ())
    };
    Ok(experiment.run(&folder, begin)?)
}

/// A folder of this process's own; runs of a comparison are not kept.
fn scratch() -> Result<PathBuf, Problem> {
    let folder = std::env::temp_dir().join(format!("sordino-compare-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| {
        Problem::refused(
            format!("cannot make {}: {error}", folder.display()),
            "set TMPDIR to a folder with room",
        )
    })?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_follow_their_algorithm() {
        assert_eq!(
            chosen(Some("dp-sgd,dynamic,mu_growth=3,clip_decay=1, quantile")),
            ["dp-sgd", "dynamic,mu_growth=3,clip_decay=1", "quantile"]
        );
        assert_eq!(chosen(None).len(), ALGORITHMS.len() - 4);
        assert!(chosen(Some(" , ")).is_empty());
    }
}
