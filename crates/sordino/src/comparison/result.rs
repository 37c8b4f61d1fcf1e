//! The results of a comparison: a row for each candidate, and the total cost of all runs.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sordino_accounting::{
    Delta, Epsilon,
    total::{PricedRuns, Total},
};
use sordino_privacy::{Account, PrivacyStatus};
use sordino_train::{
    Claim, Metrics, Score, TrainError,
    format::{grouped, pair, rounded_claim, rounded_up},
};

use sordino_report::Picture;

use super::{
    Candidate, Choice,
    maps::{self, Map},
};
use crate::report::{Column, markdown, table, test_records_sentence, with_measurements};

/// The result of one run of a comparison.
#[derive(Debug, Clone)]
pub struct RunResult {
    /// The score on the test records.
    pub score: Option<Score>,
    /// All metrics of the last measurement.
    pub metrics: Option<Metrics>,
    /// The content of its ledger.
    pub account: Account,
    /// Whether its plan is finished.
    pub finished: bool,
    /// Seconds of training.
    pub seconds: f64,
}

/// All results of a comparison.
#[derive(Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// None in files of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    setup: Option<Setup>,
    #[serde(flatten)]
    pub(super) total: AllRuns,
    pub(super) rows: Vec<Row>,
    #[serde(skip)]
    finished: usize,
    #[serde(skip)]
    planned: usize,
    #[serde(skip)]
    repeats: usize,
}

/// What is the same for all runs of a comparison.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Setup {
    pub(super) version: String,
    pub(super) data: Option<PathBuf>,
    pub(super) model: Option<String>,
    pub(super) training_records: u64,
    pub(super) test_records: u64,
    pub(super) repeats: usize,
    /// The privacy budget of each run; none in files of earlier versions.
    #[serde(default)]
    pub(super) epsilon: Option<f64>,
    #[serde(default)]
    pub(super) delta: Option<f64>,
}

impl Setup {
    fn new(candidate: &Candidate, repeats: usize) -> Self {
        let (settings, resolved) = (candidate.priced.settings(), &candidate.priced.resolved);
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            data: settings.data,
            model: settings.model,
            training_records: resolved.facts.records,
            test_records: resolved.data.test_records,
            repeats,
            epsilon: settings.epsilon.map(Epsilon::get),
            delta: settings.delta.map(Delta::get),
        }
    }
}

impl Comparison {
    /// Evaluates the results of each candidate's runs. Runs that were not finished count for the total cost only.
    pub(super) fn new(
        candidates: &[Candidate],
        mut results: Vec<Vec<RunResult>>,
        repeats: usize,
    ) -> Result<Self, TrainError> {
        let total = AllRuns::new(candidates, &results)?;
        results.iter_mut().for_each(|results| results.retain(|result| result.finished));
        let finished = results.iter().map(Vec::len).sum();
        let measured = candidates.iter().zip(&results).filter(|(_, results)| !results.is_empty());
        let mut rows: Vec<Row> =
            measured.map(|(candidate, results)| Row::new(candidate, results)).collect::<Result<_, _>>()?;
        if rows.iter().any(|row| row.tuned.is_some()) {
            mark_best(&mut rows);
        }
        let setup = candidates.first().map(|candidate| Setup::new(candidate, repeats));
        Ok(Self { setup, total, rows, finished, planned: candidates.len() * repeats, repeats })
    }

    /// The number of finished runs and of planned runs.
    pub fn progress(&self) -> (usize, usize) {
        (self.finished, self.planned)
    }

    /// The results as tables for a terminal.
    pub fn text(&self) -> String {
        self.written(table, Map::text)
    }

    /// The results as Markdown.
    pub fn markdown(&self) -> String {
        self.written(markdown, Map::markdown)
    }

    /// All settings that were tried, as heat maps.
    pub fn picture(&self) -> Picture {
        maps::picture(&self.maps())
    }

    pub(super) fn setup(&self) -> Option<&Setup> {
        self.setup.as_ref()
    }

