//! A paper's table, side by side with its true epsilon and Sordino's results.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sordino_accounting::{Accountant, Delta};
use sordino_train::{
    TrainError,
    format::{rounded_to_nearest, rounded_up, scientific},
};

use super::{Cell, Experiment, Kind, Measure, Point, RunRecord, Store, Table, experiment::QUICK_STEPS};
use crate::{
    comparison::{Map, maps},
    report::{Column, table},
};

/// The number of runs of an experiment by default.
pub const DEFAULT_RUNS: u64 = 3;

/// The results that a finding refers to.
pub(super) const FOUND_WITH: &str = "This finding refers to the results that are stored in Sordino's repository, in `docs/reproduction/results`. Experiments that are not cells of this page or of a linked page (other learning rates, for example) are described only here, and their runs are not stored.";

/// The result of a reproduction.
#[derive(Debug, Serialize, Deserialize)]
pub struct SideBySide {
    pub(super) table: String,
    pub(super) title: String,
    pub(super) source: String,
    pub(super) setting: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) finding: String,
    pub(super) measure: Measure,
    /// Whether runs have only a few steps.
    quick: bool,
    /// The largest number of runs of an experiment.
    #[serde(default)]
    runs: u64,
    /// The number of missing results.
    #[serde(default)]
    missing: usize,
    pub(super) cells: Vec<Row>,
}

/// What is known about a cell.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) column: String,
    pub(super) row: String,
    pub(super) paper: Option<f64>,
    pub(super) paper_standard_deviation: Option<f64>,
    claimed_epsilon: Option<f64>,
    #[serde(default)]
    delta: Option<f64>,
    true_epsilon: TrueEpsilon,
    /// Its place in a grid, if it belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    point: Option<Point>,
    pub(super) published: Option<Measured>,
    pub(super) proved: Option<Measured>,
    pub(super) best: Option<Measured>,
    /// Whether the accuracy as published is below the paper's by more than two standard deviations.
    below: bool,
}

/// The epsilon of a plan as published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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

