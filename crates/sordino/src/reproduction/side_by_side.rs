//! A paper's table, side by side with its true epsilon and Sordino's results.

use serde::Serialize;
use sordino_accounting::Accountant;
use sordino_train::{
    TrainError,
    format::{rounded_to_nearest, rounded_up},
};

use super::{Cell, Experiment, Kind, Measure, RunRecord, Store, Table};
use crate::report::{Column, table};

/// The result of a reproduction.
#[derive(Debug, Serialize)]
pub struct SideBySide {
    table: &'static str,
    title: String,
    source: String,
    setting: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    finding: String,
    measure: Measure,
    /// Whether runs have a tenth of their steps.
    quick: bool,
    cells: Vec<Row>,
}

/// What is known about a cell.
#[derive(Debug, Serialize)]
struct Row {
    column: String,
    row: String,
    paper: Option<f64>,
    paper_standard_deviation: Option<f64>,
    claimed_epsilon: Option<f64>,
    true_epsilon: TrueEpsilon,
    published: Option<Measured>,
    proved: Option<Measured>,
    best: Option<Measured>,
    /// Whether the accuracy as published is below the paper's by more than two standard deviations.
    below: bool,
}

/// The epsilon of a plan as published.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TrueEpsilon {
    /// A proved upper bound.
    Proved(f64),
    /// No epsilon can be proved.
    None,
    /// Training without privacy.
    NotPrivate,
    /// The plan cannot be priced, for this reason.
    Unknown(String),
}

/// The accuracies of an experiment, in per cent, or its seconds.
#[derive(Debug, Clone, Serialize)]
struct Measured {
    experiment: String,
    mean: f64,
    standard_deviation: Option<f64>,
    runs: usize,
    seconds: f64,
    versions: Vec<String>,
    settings: String,
}

impl TrueEpsilon {
    /// The price of a cell's noise as published, and of the search that it is part of.
    pub fn of(cell: &Cell) -> Self {
        let Some((_, experiment)) = cell.experiments.iter().find(|(kind, _)| *kind == Kind::Published) else {
            return Self::None;
        };
        if cell.claimed.is_none() {
            return Self::NotPrivate;
        }
        let priced = match experiment.priced() {
            Ok(priced) => priced,
            Err(error) => return Self::Unknown(error.to_string()),
        };
        let (Some(guarantee), Some(delta)) = (priced.terms.guarantee(), cell.delta) else {
            return priced.provable.map_or(Self::None, |provable| Self::Proved(provable.epsilon.get()));
        };
        // The paper's accountant may be loose.
        let exact = match cell.search {
            Some(search) => search.epsilon(&priced.plan, delta),
            None => Accountant::Pld.price(&priced.plan, delta).map(|exact| exact.epsilon),
        };
        match (exact, cell.search) {
            (Ok(epsilon), _) => Self::Proved(epsilon.get()),
            (Err(_), None) => Self::Proved(guarantee.epsilon.get()),
            (Err(error), Some(_)) => Self::Unknown(error.to_string()),
        }
    }

    fn cell(&self) -> String {
        match self {
            Self::Proved(epsilon) => rounded_up(*epsilon),
            Self::None => "none".to_owned(),
            Self::NotPrivate => "-".to_owned(),
            Self::Unknown(_) => "?".to_owned(),
        }
    }
}

impl Measured {
    fn of(
        experiment: &Experiment,
        store: &Store,
        most: u64,
        measure: Measure,
    ) -> Result<Option<Self>, TrainError> {
        let mut runs = store.runs(experiment)?;
        runs.retain(|run| run.seed <= most);
        if runs.is_empty() {
            return Ok(None);
        }
        let count = runs.len() as f64;
        let number = |run: &RunRecord| match measure {
            Measure::Accuracy => 100.0 * run.accuracy,
            Measure::Seconds => run.seconds,
        };
        let mean = runs.iter().map(number).sum::<f64>() / count;
        let squares: f64 = runs.iter().map(|run| (number(run) - mean).powi(2)).sum();
        let mut versions: Vec<String> = runs.iter().map(|run| run.version.clone()).collect();
        versions.sort_unstable();
        versions.dedup();
        Ok(Some(Self {
            experiment: experiment.key(),
            mean,
            standard_deviation: (runs.len() > 1).then(|| (squares / (count - 1.0)).sqrt()),
            runs: runs.len(),
            seconds: runs.iter().map(|run| run.seconds).sum::<f64>() / count,
            versions,
            settings: experiment.settings.to_toml(),
        }))
    }

    fn cell(measured: Option<&Self>) -> String {
        match measured {
            None => "-".to_owned(),
            Some(Self { mean, standard_deviation: Some(deviation), .. }) => {
                format!("{mean:.2} ± {deviation:.2}")
            }
            Some(Self { mean, .. }) => format!("{mean:.2}"),
        }
    }
}

