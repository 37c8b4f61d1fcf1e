//! The price of a search for settings: `sordino epsilon --tuning` for a given plan, and `sordino noise --tuning` for a given budget.

use crate::report::{GuaranteeRecord, json, labelled};
use clap::{Args, ValueEnum};
use serde::Serialize;
use sordino_accounting::{
    Accountant, AccountingError, Delta, Epsilon, NoiseMultiplier, Plan, SamplingRate, Steps,
    calibrate::{self, Budget},
    pld::GroupSize,
    tuning::{self, LiuTalwar, Runs, Trial},
};
use sordino_report::significant;
use sordino_train::format::{grouped, rounded_up, scientific};

use crate::cli::problem::Problem;

/// A search over candidates, if `--tuning` is given.
#[derive(Args)]
pub(crate) struct TuningArguments {
    /// Price a whole search for settings by this method, or without a name by all methods
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "all")]
    #[arg(requires = "candidates", help_heading = "Search for settings")]
    tuning: Option<Tuning>,
    /// Number of combinations of settings that are tried
    #[arg(long, value_name = "G", requires = "tuning", allow_hyphen_values = true)]
    #[arg(help_heading = "Search for settings")]
    candidates: Option<u64>,
    /// papernot-steinke: mean number of runs [default: G, at least 2]
    #[arg(long, value_name = "MEAN", requires = "tuning", allow_hyphen_values = true)]
    #[arg(help_heading = "Search for settings")]
    trials: Option<f64>,
    /// papernot-steinke: shape of the distribution of the number of runs, above -1 [default: 0]
    #[arg(long, value_name = "ETA", requires = "tuning", allow_hyphen_values = true)]
    #[arg(help_heading = "Search for settings")]
    eta: Option<f64>,
    /// liu-talwar: probability with which the search ends after a run [default: 1/(2G)]
    #[arg(long, value_name = "GAMMA", requires = "tuning", allow_hyphen_values = true)]
    #[arg(help_heading = "Search for settings")]
    gamma: Option<f64>,
    /// liu-talwar: probability that the search reaches its limit of runs [default: 1e-20]
    #[arg(long, value_name = "D2", requires = "tuning", allow_hyphen_values = true)]
    #[arg(help_heading = "Search for settings")]
    delta_2: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Tuning {
    /// Every candidate is trained once, and everything may be released
    Composition,
    /// Random candidates and random stopping, by the theorem that the DC-SGD paper uses
    LiuTalwar,
    /// Random candidates and a random number of runs, by the lowest proved bound
    PapernotSteinke,
    /// All of them
    All,
}

/// The guarantee of the whole search, and that of one run alone.
#[derive(Serialize)]
struct Record {
    #[serde(skip_serializing_if = "Option::is_none")]
    noise_multiplier: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_epsilon: Option<f64>,
    tuning: Tuning,
    candidates: u64,
    epsilon: f64,
    delta: Delta,
    proved: bool,
    conditions: &'static str,
    mean_runs: f64,
    /// None if the number of runs is not limited.
    most_runs: Option<f64>,
    /// The same random stopping by the theorems for a geometric number of runs, or the bound from Renyi divergences alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    epsilon_papernot_steinke: Option<f64>,
    one_run: GuaranteeRecord,
    #[serde(skip)]
    rows: Vec<(&'static str, String)>,
}

/// The methods with their constants.
struct Search {
    candidates: u64,
    liu_talwar: LiuTalwar,
    runs: Runs,
    accountant: Accountant,
}

impl TuningArguments {
    /// The price of a search whose runs all follow this plan; none without `--tuning`.
    pub(crate) fn epsilon(
        &self,
        plan: &Plan,
        delta: Delta,
        accountant: Accountant,
        as_json: bool,
    ) -> Option<Result<String, Problem>> {
        let price = |search: &Search, tuning| search.price(tuning, plan, delta);
        Some(self.answer(self.tuning?, accountant, as_json, price))
    }

    /// The noise of each run such that the search is within the budget; none without `--tuning`.
    pub(crate) fn noise(
        &self,
        budget: Budget,
        (rate, steps): (SamplingRate, Steps),
        accountant: Accountant,
        as_json: bool,
    ) -> Option<Result<String, Problem>> {
        let calibrate = |search: &Search, tuning| {
            let z = search.noise_multiplier(tuning, budget, rate, steps)?.shortened();
            let priced = search.price(tuning, &Plan::dp_sgd(z, rate, steps), budget.delta)?;
            let target = budget.epsilon.get();
            Ok(Record { noise_multiplier: Some(z.get()), target_epsilon: Some(target), ..priced })
        };
        Some(self.answer(self.tuning?, accountant, as_json, calibrate))
    }