/// The accuracies of an experiment, in per cent, its losses, or its seconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Measured {
    experiment: String,
    pub(super) mean: f64,
    pub(super) standard_deviation: Option<f64>,
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
        let number = |run: &RunRecord| match measure {
            Measure::Accuracy => run.accuracy.map(|accuracy| 100.0 * accuracy),
            Measure::Loss => run.loss,
            Measure::Seconds => Some(run.seconds),
        };
        let numbers: Vec<f64> = runs.iter().filter_map(number).collect();
        if numbers.is_empty() {
            return Ok(None);
        }
        let count = numbers.len() as f64;
        let mean = numbers.iter().sum::<f64>() / count;
        let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
        let mut versions: Vec<String> = runs.iter().map(|run| run.version.clone()).collect();
        versions.sort_unstable();
        versions.dedup();
        Ok(Some(Self {
            experiment: experiment.key(),
            mean,
            standard_deviation: (numbers.len() > 1).then(|| (squares / (count - 1.0)).sqrt()),
            runs: numbers.len(),
            seconds: runs.iter().map(|run| run.seconds).sum::<f64>() / runs.len() as f64,
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
            Some(Self { mean, .. }) => format!("{mean:.2} (1)"),
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
        // Pricing a cell with thousands of different steps takes a second.
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
                delta: cell.delta.filter(|_| cell.claimed.is_some()).map(Delta::get),
                true_epsilon: TrueEpsilon::of(cell),
                point: cell.point.clone(),
                below: !quick && table.measure == Measure::Accuracy && is_below(cell, published.as_ref()),
                published,
                proved: measured(Kind::Proved)?.flatten(),
                best: measured(Kind::Best)?.flatten(),
            })
        };
        let rows: Vec<Row> = cells.par_iter().map(row).collect::<Result<_, _>>()?;
        let experiments: usize = cells.iter().map(|cell| cell.experiments.len()).sum();
        let results = rows.iter().flat_map(|row| [&row.published, &row.proved, &row.best]).flatten().count();
        Ok(Self {
            table: table.name.to_owned(),
            title: table.title.clone(),
            source: table.source.clone(),
            setting: table.setting.trim().to_owned(),
            // A finding is about all cells.
            finding: if quick || cells.len() < table.cell_count() {
                String::new()
            } else {
                table.finding.trim().to_owned()
            },
            measure: table.measure,
            quick,
            runs,
            missing: experiments - results,
            cells: rows,
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
        let finding = match self.finding.as_str() {
            "" => String::new(),
            finding => format!("\n{FOUND_WITH}\n\n{finding}\n"),
        };
        format!(
            "{}: {}\n{}\n\n{}\n\n{}\n{}{}\n{}",
            self.table,
            self.title,
            self.source,
            plain(&self.setting),
            table(&columns, &rows),
            self.maps(None).iter().map(|map| format!("\n{}", map.text())).collect::<String>()
                + &plain(&self.explanation()),
            self.provenance(),
            plain(&finding),
        )
    }

    /// The table as a page of Markdown.
    pub fn markdown(&self) -> String {
        let lines = self.lines();
        let line = |cells: &[String]| {
            let cells: Vec<&str> = cells.iter().map(|cell| cell.trim()).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let mut text = format!("# {}\n\n{}\n\n{}\n\n", self.title, self.source, self.setting);
        text += &line(&lines[0]);
        text += "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";
        text.extend(lines[1..].iter().map(|cells| line(cells)));
        text.extend(self.maps(None).iter().map(|map| format!("\n{}", map.markdown())));
        text += &format!("\n{}", self.explanation());
        if !self.finding.is_empty() {
            text += &format!("\n## Finding\n\n{FOUND_WITH}\n\n{}\n", self.finding);
        }
        text += &format!("\n{}\n\n", self.provenance());
        let runs = match self.runs {
            DEFAULT_RUNS => String::new(),
            runs => format!(" and {runs} runs of each experiment"),
        };
        text += &format!(
            "`sordino reproduce {}`, with the folder of the data{runs}, trains the missing runs and prints this table.\n",
            self.table
        );
        text
    }

    /// The accuracies as published over grids of two settings, of one column or of all.
    pub(super) fn maps(&self, column: Option<&str>) -> Vec<Map> {
        let in_column = |row: &&Row| column.is_none_or(|column| row.column == column);
        let points = self.cells.iter().filter(in_column).filter_map(|row| {
            let point = row.point.as_ref().filter(|point| point.values.len() == 2)?;
            let title =
                [&row.column, &point.grid, "as published"].into_iter().filter(|part| !part.is_empty());
            let mean = row.published.as_ref().map(|measured| measured.mean / 100.0);
            Some((title.collect::<Vec<_>>().join(", "), &point.values, mean))
        });
        let points: Vec<_> = points.filter(|_| self.measure == Measure::Accuracy).collect();
        let mut maps = maps(points.iter().map(|(title, point, mean)| (title.as_str(), *point, *mean)));
        maps.retain(|map| !map.is_empty());
        maps
    }

    /// A line of titles, and a line for each cell.
    pub(super) fn lines(&self) -> Vec<[String; 8]> {
        let titles =
            ["data", "algorithm", "claimed", "true epsilon", "paper", "as published", "proved", "best"];
        let has_marks = self.cells.iter().any(|row| row.below);
        let number = |number: Option<f64>| number.map_or("-".to_owned(), rounded_to_nearest);
        let line = |row: &Row| {
            let paper = match (row.paper, row.paper_standard_deviation) {
                (Some(paper), Some(deviation)) => format!("{paper:.2} ± {deviation:.2}"),
                (Some(paper), None) => format!("{paper:.2}"),
                _ => "-".to_owned(),
            };
            let mark = match (row.below, has_marks) {
                (true, _) => " *",
                // The numbers stay aligned.
                (false, true) => "  ",
                (false, false) => "",
            };
            let published = Measured::cell(row.published.as_ref()) + mark;
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

    pub(super) fn explanation(&self) -> String {
        let mut text = match self.measure {
            Measure::Accuracy => "Test accuracies in %, with standard deviations over runs. ",
            Measure::Loss => "Test losses per token, with standard deviations over runs. ",
            Measure::Seconds => "Seconds of one run, with standard deviations over runs. ",
        }
        .to_owned();
        text += &format!(
            "`true epsilon` is a proved upper bound for the noise as published,{} under addition or removal of one record (the number of records \
             is public); `none` means that no epsilon can be proved. If the paper uses another neighbouring relation, the setting above states it. `proved` is the same algorithm with enough noise to prove the claimed epsilon. \
             `best` is Sordino's best known setting at that epsilon, with any model and algorithm, so it is the same in all rows with the same data set and epsilon.\n",
            self.delta()
        );
        text += "All runs are seeded, so that the same build of Sordino can repeat them. A seeded run is not private. Without a seed, `proved` and \
                 `best` have the claimed epsilon, and `as published` has the true epsilon. (Where the claim is about a search, so are both.)\n";
        if self.cells.iter().any(|row| row.below) {
            text += "An asterisk marks results below the paper's by more than two standard deviations. ";
        }
        let results = self.cells.iter().flat_map(|row| [&row.published, &row.proved, &row.best]).flatten();
        if results.into_iter().any(|result| result.runs == 1) {
            text += "(1) marks single runs, whose standard deviation is not known.\n";
        } else if text.ends_with(' ') {
            text = text.trim_end().to_owned() + "\n";
        }
        if self.quick {
            text += &format!(
                "QUICK: one run with {QUICK_STEPS} steps. These numbers say nothing about the paper.\n"
            );
        }
        text
    }

    /// The delta of the claims.
    fn delta(&self) -> String {
        let mut deltas: Vec<f64> = self.cells.iter().filter_map(|row| row.delta).collect();
        deltas.sort_unstable_by(f64::total_cmp);
        deltas.dedup();
        let shown = |delta: f64| match format!("{delta:e}") {
            exact if exact.len() <= 6 => exact,
            // Not below the delta for which epsilon is proved.
            _ => scientific(delta, f64::ceil),
        };
        match deltas[..] {
            [] => String::new(),
            [delta] => format!(" at delta {},", shown(delta)),
            [least, .., most] => {
                format!(" at the delta of each data set ({} to {}),", shown(least), shown(most))
            }
        }
    }

    /// How many runs there are, and of which versions.
    pub(super) fn provenance(&self) -> String {
        let measured = self.cells.iter().flat_map(|row| [&row.published, &row.proved, &row.best]).flatten();
        let (mut fewest, mut most, mut versions) = (usize::MAX, 0, Vec::new());
        for Measured { runs, versions: used, .. } in measured {
            (fewest, most) = (fewest.min(*runs), most.max(*runs));
            versions.extend(used.iter().cloned());
        }
        versions.sort_unstable();
        versions.dedup();
        let missing = match self.missing {
            0 => String::new(),
            1 => " 1 result is missing.".to_owned(),
            missing => format!(" {missing} results are missing."),
        };
        match most {
            0 => "Nothing has been trained yet.".to_owned(),
            _ => format!(
                "Each result is {}; Sordino {}.{missing}",
                match (fewest, most) {
                    (1, 1) => "that of one run".to_owned(),
                    _ if fewest == most => format!("the mean of {most} runs with the seeds 1, 2, ..."),
                    _ => format!("the mean of {fewest} to {most} runs with the seeds 1, 2, ..."),
                },
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

/// A text without Markdown syntax, which a terminal and a report would show literally: code is in quotes, and only the words of links remain.
pub(super) fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, words, after)) = first_link(rest) {
        plain += before;
        plain += words;
        rest = after;
    }
    (plain + rest).replace('`', "\"")
}

/// What is before the first link `[words](target)`, its words, and what is after it.
fn first_link(text: &str) -> Option<(&str, &str, &str)> {
    let (head, tail) = text.split_once("](")?;
    let (before, words) = head.rsplit_once('[')?;
    let (_, after) = tail.split_once(')')?;
    Some((before, words, after))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reproduction::data_sets;

    /// A table of four cells of a grid; one has no result, and one has three runs.
    fn grid() -> SideBySide {
        let cell = |rate: f64, norm: f64, runs: usize| {
            let measured = json!({
                "experiment": "e", "mean": 90.0 + rate - norm, "standard_deviation": (runs > 1).then_some(0.5), "runs": runs, "seconds": 1.0,
                "versions": ["0.1.0"], "settings": "",
            });
            json!({
                "column": "MNIST, 1", "row": format!("DP-SGD, lr {rate}, c {norm}"), "paper": null, "paper_standard_deviation": null,
                "claimed_epsilon": 1.0, "delta": 1.911_311_5e-5, "true_epsilon": { "proved": 0.9 },
                "point": { "grid": "DP-SGD", "values": { "lr": rate, "c": norm } },
                "published": (runs > 0).then_some(measured), "proved": null, "best": null, "below": false,
            })
        };
        let cells = [cell(0.5, 1.0, 1), cell(2.0, 1.0, 3), cell(0.5, 4.0, 1), cell(2.0, 4.0, 0)];
        serde_json::from_value(json!({
            "table": "t", "title": "T", "source": "S", "setting": "", "measure": "accuracy", "quick": false, "runs": 3, "missing": 1, "cells": cells,
        }))
        .unwrap()
    }

    #[test]
    fn a_grid_of_two_settings_is_also_shown_as_a_map() {
        let page = grid().markdown();
        assert!(page.contains("MNIST, 1, DP-SGD, as published: mean test accuracy in %"), "{page}");
        assert!(page.contains("| 1.0 | 89.50 | **91.00** |\n| 4.0 | 86.50 | - |\n"), "{page}");
        assert!(grid().text().contains("91.00*"));
        assert_eq!((grid().maps(Some("MNIST, 1")).len(), grid().maps(Some("MNIST, 2")).len()), (1, 0));
        let losses = SideBySide { measure: Measure::Loss, ..grid() };
        assert!(losses.maps(None).is_empty());
    }

    #[test]
    fn the_number_of_runs_is_stated_and_delta_is_rounded_up() {
        let page = grid().markdown();
        assert!(page.contains("Each result is the mean of 1 to 3 runs with the seeds 1, 2, ...; Sordino 0.1.0. 1 result is missing."), "{page}");
        assert!(
            page.contains("89.50 (1)")
                && page.contains("91.00 ± 0.50")
                && page.contains("(1) marks single runs")
        );
        assert!(page.contains("at delta 1.912e-5, under addition"), "{page}");
    }

    #[test]
    fn an_asterisk_needs_two_standard_deviations_of_the_difference() {
        let experiment = Experiment { data: &data_sets()[0], settings: Default::default() };
        let cell = |spread| Cell {
            row: String::new(),
            column: String::new(),
            paper: Some(92.0),
            spread,
            claimed: None,
            delta: None,
            search: None,
            point: None,
            experiments: vec![(Kind::Published, experiment.clone())],
        };
        let measured = |mean, standard_deviation| Measured {
            experiment: String::new(),
            mean,
            standard_deviation,
            runs: 3,
            seconds: 1.0,
            versions: Vec::new(),
            settings: String::new(),
        };
        for (spread, mean, deviation, expected) in [
            (None, 90.9, Some(0.5), true),
            (None, 91.1, Some(0.5), false),
            (Some(0.5), 90.9, Some(0.5), false),
            (Some(0.5), 90.5, Some(0.5), true),
            (None, 50.0, None, false),
        ] {
            assert_eq!(is_below(&cell(spread), Some(&measured(mean, deviation))), expected, "{mean}");
        }
        assert!(!is_below(&cell(None), None));
    }

    #[test]
    fn markdown_syntax_is_left_out() {
        assert_eq!(plain("see [Table IV](dc-sgd-4.md) and [b](c), `x`"), "see Table IV and b, \"x\"");
        assert_eq!(plain("a [0, 1] (b)"), "a [0, 1] (b)");
    }
}
