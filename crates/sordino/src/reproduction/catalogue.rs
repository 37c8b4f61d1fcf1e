//! The list of tables and figures: one TOML file each.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sordino_accounting::Delta;
use sordino_train::{Settings, TrainError, parse_algorithm};

use super::{
    Experiment,
    best::BestSettings,
    data_sets::{self, DataSet},
    experiment::WEIGHTS,
    grid::{Point, expand},
    search::Search,
};

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("catalogue/", $name, ".toml")))),*]
    };
}

/// The catalogue, in the order in which it is listed.
const FILES: [(&str, &str); 34] = files![
    "dynamic-1",
    "dynamic-1-readings",
    "dynamic-2",
    "dynamic-3",
    "dynamic-4",
    "dynamic-5",
    "dynamic-figure-3",
    "dc-sgd-1",
    "dc-sgd-2",
    "dc-sgd-3",
    "dc-sgd-4",
    "dc-sgd-5",
    "dc-sgd-5-readings",
    "dc-sgd-8",
    "dc-sgd-8-readings",
    "dc-sgd-figure-9",
    "dc-sgd-figure-10",
    "dc-sgd-figure-11",
    "dp-c4-1",
    "dp-c4-1-readings",
    "dp-c4-6",
    "dp-c4-7",
    "dp-c4-8",
    "dp-c4-9",
    "dp-c4-figure-2",
    "dp-c4-figure-3",
    "dp-nsgd-figure-2",
    "dp-nsgd-figure-3",
    "dp-nsgd-figure-4",
    "dicesgd-2",
    "dicesgd-figure-1",
    "dicesgd-figure-2",
    "dicesgd-figure-3",
    "dicesgd-figure-4",
];

/// A table or figure of a paper.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Its name, as a user gives it.
    #[serde(skip)]
    pub name: &'static str,
    /// What it shows.
    pub title: String,
    /// The paper, and its number in the paper.
    pub source: String,
    /// What the paper states about the setting, what it leaves open, and what was chosen.
    pub setting: String,
    /// What the comparison shows.
    #[serde(default)]
    pub finding: String,
    /// What its numbers are.
    #[serde(default)]
    pub measure: Measure,
    /// Settings of all cells.
    #[serde(default)]
    settings: Settings,
    column: Vec<Column>,
    row: Vec<Row>,
}

/// What the numbers of a table are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Test accuracies, in per cent.
    #[default]
    Accuracy,
    /// Test losses per token of language models.
    Loss,
    /// Seconds of one run.
    Seconds,
}

/// A column: a data set and a claimed epsilon.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Column {
    name: String,
    data: String,
    #[serde(default)]
    settings: Settings,
}

/// A row: an algorithm.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    /// The paper's numbers, one for each column; NaN where it has none.
    #[serde(default)]
    paper: Vec<f64>,
    /// Their standard deviations, if the paper has them.
    #[serde(default)]
    spread: Vec<f64>,
    /// The search whose cost the paper counts. The claimed epsilon is then that of the whole search.
    tuning: Option<Search>,
    /// The algorithm and the noise of the paper.
    published: Settings,
    /// Published settings that apply to one column only.
    #[serde(default)]
    at: BTreeMap<String, Settings>,
    /// The same algorithm with a proved epsilon. By default, if the algorithm is sound, the paper's settings with the exact accountant.
    proved: Option<Settings>,
    /// Its place in a grid, if it belongs to one.
    point: Option<Point>,
}

/// What an experiment of a cell shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Kind {
    /// The algorithm, setting and noise of the paper.
    Published,
    /// The same algorithm, with the paper's epsilon proved.
    Proved,
    /// Sordino's best settings at this epsilon.
    Best,
}

/// A cell of a table.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The algorithm, as the paper names it.
    pub row: String,
    /// The data set and the claimed epsilon.
    pub column: String,
    /// The paper's number.
    pub paper: Option<f64>,
    /// Its standard deviation.
    pub spread: Option<f64>,
    /// The epsilon that the paper claims; none for training without privacy.
    pub claimed: Option<f64>,
    /// The delta of the claim.
    pub delta: Option<Delta>,
    /// The search whose cost the claimed epsilon includes.
    pub search: Option<Search>,
    /// Its place in a grid, if it belongs to one.
    pub point: Option<Point>,
    /// What is trained.
    pub experiments: Vec<(Kind, Experiment)>,
}

