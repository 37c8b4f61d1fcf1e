//! The results of a comparison: a row for each algorithm, the table of all rows, and the total cost of all runs.

use serde::Serialize;
use sordino_accounting::total::{PricedRuns, Total};
use sordino_privacy::PrivacyStatus;
use sordino_train::Ending;

use crate::{
    claim::{Claim, shown},
    experiment::Experiment,
    problem::Problem,
    report::uncovered,
    settings::Settings,
    statement::{grouped, pair, rounded_up},
};

/// All results of a comparison.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    #[serde(flatten)]
    pub(crate) all: AllRuns,
    pub(crate) rows: Vec<Row>,
}

/// All runs that began, and their total cost.
#[derive(Debug, Serialize)]
pub(crate) struct AllRuns {
    runs: u64,
    /// None if some runs are not private.
    epsilon_of_all: Option<f64>,
    delta_of_all: Option<f64>,
    relation_of_all: Option<String>,
    /// The algorithms with runs that are not private.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_private: Vec<String>,
    #[serde(skip)]
    text: String,
}

impl AllRuns {
    /// Every run that began counts with its whole plan. All plans were fixed before the first run, so they can be composed.
    pub(crate) fn of<'a>(
        begun: impl Iterator<Item = (&'a String, &'a Experiment, &'a Vec<Ending>)>,
    ) -> Result<Self, Problem> {
        let (mut runs, mut priced, mut not_private) = (0, Vec::new(), Vec::<String>::new());
        let mut not_covered = None;
        for (name, experiment, endings) in begun.filter(|(.., endings)| !endings.is_empty()) {
            // All runs are on the same data, split in the same way.
            let tests = Some(experiment.facts.test_records);
            not_covered = uncovered(&experiment.settings, tests, endings[0].account.records());
            runs += endings.len() as u64;
            let mut private = true;
            for ending in endings {
                private &= matches!(ending.account.privacy_status_after(0)?, PrivacyStatus::Private(_));
            }
            match (experiment.terms.plan(), experiment.terms.guarantee()) {
                (Some(plan), Some(&guarantee)) if private => {
                    priced.push(PricedRuns { plan, guarantee, runs: endings.len() as u64 });
                }
                _ if !not_private.contains(name) => not_private.push(name.clone()),
                _ => {}
            }
        }
        let total = if not_private.is_empty() { Some(Total::composed(&priced)) } else { None };
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
                "{together} satisfy {}-differential privacy for one training record, under {} ({}).",
                pair(total.epsilon, total.delta),
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
        let not_covered = not_covered.filter(|_| total.is_some());
        let text = text + &not_covered.map(|sentence| format!("\n{sentence}")).unwrap_or_default();
        Ok(Self {
            runs,
            epsilon_of_all: total.map(|total| total.epsilon.get()),
            delta_of_all: total.map(|total| total.delta.get()),
            relation_of_all: total.map(|total| total.relation.to_string()),
            not_private,
            text,
        })
    }
}

/// What was measured of one algorithm with one choice of settings.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    algorithm: String,
    /// What was chosen from the settings to try.
    #[serde(skip_serializing_if = "Option::is_none")]
    tuned: Option<String>,
    /// Whether no other choice for this algorithm had a better mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    best: Option<bool>,
    /// Mean test accuracy.
    mean: f64,
    /// The standard deviation over runs; none for a single one.
    standard_deviation: Option<f64>,
    worst: f64,
    /// Median seconds of a run, one for each core at a time.
    seconds: f64,
    /// Whether each run has a guarantee at all.
    private: bool,
    /// The proved epsilon of each run; none if it is not private.
    epsilon: Option<f64>,
    /// Whether there is none because the algorithm has none.
    epsilon_infinite: bool,
    /// What a paper claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    claimed_epsilon: Option<f64>,
    delta: Option<f64>,
    test_accuracies: Vec<f64>,
}

/// Marks the best of each algorithm's rows.
pub(crate) fn mark_best(rows: &mut [Row]) {
    for place in 0..rows.len() {
        let rivals = rows.iter().filter(|row| row.algorithm == rows[place].algorithm);
        let most = rivals.map(|row| row.mean).fold(f64::NEG_INFINITY, f64::max);
        rows[place].best = Some(rows[place].mean >= most);
    }
}

