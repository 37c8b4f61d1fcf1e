//! `sordino profile`: the guarantee of a plan at every epsilon.

use crate::report::{Column, json, table};
use clap::Args;
use serde::Serialize;
use sordino_accounting::{AccountingError, Delta, Epsilon, Relation, pld, profile::Profile};
use sordino_train::format::{rounded_down, rounded_up, scientific};

use crate::cli::{plan_arguments::PlanArguments, problem::Problem};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    plan: PlanArguments,
    /// State delta at this epsilon only
    #[arg(long, value_name = "E", allow_hyphen_values = true)]
    epsilon: Option<Epsilon>,
    /// Smallest delta of the profile
    #[arg(
        long,
        value_name = "D",
        default_value = "1e-9",
        allow_hyphen_values = true,
        conflicts_with = "epsilon"
    )]
    floor: Delta,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The number of points of a curve that the table shows.
const ROWS: usize = 12;

#[derive(Serialize)]
struct AtEpsilon {
    epsilon: f64,
    delta: f64,
    /// None if the price of the plan is not known to be tight.
    delta_lower: Option<f64>,
    accountant: &'static str,
    relation: String,
    proved: bool,
}

#[derive(Serialize)]
struct Curves {
    mu: f64,
    mu_down_to_delta: f64,
    profile: Vec<ProfilePoint>,
    trade_off: Vec<TradeOffPoint>,
    relation: String,
    proved: bool,
}

#[derive(Serialize)]
struct ProfilePoint {
    epsilon: f64,
    delta: f64,
}

#[derive(Serialize)]
struct TradeOffPoint {
    type_one_error: f64,
    type_two_error: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, Problem> {
    let plan = arguments.plan.plan()?;
    if let Some(epsilon) = arguments.epsilon {
        let bracket = pld::delta(&plan, epsilon)?;
        // A lower bound of 0 is trivial and not shown.
        let lower = Some(bracket.lower).filter(|lower| *lower > 0.0);
        if arguments.json {
            return Ok(json(&AtEpsilon {
                epsilon: epsilon.get(),
                delta: bracket.upper,
                delta_lower: lower,
                accountant: "pld",
                relation: plan.relation().to_string(),
                proved: true,
            }));
        }
        let exact = lower.map_or(String::new(), |lower| {
            format!("; the exact value is at least {}", scientific(lower, f64::floor))
        });
        return Ok(format!(
            "At epsilon = {epsilon}, delta is at most {} (PROVED{exact}).\nRelation: {}.\n",
            scientific(bracket.upper, f64::ceil),
            plan.relation()
        ));
    }
    let profile = Profile::of(&plan, arguments.floor, Profile::POINTS)?;
    let trade_off = [0.001, 0.01, 0.05, 0.1, 0.2, 0.5].map(|alpha| (alpha, profile.type_two_error(alpha)));
    if arguments.json {
        let point =
            |(epsilon, delta): &(Epsilon, f64)| ProfilePoint { epsilon: epsilon.get(), delta: *delta };
        return Ok(json(&Curves {
            mu: profile.mu()?.get(),
            mu_down_to_delta: arguments.floor.get(),
            profile: profile.points().iter().map(point).collect(),
            trade_off: trade_off
                .into_iter()
                .map(|(type_one_error, type_two_error)| TradeOffPoint { type_one_error, type_two_error })
                .collect(),
            relation: plan.relation().to_string(),
            proved: true,
        }));
    }
    Ok(text(&profile, &trade_off, arguments.floor, plan.relation())?)
}

fn text(
    profile: &Profile,
    trade_off: &[(f64, f64)],
    floor: Delta,
    relation: Relation,
) -> Result<String, AccountingError> {
    let row = |first: &dyn ToString, second: String| vec![first.to_string(), second];
    let mut deltas = vec![row(&"epsilon", "delta, at most".to_owned())];
    deltas.extend(
        profile
            .points()
            .iter()
            .step_by(Profile::POINTS as usize / ROWS)
            .map(|(epsilon, delta)| row(&rounded_up(epsilon.get()), scientific(*delta, f64::ceil))),
    );
    let mut errors = vec![row(&"a", "false negative rate".to_owned())];
    errors.extend(trade_off.iter().map(|(alpha, miss)| row(alpha, rounded_down(*miss))));
    let mu = rounded_up(profile.mu()?.get());
    let columns = [Column::Left(10), Column::Left(0)];
    Ok(format!(
        "Privacy profile (PROVED upper bounds)\n\n{}\n\
         A test of whether a record was used that has false positive rate a has at least this false negative rate:\n\n{}\n\
         Down to delta = {floor}, the plan is {mu}-GDP: no easier to attack than telling N(0, 1) from N({mu}, 1).\nRelation: {relation}.\n",
        table(&columns, &deltas),
        table(&columns, &errors),
    ))
}
