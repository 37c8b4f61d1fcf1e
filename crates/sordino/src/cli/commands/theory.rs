//! `sordino theory`: what the theorems of a paper say about a run.

use crate::report::{json, labelled};
use clap::{Args, Subcommand};
use serde::Serialize;
use sordino_accounting::{
    Accountant, ClipNorm, Delta, Epsilon, NoiseMultiplier, Plan, SamplingRate, Steps,
    calibrate::{self, Budget},
};
use sordino_algorithms::{
    AlgorithmError,
    theory::dp_nsgd::{
        Condition, Convergence, Corollary, Method, Objective, convergence, corollary, lemma_noise,
        linear_deviation,
    },
};
use sordino_train::format::rounded_up;

use crate::cli::problem::Problem;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    topic: Topic,
}

#[derive(Subcommand)]
enum Topic {
    /// Convergence of DP-NSGD: the step size and the bound of Theorem 3.2 of its paper, and the noise of its Lemma 3.1
    DpNsgd(Normalised),
    /// Convergence of DP-SGD: Theorem 3.4 of the DP-NSGD paper
    DpSgd(Clipped),
    /// The deviation of a linear model's gradients: Example 2.3 of the DP-NSGD paper
    LinearModel(LinearModel),
}

#[derive(Args)]
struct Normalised {
    /// Regulariser r of the weights 1 / (r + |g|)
    #[arg(long, value_name = "R", allow_hyphen_values = true)]
    regulariser: f64,
    #[command(flatten)]
    run: Run,
}

#[derive(Args)]
struct Clipped {
    /// Clipping norm
    #[arg(long, alias = "clip", value_name = "C", allow_hyphen_values = true)]
    max_grad_norm: ClipNorm,
    #[command(flatten)]
    run: Run,
}