/// All tables and figures.
///
/// # Errors
/// A file of the catalogue that cannot be read; a test excludes this.
pub fn catalogue() -> Result<Vec<Table>, TrainError> {
    FILES.into_iter().map(|(name, text)| Table::parse(name, text)).collect()
}

/// The table of this name.
///
/// # Errors
/// There is none.
pub fn find(name: &str) -> Result<Table, TrainError> {
    match FILES.into_iter().find(|(known, _)| *known == name) {
        Some((name, text)) => Table::parse(name, text),
        None => Err(TrainError::refused(
            format!("there is no table {name}"),
            match FILES.into_iter().find(|(known, _)| letters(known) == letters(name)) {
                Some((known, _)) => format!("did you mean {known}?"),
                None => "`sordino reproduce` lists the tables; `sordino schedule` draws Figures 2 and 4 of dynamic DP-SGD".to_owned(),
            },
        )),
    }
}

/// The letters and digits of a name, in lower case.
fn letters(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
}

impl Table {
    fn parse(name: &'static str, text: &str) -> Result<Self, TrainError> {
        let read = || -> Result<Self, String> {
            let mut table: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
            expand(&mut table)?;
            table.try_into().map_err(|error| error.to_string())
        };
        Ok(Self { name, ..read().map_err(|problem| broken(name, &problem))? })
    }

    /// The data sets that it needs.
    ///
    /// # Errors
    /// An unknown data set.
    pub fn data_sets(&self) -> Result<Vec<&'static DataSet>, TrainError> {
        let mut sets = Vec::new();
        for column in &self.column {
            let set = data_sets::find(&column.data)?;
            if !sets.contains(&set) {
                sets.push(set);
            }
        }
        Ok(sets)
    }

    /// The pre-trained models that it needs, by the names of their folders.
    ///
    /// # Errors
    /// An unknown data set or algorithm.
    pub fn weights(&self) -> Result<BTreeSet<String>, TrainError> {
        let cells = self.cells()?;
        let settings = cells.iter().flat_map(|cell| &cell.experiments).map(|(_, found)| &found.settings);
        let names = settings.flat_map(|Settings { model, encoder, .. }| {
            [model.clone(), encoder.as_ref().map(|path| path.display().to_string())]
        });
        Ok(names.flatten().filter_map(|name| name.strip_prefix(WEIGHTS).map(str::to_owned)).collect())
    }

    /// The number of its cells.
    pub fn cell_count(&self) -> usize {
        self.column.len() * self.row.len()
    }

    /// All cells, column by column.
    ///
    /// # Errors
    /// An unknown data set or algorithm.
    pub fn cells(&self) -> Result<Vec<Cell>, TrainError> {
        let mut cells = Vec::new();
        let best = BestSettings::read()?;
        for (place, column) in self.column.iter().enumerate() {
            let data = data_sets::find(&column.data)?;
            for row in &self.row {
                let number =
                    |numbers: &[f64]| numbers.get(place).copied().filter(|number| number.is_finite());
                let common = column.settings.clone().or(self.settings.clone());
                let own = row.at.get(&column.name).cloned().unwrap_or_default();
                let published = own.or(row.published.clone()).or(common.clone());
                let is_plain = published.algorithm.as_deref() == Some("none");
                let claimed = common.epsilon.filter(|_| !is_plain).map(f64::from);
                let whole = Experiment { data, settings: published };
                let proved = proved(row, &whole, &common)?;
                let published = match &row.tuning {
                    None => whole.settings,
                    Some(search) => search.one_run(&whole)?,
                };
                let mut experiments = Vec::new();
                if let Some(proved) = proved {
                    experiments.push((Kind::Proved, Experiment { data, settings: proved }));
                }
                let best = best.find(data.name, common.epsilon, common.delta);
                if let Some(settings) = best.filter(|_| !is_plain && self.measure == Measure::Accuracy) {
                    experiments.push((Kind::Best, Experiment { data, settings }));
                }
                let published = without_privacy(published, is_plain);
                experiments.insert(0, (Kind::Published, Experiment { data, settings: published }));
                cells.push(Cell {
                    row: row.name.clone(),
                    column: column.name.clone(),
                    paper: number(&row.paper),
                    spread: number(&row.spread),
                    claimed,
                    delta: common.delta,
                    search: row.tuning,
                    point: row.point.clone(),
                    experiments,
                });
            }
        }
        Ok(cells)
    }
}

