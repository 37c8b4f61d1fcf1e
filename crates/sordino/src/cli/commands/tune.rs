//! `sordino tune`: chooses settings on private data, with one guarantee for the whole search.

use std::{
    fmt::Write as _,
    io::{self, Write},
    path::PathBuf,
    process,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{
    comparison::{Choice, Grid, algorithms, used_settings},
    report::{Column, DataAccount, RunReport, json, labelled, table},
};
use clap::Args;
use serde::Serialize;
use sordino_accounting::{Accountant, tuning::Runs};
use sordino_train::{
    PricedRun, PricedSearch, RunData, RunFolder, SearchSettings, Settings, TrainError, check,
    format::{grouped, rounded_to_nearest, rounded_up},
    noise_multiplier, price, price_search, resolve,
};

use super::{report, train::next_folder};
use crate::cli::{
    interruption::{STOPPED, listen},
    problem::{Problem, flag},
    settings_arguments::SettingsArguments,
};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    settings: SettingsArguments,
    /// TOML file with lists of settings to try; every combination is a candidate
    #[arg(long, value_name = "FILE", help_heading = "Search")]
    space: PathBuf,
    /// Algorithms with their options to try [default: --algorithm, or dp-sgd]
    #[arg(long, value_name = "NAME[,K=V],..", help_heading = "Search", conflicts_with = "algorithm")]
    algorithms: Option<String>,
    /// Mean of the random number of trials, above 1 and at most 100 [default: the number of candidates, from 2 to 20]
    #[arg(long, value_name = "MEAN", help_heading = "Search", allow_hyphen_values = true)]
    trials: Option<f64>,
    /// Shape of the distribution of the number of trials, at least -0.5: with a smaller one, the search costs less and the number varies more
    #[arg(
        long,
        value_name = "ETA",
        default_value_t = 0.0,
        help_heading = "Search",
        allow_hyphen_values = true
    )]
    eta: f64,
    /// Show what the search would cost, without training
    #[arg(long, help_heading = "Search")]
    dry_run: bool,
    /// New folder for the selected run [default: runs/1, runs/2, ...]
    #[arg(long, value_name = "DIR", help_heading = "Run", conflicts_with = "dry_run")]
    out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long, help_heading = "Run")]
    json: bool,
}

/// A search, its candidates, and the run that it is compared with.
struct Prepared {
    choices: Vec<(String, Choice)>,
    search: PricedSearch,
    single: PricedRun,
    data: RunData,
}

/// The cost of a search, as it appears in JSON.
#[derive(Serialize)]
struct Cost {
    epsilon: f64,
    delta: f64,
    accountant: &'static str,
    private: bool,
    mean_trials: f64,
    trials_99_percent: u64,
    /// The budget of one trial alone.
    trial_epsilon: f64,
    /// The noise of one run with the default settings and the whole budget.
    single_noise_multiplier: f64,
    /// Training every candidate once, by composition; none if the plans cannot be priced together.
    epsilon_composition: Option<f64>,
    /// The same by adding up epsilons.
    epsilon_sum: Option<f64>,
    /// The epsilon of a trial's measurement on protected test records; none if scores are exact.
    measuring_epsilon: Option<f64>,
    scores: String,
    candidates: Vec<CandidateRecord>,
}

