//! Algorithms compared at equal privacy budgets.

mod grid;
mod maps;
mod part;
mod result;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

pub use grid::Grid;
pub use maps::Choice;
pub(crate) use maps::{Map, maps};
pub use result::{Comparison, RunResult};
use sordino_algorithms::{Algorithm, AlgorithmConfig};
use sordino_train::{
    Ending, PricedRun, Run, RunData, Settings, SeveralRuns, TrainError, check, parse_algorithm, price,
    resolve, without_unused,
};

/// An algorithm with settings, priced and ready to run.
pub struct Candidate {
    /// The algorithm with its options.
    pub algorithm: String,
    /// The settings that are tried, if there is a grid.
    pub tuned: Option<Choice>,
    /// Its run.
    pub priced: PricedRun,
}

/// A candidate that cannot run, and why.
#[derive(Debug)]
pub struct Rejected {
    /// The algorithm with its options.
    pub algorithm: String,
    /// Why it cannot run.
    pub error: TrainError,
}

/// The algorithms that a list names, separated by commas. A part with `=` is an option of the algorithm before it. Without a list, all
/// sound algorithms.
pub fn algorithms(list: Option<&str>) -> Vec<String> {
    let Some(list) = list else {
        let abouts = AlgorithmConfig::all().into_iter().map(|algorithm| algorithm.about());
        return abouts.filter(|about| about.verdict.is_sound()).map(|about| about.name.to_owned()).collect();
    };
    let mut names: Vec<String> = Vec::new();
    for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match names.last_mut() {
            Some(last) if part.contains('=') => *last += &format!(",{part}"),
            _ => names.push(part.to_owned()),
        }
    }
    names
}

/// Reads the data and prices all candidates before any of them starts. Settings that an algorithm does not use are left out for it.
///
/// # Errors
/// Data without test records, a grid that does not fit, or too little memory.
pub fn prepare(
    names: &[String],
    settings: &Settings,
    grid: Option<&Grid>,
) -> Result<(RunData, Vec<Candidate>, Vec<Rejected>), TrainError> {
    let mut tried = Vec::new();
    for name in names {
        match grid {
            Some(grid) => tried.extend(
                grid.combinations(name, settings)?
                    .into_iter()
                    .map(|(choice, settings)| (name, Some(choice), settings)),
            ),
            None => {
                tried.push((name, None, Settings { algorithm: Some(name.clone()), ..settings.clone() }));
            }
        }
    }
    let (mut candidates, mut rejected) = (Vec::new(), Vec::new());
    let mut checked = Vec::new();
    for (name, tuned, settings) in tried {
        match used_settings(settings) {
            Ok(settings) => checked.push((name, tuned, settings)),
            Err(error) => rejected.push(Rejected { algorithm: name.clone(), error }),
        }
    }
    let data = RunData::read(settings)?;
    if data.test.is_none() {
        return Err(TrainError::refused("a comparison needs test records", "leave out {test_fraction=0}"));
    }
    for (name, tuned, settings) in checked {
        match resolve(&settings, &data.description).and_then(|resolved| price(resolved, None)) {
            Ok(priced) => {
                priced.resolved.footprint.check(simultaneous_runs())?;
                candidates.push(Candidate { algorithm: name.clone(), tuned, priced });
            }
            Err(error) => rejected.push(Rejected { algorithm: name.clone(), error }),
        }
    }
    Ok((data, candidates, rejected))
}

/// Checks before any run that the grid of these candidates can be shown as a picture.
///
/// # Errors
/// No setting has several values, or there are too many maps.
pub fn check_picture(candidates: &[Candidate]) -> Result<(), TrainError> {
    let tuned = candidates
        .iter()
        .filter_map(|candidate| Some((&*candidate.algorithm, candidate.tuned.as_ref()?, None)));
    maps::check_picture(&maps::maps(tuned))
}

/// The settings that an algorithm uses, after they are checked.
///
/// # Errors
/// Settings that are refused.
pub fn used_settings(settings: Settings) -> Result<Settings, TrainError> {
    let algorithm = parse_algorithm(settings.algorithm.as_deref().unwrap_or_default())?;
    let settings = without_unused(settings, &*algorithm);
    check(&settings)?;
    Ok(settings)
}

/// One run at a time on each core.
pub(crate) fn simultaneous_runs() -> usize {
    thread::available_parallelism().map_or(1, |cores| cores.get().min(8))
}

/// Runs every candidate `repeats` times, in memory. `progress` is called after each run with the number of runs that have ended. Runs that
/// did not begin before `stop` was set are left out.
///
/// # Errors
/// The first error of a run.
pub fn compare(
    candidates: &[Candidate],
    data: &RunData,
    repeats: usize,
    stop: &AtomicBool,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Comparison, TrainError> {
    let (next, runs) = (AtomicUsize::new(0), SeveralRuns::new(data));
    let done: Mutex<BTreeMap<usize, Result<RunResult, TrainError>>> = Mutex::new(BTreeMap::new());
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let job = next.fetch_add(1, Ordering::Relaxed);
            let Some(candidate) = candidates.get(job / repeats) else { break };
            let result = run_once(candidate, &runs, (job % repeats) as u64, stop);
            if result.is_err() {
                // The other workers stop after their current run.
                next.store(usize::MAX / 2, Ordering::Relaxed);
            }
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.insert(job, result);
            progress(done.len());
        }
    };
    thread::scope(|scope| {
        for _ in 0..simultaneous_runs() {
            scope.spawn(work);
        }
    });
    let mut results = vec![Vec::new(); candidates.len()];
    for (job, result) in done.into_inner().unwrap_or_else(PoisonError::into_inner) {
        results[job / repeats].push(result?);
    }
    Comparison::new(candidates, results, repeats)
}

/// One run. Repeats of a seeded run have different seeds.
fn run_once(
    candidate: &Candidate,
    runs: &SeveralRuns<'_>,
    repeat: u64,
    stop: &AtomicBool,
) -> Result<RunResult, TrainError> {
    let begin = |run: Run<'_>| run.with_seed_offset(repeat).measured_once().begin(stop, &mut ());
    let Ending { score, metrics, account, finished, seconds, .. } = runs.run(&candidate.priced, begin)?;
    Ok(RunResult { score, metrics, account, finished, seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_follow_their_algorithm() {
        assert_eq!(
            algorithms(Some("dp-sgd,dynamic,mu_growth=3,clip_decay=1, quantile")),
            ["dp-sgd", "dynamic,mu_growth=3,clip_decay=1", "quantile"]
        );
        assert_eq!(algorithms(None).len(), AlgorithmConfig::all().len() - 4);
        assert!(algorithms(Some(" , ")).is_empty());
    }
}
