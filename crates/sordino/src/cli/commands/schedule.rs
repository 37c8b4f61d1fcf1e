//! `sordino schedule`: a dynamic schedule within a privacy budget.

use clap::Args;
use serde::Serialize;
use sordino_accounting::{
    Accountant, AccountingError, ClipNorm, DynamicSchedule, Growth, Guarantee,
    calibrate::{self, Budget, DynamicShape},
    pld::GroupSize,
};

use sordino::report::{Column, GuaranteeRecord, json, labelled, status, table};
use sordino_train::{
    Hint,
    format::{grouped, rounded_down, rounded_up},
};

use crate::{
    budget_arguments::BudgetArguments,
    problem::{Problem, flag},
};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    budget: BudgetArguments,
    /// How many times larger mu (less noise) is at the end than at the start
    #[arg(long, value_name = "R", allow_hyphen_values = true)]
    rho_mu: Growth,
    /// How many times smaller the clipping norm is at the end than at the start
    #[arg(long, value_name = "R", allow_hyphen_values = true)]
    rho_c: Growth,
    /// Clipping norm at the start
    #[arg(long, alias = "clip", value_name = "C", allow_hyphen_values = true)]
    max_grad_norm: ClipNorm,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The first and the last step of a schedule.
#[derive(Serialize)]
struct Ends {
    clip_norm: [f64; 2],
    noise_multiplier: [f64; 2],
    noise_std: [f64; 2],
}

impl Ends {
    fn of(schedule: &DynamicSchedule) -> Self {
        let ends = [1, schedule.steps.get()];
        let clip_norm = ends.map(|step| schedule.clip_norm(step));
        // A calibrated schedule has been priced, so all of its multipliers exist.
        let noise_multiplier = ends.map(|step| schedule.noise_multiplier(step).map_or(f64::NAN, f64::from));
        let noise_std = [0, 1].map(|i| clip_norm[i] * noise_multiplier[i]);
        Self { clip_norm, noise_multiplier, noise_std }
    }
}

#[derive(Serialize)]
struct Record {
    mu_0: f64,
    mu_0_clt: f64,
    #[serde(flatten)]
    guarantee: GuaranteeRecord,
    epsilon_of_clt: f64,
    epsilon_of_clt_lower: Option<f64>,
    target_epsilon: f64,
    first_and_last: Ends,
    first_and_last_clt: Ends,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, Problem> {
    let BudgetArguments { sample_rate: rate, steps, .. } = arguments.budget;
    let Arguments { rho_mu, rho_c, max_grad_norm: clip, .. } = *arguments;
    let budget = arguments.budget.budget();
    let shape = DynamicShape { mu_growth: rho_mu, clip, clip_decay: rho_c, rate, steps };
    let exact = calibrate::dynamic(shape, budget, Accountant::Pld)?;
    let clt = calibrate::dynamic(shape, budget, Accountant::GdpClt)?.value;
    let clt_plan = clt.plan().ok_or_else(|| AccountingError::NoSolution {
        what: "schedule",
        reason: "the central limit theorem's noise is not a number".to_owned(),
    })?;
    let truth = Accountant::Pld.price(&clt_plan, budget.delta)?;
    if arguments.json {
        return Ok(json(&Record {
            mu_0: exact.value.mu_0.get(),
            mu_0_clt: clt.mu_0.get(),
            guarantee: GuaranteeRecord::new(exact.guarantee, GroupSize::ONE),
            epsilon_of_clt: truth.epsilon.get(),
            epsilon_of_clt_lower: truth.epsilon_lower.map(f64::from),
            target_epsilon: budget.epsilon.get(),
            first_and_last: Ends::of(&exact.value),
            first_and_last_clt: Ends::of(&clt),
        }));
    }
    Ok(text(budget, &exact.value, &exact.guarantee, &clt, &truth))
}

fn text(
    budget: Budget,
    exact: &DynamicSchedule,
    guarantee: &Guarantee,
    clt: &DynamicSchedule,
    truth: &Guarantee,
) -> String {
    let (exact_ends, clt_ends) = (Ends::of(exact), Ends::of(clt));
    let row = |label: &str, a: String, b: String| vec![label.to_owned(), a, b];
    let arrow = |[first, last]: [f64; 2]| format!("{} -> {}", rounded_up(first), rounded_up(last));
    let rows = [
        row("", "exact (pld)".to_owned(), "by the CLT".to_owned()),
        row("mu_0", rounded_down(exact.mu_0.get()), rounded_down(clt.mu_0.get())),
        row("noise multiplier", arrow(exact_ends.noise_multiplier), arrow(clt_ends.noise_multiplier)),
        row("clip norm", arrow(exact_ends.clip_norm), arrow(clt_ends.clip_norm)),
        row("noise standard deviation", arrow(exact_ends.noise_std), arrow(clt_ends.noise_std)),
        row("true epsilon, at most", rounded_up(guarantee.epsilon.get()), rounded_up(truth.epsilon.get())),
    ];
    let table = table(&[Column::Left(26), Column::Right(22), Column::Right(22)], &rows);
    let about = labelled(&[
        ("target", format!("epsilon {} at delta {}", budget.epsilon, budget.delta)),
        ("protects", format!("one record, relation {}", guarantee.relation)),
        (
            "sampling",
            format!("Poisson at rate {}, fresh at each of {} steps", exact.rate, grouped(exact.steps.get())),
        ),
        (
            "schedule",
            "mu_t = mu_0 rho_mu^(t/T), C_t = C rho_c^(-t/T), noise C_t / mu_t on the sum, t = 1..T"
                .to_owned(),
        ),
        ("exact", status(guarantee)),
        (
            "CLT",
            "APPROXIMATE, NOT A BOUND: the epsilon in its column is the true cost of its mu_0".to_owned(),
        ),
    ]);
    Hint::new(format!("{table}\n{about}")).render(flag)
}