    pub(super) fn maps(&self) -> Vec<Map> {
        maps::maps(
            self.rows.iter().filter_map(|row| Some((&*row.algorithm, row.tuned.as_ref()?, Some(row.mean)))),
        )
    }

    /// What the accuracies are to be compared with, and how exact they are.
    pub(super) fn accuracy_note(&self) -> String {
        let majority = self.rows.iter().find_map(|row| row.majority);
        let mut note = majority.map_or(String::new(), |share| {
            format!(
                "\nAlways predicting the most frequent class has an accuracy of {:.2} %.\n",
                100.0 * share
            )
        });
        if self.rows.iter().any(|row| row.interval.is_some()) {
            note += "+- is half the width of a 95 % interval for one run. It covers the sampling error of the test records";
            note += match self.rows.iter().any(|row| row.protected) {
                true => " and the noise that protects them.\n",
                false => ".\n",
            };
        }
        note
    }

    fn written(&self, table: fn(&[Column], &[Vec<String>]) -> String, map: fn(&Map) -> String) -> String {
        let runs = match self.repeats {
            1 => "1 run".to_owned(),
            repeats if self.finished == self.planned => format!("{repeats} runs"),
            repeats => format!("up to {repeats} runs"),
        };
        let header = ["algorithm", "mean", "+-", "spread", "worst", "seconds", "epsilon", "settings"]
            .map(str::to_owned)
            .to_vec();
        let shown = self.rows.iter().filter(|row| row.best != Some(false)).map(Row::cells);
        let mut cells: Vec<Vec<String>> = std::iter::once(header).chain(shown).collect();
        let columns = [
            Column::Left(9),
            Column::Right(6),
            Column::Right(5),
            Column::Right(6),
            Column::Right(6),
            Column::Right(7),
            Column::Left(0),
            Column::Left(0),
        ];
        let is_tuned = cells[1..].iter().any(|row| row.last().is_some_and(|settings| !settings.is_empty()));
        let columns = if is_tuned { &columns[..] } else { &columns[..7] };
        cells.iter_mut().for_each(|row| row.truncate(columns.len()));
        let mut text = format!(
            "Test accuracy in %, {runs} each. The epsilon of a row is for one run alone.\n\n{}",
            table(columns, &cells)
        );
        text += &self.accuracy_note();
        if self.rows.iter().any(Row::claims_too_little) {
            text += "\nA claim is not a proof: a run is within the privacy budget only if its proved epsilon is at most the claim.\n";
        }
        if self.rows.iter().any(|row| row.best.is_some()) {
            text += &format!(
                "\nEach row has the settings with the best mean test accuracy for its algorithm; {} settings were tried in all. The \
                 epsilon of a row does not cover this choice; the epsilon of all runs together does. WARNING: do not choose settings on \
                 private data by this table and report the epsilon of a row. `sordino tune` chooses settings with one guarantee for the whole search.\n",
                self.rows.len()
            );
        }
        for found in self.maps() {
            text += &format!("\n{}", map(&found));
        }
        if !self.total.text.is_empty() {
            text += &format!(
                "\n{}\nThe runs of a comparison are not kept. `sordino show` does not count them among the runs on this data. A choice \
                 that depends on these results costs the epsilon of all runs together.\n",
                self.total.text
            );
        }
        text
    }
}

/// All runs that began, and their total cost.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AllRuns {
    pub(super) runs: u64,
    /// None if some runs are not private.
    pub(super) epsilon_of_all: Option<f64>,
    pub(super) delta_of_all: Option<f64>,
    pub(super) relation_of_all: Option<String>,
    /// The unit that the total protects; one training record if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unit_of_all: Option<String>,
    /// The algorithms with runs that are not private.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) not_private: Vec<String>,
    #[serde(skip)]
    text: String,
}

