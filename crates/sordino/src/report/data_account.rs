//! The total cost of the runs in a folder that used the same data.
//!
//! Data is identified by its path in the settings of a run. Nothing that is computed from records is stored, because a hash of private
//! records would itself be a release. Everything is read from the settings and ledgers of the runs in the folder.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;
use sordino_accounting::{
    Epsilon, Guarantee,
    total::{PricedRuns, Total},
};
use sordino_privacy::{Account, PrivacyStatus};
use sordino_train::{
    ClientSource, RunFolder, Settings,
    format::{grouped, pair},
    verified_settings,
};

/// All runs of a folder on the same data.
pub struct DataAccount {
    folder: PathBuf,
    runs: Vec<Used>,
    cost: Result<Cost, NoCost>,
}

/// A run that has used the data.
struct Used {
    path: PathBuf,
    account: Account,
    settings: Settings,
}

/// The total cost of the runs.
struct Cost {
    /// For any choice of the runs.
    any: Total,
    /// If all plans were fixed before the first run.
    fixed: Total,
}

enum NoCost {
    /// No run has charged a step.
    NoRuns,
    /// These runs are not private.
    NotPrivate(Vec<String>),
    /// Something cannot be read or priced.
    Unknown(String),
}

/// The account of the data, as it appears in JSON.
#[derive(Serialize)]
pub struct DataAccountRecord {
    runs_on_data: Option<usize>,
    epsilon_of_all: Option<f64>,
    delta_of_all: Option<f64>,
    epsilon_of_all_if_fixed_beforehand: Option<f64>,
    delta_of_all_if_fixed_beforehand: Option<f64>,
    relation_of_all: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_private_runs: Vec<String>,
}

impl DataAccount {
    /// The account of the data that this run has used, over all runs in the same folder.
    pub fn new(run: &RunFolder, settings: &Settings) -> Self {
        let absolute = run.path().canonicalize().unwrap_or_else(|_| run.path().to_owned());
        let absolute = absolute.parent().map_or_else(|| absolute.clone(), Path::to_owned);
        // As the user wrote it, if possible.
        let named = run.path().parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = named.map_or_else(|| absolute.clone(), Path::to_owned);
        let (runs, cost) = match runs_on(&absolute, settings) {
            Ok(runs) => {
                let cost = cost(&runs);
                (runs, cost)
            }
            Err(problem) => (Vec::new(), Err(NoCost::Unknown(problem))),
        };
        Self { folder, runs, cost }
    }

    /// The sentences for the report, if there are several runs on the data or a problem.
    pub fn text(&self) -> Option<String> {
        let folder = self.folder.display();
        if let Err(NoCost::Unknown(problem)) = &self.cost {
            return Some(format!(
                "The total cost of all runs on this data in the folder {folder} is NOT KNOWN: {problem}."
            ));
        }
        if self.runs.len() < 2 {
            return None;
        }
        let count = grouped(self.runs.len() as u64);
        let mut text =
            format!("This data has been used by {count} runs in the folder {folder}. Together they ");
        match &self.cost {
            Ok(Cost { any, fixed }) => {
                text += &format!("satisfy {}-differential privacy", pair(any.epsilon, any.delta));
                let relation = |run: &Used| run.account.plan().map(sordino_accounting::Plan::relation);
                if self.runs.iter().any(|run| relation(run) != Some(any.relation)) {
                    text += &format!(" under {}", any.relation);
                }
                if fixed.parts < any.parts {
                    text += &format!(
                        ", or {} if no run was chosen because of the result of another",
                        pair(fixed.epsilon, fixed.delta)
                    );
                }
                text += ".";
            }
            Err(NoCost::NotPrivate(names)) => {
                let path = |name: &String| self.folder.join(name).display().to_string();
                let paths: Vec<String> = names.iter().map(path).collect();
                text +=
                    &format!("guarantee NOTHING, because these runs are not private: {}.", paths.join(", "));
            }
            Err(NoCost::Unknown(_) | NoCost::NoRuns) => {}
        }
        let exposed = self.runs.iter().any(Used::exposes_records);
        let protected = self.runs.iter().any(|run| run.account.measurement_budget().is_some());
        if exposed && (protected || self.hold_back_different_records()) {
            text += "\nSome of these runs measured held-back records without noise. A record that any of them held back is NOT protected.";
        }
        Some(text)
    }

    /// The account for JSON.
    pub fn record(&self) -> DataAccountRecord {
        let cost = self.cost.as_ref().ok();
        let (any, fixed) = (cost.map(|cost| cost.any), cost.map(|cost| cost.fixed));
        DataAccountRecord {
            runs_on_data: (!matches!(self.cost, Err(NoCost::Unknown(_)))).then_some(self.runs.len()),
            epsilon_of_all: any.map(|total| total.epsilon.get()),
            delta_of_all: any.map(|total| total.delta.get()),
            epsilon_of_all_if_fixed_beforehand: fixed.map(|total| total.epsilon.get()),
            delta_of_all_if_fixed_beforehand: fixed.map(|total| total.delta.get()),
            relation_of_all: any.map(|total| total.relation.to_string()),
            not_private_runs: match &self.cost {
                Err(NoCost::NotPrivate(names)) => names.clone(),
                _ => Vec::new(),
            },
        }
    }

