//! All results of a grid: for each algorithm, a table of two tuned settings.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use sordino_report::{Chart, HeatMap, Picture, Table};
use sordino_train::TrainError;
use toml::{Table as Settings, Value};

use crate::report::{Column, markdown, table};

/// The settings of a candidate that its grid chose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Choice(Settings);

impl Choice {
    pub(super) fn new(settings: Settings) -> Self {
        Self(settings)
    }

    /// How many settings it chooses.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    fn value(&self, setting: &str) -> Option<String> {
        self.0.get(setting).map(plain)
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> =
            self.0.iter().map(|(key, value)| format!("{key}={}", plain(value))).collect();
        f.write_str(&words.join(" "))
    }
}

/// A value as it is written on the command line.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The largest number of maps in one picture.
const MOST: usize = 24;

/// One algorithm's mean test accuracy over two tuned settings. The other settings are the same for all of its cells.
///
/// The columns are the values of the setting with the most values, and the rows those of the next one. Each combination of the other
/// settings has a map of its own.
#[derive(Debug, PartialEq)]
pub(crate) struct Map {
    algorithm: String,
    /// The values of the settings beyond two.
    rest: String,
    down: Axis,
    across: Axis,
    /// Mean accuracies by place in `down` and in `across`.
    cells: BTreeMap<(usize, usize), f64>,
}

/// A setting with the values that were tried; without a name, there is one value.
#[derive(Debug, Clone, PartialEq, Default)]
struct Axis {
    setting: String,
    values: Vec<String>,
}

impl Axis {
    /// The place of a candidate's value.
    fn place(&self, choice: &Choice) -> usize {
        let value = choice.value(&self.setting).unwrap_or_default();
        self.values.iter().position(|other| *other == value).unwrap_or(0)
    }
}

/// The maps of a grid's candidates: algorithm, settings, and the mean accuracy if there is one. An algorithm without a setting that has
/// several values has no map.
pub(crate) fn maps<'a>(candidates: impl IntoIterator<Item = (&'a str, &'a Choice, Option<f64>)>) -> Vec<Map> {
    let candidates: Vec<_> = candidates.into_iter().collect();
    let mut algorithms: Vec<&str> = Vec::new();
    for (algorithm, ..) in &candidates {
        if !algorithms.contains(algorithm) {
            algorithms.push(algorithm);
        }
    }
    let own = |algorithm: &str| -> Vec<(&Choice, Option<f64>)> {
        let own = candidates.iter().filter(|(name, ..)| *name == algorithm);
        own.map(|(_, choice, mean)| (*choice, *mean)).collect()
    };
    algorithms.into_iter().flat_map(|algorithm| maps_of(algorithm, &own(algorithm))).collect()
}

fn maps_of(algorithm: &str, candidates: &[(&Choice, Option<f64>)]) -> Vec<Map> {
    let mut varied = varied(candidates.iter().map(|(choice, _)| *choice));
    let Some(across) = varied.pop() else { return Vec::new() };
    let down = varied.pop().unwrap_or_else(|| Axis { setting: String::new(), values: vec![String::new()] });
    let mut maps: Vec<Map> = Vec::new();
    for (choice, mean) in candidates {
        let rest = varied
            .iter()
            .filter_map(|axis| Some(format!("{}={}", axis.setting, choice.value(&axis.setting)?)));
        let rest = rest.collect::<Vec<_>>().join(" ");
        let place = maps.iter().position(|map| map.rest == rest).unwrap_or_else(|| {
            let (algorithm, down, across) = (algorithm.to_owned(), down.clone(), across.clone());
            maps.push(Map { algorithm, rest, down, across, cells: BTreeMap::new() });
            maps.len() - 1
        });
        let at = (down.place(choice), across.place(choice));
        maps[place].cells.extend(mean.map(|mean| (at, mean)));
    }
    maps
}

