//! Everything that a report states about a run, gathered from its folder.

use std::{path::Path, thread};

use serde_json::{Value, json};
use sordino_algorithms::PublishedNoise;
use sordino_privacy::{Account, PrivacyStatus};
use sordino_train::{
    Claim, DataFacts, Inspection, Measurement, Metrics, Provable, RunFolder, Score, Settings, TrainError,
    inspect, measurements, model_notes, parameter_count, read_published_noise, verified_settings,
};

use super::{
    attacker::Attacker,
    schedules::{AtStep, Schedules},
};
use crate::report::{DataAccount, RunReport};

/// The number of steps at which epsilon is computed.
const PRICED: u64 = 12;

/// A run, after its ledger was checked.
pub struct RunEvidence {
    pub(super) folder: RunFolder,
    pub(super) settings: Settings,
    pub(super) account: Account,
    pub(super) status: PrivacyStatus,
    pub(super) score: Option<Score>,
    pub(super) metrics: Option<Metrics>,
    pub(super) seconds: Option<f64>,
    pub(super) weights_covered: bool,
    pub(super) facts: Option<DataFacts>,
    pub(super) parameters: Option<u64>,
    /// The version that wrote the weights; none for weights of earlier versions.
    pub(super) version: Option<String>,
    pub(super) claim: Option<Claim>,
    pub(super) provable: Option<Provable>,
    pub(super) published_noise: Vec<PublishedNoise>,
    /// What all runs on the same data cost together, if there are several or if it is not known.
    pub(super) other_runs: Option<String>,
    pub(super) measurements: Vec<Measurement>,
    /// None if the run is not private.
    pub(super) attacker: Option<Attacker>,
    /// The proved epsilon of the first steps; empty if the run is not private.
    pub(super) spent: Vec<AtStep>,
    pub(super) schedules: Schedules,
    record: Value,
}

impl RunEvidence {
    /// Reads and checks a run.
    ///
    /// # Errors
    /// A folder that is not that of a run; a ledger, settings or weights that were changed; a plan that cannot be priced.
    pub fn read(path: &Path) -> Result<Self, TrainError> {
        let folder = RunFolder::open(path)?;
        let Inspection { account, score, metrics, seconds, weights_covered } = inspect(&folder)?;
        let settings = verified_settings(&folder, &account)?;
        let data = DataAccount::new(&folder, &settings);
        let other_runs = data.text();
        // A run that was killed early has no weights and no facts.
        let facts = DataFacts::read(&folder).ok();
        let (provable, published_noise) = (Provable::read(&folder), read_published_noise(&folder));
        let report = RunReport {
            settings: &settings,
            account: &account,
            score,
            metrics: metrics.as_ref(),
            seconds,
            folder: Some(folder.path()),
            facts: facts.as_ref(),
            weights_covered,
            provable,
            published_noise: published_noise.clone(),
            data: Some(data),
        };
        let record = serde_json::from_str(&report.json()?).unwrap_or_default();
        let claim = report.claim();
        let status = account.privacy_status()?;
        let private = matches!(status, PrivacyStatus::Private(_));
        let attacker = || match (&status, account.plan()) {
            (PrivacyStatus::Private(guarantee), Some(plan)) => Some(Attacker::against(plan, guarantee)),
            _ => None,
        };
        // Both take seconds for a plan with many different steps.
        let (attacker, spent) = thread::scope(|scope| {
            let attacker = scope.spawn(attacker);
            let spent = if private { spent(&account, &status) } else { Vec::new() };
            (attacker.join().unwrap_or_default(), spent)
        });
        // Schedules in files are relative to the folder.
        let usable = Settings::read(&folder.config()).unwrap_or_else(|_| settings.clone());
        Ok(Self {
            schedules: Schedules::new(&usable, account.plan().filter(|_| private), account.steps()),
            spent,
            parameters: parameter_count(&folder),
            version: model_notes(&folder).ok().and_then(|notes| notes.get("version").cloned()),
            measurements: measurements(&folder),
            folder,
            settings,
            account,
            status,
            score,
            metrics,
            seconds,
            weights_covered,
            facts,
            claim,
            provable,
            published_noise,
            other_runs,
            attacker,
            record,
        })
    }

    /// The report of the run, without the account of other runs.
    pub(super) fn report(&self) -> RunReport<'_> {
        RunReport {
            settings: &self.settings,
            account: &self.account,
            score: self.score,
            metrics: self.metrics.as_ref(),
            seconds: self.seconds,
            folder: Some(self.folder.path()),
            facts: self.facts.as_ref(),
            weights_covered: self.weights_covered,
            provable: self.provable,
            published_noise: self.published_noise.clone(),
            data: None,
        }
    }

    /// The number of runs on the same data in the folder, and the epsilon and delta of all of them together, for any choice among them.
    /// None if it is not known, or if one of them is not private.
    pub(super) fn total_cost(&self) -> Option<(u64, f64, f64)> {
        let number = |name: &str| self.record[name].as_f64();
        Some((self.record["runs_on_data"].as_u64()?, number("epsilon_of_all")?, number("delta_of_all")?))
    }

    /// The number of lines of the ledger, and the hash of the last one.
    pub(super) fn seal(&self) -> (u64, String) {
        self.account.seal()
    }

    /// The run as JSON: what `sordino show --json` prints, and the rest of the report.
    pub(super) fn json(&self) -> Value {
        let mut record = self.record.clone();
        let (lines, hash) = self.seal();
        if let Some(record) = record.as_object_mut() {
            let more = json!({
                "kind": "run",
                "statement": self.sentence(),
                "points": self.points().into_iter().map(|(label, text)| json!({"label": label, "text": text})).collect::<Vec<_>>(),
                "paragraph": self.paragraph(),
                "attacker": self.attacker,
                "epsilon_spent": self.spent,
                "schedules": self.schedules,
                "measurements": self.measurements,
                "settings": self.settings,
                "facts": self.facts,
                "parameters": self.parameters,
                "version": self.version,
                "ledger_lines": lines,
                "ledger_hash": hash,
            });
            record.extend(more.as_object().cloned().unwrap_or_default());
        }
        record
    }
}

/// The epsilon of the first steps, at some steps up to the last one that was charged.
fn spent(account: &Account, whole: &PrivacyStatus) -> Vec<AtStep> {
    let charged = account.charged();
    let points = PRICED.min(charged);
    let steps =
        (1..=points).map(|point| (u128::from(charged) * u128::from(point) / u128::from(points)) as u64);
    let steps: Vec<u64> = steps.collect();
    let price = |step: u64| {
        let status = match step == account.steps() {
            true => whole.clone(),
            // A prefix that cannot be priced has no value.
            false => account.privacy_status_after(step).ok()?,
        };
        match status {
            PrivacyStatus::Private(guarantee) => Some(AtStep { step, value: guarantee.epsilon.get() }),
            PrivacyStatus::NotPrivate(_) => None,
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from).clamp(1, 8);
    let mut spent: Vec<AtStep> = thread::scope(|scope| {
        let share = |worker: usize| steps.iter().skip(worker).step_by(workers);
        let begin =
            |worker| scope.spawn(move || share(worker).filter_map(|&step| price(step)).collect::<Vec<_>>());
        let begun: Vec<_> = (0..workers).map(begin).collect();
        begun.into_iter().flat_map(|worker| worker.join().unwrap_or_default()).collect()
    });
    spent.sort_unstable_by_key(|at| at.step);
    spent
}
