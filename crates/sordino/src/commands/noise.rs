//! `sordino noise`: the least noise that a budget allows.

use clap::Args;
use serde::Serialize;
use sordino_accounting::{Accountant, Plan, calibrate, pld::GroupSize};

use crate::{
    budget_arguments::BudgetArguments,
    problem::Problem,
    statement::{GuaranteeRecord, json, statement},
};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    budget: BudgetArguments,
    /// Who prices the plan: pld, rdp, gdp-clt, zcdp or tcdp
    #[arg(long, value_name = "NAME", default_value_t)]
    accountant: Accountant,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Record {
    noise_multiplier: f64,
    target_epsilon: f64,
    #[serde(flatten)]
    guarantee: GuaranteeRecord,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, Problem> {
    let BudgetArguments { sample_rate, steps, .. } = arguments.budget;
    let (budget, accountant) = (arguments.budget.budget(), arguments.accountant);
    let epsilon = budget.epsilon;
    let least = calibrate::noise_multiplier(budget, sample_rate, steps, accountant)?.value;
    // A number short enough to be copied, rounded up, and then priced itself.
    let value = least.shortened();
    let plan = Plan::dp_sgd(value, sample_rate, steps);
    let guarantee = accountant.price(&plan, budget.delta)?;
    if arguments.json {
        let guarantee = GuaranteeRecord::new(guarantee, GroupSize::ONE);
        return Ok(json(&Record { noise_multiplier: value.get(), target_epsilon: epsilon.get(), guarantee }));
    }
    let text = statement(&plan, GroupSize::ONE, &guarantee);
    let meets = if guarantee.proved() { "meets" } else { "is estimated to meet (APPROXIMATE, NOT A BOUND)" };
    Ok(format!("A noise multiplier of {value} {meets} epsilon <= {epsilon}.\n\n{text}"))
}