/// The settings with several values, those with the fewest first; ties are in alphabetical order.
fn varied<'a>(choices: impl Iterator<Item = &'a Choice>) -> Vec<Axis> {
    let mut values: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for choice in choices {
        for (setting, value) in &choice.0 {
            let (known, value) = (values.entry(setting).or_default(), plain(value));
            if !known.contains(&value) {
                known.push(value);
            }
        }
    }
    let axes = values.into_iter().map(|(setting, values)| Axis { setting: setting.to_owned(), values });
    let mut axes: Vec<Axis> = axes.filter(|axis| axis.values.len() > 1).collect();
    axes.sort_by_key(|axis| axis.values.len());
    axes
}

/// Rejects a picture without a map or with too many.
pub(super) fn check_picture(maps: &[Map]) -> Result<(), TrainError> {
    match maps.len() {
        0 => Err(TrainError::refused(
            "the figure has nothing to show: no setting of the grid has several values",
            "a heat map shows two settings, such as learning_rate = [10, 20] and max_grad_norm = [0.5, 1]",
        )),
        count if count > MOST => Err(TrainError::refused(
            format!("the figure would have {count} heat maps; at most {MOST} are permitted"),
            "there is a map for each algorithm and for each combination of the settings beyond two; compare fewer, or use {out}",
        )),
        _ => Ok(()),
    }
}

/// The maps of a comparison in one picture.
pub(super) fn picture(maps: &[Map]) -> Picture {
    Picture::stacked("Mean test accuracy in %", maps.iter().map(Map::picture))
}

impl Map {
    /// The algorithm, and what is the same for all cells.
    fn title(&self) -> String {
        if self.rest.is_empty() {
            self.algorithm.clone()
        } else {
            format!("{}, {}", self.algorithm, self.rest)
        }
    }

    /// Whether it has no result.
    pub(crate) fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    fn best(&self) -> Option<(usize, usize)> {
        let best = |best: Option<((usize, usize), f64)>, (&at, &mean): (&(usize, usize), &f64)| match best {
            Some((_, most)) if most >= mean => best,
            _ => Some((at, mean)),
        };
        self.cells.iter().fold(None, best).map(|(at, _)| at)
    }

    fn rows(&self, best: impl Fn(String) -> String) -> Vec<Vec<String>> {
        let corner = match self.down.setting.as_str() {
            "" => self.across.setting.clone(),
            down => format!("{down} \\ {}", self.across.setting),
        };
        let head = std::iter::once(corner).chain(self.across.values.iter().cloned()).collect();
        let line = |(row, label): (usize, &String)| {
            let cell = |column| match self.cells.get(&(row, column)) {
                None => "-".to_owned(),
                Some(mean) if self.best() == Some((row, column)) => best(format!("{:.2}", 100.0 * mean)),
                Some(mean) => format!("{:.2}", 100.0 * mean),
            };
            std::iter::once(label.clone()).chain((0..self.across.values.len()).map(cell)).collect()
        };
        std::iter::once(head).chain(self.down.values.iter().enumerate().map(line)).collect()
    }

    fn columns(&self) -> Vec<Column> {
        let numbers = std::iter::repeat_n(Column::Right(6), self.across.values.len());
        std::iter::once(Column::Left(0)).chain(numbers).collect()
    }

    /// The map as a table for a terminal; the best cell has a star.
    pub(crate) fn text(&self) -> String {
        let cells = self.rows(|number| number + "*");
        format!(
            "{}: mean test accuracy in % by setting; * is the best\n\n{}",
            self.title(),
            table(&self.columns(), &cells)
        )
    }

    /// The map as a Markdown table; the best cell is bold.
    pub(crate) fn markdown(&self) -> String {
        let cells = self.rows(|number| format!("**{number}**"));
        format!(
            "{}: mean test accuracy in % by setting; the best is bold\n\n{}",
            self.title(),
            markdown(&self.columns(), &cells)
        )
    }

    /// The map as a chart of a page.
    pub(crate) fn chart(&self) -> Chart {
        let mut rows = self.rows(|number| number + " (best)").into_iter();
        let columns = rows.next().unwrap_or_default().into_iter().enumerate();
        Chart {
            name: format!("map-{}", self.title()).replace(|c: char| !c.is_ascii_alphanumeric(), "-"),
            title: self.title(),
            description:
                "Mean test accuracy in % for each combination of settings. The best one has a frame."
                    .to_owned(),
            picture: self.picture(),
            numbers: Table {
                caption: format!("Mean test accuracy of {} in %", self.title()),
                columns: columns.map(|(place, title)| (title, place > 0)).collect(),
                rows: rows.collect(),
            },
        }
    }