    fn hold_back_different_records(&self) -> bool {
        hold_back_different_records(&self.runs)
    }
}

impl Used {
    /// Whether the run measured held-back records of this data without noise.
    fn exposes_records(&self) -> bool {
        let held_back = self.settings.test_fraction.is_some_and(|fraction| fraction > 0.0);
        held_back && self.account.measurement_budget().is_none()
    }

    /// The unit that the run protects.
    fn unit(&self) -> (Option<&str>, Option<usize>, Option<ClientSource>) {
        (self.settings.unit.as_deref(), self.settings.records_per_unit, self.settings.clients)
    }
}

fn hold_back_different_records(runs: &[Used]) -> bool {
    let split = |run: &Used| (run.settings.test_fraction, run.settings.split_seed, run.account.records());
    runs.iter().any(|run| split(run) != split(&runs[0]))
}

/// The runs in a folder that have charged a step on this data.
fn runs_on(folder: &Path, settings: &Settings) -> Result<Vec<Used>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut runs = Vec::new();
    for path in paths {
        let federation =
            path.join("clients").is_dir().then(|| Settings::read_as_written(&path.join("config.toml")));
        if federation.is_some_and(|read| read.is_ok_and(|used| used.data == settings.data)) {
            return Err(format!("the clients of {} have ledgers of their own", path.display()));
        }
        let Some(run) = RunFolder::find(&path).map_err(|error| error.to_string())? else { continue };
        let account = Account::read(&run.ledger()).map_err(|error| error.to_string())?;
        let used = verified_settings(&run, &account).map_err(|error| error.to_string())?;
        // The clients of a federation have different records of the same data.
        if used.data == settings.data && used.client == settings.client && account.charged() > 0 {
            runs.push(Used { path, account, settings: used });
        }
    }
    Ok(runs)
}

fn cost(runs: &[Used]) -> Result<Cost, NoCost> {
    if runs.is_empty() {
        return Err(NoCost::NoRuns);
    }
    let unknown = |problem: &dyn std::fmt::Display| NoCost::Unknown(problem.to_string());
    if runs.iter().any(|run| run.unit() != runs[0].unit()) {
        // A guarantee for one record says little about a unit, and one for a unit is not one for replacing a record in it.
        return Err(unknown(&"these runs have different units of privacy"));
    }
    let (mut priced, mut not_private) = (Vec::<(&Account, Guarantee, u64)>::new(), Vec::new());
    for Used { path, account, .. } in runs {
        // No pricing is needed to find out whether a run is private at all.
        if let PrivacyStatus::NotPrivate(_) =
            account.privacy_status_after(0).map_err(|error| unknown(&error))?
        {
            not_private.push(path.file_name().unwrap_or_default().to_string_lossy().into_owned());
        } else if let Some((.., count)) = priced.iter_mut().find(|(other, ..)| other.agrees_with(account)) {
            *count += 1;
        } else if let PrivacyStatus::Private(guarantee) =
            account.privacy_status().map_err(|error| unknown(&error))?
        {
            priced.push((account, guarantee, 1));
        }
    }
    if !not_private.is_empty() {
        return Err(NoCost::NotPrivate(not_private));
    }
    let all: Vec<PricedRuns<'_>> = priced
        .iter()
        .map(|&(account, guarantee, runs)| PricedRuns { plan: account.plan(), guarantee, runs })
        .collect();
    let any = Total::summed(&all).map_err(|error| unknown(&error))?;
    let composed = Total::composed(&all).map_err(|error| unknown(&error))?;
    let measured = runs.iter().map(|run| &run.account);
    let measures = |run: &Used| run.account.measurement_budget().is_some();
    let fixed = match hold_back_different_records(runs) && runs.iter().any(measures) {
        // A record may be trained on in one run and measured in another.
        true => any,
        false => with_measurements(composed, measured),
    };
    Ok(Cost { any, fixed })
}

/// The total of runs with the same test records. For a test record, the epsilons of the measurements of all runs add up; for a training
/// record, their plans are composed.
pub(crate) fn with_measurements<'a>(total: Total, accounts: impl Iterator<Item = &'a Account>) -> Total {
    let budgets = accounts.filter_map(Account::measurement_budget);
    // Rounded up, because the sum may be rounded down.
    let measured = budgets.map(|budget| budget.epsilon.get()).sum::<f64>() * (1.0 + 1e-12);
    match Epsilon::new(measured) {
        Ok(measured) if measured > total.epsilon => Total { epsilon: measured, ..total },
        _ => total,
    }
}
