//! `sordino schedule`: a dynamic schedule within a privacy budget.

use clap::Args;
use serde::Serialize;
use sordino::report::{Column, GuaranteeRecord, json, labelled, status, table};
use sordino_accounting::{
    Accountant, ClipNorm, Entry, Growth, Guarantee, Plan, Sampling, calibrate::Budget, pld::GroupSize,
};
use sordino_algorithms::{Algorithm, Dynamic, NoiseSource, RunFacts};
use sordino_train::{
    Hint, TrainError,
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

/// A schedule whose noise was set by one accountant, and its proved price.
struct Schedule {
    mu_0: f64,
    ends: Ends,
    guarantee: Guarantee,
}

/// The first and the last step of a schedule.
#[derive(Serialize)]
struct Ends {
    clip_norm: [f64; 2],
    noise_multiplier: [f64; 2],
    noise_std: [f64; 2],
}

impl Schedule {
    fn new(
        dynamic: &Dynamic,
        facts: &RunFacts,
        budget: Budget,
        accountant: Accountant,
    ) -> Result<Self, TrainError> {
        let plan = dynamic.plan(facts, NoiseSource::Budget(budget, accountant))?;
        let parts = [1.0 / facts.steps.get() as f64, 1.0];
        let clip_norm = parts.map(|part| facts.max_grad_norm.get() * dynamic.clip_factor(part));
        let noise_multiplier = [plan.entries().first(), plan.entries().last()]
            .map(|entry| entry.map_or(f64::NAN, Entry::effective_noise_multiplier));
        let noise_std = [0, 1].map(|i| clip_norm[i] * noise_multiplier[i]);
        Ok(Self {
            mu_0: 1.0 / (noise_multiplier[0] * dynamic.mu_factor(parts[0])),
            ends: Ends { clip_norm, noise_multiplier, noise_std },
            guarantee: proved(&plan, budget)?,
        })
    }
}

fn proved(plan: &Plan, budget: Budget) -> Result<Guarantee, TrainError> {
    Ok(Accountant::Pld.price(plan, budget.delta)?)
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
    let budget = arguments.budget.budget();
    let BudgetArguments { sample_rate: rate, steps, .. } = arguments.budget;
    let dynamic = Dynamic {
        mu_growth: Some(arguments.rho_mu.get()),
        clip_decay: Some(arguments.rho_c.get()),
        ..Dynamic::default()
    };
    let facts = RunFacts {
        sampling: Sampling::Poisson { rate, cap: None },
        steps,
        max_grad_norm: arguments.max_grad_norm,
        layers: None,
        claim: None,
        // The plan does not depend on the facts below.
        expected_batch_size: 1.0,
        dimension: 1,
        records: 1,
    };
    let exact = Schedule::new(&dynamic, &facts, budget, Accountant::Pld)?;
    let clt = Schedule::new(&dynamic, &facts, budget, Accountant::GdpClt)?;
    if arguments.json {
        return Ok(json(&Record {
            mu_0: exact.mu_0,
            mu_0_clt: clt.mu_0,
            guarantee: GuaranteeRecord::new(exact.guarantee, GroupSize::ONE),
            epsilon_of_clt: clt.guarantee.epsilon.get(),
            epsilon_of_clt_lower: clt.guarantee.epsilon_lower.map(f64::from),
            target_epsilon: budget.epsilon.get(),
            first_and_last: exact.ends,
            first_and_last_clt: clt.ends,
        }));
    }
    Ok(text(&arguments.budget, &exact, &clt).render(flag))
}

fn text(arguments: &BudgetArguments, exact: &Schedule, clt: &Schedule) -> Hint {
    let row =
        |label: &str, value: &dyn Fn(&Schedule) -> String| vec![label.to_owned(), value(exact), value(clt)];
    let arrow = |[first, last]: [f64; 2]| format!("{} -> {}", rounded_up(first), rounded_up(last));
    let rows = [
        vec![String::new(), "exact (pld)".to_owned(), "by the CLT".to_owned()],
        row("mu_0", &|schedule| rounded_down(schedule.mu_0)),
        row("noise multiplier", &|schedule| arrow(schedule.ends.noise_multiplier)),
        row("clipping norm", &|schedule| arrow(schedule.ends.clip_norm)),
        row("noise standard deviation", &|schedule| arrow(schedule.ends.noise_std)),
        row("true epsilon, at most", &|schedule| rounded_up(schedule.guarantee.epsilon.get())),
    ];
    let table = table(&[Column::Left(26), Column::Right(22), Column::Right(22)], &rows);
    let (budget, BudgetArguments { sample_rate, steps, .. }) = (arguments.budget(), arguments);
    let about = labelled(&[
        ("target", format!("epsilon {} at delta {}", budget.epsilon, budget.delta)),
        ("protects", format!("one record, relation {}", exact.guarantee.relation)),
        (
            "sampling",
            format!("Poisson at rate {sample_rate}, fresh at each of {} steps", grouped(steps.get())),
        ),
        (
            "schedule",
            "mu_t = mu_0 rho_mu^(t/T), C_t = C rho_c^(-t/T), noise C_t / mu_t on the sum, t = 1..T"
                .to_owned(),
        ),
        ("exact", status(&exact.guarantee)),
        ("CLT", "APPROXIMATE, NOT A BOUND: its mu_0 costs the true epsilon in its column".to_owned()),
    ]);
    Hint::new(format!("{table}\n{about}"))
}
