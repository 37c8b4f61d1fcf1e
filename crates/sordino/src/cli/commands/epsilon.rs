//! `sordino epsilon`: the epsilon of a plan.

use clap::Args;
use sordino_accounting::{Accountant, Delta, pld::GroupSize};

use crate::report::{GuaranteeRecord, json, plan_statement};

use crate::cli::{
    plan_arguments::PlanArguments,
    problem::{Problem, flag},
    tuning_arguments::TuningArguments,
};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    plan: PlanArguments,
    /// Delta at which epsilon is stated
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    delta: Delta,
    /// Accountant: pld, rdp, gdp-clt, zcdp, tcdp or first-participation
    #[arg(long, value_name = "NAME", default_value_t)]
    accountant: Accountant,
    /// Protect this many records together
    #[arg(long, value_name = "K", default_value_t = 1, conflicts_with = "tuning")]
    group_size: u32,
    #[command(flatten)]
    tuning: TuningArguments,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, Problem> {
    let plan = arguments.plan.plan()?;
    let Arguments { delta, accountant, json: as_json, .. } = *arguments;
    if let Some(answer) = arguments.tuning.epsilon(&plan, delta, accountant, as_json) {
        return answer;
    }
    let group = GroupSize::new(arguments.group_size)?;
    let guarantee = accountant.price_for_group(&plan, group, delta)?;
    Ok(if arguments.json {
        json(&GuaranteeRecord::new(guarantee, group))
    } else {
        plan_statement(&plan, group, &guarantee).render(flag)
    })
}