#[derive(Serialize)]
struct CandidateRecord {
    algorithm: String,
    settings: String,
    noise_multiplier: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, Problem> {
    let prepared = prepare(arguments)?;
    let cost = prepared.cost()?;
    if arguments.dry_run {
        return Ok(if arguments.json { json(&cost) } else { prepared.text(&cost) });
    }
    let folder = match &arguments.out {
        Some(path) => RunFolder::create(path)?,
        None => next_folder()?,
    };
    let _ = writeln!(io::stderr(), "{}", prepared.text(&cost));
    let stop = listen("the search", "which has the same effect: the budget is spent and nothing is released");
    let _ = writeln!(
        io::stderr(),
        "searching; no progress is shown, because the number of trials is secret (the time that the search takes still depends on it)"
    );
    let selected = prepared.search.run(&prepared.data, &folder, stop);
    let selected = selected.map_err(|error| failed(error, &folder, stop))?;
    let candidate = &prepared.search.candidates[selected.candidate];
    let settings = candidate.settings();
    let run_report = RunReport {
        settings: &settings,
        account: &selected.account,
        score: selected.score,
        metrics: selected.metrics.as_ref(),
        seconds: Some(selected.seconds),
        folder: Some(folder.path()),
        facts: Some(&candidate.resolved.data),
        weights_covered: true,
        provable: None,
        published_noise: Vec::new(),
        data: Some(DataAccount::new(&folder, &settings)),
    };
    if arguments.json {
        return Ok(run_report.json()?);
    }
    let (algorithm, choice) = &prepared.choices[selected.candidate];
    let chosen = format!(
        "Selected: {algorithm} with {choice}\n\
         Its score is the best of all trials, so it is optimistic: on other records, expect less.\n\n"
    );
    Ok(chosen + &run_report.text()?.render(flag) + &report::mention(folder.path()))
}

/// The error of a search, and what is left of its budget.
fn failed(error: TrainError, folder: &RunFolder, stop: &AtomicBool) -> Problem {
    let never_began = folder.remove_if_never_began();
    if stop.load(Ordering::Relaxed) && !never_began {
        let _ = writeln!(io::stderr(), "{}", Problem::from(error));
        process::exit(STOPPED);
    }
    Problem::from(error).with_disk_hint(|| match never_began {
        true => "free some space, then start again: no privacy budget was spent".to_owned(),
        false => "the whole privacy budget of the search is spent, and nothing is released; a new search needs a new budget".to_owned(),
    })
}

fn prepare(arguments: &Arguments) -> Result<Prepared, Problem> {
    let given = arguments.settings.settings()?;
    let names = match &arguments.algorithms {
        Some(list) => algorithms(Some(list)),
        None => vec![given.algorithm.clone().unwrap_or_else(|| "dp-sgd".to_owned())],
    };
    if names.is_empty() {
        return Err(Problem::refused("--algorithms is empty", "`sordino algorithms` lists them"));
    }
    let grid = Grid::read(&arguments.space)?;
    grid.check(&names)?;
    let (mut choices, mut candidates) = (Vec::new(), Vec::new());
    for name in &names {
        for (choice, settings) in grid.combinations(name, &given)? {
            choices.push((name.clone(), choice));
            candidates.push(used_settings(settings)?);
        }
    }
    let equal = |place: usize| candidates[..place].contains(&candidates[place]);
    if let Some(place) = (0..candidates.len()).find(|&place| equal(place)) {
        let (name, choice) = &choices[place];
        return Err(Problem::refused(
            format!("{} has the candidate {name} with {choice} twice", arguments.space.display()),
            "list each value once",
        ));
    }
    if candidates.len() < 2 {
        return Err(Problem::refused(
            format!(
                "{} has {} candidate, but a search needs at least 2",
                arguments.space.display(),
                candidates.len()
            ),
            "list several values of a setting, such as learning_rate = [1, 4], or use `sordino train`",
        ));
    }
    let single = Settings { algorithm: given.algorithm.clone(), ..given };
    check(&single)?;
    let data = RunData::read(&single)?;
    let single = price(resolve(&single, &data.description)?, None)?;
    let Some(budget) = single.resolved.budget else {
        return Err(Problem::refused(
            "a search needs a privacy budget",
            "give --epsilon, without --noise-multiplier",
        ));
    };
    let mean = arguments.trials.unwrap_or((candidates.len() as f64).clamp(2.0, 20.0));
    if !(mean > 1.0 && mean <= 100.0) {
        return Err(Problem::refused(
            format!("--trials must be above 1 and at most 100, got {mean}"),
            "the default is the number of candidates, from 2 to 20",
        ));
    }
    if !(arguments.eta >= -0.5 && arguments.eta.is_finite()) {
        return Err(Problem::refused(
            format!("--eta must be a number of at least -0.5, got {}", arguments.eta),
            "0 is the default; with 1, the number of trials has a geometric distribution",
        ));
    }
    let runs = Runs::negative_binomial(arguments.eta, mean)?;
    let seed = single.resolved.values.seed.as_ref().map(|seed| seed.value);
    let search = price_search(&candidates, &data.description, SearchSettings { budget, runs, seed })?;
    Ok(Prepared { choices, search, single, data })
}

impl Prepared {
    fn cost(&self) -> Result<Cost, Problem> {
        let (search, guarantee) = (&self.search, self.search.guarantee()?);
        let runs = search.runs().unwrap_or(Runs::Poisson { mean: 0.0 });
        let all = search.cost_of_all().ok();
        let record = |((algorithm, choice), run): (&(String, Choice), &PricedRun)| CandidateRecord {
            algorithm: algorithm.clone(),
            settings: choice.to_string(),
            noise_multiplier: noise_multiplier(&run.plan),
        };
        Ok(Cost {
            epsilon: guarantee.epsilon.get(),
            delta: guarantee.delta.get(),
            accountant: guarantee.accountant.name(),
            private: self.single.resolved.values.seed.is_none(),
            mean_trials: runs.mean(),
            trials_99_percent: runs.quantile(0.99),
            trial_epsilon: search.trial.epsilon.get(),
            single_noise_multiplier: noise_multiplier(&self.single.plan),
            epsilon_composition: all.map(|(composed, _)| composed.get()),
            epsilon_sum: all.map(|(_, sum)| sum),
            measuring_epsilon: search.measuring().map(|budget| budget.epsilon.get()),
            scores: match search.measuring() {
                Some(budget) => format!(
                    "measured with noise (epsilon {} for each trial) on {} protected {}, which the same guarantee covers",
                    rounded_up(budget.epsilon.get()),
                    grouped(budget.slots),
                    self.single.settings().unit_noun()
                ),
                None if self.single.resolved.values.seed.is_some() => {
                    "measured exactly, because the search is not private".to_owned()
                }
                None => "measured exactly on public test records, which are NOT protected".to_owned(),
            },
            candidates: self.choices.iter().zip(&search.candidates).map(record).collect(),
        })
    }