impl AllRuns {
    /// Every run that began counts with its whole plan. All plans were fixed before the first run, so they can be composed.
    fn new(candidates: &[Candidate], results: &[Vec<RunResult>]) -> Result<Self, TrainError> {
        let (mut runs, mut priced, mut not_private) = (0, Vec::new(), Vec::<String>::new());
        let (mut sentence, mut unit) = (None, None);
        let begun = candidates.iter().zip(results).filter(|(_, results)| !results.is_empty());
        for (Candidate { algorithm, priced: run, .. }, results) in begun {
            // All runs are on the same data with the same split.
            let tests = Some(run.resolved.data.test_records);
            let settings = run.settings();
            sentence = test_records_sentence(&settings, tests, &results[0].account);
            unit = settings.unit.as_ref().map(|_| settings.protected_unit());
            runs += results.len() as u64;
            match (run.terms.plan(), run.terms.guarantee()) {
                (Some(plan), Some(&guarantee)) if all_private(results)? => {
                    priced.push(PricedRuns { plan: Some(plan), guarantee, runs: results.len() as u64 });
                }
                _ if !not_private.contains(algorithm) => not_private.push(algorithm.clone()),
                _ => {}
            }
        }
        let total = if not_private.is_empty() { Some(Total::composed(&priced)) } else { None };
        let accounts = results.iter().flatten().map(|result| &result.account);
        let total = total.map(|total| total.map(|total| with_measurements(total, accounts)));
        let together = format!("All {} runs together", grouped(runs));
        let text = match &total {
            _ if runs == 0 => String::new(),
            None => format!(
                "{together} guarantee NOTHING, because runs of these algorithms are not private: {}.",
                not_private.join(", ")
            ),
            Some(Err(error)) => {
                format!("The total cost of all {} runs is NOT KNOWN: {error}.", grouped(runs))
            }
            Some(Ok(total)) => format!(
                "{together} satisfy {}-differential privacy for {}, under {} ({}).",
                pair(total.epsilon, total.delta),
                unit.as_deref().unwrap_or("one training record"),
                total.relation,
                match total.parts {
                    1 => "all plans are priced as one".to_owned(),
                    parts => format!(
                        "not all plans can be priced as one; this is the sum of {} parts",
                        grouped(parts)
                    ),
                }
            ),
        };
        let total = total.and_then(Result::ok);
        let sentence = sentence.filter(|_| total.is_some());
        let text = text + &sentence.map(|sentence| format!("\n{sentence}")).unwrap_or_default();
        Ok(Self {
            runs,
            epsilon_of_all: total.map(|total| total.epsilon.get()),
            delta_of_all: total.map(|total| total.delta.get()),
            relation_of_all: total.map(|total| total.relation.to_string()),
            unit_of_all: unit,
            not_private,
            text,
        })
    }
}

/// Whether each of these runs has a guarantee.
fn all_private(results: &[RunResult]) -> Result<bool, TrainError> {
    for result in results {
        // Pricing zero steps is enough to find out.
        if let PrivacyStatus::NotPrivate(_) = result.account.privacy_status_after(0)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The results of one candidate.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) algorithm: String,
    /// The settings that were tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tuned: Option<Choice>,
    /// Whether no other candidate of this algorithm has a better mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) best: Option<bool>,
    /// Mean test accuracy.
    pub(super) mean: f64,
    /// The standard deviation over runs; none for a single run.
    pub(super) standard_deviation: Option<f64>,
    pub(super) worst: f64,
    /// Median seconds of a run; each core runs one at a time.
    pub(super) seconds: f64,
    /// Whether each run has a guarantee.
    pub(super) private: bool,
    /// The proved epsilon of each run; none if it is not private.
    pub(super) epsilon: Option<f64>,
    /// Whether the algorithm has no epsilon.
    pub(super) epsilon_infinite: bool,
    /// The epsilon that a paper claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) claimed_epsilon: Option<f64>,
    /// The epsilon that can be proved for an algorithm as published; its runs have no guarantee.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) provable_epsilon: Option<f64>,
    pub(super) delta: Option<f64>,
    pub(super) test_accuracies: Vec<f64>,
    /// The mean distance from an accuracy to the ends of its 95 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) interval: Option<f64>,
    /// The accuracy of always predicting the most frequent class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) majority: Option<f64>,
    /// Whether accuracies were measured with noise on protected records.
    #[serde(default)]
    pub(super) protected: bool,
}