pub(crate) fn row(
    algorithm: String,
    tuned: Option<String>,
    settings: &Settings,
    endings: &[Ending],
) -> Result<Row, Problem> {
    let accuracy = |ending: &Ending| ending.score.and_then(|score| score.accuracy);
    let accuracies: Option<Vec<f64>> = endings.iter().map(accuracy).collect();
    let accuracies = accuracies.ok_or_else(|| {
        Problem::refused("only classification is compared so far", "give data whose target is a class")
    })?;
    #[expect(clippy::cast_precision_loss, reason = "a count of runs")]
    let count = accuracies.len() as f64;
    let mean = accuracies.iter().sum::<f64>() / count;
    let squares: f64 = accuracies.iter().map(|accuracy| (accuracy - mean).powi(2)).sum();
    let mut seconds: Vec<f64> = endings.iter().map(|ending| ending.seconds).collect();
    seconds.sort_unstable_by(f64::total_cmp);
    let guarantee = match endings[0].account.privacy_status()? {
        PrivacyStatus::Private(guarantee) => Some(guarantee),
        PrivacyStatus::NotPrivate(_) => None,
    };
    Ok(Row {
        algorithm,
        tuned,
        best: None,
        mean,
        standard_deviation: (accuracies.len() > 1).then(|| (squares / (count - 1.0)).sqrt()),
        worst: accuracies.iter().copied().fold(f64::INFINITY, f64::min),
        seconds: seconds[seconds.len() / 2],
        private: guarantee.is_some(),
        epsilon: guarantee.map(|guarantee| guarantee.epsilon.get()),
        epsilon_infinite: endings[0].account.is_unprotected(),
        claimed_epsilon: Claim::of(settings, endings[0].account.plan()).map(|claim| claim.epsilon),
        delta: guarantee.map(|guarantee| guarantee.delta.get()),
        test_accuracies: accuracies,
    })
}

pub(crate) fn table(Comparison { all, rows }: &Comparison, runs: &str) -> String {
    let width = rows.iter().map(|row| row.algorithm.len()).max().unwrap_or(0).max(9);
    let mut text = format!(
        "Test accuracy in %, {runs} each. The epsilon of a row is for one run alone.\n\n  \
         {:<width$}    mean  spread   worst  seconds  epsilon\n",
        "algorithm"
    );
    for row in rows.iter().filter(|row| row.best != Some(false)) {
        let spread =
            row.standard_deviation.map_or("-".to_owned(), |deviation| format!("{:.2}", 100.0 * deviation));
        let mut epsilon = match row.epsilon {
            Some(epsilon) => rounded_up(epsilon),
            None if row.epsilon_infinite && row.claimed_epsilon.is_some() => "infinite".to_owned(),
            None => "NOT PRIVATE".to_owned(),
        };
        if let Some(claimed) = row.claimed_epsilon {
            epsilon += &format!(" (claimed: {})", shown(claimed));
        }
        if let Some(tuned) = row.tuned.as_ref().filter(|tuned| !tuned.is_empty()) {
            epsilon += &format!("  {tuned}");
        }
        text += &format!(
            "  {:<width$}  {:>6.2}  {spread:>6}  {:>6.2}  {:>7.1}  {epsilon}\n",
            row.algorithm,
            100.0 * row.mean,
            100.0 * row.worst,
            row.seconds
        );
    }
    if rows.iter().any(|row| row.claimed_epsilon.is_some()) {
        text += "\nWhat is claimed is not proved: these runs are not at the budget.\n";
    }
    if rows.iter().any(|row| row.best.is_some()) {
        text += &format!(
            "\nEach row has the settings with the best mean test accuracy for its algorithm; {} settings were tried in all. The \
             epsilon of a row does not cover this choice; the epsilon of all runs together does.\n",
            rows.len()
        );
    }
    if !all.text.is_empty() {
        text += &format!(
            "\n{}\nThe runs of a comparison are not kept. `sordino show` does not count them among the runs on this data.\n",
            all.text
        );
    }
    text
}