    fn picture(&self) -> Picture {
        let map = HeatMap::new(self.title())
            .rows(self.down.setting.as_str(), self.down.values.iter().map(String::as_str))
            .columns(self.across.setting.as_str(), self.across.values.iter().map(String::as_str))
            .values("accuracy in %", |row, column| self.cells.get(&(row, column)).map(|mean| 100.0 * mean))
            .decimals(1);
        match self.best() {
            Some((row, column)) => map.outline(row, column).picture(),
            None => map.picture(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(text: &str) -> Choice {
        Choice(toml::from_str(text).unwrap())
    }

    fn found(cells: &[(&str, &str, Option<f64>)]) -> Vec<Map> {
        let choices: Vec<Choice> = cells.iter().map(|(_, text, _)| choice(text)).collect();
        maps(cells.iter().zip(&choices).map(|((name, _, mean), choice)| (*name, choice, *mean)))
    }

    #[test]
    fn the_columns_are_the_setting_with_the_most_values() {
        let maps = found(&[
            ("dp-sgd", "rate = 10\nnorm = 1", Some(0.5)),
            ("dp-sgd", "rate = 5\nnorm = 1", Some(0.75)),
            ("dp-sgd", "rate = 1\nnorm = 1", Some(0.6)),
            ("dp-sgd", "rate = 10\nnorm = 2", Some(0.7)),
            ("dp-sgd", "rate = 5\nnorm = 2", None),
        ]);
        assert_eq!(maps.len(), 1);
        let expected = "dp-sgd: mean test accuracy in % by setting; * is the best\n\n  \
                        norm \\ rate     10       5       1\n  \
                        1             50.00  75.00*   60.00\n  \
                        2             70.00       -       -\n";
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeezed(&maps[0].text()), squeezed(expected));
        let markdown = maps[0].markdown();
        assert!(
            markdown.contains("| norm \\ rate | 10 | 5 | 1 |\n| --- | ---: | ---: | ---: |\n"),
            "{markdown}"
        );
        assert!(markdown.contains("| 1 | 50.00 | **75.00** | 60.00 |\n"), "{markdown}");
        let svg = picture(&maps).to_svg();
        assert!(svg.contains(">75.0<") && svg.contains(">dp-sgd<"), "{svg}");
    }

    #[test]
    fn each_algorithm_and_each_combination_of_the_rest_has_a_map() {
        let mut cells = Vec::new();
        let texts: Vec<String> = (0..24)
            .map(|i| format!("a = {}\nb = \"{}\"\nc = {}\nsame = 1", i % 2, i / 2 % 4, i / 8))
            .collect();
        for name in ["dp-sgd", "dynamic"] {
            cells.extend(texts.iter().map(|text| (name, text.as_str(), Some(0.5))));
        }
        let maps = found(&cells);
        let titles: Vec<String> = maps.iter().map(Map::title).collect();
        assert_eq!(titles, ["dp-sgd, a=0", "dp-sgd, a=1", "dynamic, a=0", "dynamic, a=1"]);
        assert!(
            maps.iter()
                .all(|map| map.cells.len() == 12 && map.across.setting == "b" && map.down.setting == "c")
        );
        assert!(check_picture(&maps).is_ok());
    }

    #[test]
    fn a_single_varied_setting_has_one_row_and_none_has_no_map() {
        let maps = found(&[
            ("dp-sgd", "rate = 1", Some(0.5)),
            ("dp-sgd", "rate = 2", Some(0.25)),
            ("dynamic", "rate = 1", Some(0.5)),
        ]);
        assert_eq!(maps.len(), 1);
        assert!(maps[0].text().contains("50.00*"));
        assert!(check_picture(&[]).is_err());
    }
}