impl SideBySide {
    /// Collects the stored results of these cells. `runs` is the largest number of runs of an experiment that are used.
    ///
    /// # Errors
    /// A file of the store that cannot be read.
    pub fn new(
        table: &Table,
        cells: &[Cell],
        store: &Store,
        runs: u64,
        quick: bool,
    ) -> Result<Self, TrainError> {
        let row = |cell: &Cell| -> Result<Row, TrainError> {
            let find =
                |kind| cell.experiments.iter().find(|(other, _)| *other == kind).map(|(_, found)| found);
            let trained = |found: &Experiment| if quick { found.clone().shortened() } else { found.clone() };
            let measured = |kind| {
                let found = find(kind).map(trained);
                found.map(|found| Measured::of(&found, store, runs, table.measure)).transpose()
            };
            let published = measured(Kind::Published)?.flatten();
            Ok(Row {
                column: cell.column.clone(),
                row: cell.row.clone(),
                paper: cell.paper,
                paper_standard_deviation: cell.spread,
                claimed_epsilon: cell.claimed,
                true_epsilon: TrueEpsilon::of(cell),
                below: !quick && table.measure == Measure::Accuracy && is_below(cell, published.as_ref()),
                published,
                proved: measured(Kind::Proved)?.flatten(),
                best: measured(Kind::Best)?.flatten(),
            })
        };
        Ok(Self {
            table: table.name,
            title: table.title.clone(),
            source: table.source.clone(),
            setting: table.setting.trim().to_owned(),
            finding: if quick { String::new() } else { table.finding.trim().to_owned() },
            measure: table.measure,
            quick,
            cells: cells.iter().map(row).collect::<Result<_, _>>()?,
        })
    }

    /// A table for the terminal.
    pub fn text(&self) -> String {
        let rows: Vec<Vec<String>> = self.lines().into_iter().map(Vec::from).collect();
        let columns = [
            Column::Left(0),
            Column::Left(0),
            Column::Right(0),
            Column::Right(0),
            Column::Right(0),
            Column::Right(0),
            Column::Right(0),
            Column::Right(0),
        ];
        format!(
            "{}: {}\n{}\n\n{}\n{}",
            self.table,
            self.title,
            self.source,
            table(&columns, &rows),
            self.explanation()
        )
    }

    /// The table as a page of Markdown.
    pub fn markdown(&self) -> String {
        let lines = self.lines();
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | ").replace("  ", " "));
        let mut text = format!("# {}\n\n{}\n\n{}\n\n", self.title, self.source, self.setting);
        text += &line(&lines[0]);
        text += "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";
        text.extend(lines[1..].iter().map(|cells| line(cells)));
        text += &format!("\n{}", self.explanation());
        if !self.finding.is_empty() {
            text += &format!("\n{}\n", self.finding);
        }
        text += &format!("\n{}\n\n", self.provenance());
        text += &format!(
            "`sordino reproduce {}`, with the folder of data, trains what is missing and prints this table.\n",
            self.table
        );
        text
    }

    /// A line of titles, and a line for each cell.
    fn lines(&self) -> Vec<[String; 8]> {
        let titles =
            ["data", "algorithm", "claimed", "true epsilon", "paper", "as published", "proved", "best"];
        let number = |number: Option<f64>| number.map_or("-".to_owned(), rounded_to_nearest);
        let line = |row: &Row| {
            let paper = match (row.paper, row.paper_standard_deviation) {
                (Some(paper), Some(deviation)) => format!("{paper:.2} ± {deviation:.2}"),
                (Some(paper), None) => format!("{paper:.2}"),
                _ => "-".to_owned(),
            };
            let published = Measured::cell(row.published.as_ref()) + if row.below { " *" } else { "" };
            [
                row.column.clone(),
                row.row.clone(),
                number(row.claimed_epsilon),
                row.true_epsilon.cell(),
                paper,
                published,
                Measured::cell(row.proved.as_ref()),
                Measured::cell(row.best.as_ref()),
            ]
        };
        std::iter::once(titles.map(str::to_owned)).chain(self.cells.iter().map(line)).collect()
    }

    fn explanation(&self) -> String {
        let mut text = match self.measure {
            Measure::Accuracy => "Test accuracies in %, with standard deviations over runs. ",
            Measure::Seconds => "Seconds of one run, with standard deviations over runs. ",
        }
        .to_owned();
        text += "`true epsilon` is proved for the noise as published, under addition or removal of one record (the number of records is \
                 public). `proved` is the same algorithm with enough noise to prove the claimed epsilon. `best` is Sordino's best known setting \
                 at that epsilon.\n";
        text += "All runs are seeded, so that they can be repeated. A seeded run is not private. The same settings without a seed have the \
                 stated epsilon.\n";
        if self.cells.iter().any(|row| row.below) {
            text += "An asterisk marks results below the paper's by more than two standard deviations.\n";
        }
        if self.quick {
            text += "QUICK: one run with a tenth of the steps. These numbers say nothing about the paper.\n";
        }
        text
    }

    /// How many runs there are, and of which versions.
    fn provenance(&self) -> String {
        let measured = self.cells.iter().flat_map(|row| [&row.published, &row.proved, &row.best]).flatten();
        let (mut fewest, mut most, mut versions) = (usize::MAX, 0, Vec::new());
        for Measured { runs, versions: used, .. } in measured {
            (fewest, most) = (fewest.min(*runs), most.max(*runs));
            versions.extend(used.iter().cloned());
        }
        versions.sort_unstable();
        versions.dedup();
        match most {
            0 => "Nothing has been trained yet.".to_owned(),
            _ => format!(
                "Each result is the mean of {} with the seeds 1, 2, ...; Sordino {}.",
                if fewest == most { format!("{most} runs") } else { format!("{fewest} to {most} runs") },
                versions.join(", ")
            ),
        }
    }
}

/// Whether a result is below the paper's by more than two standard deviations of their difference.
fn is_below(cell: &Cell, published: Option<&Measured>) -> bool {
    let (Some(paper), Some(Measured { mean, standard_deviation: Some(deviation), .. })) =
        (cell.paper, published)
    else {
        return false;
    };
    paper - mean > 2.0 * cell.spread.unwrap_or(0.0).hypot(*deviation)
}
