//! `sordino noise --published`: the noise by the formula of a paper, with the claimed and the proved epsilon.

use std::sync::Arc;

use crate::report::{json, labelled, sampling};
use clap::{Args, ValueEnum};
use serde::Serialize;
use sordino_accounting::{
    Accountant, ClipNorm, Entry, Guarantee, Plan, Sampling, SamplingRate, Steps, calibrate::Budget,
};
use sordino_algorithms::{NoiseSource, PublishedNoise, RunFacts};
use sordino_train::{Hint, NetworkAlgorithm, TrainError, format::rounded_up, parse_algorithm};

use crate::cli::problem::{Problem, flag};

/// A published formula and what it needs besides the claim and the number of steps.
#[derive(Args)]
pub(crate) struct PublishedArguments {
    /// Compute the noise by the formula of a paper, and compare the claimed with the proved epsilon
    #[arg(long, value_name = "PAPER", value_enum, conflicts_with_all = ["sample_rate", "accountant", "tuning"])]
    #[arg(requires_all = ["batch_size", "records"], help_heading = "Published noise")]
    published: Option<Formula>,
    /// Size of a batch
    #[arg(long, value_name = "B", requires = "published", allow_hyphen_values = true)]
    #[arg(help_heading = "Published noise")]
    batch_size: Option<u64>,
    /// Number of records
    #[arg(long, value_name = "N", requires = "published", allow_hyphen_values = true)]
    #[arg(help_heading = "Published noise")]
    records: Option<u64>,
    /// Clipping norm C [default: 1]
    #[arg(long, alias = "clip", value_name = "C", requires = "published", allow_hyphen_values = true)]
    #[arg(help_heading = "Published noise")]
    max_grad_norm: Option<ClipNorm>,
    /// dice: clipping norms of the paper, experiments or theorem [default: experiments]
    #[arg(long, value_name = "NAME", requires = "published", help_heading = "Published noise")]
    thresholds: Option<String>,
    /// dice: C_1 with the thresholds of the theorem [default: C / B]
    #[arg(long, value_name = "C1", requires = "published", allow_hyphen_values = true)]
    #[arg(help_heading = "Published noise")]
    gradient_clip: Option<f64>,
    /// dice: C_2 [default: C_1]
    #[arg(long, value_name = "C2", requires = "published", allow_hyphen_values = true)]
    #[arg(help_heading = "Published noise")]
    feedback_clip: Option<f64>,
    /// dp-c4, dp-svrg: records of an anchor's batch [default: 16 batches, at most all records]
    #[arg(long, value_name = "D", requires = "published", allow_hyphen_values = true)]
    #[arg(help_heading = "Published noise")]
    anchor_batch: Option<u64>,
    /// dp-c4, dp-svrg: probability with which the anchor moves [default: 2 B / D]
    #[arg(long, value_name = "P", requires = "published", allow_hyphen_values = true)]
    #[arg(help_heading = "Published noise")]
    update_probability: Option<f64>,
    /// dp-c4, dp-svrg: routine that moves the anchor, 1 to 4 [default: 1]
    #[arg(long, value_name = "R", requires = "published", allow_hyphen_values = true)]
    #[arg(help_heading = "Published noise")]
    routine: Option<u8>,
    /// dynamic-clt: how many times larger mu is at the end [default: 2]
    #[arg(long, value_name = "R", requires = "published", allow_hyphen_values = true)]
    #[arg(help_heading = "Published noise")]
    rho_mu: Option<f64>,
    /// dynamic-clt: how many times smaller the clipping norm is at the end [default: 2]
    #[arg(long, value_name = "R", requires = "published", allow_hyphen_values = true)]
    #[arg(help_heading = "Published noise")]
    rho_c: Option<f64>,
}

/// The formulas of the papers.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Formula {
    /// DiceSGD, Theorem 3.8
    Dice,
    /// DiceSGD with normalised gradients, section C.4
    DiceAutomatic,
    /// DiceSGD in the DP-C4 paper, Algorithm 5
    DiceDpC4,
    /// DP-C4 and DP-C4+, Theorem 3
    DpC4,
    /// DP-SVRG in the DP-C4 paper, equation 73
    DpSvrg,
    /// DP-SGD in the DP-C4 paper, equation 68
    DpSgd,
    /// Dynamic DP-SGD by the central limit theorem
    DynamicClt,
}

impl Formula {
    /// The formulas that have the same options.
    fn family(self) -> &'static str {
        match self {
            Self::Dice | Self::DiceAutomatic | Self::DiceDpC4 => "dice, dice-automatic and dice-dp-c4",
            Self::DpC4 | Self::DpSvrg => "dp-c4 and dp-svrg",
            Self::DpSgd => "dp-sgd",
            Self::DynamicClt => "dynamic-clt",
        }
    }

    /// Whether the paper's sigma is the standard deviation on the mean or on the sum, and in which unit.
    fn scale(self) -> &'static str {
        match self {
            Self::Dice | Self::DiceAutomatic | Self::DiceDpC4 => "on the mean",
            Self::DpC4 | Self::DpSvrg | Self::DpSgd => "on the mean, in units of the clipping norm",
            Self::DynamicClt => "on the sum",
        }
    }
}

