//! `sordino noise`: the least noise that a budget allows.

use clap::Args;
use serde::Serialize;
use sordino_accounting::{
    Accountant, Delta, Epsilon, Plan, SamplingRate, Steps,
    calibrate::{self, Budget, Calibrated},
    pld::GroupSize,
};

use crate::{
    problem::Problem,
    statement::{GuaranteeRecord, json, rounded_up, statement},
};

#[derive(Args)]
pub(crate) struct Arguments {
    /// The epsilon not to exceed
    #[arg(long, value_name = "E", allow_hyphen_values = true)]
    epsilon: Epsilon,
    /// The delta that goes with it
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    delta: Delta,
    /// Probability with which each record joins a batch
    #[arg(long, value_name = "Q", allow_hyphen_values = true)]
    sample_rate: SamplingRate,
    /// Number of steps
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    steps: Steps,
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
    let Arguments { epsilon, delta, sample_rate, steps, accountant, json: as_json } = *arguments;
    let budget = Budget { epsilon, delta };
    let Calibrated { value, guarantee } =
        calibrate::noise_multiplier(budget, sample_rate, steps, accountant)?;
    if as_json {
        let guarantee = GuaranteeRecord::from(guarantee);
        return Ok(json(&Record { noise_multiplier: value.get(), target_epsilon: epsilon.get(), guarantee }));
    }
    let plan = Plan::dp_sgd(value, sample_rate, steps);
    let text = statement(&plan, GroupSize::ONE, &guarantee);
    Ok(format!("A noise multiplier of {} meets epsilon <= {epsilon}.\n\n{text}", rounded_up(value.get())))
}