    fn answer(
        &self,
        tuning: Tuning,
        accountant: Accountant,
        as_json: bool,
        record: impl Fn(&Search, Tuning) -> Result<Record, AccountingError>,
    ) -> Result<String, Problem> {
        self.check(tuning, accountant)?;
        let search = self.search(accountant)?;
        if tuning != Tuning::All {
            let record = record(&search, tuning)?;
            return Ok(if as_json { json(&record) } else { text(&record) });
        }
        let methods = [Tuning::Composition, Tuning::LiuTalwar, Tuning::PapernotSteinke];
        let records =
            methods.into_iter().map(|method| record(&search, method)).collect::<Result<Vec<_>, _>>()?;
        Ok(if as_json { json(&records) } else { records.iter().map(text).collect::<Vec<_>>().join("\n") })
    }

    /// Refuses options of another method.
    fn check(&self, tuning: Tuning, accountant: Accountant) -> Result<(), Problem> {
        if tuning == Tuning::PapernotSteinke && !matches!(accountant, Accountant::Pld | Accountant::Rdp) {
            return Err(Problem::refused(
                format!("--tuning papernot-steinke computes its own bounds and does not use {accountant}"),
                format!("leave out --accountant {accountant}"),
            ));
        }
        let options = [
            ("--trials", self.trials.is_some(), Tuning::PapernotSteinke, "papernot-steinke"),
            ("--eta", self.eta.is_some(), Tuning::PapernotSteinke, "papernot-steinke"),
            ("--gamma", self.gamma.is_some(), Tuning::LiuTalwar, "liu-talwar"),
            ("--delta-2", self.delta_2.is_some(), Tuning::LiuTalwar, "liu-talwar"),
        ];
        let foreign = |(_, given, method, _): &(&str, bool, Tuning, &str)| {
            *given && tuning != *method && tuning != Tuning::All
        };
        match options.into_iter().find(foreign) {
            Some((option, _, _, method)) => Err(Problem::refused(
                format!("{option} belongs to --tuning {method}"),
                format!("leave out {option}, or give --tuning {method}"),
            )),
            None => Ok(()),
        }
    }

    fn search(&self, accountant: Accountant) -> Result<Search, AccountingError> {
        let candidates = self.candidates.unwrap_or(0);
        let usual = LiuTalwar::of_candidates(candidates)?;
        if let Some(gamma) = self.gamma.filter(|gamma| !(*gamma > 0.0 && *gamma <= 1.0)) {
            return Err(AccountingError::OutOfRange {
                what: "gamma",
                range: "in (0, 1]",
                got: gamma.to_string(),
                hint: "the search has 1 / gamma runs on average",
            });
        }
        let liu_talwar = match (self.gamma, self.delta_2) {
            (None, None) => usual,
            (gamma, delta_2) => {
                LiuTalwar::new(gamma.map_or(usual.mean_runs(), f64::recip), delta_2.unwrap_or(1e-20))?
            }
        };
        let mean = self.trials.unwrap_or((candidates as f64).max(2.0));
        let runs = Runs::negative_binomial(self.eta.unwrap_or(0.0), mean)?;
        Ok(Search { candidates, liu_talwar, runs, accountant })
    }
}

impl Search {
    fn noise_multiplier(
        &self,
        tuning: Tuning,
        budget: Budget,
        rate: SamplingRate,
        steps: Steps,
    ) -> Result<NoiseMultiplier, AccountingError> {
        Ok(match tuning {
            Tuning::Composition => {
                let all = Steps::new(steps.get().saturating_mul(self.candidates))?;
                calibrate::noise_multiplier(budget, rate, all, self.accountant)?.value
            }
            Tuning::LiuTalwar => self.liu_talwar.noise_multiplier(budget, rate, steps, self.accountant)?,
            Tuning::PapernotSteinke | Tuning::All => {
                tuning::noise_multiplier(budget, self.runs, rate, steps)?.value
            }
        })
    }