/// The result of the formula, as it appears in JSON.
#[derive(Serialize)]
struct Record {
    formula: String,
    noise: Vec<PublishedNoise>,
    claimed_epsilon: f64,
    delta: f64,
    /// The proved epsilon of the plan; null if there is none.
    proved_epsilon: Option<f64>,
    accountant: Option<&'static str>,
    relation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_proved_because: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

impl PublishedArguments {
    /// The noise of the formula; none if no formula is given.
    pub(crate) fn run(&self, claim: Budget, steps: Steps, json: bool) -> Result<Option<String>, Problem> {
        match (self.published, self.batch_size, self.records) {
            (Some(formula), Some(batch_size), Some(records)) => {
                let facts = self.facts(claim, steps, batch_size, records)?;
                self.answer(formula, &facts, claim, json).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn facts(&self, claim: Budget, steps: Steps, batch_size: u64, records: u64) -> Result<RunFacts, Problem> {
        if batch_size == 0 || batch_size > records {
            return Err(Problem::refused(
                format!(
                    "batch_size must be between 1 and the number of records, {records}, got {batch_size}"
                ),
                "give the size of a batch with --batch-size and the number of records with --records",
            ));
        }
        let rate = SamplingRate::new(batch_size as f64 / records as f64)?;
        Ok(RunFacts {
            sampling: Sampling::Poisson { rate, cap: None },
            steps,
            expected_batch_size: batch_size as f64,
            max_grad_norm: self.max_grad_norm.map_or_else(|| ClipNorm::new(1.0), Ok)?,
            layers: None,
            // No formula depends on the dimension.
            dimension: 1,
            records,
            momentum: 0.0,
            claim: Some(claim),
        })
    }

    fn answer(
        &self,
        formula: Formula,
        facts: &RunFacts,
        claim: Budget,
        as_json: bool,
    ) -> Result<String, Problem> {
        let algorithm = self.algorithm(formula)?;
        let accountant = match formula {
            Formula::DynamicClt => Accountant::GdpClt,
            _ => algorithm.accountant(facts.sampling),
        };
        let plan = algorithm.plan(facts, NoiseSource::Budget(claim, accountant)).map_err(TrainError::from)?;
        let noise = match formula {
            Formula::DynamicClt => self.dynamic_noise(facts, &plan),
            _ => algorithm.published_noise(facts).map_err(TrainError::from)?,
        };
        let scale = formula.scale();
        let formula = algorithm
            .noise_formula()
            .unwrap_or("the central limit theorem, as in Du, Li, Chen, Chen and Hong");
        let proved = proved(&*algorithm, facts, &plan, claim)?;
        let notes = algorithm.notes(facts, &plan).into_iter().map(|note| Hint::new(note).render(flag));
        let record = Record {
            formula: formula.to_owned(),
            noise,
            claimed_epsilon: claim.epsilon.get(),
            delta: claim.delta.get(),
            proved_epsilon: proved.map(|guarantee| guarantee.epsilon.get()),
            accountant: proved.map(|guarantee| guarantee.accountant.name()),
            relation: proved.map(|guarantee| guarantee.relation.to_string()),
            not_proved_because: algorithm.about().verdict.problem().filter(|_| proved.is_none()),
            notes: notes.collect(),
        };
        Ok(if as_json { json(&record) } else { text(&record, &plan, scale) })
    }

    /// The algorithm whose noise the formula sets, with the options that were given.
    fn algorithm(&self, formula: Formula) -> Result<Arc<dyn NetworkAlgorithm>, Problem> {
        let name = match formula {
            Formula::Dice => "dice-published",
            Formula::DiceAutomatic => "dice-published,automatic=true",
            Formula::DiceDpC4 => "dice-published,noise=dp-c4-paper",
            Formula::DpC4 => "dp-c4-published",
            // The first routine is that of the paper's Algorithm 2.
            Formula::DpSvrg if self.routine.is_none() => "dp-svrg,noise=dp-c4-paper,routine=1",
            Formula::DpSvrg => "dp-svrg,noise=dp-c4-paper",
            Formula::DpSgd => "dp-sgd,noise=dp-c4-paper",
            Formula::DynamicClt => "dynamic",
        };
        let options = [
            ("thresholds", self.thresholds.clone()),
            ("gradient_clip", self.gradient_clip.map(|clip| clip.to_string())),
            ("feedback_clip", self.feedback_clip.map(|clip| clip.to_string())),
            ("anchor_batch", self.anchor_batch.map(|batch| batch.to_string())),
            ("update_probability", self.update_probability.map(|p| p.to_string())),
            ("routine", self.routine.map(|routine| routine.to_string())),
            ("mu_growth", self.rho_mu.map(|rho| rho.to_string())),
            ("clip_decay", self.rho_c.map(|rho| rho.to_string())),
        ];
        self.check(formula)?;
        let options = options.into_iter().filter_map(|(key, value)| Some(format!(",{key}={}", value?)));
        Ok(parse_algorithm(&(name.to_owned() + &options.collect::<String>()))?)
    }

    /// Refuses options of another formula, and factors out of range.
    fn check(&self, formula: Formula) -> Result<(), Problem> {
        let options = [
            ("--thresholds", self.thresholds.is_some(), Formula::Dice),
            ("--gradient-clip", self.gradient_clip.is_some(), Formula::Dice),
            ("--feedback-clip", self.feedback_clip.is_some(), Formula::Dice),
            ("--anchor-batch", self.anchor_batch.is_some(), Formula::DpC4),
            ("--update-probability", self.update_probability.is_some(), Formula::DpC4),
            ("--routine", self.routine.is_some(), Formula::DpC4),
            ("--rho-mu", self.rho_mu.is_some(), Formula::DynamicClt),
            ("--rho-c", self.rho_c.is_some(), Formula::DynamicClt),
        ];
        let foreign =
            |(_, given, other): &(&str, bool, Formula)| *given && formula.family() != other.family();
        if let Some((option, _, other)) = options.into_iter().find(foreign) {
            return Err(Problem::refused(
                format!("{option} belongs to --published {}", other.family()),
                format!("leave out {option}"),
            ));
        }
        let theorem = self.thresholds.as_deref() == Some("theorem");
        if formula == Formula::DiceAutomatic && theorem {
            return Err(Problem::refused(
                "Theorem 3.8 of DiceSGD assumes clipped gradients, but dice-automatic normalises them",
                "leave out --thresholds theorem, or use --published dice",
            ));
        }
        if self.gradient_clip.is_some() && !theorem {
            return Err(Problem::refused(
                "--gradient-clip needs --thresholds theorem; otherwise, C_1 is --max-grad-norm",
                "add --thresholds theorem, or leave out --gradient-clip",
            ));
        }
        for (option, norm) in
            [("--gradient-clip", self.gradient_clip), ("--feedback-clip", self.feedback_clip)]
        {
            if let Some(norm) = norm.filter(|norm| !(*norm > 0.0 && norm.is_finite())) {
                return Err(Problem::refused(
                    format!("{option} must be a number above 0, got {norm}"),
                    format!("leave out {option} to use the default"),
                ));
            }
        }
        for (option, factor) in [("--rho-mu", self.rho_mu), ("--rho-c", self.rho_c)] {
            if let Some(factor) = factor.filter(|factor| !(1e-3..=1e3).contains(factor)) {
                return Err(Problem::refused(
                    format!("{option} must be between 0.001 and 1000, got {factor}"),
                    format!("leave out {option} to use the default, 2"),
                ));
            }
        }
        Ok(())
    }

    /// `sigma_t = C_t / mu_t` on the sum, of the first and the last step.
    fn dynamic_noise(&self, facts: &RunFacts, plan: &Plan) -> Vec<PublishedNoise> {
        let (decay, whole) = (self.rho_c.unwrap_or(2.0), facts.max_grad_norm.get());
        let part = |symbol: &str, part: f64, entry: Option<&Entry>| {
            let noise_multiplier = entry.map_or(f64::NAN, Entry::effective_noise_multiplier);
            let sigma = whole * decay.powf(-part) * noise_multiplier;
            PublishedNoise { symbol: symbol.to_owned(), sigma, noise_multiplier }
        };
        let entries = plan.entries();
        vec![
            part("sigma_1", 1.0 / facts.steps.get() as f64, entries.first()),
            part("sigma_T", 1.0, entries.last()),
        ]
    }
}

/// What is proved: the price of a sound plan, or of what can be proved for an algorithm as published.
fn proved(
    algorithm: &dyn NetworkAlgorithm,
    facts: &RunFacts,
    plan: &Plan,
    claim: Budget,
) -> Result<Option<Guarantee>, Problem> {
    let provable = match algorithm.about().verdict.is_sound() {
        true => Some((plan.clone(), algorithm.accountant(facts.sampling))),
        false => algorithm.provable_plan(facts, plan),
    };
    Ok(provable.map(|(plan, accountant)| accountant.price(&plan, claim.delta)).transpose()?)
}

fn text(record: &Record, plan: &Plan, scale: &str) -> String {
    let claimed = format!("epsilon {} at delta {:e}", record.claimed_epsilon, record.delta);
    let proved = match (record.proved_epsilon, record.accountant, record.not_proved_because) {
        (Some(epsilon), Some(accountant), _) => {
            format!("epsilon {} at delta {:e}, by {accountant}", rounded_up(epsilon), record.delta)
        }
        (_, _, because) => format!("none: {}", because.unwrap_or_default()),
    };
    let mut rows = vec![("formula", record.formula.clone())];
    for noise in &record.noise {
        // Rounded up, so that the printed noise costs no more than the proved epsilon.
        let [sigma, multiplier] = [noise.sigma, noise.noise_multiplier].map(rounded_up);
        rows.push((&noise.symbol, format!("{sigma} {scale}: multiplier {multiplier} on the sum")));
    }
    rows.extend([("claimed", claimed), ("proved", proved), ("sampling", sampling(plan))]);
    rows.extend(record.notes.iter().map(|note| ("note", note.clone())));
    labelled(&rows)
}