/// The mean over runs of a number that all of them have.
fn mean_of(results: &[RunResult], number: impl Fn(&RunResult) -> Option<f64>) -> Option<f64> {
    let numbers: Option<Vec<f64>> = results.iter().map(number).collect();
    numbers.map(|numbers| numbers.iter().sum::<f64>() / numbers.len() as f64)
}

/// Marks the best of each algorithm's rows.
fn mark_best(rows: &mut [Row]) {
    for place in 0..rows.len() {
        let rivals = rows.iter().filter(|row| row.algorithm == rows[place].algorithm);
        let most = rivals.map(|row| row.mean).fold(f64::NEG_INFINITY, f64::max);
        rows[place].best = Some(rows[place].mean >= most);
    }
}

impl Row {
    fn new(candidate: &Candidate, results: &[RunResult]) -> Result<Self, TrainError> {
        let accuracy = |result: &RunResult| result.score.and_then(|score| score.accuracy);
        let accuracies: Option<Vec<f64>> = results.iter().map(accuracy).collect();
        let accuracies = accuracies.ok_or_else(|| {
            TrainError::refused("only classification can be compared", "give data whose target is a class")
        })?;
        let count = accuracies.len() as f64;
        let mean = accuracies.iter().sum::<f64>() / count;
        let squares: f64 = accuracies.iter().map(|accuracy| (accuracy - mean).powi(2)).sum();
        let mut seconds: Vec<f64> = results.iter().map(|result| result.seconds).collect();
        seconds.sort_unstable_by(f64::total_cmp);
        let account = &results[0].account;
        let guarantee = match account.privacy_status()? {
            PrivacyStatus::Private(guarantee) => Some(guarantee),
            PrivacyStatus::NotPrivate(_) => None,
        };
        let claim = Claim::new(&candidate.priced.settings(), account.plan());
        Ok(Self {
            algorithm: candidate.algorithm.clone(),
            tuned: candidate.tuned.clone(),
            best: None,
            mean,
            standard_deviation: (accuracies.len() > 1).then(|| (squares / (count - 1.0)).sqrt()),
            worst: accuracies.iter().copied().fold(f64::INFINITY, f64::min),
            seconds: seconds[seconds.len() / 2],
            private: guarantee.is_some(),
            epsilon: guarantee.map(|guarantee| guarantee.epsilon.get()),
            epsilon_infinite: account.is_unprotected() && candidate.priced.provable.is_none(),
            provable_epsilon: candidate.priced.provable.map(|provable| provable.epsilon.get()),
            claimed_epsilon: claim.map(|claim| claim.epsilon),
            delta: guarantee.map(|guarantee| guarantee.delta.get()),
            interval: mean_of(results, |result| {
                let [low, high] = result.score?.interval?;
                Some(0.5 * (high - low))
            }),
            majority: mean_of(results, |result| Some(result.metrics.as_ref()?.majority?.share.value)),
            protected: account.measurement_budget().is_some(),
            test_accuracies: accuracies,
        })
    }

    /// Whether the claimed epsilon is below the proved one.
    pub(super) fn claims_too_little(&self) -> bool {
        self.claimed_epsilon.is_some_and(|claimed| self.epsilon.is_none_or(|proved| proved > claimed))
    }

    fn cells(&self) -> Vec<String> {
        let mut epsilon = match self.epsilon {
            Some(epsilon) => rounded_up(epsilon),
            None => "NOT PRIVATE".to_owned(),
        };
        if let Some(claimed) = self.claimed_epsilon {
            epsilon += &format!(" (claimed: {})", rounded_claim(claimed));
        }
        let spread = self.standard_deviation.map(|deviation| format!("{:.2}", 100.0 * deviation));
        vec![
            self.algorithm.clone(),
            format!("{:.2}", 100.0 * self.mean),
            self.interval.map_or("-".to_owned(), |half| format!("{:.2}", 100.0 * half)),
            spread.unwrap_or("-".to_owned()),
            format!("{:.2}", 100.0 * self.worst),
            format!("{:.1}", self.seconds),
            epsilon,
            self.tuned.as_ref().map(Choice::to_string).unwrap_or_default(),
        ]
    }
}