    fn text(&self, cost: &Cost) -> String {
        let Cost { epsilon, delta, single_noise_multiplier: single, .. } = cost;
        let noise: Vec<f64> = cost.candidates.iter().map(|candidate| candidate.noise_multiplier).collect();
        let least = noise.iter().copied().fold(f64::INFINITY, f64::min);
        let most = noise.iter().copied().fold(0.0, f64::max);
        let multipliers = match most > least * 1.001 {
            true => format!("{} to {}", rounded_to_nearest(least), rounded_to_nearest(most)),
            false => rounded_to_nearest(least),
        };
        let mut text = format!(
            "This search satisfies ({}, {delta:e})-differential privacy{}.\n\n",
            rounded_up(*epsilon),
            if cost.private { "" } else { " without its seed; with a fixed seed it is NOT PRIVATE" }
        );
        let method = match self.search.guarantee().map(|guarantee| guarantee.accountant) {
            Ok(Accountant::Pld) => "privacy loss distributions",
            _ => "Renyi divergences",
        };
        let mut rows = vec![
            ("candidates", grouped(cost.candidates.len() as u64)),
            (
                "trials",
                format!(
                    "{} on average, with probability 0.99 at most {}; the number stays secret",
                    (cost.mean_trials * 100.0).round() / 100.0,
                    grouped(cost.trials_99_percent)
                ),
            ),
            ("one trial", format!("epsilon {} alone", rounded_up(cost.trial_epsilon))),
            (
                "noise",
                format!(
                    "multiplier {multipliers} in each trial; one run with the default settings and the same budget has {}",
                    rounded_to_nearest(*single)
                ),
            ),
            ("bound", format!("PROVED, from {method}; only the best trial is released")),
        ];
        if let (Some(composed), Some(sum)) = (cost.epsilon_composition, cost.epsilon_sum) {
            rows.push((
                "otherwise",
                format!(
                    "training every candidate once with this noise costs epsilon {} by composition, {} by adding up epsilons",
                    rounded_up(composed),
                    rounded_up(sum)
                ),
            ));
        }
        rows.push(("scores", cost.scores.clone()));
        text += &labelled(&rows);
        text += "\nWhat costs nothing: the default settings, which are often better than a search at the same budget; and settings that were chosen on \
                 public data of the same kind.\n\n";
        let mut lines = vec![vec!["candidate".to_owned(), "multiplier".to_owned()]];
        lines.extend(cost.candidates.iter().map(|candidate| {
            let mut name = candidate.algorithm.clone();
            let _ = write!(name, " {}", candidate.settings);
            vec![name, rounded_to_nearest(candidate.noise_multiplier)]
        }));
        text + &table(&[Column::Left(0), Column::Right(0)], &lines)
    }
}
