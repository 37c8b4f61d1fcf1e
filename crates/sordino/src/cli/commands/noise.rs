//! `sordino noise`: the smallest noise multiplier that a privacy budget allows.

use clap::Args;
use serde::Serialize;
use sordino_accounting::{
    Accountant, Delta, Epsilon, Plan, SamplingRate, Steps,
    calibrate::{self, Budget},
    pld::GroupSize,
    secure_aggregation::{ClientNoise, Participants, client_noise},
};

use crate::report::{GuaranteeRecord, json, plan_statement};

use super::published::PublishedArguments;
use crate::cli::{
    problem::{Problem, flag},
    tuning_arguments::TuningArguments,
};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Privacy budget, or with --published the epsilon that the paper claims
    #[arg(long, value_name = "E", allow_hyphen_values = true)]
    epsilon: Epsilon,
    /// Delta of the privacy budget
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    delta: Delta,
    /// Probability with which each record joins a batch
    #[arg(long, value_name = "Q", allow_hyphen_values = true, required_unless_present = "published")]
    sample_rate: Option<SamplingRate>,
    /// Number of steps
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    steps: Steps,
    /// Accountant: pld, rdp, gdp-clt, zcdp or tcdp
    #[arg(long, value_name = "NAME", default_value_t)]
    accountant: Accountant,
    /// Also compute the noise that each client adds under secure aggregation, such as clients=100,dropouts=10,colluding=0
    #[arg(long, value_name = "K=V", conflicts_with_all = ["published", "tuning"])]
    secure_aggregation: Option<Participants>,
    #[command(flatten)]
    published: PublishedArguments,
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
    /// The noise of each client under secure aggregation.
    #[serde(skip_serializing_if = "Option::is_none")]
    secure_aggregation: Option<ClientNoise>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, Problem> {
    let &Arguments { epsilon, delta, steps, accountant, .. } = arguments;
    let budget = Budget { epsilon, delta };
    let Some(sample_rate) = arguments.sample_rate else {
        return Ok(arguments.published.run(budget, steps, arguments.json)?.unwrap_or_default());
    };
    if let Some(answer) = arguments.tuning.noise(budget, (sample_rate, steps), accountant, arguments.json) {
        return answer;
    }
    let least = calibrate::noise_multiplier(budget, sample_rate, steps, accountant)?.value;
    // Rounded up to a number that is short enough to copy; the rounded number is priced.
    let value = least.shortened();
    let plan = Plan::dp_sgd(value, sample_rate, steps);
    let guarantee = accountant.price(&plan, delta)?;
    let shared = arguments.secure_aggregation.map(|participants| client_noise(value, participants));
    let shared = shared.transpose()?;
    if arguments.json {
        let guarantee = GuaranteeRecord::new(guarantee, GroupSize::ONE);
        return Ok(json(&Record {
            noise_multiplier: value.get(),
            target_epsilon: epsilon.get(),
            guarantee,
            secure_aggregation: shared,
        }));
    }
    let text = plan_statement(&plan, GroupSize::ONE, &guarantee).render(flag);
    let meets = if guarantee.proved() { "meets" } else { "is estimated to meet (APPROXIMATE, NOT A BOUND)" };
    let shared = arguments.secure_aggregation.zip(shared);
    let shared =
        shared.map_or(String::new(), |(participants, noise)| secure_aggregation(participants, noise));
    Ok(format!("A noise multiplier of {value} {meets} epsilon <= {epsilon}.\n\n{text}{shared}"))
}

/// The noise of each client in words.
fn secure_aggregation(participants: Participants, noise: ClientNoise) -> String {
    format!(
        "\nUnder secure aggregation, each of {} clients adds noise with a standard deviation of {} times the clipping norm. The noise of {} of \
         them is enough. If all of them send their updates, the noise multiplier of the sum is {}. The server sees who takes part in a round: \
         the epsilon above is for those who see the releases only, and the plan with a sample rate of 1 is for the server.\n",
        participants.clients(),
        noise.each.shortened(),
        participants.counted(),
        noise.without_dropouts.shortened()
    )
}