/// A file of the catalogue that cannot be read.
pub(super) fn broken(name: &str, problem: &str) -> TrainError {
    TrainError::refused(format!("the table {name}: {}", problem.trim_end()), "report this as a bug")
}

/// The settings of the same algorithm with a proved epsilon. A search trains every candidate once, as the papers do.
fn proved(row: &Row, published: &Experiment, common: &Settings) -> Result<Option<Settings>, TrainError> {
    if let Some(proved) = &row.proved {
        return Ok(Some(proved.clone().or(common.clone())));
    }
    let algorithm = parse_algorithm(published.settings.algorithm.as_deref().unwrap_or("dp-sgd"))?;
    if !algorithm.about().verdict.is_sound() || algorithm.is_plain() {
        return Ok(None);
    }
    let exact = Settings { accountant: None, noise_multiplier: None, ..published.settings.clone() };
    match &row.tuning {
        None => Ok(Some(exact)),
        Some(search) => search.one_of_all(&Experiment { settings: exact, ..published.clone() }).map(Some),
    }
}

/// Plain training has no budget and no clipping norm.
fn without_privacy(settings: Settings, is_plain: bool) -> Settings {
    match is_plain {
        false => settings,
        true => Settings {
            epsilon: None,
            delta: None,
            noise_multiplier: None,
            max_grad_norm: None,
            accountant: None,
            ..settings
        },
    }
}

#[cfg(test)]
mod tests {
    use sordino_train::SamplingName;

    use super::*;

    /// Every cell has settings that can be priced without its data, and a proved form where a paper claims an epsilon.
    #[test]
    fn every_table_can_be_read_and_has_a_proved_form_of_each_claim() {
        let mut names = BTreeSet::new();
        for table in catalogue().unwrap() {
            assert!(names.insert(table.name));
            // A text with a placeholder (@) must not be released.
            assert!(!table.setting.contains('@') && !table.finding.contains('@'), "{}", table.name);
            for row in &table.row {
                for name in row.at.keys() {
                    assert!(table.column.iter().any(|column| column.name == *name), "{}: {name}", table.name);
                }
                for numbers in [&row.paper, &row.spread] {
                    assert!(
                        numbers.is_empty() || numbers.len() == table.column.len(),
                        "{}: {}",
                        table.name,
                        row.name
                    );
                }
            }
            for cell in table.cells().unwrap() {
                let kinds: Vec<Kind> = cell.experiments.iter().map(|(kind, _)| *kind).collect();
                assert_eq!(kinds[0], Kind::Published);
                assert_eq!(
                    kinds.contains(&Kind::Proved),
                    cell.claimed.is_some(),
                    "{}: {}",
                    table.name,
                    cell.row
                );
                for (kind, experiment) in &cell.experiments {
                    let is_claimed = experiment.settings.epsilon.map(f64::from) == cell.claimed;
                    assert!(
                        is_claimed || *kind == Kind::Published,
                        "{}: {}, {kind:?} has another epsilon",
                        table.name,
                        cell.row
                    );
                    // The defaults of other runs may change.
                    let Settings { model, encoder, learning_rate, batch_size, steps, epochs, .. } =
                        &experiment.settings;
                    let has_model =
                        model.is_some() || encoder.is_some() || experiment.data.name == "mushroom";
                    let full = experiment.settings.sampling == Some(SamplingName::FullBatch);
                    assert!(
                        has_model
                            && learning_rate.is_some()
                            && (batch_size.is_some() || full)
                            && (steps.is_some() || epochs.is_some()),
                        "{}: {} {}, {kind:?} depends on defaults",
                        table.name,
                        cell.row,
                        cell.column
                    );
                    sordino_train::check(&experiment.settings).unwrap_or_else(|error| {
                        panic!("{}: {} {}, {kind:?}: {error}", table.name, cell.row, cell.column)
                    });
                }
            }
        }
        assert!(find("dynamic-99").unwrap_err().to_string().contains("there is no table dynamic-99"));
        assert!(find("Dynamic 1").unwrap_err().hint().to_string().contains("did you mean dynamic-1?"));
    }
}