    fn price(&self, tuning: Tuning, plan: &Plan, delta: Delta) -> Result<Record, AccountingError> {
        let Self { candidates, liu_talwar, runs, accountant } = self;
        let counted = *candidates as f64;
        let (epsilon, one_delta, other, mean_runs, most_runs) = match tuning {
            Tuning::Composition => {
                let epsilon = tuning::repeated_epsilon(plan, *candidates, *accountant, delta)?;
                (epsilon, delta, None, counted, Some(counted))
            }
            Tuning::LiuTalwar => {
                let epsilon = liu_talwar.epsilon(plan, *accountant, delta)?;
                let other = liu_talwar.geometric_epsilon(plan, delta).ok().map(Epsilon::get);
                let (mean, most) = (liu_talwar.mean_runs(), liu_talwar.most_runs());
                (epsilon, liu_talwar.one_run_delta(delta)?, other, mean, Some(most))
            }
            Tuning::PapernotSteinke | Tuning::All => {
                let price = Trial::of(std::slice::from_ref(plan))?.price(*runs, delta)?;
                (price.epsilon(), delta, price.renyi.map(Epsilon::get), runs.mean(), None)
            }
        };
        // The theorems of Papernot and Steinke use only pld or rdp.
        let accountant = match tuning {
            Tuning::PapernotSteinke if *accountant != Accountant::Rdp => &Accountant::Pld,
            _ => accountant,
        };
        let one_run = accountant.price(plan, one_delta)?;
        let record = Record {
            noise_multiplier: None,
            target_epsilon: None,
            tuning,
            candidates: *candidates,
            epsilon: epsilon.get(),
            delta,
            proved: tuning == Tuning::PapernotSteinke || accountant.proves(),
            conditions: tuning.conditions(),
            mean_runs,
            most_runs,
            epsilon_papernot_steinke: other,
            one_run: GuaranteeRecord::new(one_run, GroupSize::ONE),
            rows: Vec::new(),
        };
        let one_run = format!(
            "({}, {}), accountant {accountant}",
            rounded_up(one_run.epsilon.get()),
            scientific(one_run.delta.get(), f64::ceil)
        );
        Ok(Record { rows: self.rows(&record, one_run), ..record })
    }

    /// The rows of the text.
    fn rows(&self, record: &Record, one_run: String) -> Vec<(&'static str, String)> {
        let guarantee = |epsilon: f64| format!("({}, {})", rounded_up(epsilon), record.delta);
        let by = match record.tuning {
            Tuning::Composition => "by composition of all runs".to_owned(),
            Tuning::LiuTalwar => format!(
                "by Liu and Talwar's theorem, as the DC-SGD paper quotes it (gamma = {}, delta_2 = {:e})",
                significant(1.0 / self.liu_talwar.mean_runs()),
                self.liu_talwar.delta_2()
            ),
            Tuning::PapernotSteinke | Tuning::All => "by the lowest proved bound".to_owned(),
        };
        let mut rows = vec![("search", format!("{}, {by}", guarantee(record.epsilon)))];
        if let Some(epsilon) = record.epsilon_papernot_steinke {
            let theorem = match record.tuning {
                Tuning::LiuTalwar => "by the lowest proved bound for a geometric number of runs",
                _ => "by Papernot and Steinke's theorem (Renyi divergences), which is also proved",
            };
            rows.push(("same search", format!("{}, {theorem}", guarantee(epsilon))));
        }
        let runs = match record.most_runs {
            Some(most) if record.tuning == Tuning::Composition => grouped(most as u64),
            Some(most) => {
                format!("{} on average, at most {}", rounded_mean(record.mean_runs), grouped(most as u64))
            }
            None => format!(
                "{} on average, with probability 0.99 at most {}",
                rounded_mean(record.mean_runs),
                grouped(self.runs.quantile(0.99))
            ),
        };
        let bound = if record.proved {
            "PROVED upper bound, under these conditions"
        } else {
            "APPROXIMATE, NOT A BOUND"
        };
        rows.extend([
            ("runs", runs),
            ("one run", one_run),
            ("status", bound.to_owned()),
            ("conditions", record.conditions.to_owned()),
        ]);
        rows
    }
}

/// A mean number of runs, without decimals that rounding has caused.
fn rounded_mean(mean: f64) -> String {
    format!("{}", (mean * 100.0).round() / 100.0)
}

impl Tuning {
    fn name(self) -> &'static str {
        match self {
            Self::Composition => "composition",
            Self::LiuTalwar => "liu-talwar",
            Self::PapernotSteinke | Self::All => "papernot-steinke",
        }
    }

    fn conditions(self) -> &'static str {
        match self {
            Self::Composition => "none: every candidate is trained once, and all models may be released",
            Self::LiuTalwar => {
                "each run trains a candidate drawn at random; the search stops after each run with probability gamma; only the best \
                 model is released; its score is private or uses public records"
            }
            Self::PapernotSteinke | Self::All => {
                "each run trains a candidate drawn at random; the number of runs is drawn from a truncated negative binomial distribution and \
                 stays secret; only the best model is released; its score is private or uses public records"
            }
        }
    }
}

fn text(record: &Record) -> String {
    let (candidates, rows) = (grouped(record.candidates), labelled(&record.rows));
    let (meets, costs) = match record.proved {
        true => ("meets", "costs at most"),
        false => ("is estimated to meet", "is estimated to cost"),
    };
    match (record.noise_multiplier, record.target_epsilon) {
        (Some(noise_multiplier), Some(target)) => format!(
            "A noise multiplier of {noise_multiplier} in each run {meets} epsilon <= {target} for the search over {candidates} \
             candidates ({}).\n\n{rows}",
            record.tuning.name()
        ),
        _ => format!(
            "The search over {candidates} candidates ({}) {costs} epsilon {} at delta {}.\n\n{rows}",
            record.tuning.name(),
            rounded_up(record.epsilon),
            record.delta
        ),
    }
}
