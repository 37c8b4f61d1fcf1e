//! The arguments of a search for settings, for `sordino noise`: the noise of each run such that the whole search is within the budget.

use clap::{Args, ValueEnum};
use serde::Serialize;
use sordino::report::{GuaranteeRecord, json, labelled};
use sordino_accounting::{
    Accountant, Delta, Epsilon, NoiseMultiplier, Plan, SamplingRate, Steps,
    calibrate::{self, Budget},
    pld::GroupSize,
    tuning::LiuTalwar,
};
use sordino_train::format::{grouped, rounded_up, scientific};

use crate::problem::Problem;

/// A search over candidates, if `--tuning` is given.
#[derive(Args)]
pub(crate) struct TuningArguments {
    /// Apply the budget to a whole search for settings, priced by this method
    #[arg(long, value_name = "NAME", requires = "candidates", conflicts_with = "published")]
    tuning: Option<Tuning>,
    /// Number of combinations of settings that are tried
    #[arg(long, value_name = "G", requires = "tuning", allow_hyphen_values = true)]
    candidates: Option<u64>,
}

#[derive(Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Tuning {
    /// Every candidate is trained once
    Composition,
    /// Random candidates and random stopping, with the constants of the DC-SGD paper
    LiuTalwar,
}

/// The noise of each run, the guarantee of the whole search, and that of one run alone.
#[derive(Serialize)]
struct Record {
    noise_multiplier: f64,
    target_epsilon: f64,
    tuning: Tuning,
    candidates: u64,
    epsilon: f64,
    delta: Delta,
    proved: bool,
    conditions: &'static str,
    mean_runs: f64,
    most_runs: f64,
    /// The same search by Papernot and Steinke's theorem.
    #[serde(skip_serializing_if = "Option::is_none")]
    epsilon_papernot_steinke: Option<f64>,
    one_run: GuaranteeRecord,
    #[serde(skip)]
    one_run_text: String,
}

impl TuningArguments {
    /// The answer for a search; none without `--tuning`.
    pub(crate) fn answer(
        &self,
        budget: Budget,
        (sample_rate, steps): (SamplingRate, Steps),
        accountant: Accountant,
        as_json: bool,
    ) -> Option<Result<String, Problem>> {
        let (tuning, candidates) = (self.tuning?, self.candidates?);
        let record = record(tuning, candidates, budget, (sample_rate, steps), accountant);
        Some(record.map(|record| if as_json { json(&record) } else { text(&record) }))
    }
}

fn record(
    tuning: Tuning,
    candidates: u64,
    budget: Budget,
    (sample_rate, steps): (SamplingRate, Steps),
    accountant: Accountant,
) -> Result<Record, Problem> {
    let one = |z: NoiseMultiplier| Plan::dp_sgd(z, sample_rate, steps);
    let search = LiuTalwar::of_candidates(candidates)?;
    let (z, epsilon, one_delta, geometric) = match tuning {
        Tuning::Composition => {
            let all = Steps::new(steps.get().saturating_mul(candidates))?;
            let z = calibrate::noise_multiplier(budget, sample_rate, all, accountant)?.value.shortened();
            let total = accountant.price(&Plan::dp_sgd(z, sample_rate, all), budget.delta)?;
            (z, total.epsilon, budget.delta, None)
        }
        Tuning::LiuTalwar => {
            let z = search.noise_multiplier(budget, sample_rate, steps, accountant)?.shortened();
            let geometric = search.geometric_epsilon(&one(z), budget.delta).ok().map(Epsilon::get);
            let total = search.epsilon(&one(z), accountant, budget.delta)?;
            (z, total, search.one_run(budget)?.delta, geometric)
        }
    };
    let one_run = accountant.price(&one(z), one_delta)?;
    let counted = candidates as f64;
    let (mean_runs, most_runs) = match tuning {
        Tuning::Composition => (counted, counted),
        Tuning::LiuTalwar => (search.mean_runs(), search.most_runs()),
    };
    Ok(Record {
        noise_multiplier: z.get(),
        target_epsilon: budget.epsilon.get(),
        tuning,
        candidates,
        epsilon: epsilon.get(),
        delta: budget.delta,
        proved: accountant.proves(),
        conditions: tuning.conditions(),
        mean_runs,
        most_runs,
        epsilon_papernot_steinke: geometric,
        one_run_text: format!(
            "({}, {}), accountant {accountant}",
            rounded_up(one_run.epsilon.get()),
            scientific(one_run.delta.get(), f64::ceil)
        ),
        one_run: GuaranteeRecord::new(one_run, GroupSize::ONE),
    })
}

impl Tuning {
    fn conditions(self) -> &'static str {
        match self {
            Self::Composition => "none: every candidate is trained once, and all models may be released",
            Self::LiuTalwar => {
                "each run trains a candidate drawn at random; the search stops after each run with probability 1/(2G); only the best \
                 model is released; its score is private or uses public records"
            }
        }
    }
}

fn text(record: &Record) -> String {
    let Record { noise_multiplier, target_epsilon, candidates, .. } = record;
    let (meets, bound) = match record.proved {
        true => ("meets", "PROVED upper bound, under these conditions"),
        false => ("is estimated to meet", "APPROXIMATE, NOT A BOUND"),
    };
    let by = match record.tuning {
        Tuning::Composition => "by composition of all runs".to_owned(),
        Tuning::LiuTalwar => {
            "by Liu and Talwar's theorem, as the DC-SGD paper quotes it (delta_2 = 1e-20)".to_owned()
        }
    };
    let runs = match record.tuning {
        Tuning::Composition => grouped(*candidates),
        Tuning::LiuTalwar => {
            format!(
                "{} on average, at most {}",
                grouped(record.mean_runs as u64),
                grouped(record.most_runs as u64)
            )
        }
    };
    let mut rows = vec![
        ("search", format!("({}, {}), {by}", rounded_up(record.epsilon), record.delta)),
        ("runs", runs),
        ("one run", record.one_run_text.clone()),
        ("status", bound.to_owned()),
        ("conditions", record.conditions.to_owned()),
    ];
    if let Some(epsilon) = record.epsilon_papernot_steinke {
        let tighter =
            "by Papernot and Steinke's theorem, which is also proved (Renyi, geometric number of runs)";
        rows.insert(1, ("same search", format!("({}, {}), {tighter}", rounded_up(epsilon), record.delta)));
    }
    format!(
        "A noise multiplier of {noise_multiplier} in each run {meets} epsilon <= {target_epsilon} for the search over {} candidates.\n\n{}",
        grouped(*candidates),
        labelled(&rows)
    )
}