/// The assumptions about the objective, and the run.
#[derive(Args)]
struct Run {
    /// Smoothness at a gradient of 0
    #[arg(long, value_name = "L", allow_hyphen_values = true)]
    l0: f64,
    /// Growth of the smoothness with the norm of the gradient
    #[arg(long, value_name = "L", allow_hyphen_values = true)]
    l1: f64,
    /// Largest deviation of a record's gradient where the gradient is 0
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    tau0: f64,
    /// Growth of the deviation with the norm of the gradient
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    tau1: f64,
    /// Loss at the start minus the lowest loss
    #[arg(long, value_name = "F", default_value_t = 1.0, allow_hyphen_values = true)]
    gap: f64,
    /// Number of parameters
    #[arg(long, value_name = "D")]
    dimension: u64,
    /// Number of records
    #[arg(long, value_name = "N")]
    records: u64,
    /// Expected batch size
    #[arg(long, value_name = "B")]
    batch_size: u64,
    /// Number of steps
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    steps: Steps,
    /// Noise multiplier
    #[arg(long, value_name = "Z", allow_hyphen_values = true)]
    noise_multiplier: Option<NoiseMultiplier>,
    /// Privacy budget, in place of a noise multiplier
    #[arg(long, value_name = "E", allow_hyphen_values = true, conflicts_with = "noise_multiplier")]
    epsilon: Option<Epsilon>,
    /// Delta of the privacy budget
    #[arg(long, value_name = "D", default_value = "1e-5", allow_hyphen_values = true)]
    delta: Delta,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct LinearModel {
    /// Largest response
    #[arg(long, value_name = "V", allow_hyphen_values = true)]
    response: f64,
    /// Largest norm of a record's predictors
    #[arg(long, value_name = "W", allow_hyphen_values = true)]
    predictors: f64,
    /// Norm of the solution
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    solution: f64,
    /// Smallest eigenvalue of the predictors' second-moment matrix
    #[arg(long, value_name = "L", allow_hyphen_values = true)]
    least_eigenvalue: f64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct ConditionRecord {
    condition: String,
    holds: bool,
}

#[derive(Serialize)]
struct Record {
    theorem: &'static str,
    learning_rate: f64,
    conditions: Vec<ConditionRecord>,
    least_steps: f64,
    noise_multiplier: f64,
    epsilon: f64,
    delta: f64,
    bound: Option<f64>,
    bound_floor: f64,
    floor: f64,
    decaying_terms_without_their_constant: [f64; 2],
    #[serde(skip_serializing_if = "Option::is_none")]
    lemma: Option<LemmaRecord>,
}

#[derive(Serialize)]
struct LemmaRecord {
    noise_multiplier: f64,
    conditions: Vec<ConditionRecord>,
    /// The exact epsilon of this noise.
    epsilon: f64,
    least_records: f64,
    least_steps: f64,
    decaying_term_without_its_constant: f64,
    order_of_steps: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, Problem> {
    match &arguments.topic {
        Topic::DpNsgd(Normalised { regulariser, run }) => {
            answer(run, Method::Normalised(*regulariser), "Theorem 3.2 (DP-NSGD)")
        }
        Topic::DpSgd(Clipped { max_grad_norm, run }) => {
            answer(run, Method::Clipped(max_grad_norm.get()), "Theorem 3.4 (DP-SGD)")
        }
        Topic::LinearModel(model) => linear_model(model),
    }
}

fn answer(run: &Run, method: Method, theorem: &'static str) -> Result<String, Problem> {
    let objective = Objective {
        l0: run.l0,
        l1: run.l1,
        tau0: run.tau0,
        tau1: run.tau1,
        gap: run.gap,
        dimension: run.dimension as f64,
    };
    let (records, batch) = (run.records as f64, run.batch_size as f64);
    let rate = SamplingRate::new(batch / records)?;
    let price = |z| Accountant::Pld.price(&Plan::dp_sgd(z, rate, run.steps), run.delta);
    let z = match (run.noise_multiplier, run.epsilon) {
        (Some(z), _) => z,
        (None, Some(epsilon)) => {
            let budget = Budget { epsilon, delta: run.delta };
            calibrate::noise_multiplier(budget, rate, run.steps, Accountant::Pld)?.value.shortened()
        }
        (None, None) => {
            return Err(Problem::refused("no noise is given", "give --noise-multiplier or --epsilon"));
        }
    };
    let found = convergence(&objective, method, z, batch, run.steps).map_err(out_of_range)?;
    let lemma = match run.epsilon {
        None => None,
        Some(epsilon) => {
            let budget = Budget { epsilon, delta: run.delta };
            let lemma = lemma_noise(budget, records, batch, run.steps).map_err(out_of_range)?;
            let epsilon = price(NoiseMultiplier::new(lemma.noise_multiplier)?)?.epsilon.get();
            let conditions = recorded(&lemma.conditions);
            let Corollary { decaying, order_of_steps, least_records, least_steps } =
                corollary(&objective, method, budget, records).map_err(out_of_range)?;
            Some(LemmaRecord {
                noise_multiplier: lemma.noise_multiplier,
                conditions,
                epsilon,
                least_records,
                least_steps,
                decaying_term_without_its_constant: decaying,
                order_of_steps,
            })
        }
    };
    let record = record(theorem, &found, z, price(z)?.epsilon, run.delta, lemma);
    Ok(if run.json { json(&record) } else { text(&record) })
}

fn record(
    theorem: &'static str,
    found: &Convergence,
    z: NoiseMultiplier,
    epsilon: Epsilon,
    delta: Delta,
    lemma: Option<LemmaRecord>,
) -> Record {
    Record {
        theorem,
        learning_rate: found.learning_rate,
        conditions: recorded(&found.conditions),
        least_steps: found.least_steps,
        noise_multiplier: z.get(),
        epsilon: epsilon.get(),
        delta: delta.get(),
        bound: found.bound,
        bound_floor: found.bound_floor,
        floor: found.floor,
        decaying_terms_without_their_constant: found.decaying,
        lemma,
    }
}

/// Numbers of the theorems are not options of an algorithm, and have their own hint.
fn out_of_range(error: AlgorithmError) -> Problem {
    Problem::refused(
        error.to_string(),
        "`sordino theory --help` and the help of its subcommands explain these numbers",
    )
}

fn recorded(conditions: &[Condition]) -> Vec<ConditionRecord> {
    conditions
        .iter()
        .map(|Condition { text, holds }| ConditionRecord { condition: text.clone(), holds: *holds })
        .collect()
}

fn text(record: &Record) -> String {
    let yes = |condition: &ConditionRecord| {
        (if condition.holds { "holds" } else { "FAILS" }, condition.condition.clone())
    };
    let bound = match record.bound {
        Some(bound) => {
            format!(
                "{bound:.4} on the expected smallest gradient norm, with the constants of the corrected proof"
            )
        }
        None => "none on the expected smallest gradient norm, because a condition fails".to_owned(),
    };
    let [first, second] = record.decaying_terms_without_their_constant;
    let mut rows = vec![
        ("step size", format!("{:.6e}", record.learning_rate)),
        (
            "noise",
            format!(
                "multiplier {}: epsilon {} at delta {:e}, PROVED (pld)",
                record.noise_multiplier,
                rounded_up(record.epsilon),
                record.delta
            ),
        ),
        ("bound", bound),
        (
            "terms",
            format!("C ({first:.4} + {second:.4}): the paper does not state C, so its bound gives no number"),
        ),
    ];
    if record.floor > 0.0 {
        rows.push(("floor", format!("{:.4}: the limit of the paper's bound for many steps", record.floor)));
        rows.push(("", format!("{:.4}: the limit of the proof's bound", record.bound_floor)));
    }
    rows.extend(record.conditions.iter().map(yes));
    let mut text = format!("{}\n\n{}", record.theorem, labelled(&rows));
    if let Some(lemma) = &record.lemma {
        let mut rows = vec![(
            "noise",
            format!(
                "multiplier {:.4}, whose exact epsilon is {}",
                lemma.noise_multiplier,
                rounded_up(lemma.epsilon)
            ),
        )];
        rows.extend(lemma.conditions.iter().map(yes));
        rows.push((
            "step size",
            match lemma.least_steps.is_finite() && lemma.least_records.is_finite() {
                true => format!(
                    "small enough with this noise from {:.4e} records and {:.4e} steps on",
                    lemma.least_records, lemma.least_steps
                ),
                false => "never small enough, because a condition of the theorem fails".to_owned(),
            },
        ));
        rows.push((
            "term",
            format!(
                "C' {:.4}, for a number of steps of order {:.4e} or more: the paper does not state the constants",
                lemma.decaying_term_without_its_constant, lemma.order_of_steps
            ),
        ));
        text += &format!(
            "\nLemma 3.1 and its corollary, with c1 = 7 ln 10 and c2 = sqrt(56) from the proof\n\n{}",
            labelled(&rows)
        );
    }
    text
}

#[derive(Serialize)]
struct LinearRecord {
    tau0: f64,
    tau1: f64,
    theorems_apply: bool,
}

fn linear_model(model: &LinearModel) -> Result<String, Problem> {
    let LinearModel { response, predictors, solution, least_eigenvalue, json: as_json } = *model;
    let found = linear_deviation(response, predictors, solution, least_eigenvalue).map_err(out_of_range)?;
    let record = LinearRecord { tau0: found.tau0, tau1: found.tau1, theorems_apply: found.tau1 < 1.0 };
    if as_json {
        return Ok(json(&record));
    }
    let rows = [
        ("tau0", record.tau0.to_string()),
        ("tau1", record.tau1.to_string()),
        ("FAILS", "tau1 < 1: tau1 is at least the number of predictors, so the paper's theorems do not apply to its own example".to_owned()),
    ];
    Ok(format!("Example 2.3 (linear model, squared loss)\n\n{}", labelled(&rows)))
}
