//! `sordino noise`: the smallest noise multiplier that a privacy budget allows.

use clap::Args;
use serde::Serialize;
use sordino_accounting::{Accountant, Plan, calibrate, pld::GroupSize};

use sordino::report::{GuaranteeRecord, json, plan_statement};

use crate::{
    budget_arguments::BudgetArguments,
    problem::{Problem, flag},
    tuning_arguments::TuningArguments,
};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    budget: BudgetArguments,
    /// Accountant: pld, rdp, gdp-clt, zcdp or tcdp
    #[arg(long, value_name = "NAME", default_value_t)]
    accountant: Accountant,
    #[command(flatten)]
    tuning: TuningArguments,
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
    if let Some(answer) = arguments.tuning.answer(budget, (sample_rate, steps), accountant, arguments.json) {
        return answer;
    }
    let epsilon = budget.epsilon;
    let least = calibrate::noise_multiplier(budget, sample_rate, steps, accountant)?.value;
    // Rounded up to a number that is short enough to copy; the rounded number is priced.
    let value = least.shortened();
    let plan = Plan::dp_sgd(value, sample_rate, steps);
    let guarantee = accountant.price(&plan, budget.delta)?;
    if arguments.json {
        let guarantee = GuaranteeRecord::new(guarantee, GroupSize::ONE);
        return Ok(json(&Record { noise_multiplier: value.get(), target_epsilon: epsilon.get(), guarantee }));
    }
    let text = plan_statement(&plan, GroupSize::ONE, &guarantee).render(flag);
    let meets = if guarantee.proved() { "meets" } else { "is estimated to meet (APPROXIMATE, NOT A BOUND)" };
    Ok(format!("A noise multiplier of {value} {meets} epsilon <= {epsilon}.\n\n{text}"))
}
