//! `sordino schedule`: dynamic schedules within a privacy budget, step by step.

mod calibration;
mod files;
mod steps;
mod text;

use std::path::PathBuf;

use crate::report::json;
use calibration::{Calibration, NoiseFrom};
use clap::Args;
use rayon::prelude::*;
use serde::Serialize;
use sordino_accounting::{ClipNorm, Mu, Plan, Sampling, calibrate::Budget, gaussian, gdp};
use sordino_algorithms::{AlgorithmConfig, Dynamic, RunFacts};
use sordino_train::parse_algorithm_config;
use steps::{Step, steps};

use crate::cli::{
    budget_arguments::BudgetArguments,
    outputs::check_outputs,
    problem::{Problem, flag},
};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    budget: BudgetArguments,
    /// Schedule, as for train: dynamic,mu_growth=4,clip_decay=2 or dynamic,mu_schedule=@FILE; repeat it to compare schedules
    #[arg(long, value_name = "dynamic[,K=V]", default_value = "dynamic")]
    algorithm: Vec<String>,
    /// Clipping norm at the start of the schedule (C_0)
    #[arg(long, alias = "clip", value_name = "C", allow_hyphen_values = true)]
    max_grad_norm: ClipNorm,
    /// Where the noise comes from: the exact price (pld), the paper's central limit theorem (gdp-clt) or its closed form (corollary-2)
    #[arg(long, value_name = "NAME", default_value = "pld")]
    noise: NoiseFrom,
    /// Number of steps at which the exact epsilon is computed
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000), allow_hyphen_values = true)]
    points: u64,
    /// Write all steps to this CSV file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the plan to this JSON file, for `sordino epsilon --plan`
    #[arg(long, value_name = "FILE")]
    plan_out: Option<PathBuf>,
    /// Draw mu and epsilon against steps in this SVG file (Figures 2 and 4 of the paper)
    #[arg(long, value_name = "FILE")]
    figure: Option<PathBuf>,
    /// Print one JSON object with all steps
    #[arg(long)]
    json: bool,
}

/// Everything that the command computes.
#[derive(Serialize)]
struct Answer {
    target_epsilon: f64,
    delta: f64,
    sample_rate: f64,
    max_grad_norm: f64,
    /// The `mu` of the budget: equation 1 of the paper.
    mu_tot: f64,
    schedules: Vec<Schedule>,
}

/// One schedule: its noise by each way to calibrate it, and its steps.
#[derive(Serialize)]
struct Schedule {
    algorithm: String,
    noise_from: NoiseFrom,
    /// The chosen calibration comes first.
    calibrations: Vec<Calibration>,
    /// Equation 13 of the paper, if all steps have the same mu.
    mu_0_of_equation_13: Option<f64>,
    steps: Vec<Step>,
    #[serde(skip)]
    plan: Plan,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, Problem> {
    let schedules = arguments.algorithm.iter().map(|text| Ok((text.as_str(), dynamic(text)?)));
    let schedules = schedules.collect::<Result<Vec<_>, Problem>>()?;
    if arguments.plan_out.is_some() && schedules.len() > 1 {
        return Err(Problem::refused(
            format!("--plan-out writes the plan of one schedule, got {}", schedules.len()),
            "give --algorithm once",
        ));
    }
    check_outputs(&[
        ("--csv", arguments.csv.as_deref()),
        ("--plan-out", arguments.plan_out.as_deref()),
        ("--figure", arguments.figure.as_deref()),
    ])?;
    let budget = arguments.budget.budget();
    let total = gaussian::mu(budget.epsilon, budget.delta);
    let schedule = |(text, dynamic): (&str, Dynamic)| schedule(arguments, text, &dynamic, budget, total);
    let answer = Answer {
        target_epsilon: budget.epsilon.get(),
        delta: budget.delta.get(),
        sample_rate: arguments.budget.sample_rate.get(),
        max_grad_norm: arguments.max_grad_norm.get(),
        mu_tot: total.get(),
        schedules: schedules.into_iter().map(schedule).collect::<Result<_, _>>()?,
    };
    files::write(arguments, &answer)?;
    Ok(if arguments.json { json(&answer) } else { text::text(arguments, &answer).render(flag) })
}

/// The options of `dynamic`.
fn dynamic(text: &str) -> Result<Dynamic, Problem> {
    match parse_algorithm_config(text)? {
        AlgorithmConfig::Dynamic(dynamic) => Ok(dynamic),
        _ => Err(Problem::refused(
            format!("a schedule must be dynamic with its options, got {text}"),
            "dynamic,mu_growth=1,clip_decay=1 is dp-sgd; `sordino noise` calibrates steps of equal noise",
        )),
    }
}

fn schedule(
    arguments: &Arguments,
    text: &str,
    dynamic: &Dynamic,
    budget: Budget,
    total: Mu,
) -> Result<Schedule, Problem> {
    let BudgetArguments { sample_rate: rate, steps: count, .. } = arguments.budget;
    let facts = RunFacts {
        sampling: Sampling::Poisson { rate, cap: None },
        steps: count,
        max_grad_norm: arguments.max_grad_norm,
        layers: None,
        claim: None,
        // The plan does not depend on the facts below.
        expected_batch_size: 1.0,
        dimension: 1,
        records: 1,
        momentum: 0.0,
    };
    let mut ways = NoiseFrom::ALL.to_vec();
    ways.sort_by_key(|way| *way != arguments.noise);
    let calibrate = |way: &NoiseFrom| Calibration::new(*way, dynamic, &facts, budget, total);
    let calibrated: Vec<_> = ways.par_iter().map(calibrate).collect();
    // The chosen way must succeed. Another way that is out of reach of the exact accountant is left out.
    let chosen = |(place, way): &(usize, Result<_, _>)| *place == 0 || way.is_ok();
    let mut calibrated = calibrated
        .into_iter()
        .enumerate()
        .filter(chosen)
        .map(|(_, way)| way)
        .collect::<Result<Vec<_>, _>>()?;
    let plan = calibrated[0].1.clone();
    let steps = steps(dynamic, &facts, &plan, &calibrated[0].0, budget.delta, arguments.points)?;
    // At sampling rate 1, the total mu has another formula.
    let is_sampled = rate.get() < 1.0;
    let equal =
        (is_sampled && dynamic.mu_is_constant()).then(|| gdp::equal_mu(total, rate, count)).transpose()?;
    Ok(Schedule {
        algorithm: text.to_owned(),
        noise_from: arguments.noise,
        calibrations: calibrated.drain(..).map(|(calibration, _)| calibration).collect(),
        mu_0_of_equation_13: equal.map(Mu::get),
        steps,
        plan,
    })
}
