//! A run and its guarantee, as text and as JSON.

use std::path::Path;

use serde::Serialize;
use sordino_accounting::{Guarantee, pld::GroupSize};
use sordino_algorithms::PublishedNoise;
use sordino_privacy::{Account, PrivacyStatus};
use sordino_train::{
    Claim, DataFacts, Hint, Metrics, ProtectedUnit, Provable, PublicFile, Score, Settings, TestSetName,
    TrainError,
    format::{grouped, pair, rounded_claim, rounded_up},
    public_files,
};

use super::{
    DataAccount, DataAccountRecord, Measured,
    statement::{counted_units, json, noise, protects, sampling, search, status},
    table::labelled,
};

/// A run and its guarantee.
pub struct RunReport<'a> {
    /// All settings of the run.
    pub settings: &'a Settings,
    /// The content of its ledger.
    pub account: &'a Account,
    /// The score on the test records.
    pub score: Option<Score>,
    /// All metrics of the last measurement.
    pub metrics: Option<&'a Metrics>,
    /// Seconds of training.
    pub seconds: Option<f64>,
    /// Its folder; none if it was in memory.
    pub folder: Option<&'a Path>,
    /// The public facts about the data: the number of test records and the classes; none if they are not known.
    pub facts: Option<&'a DataFacts>,
    /// Whether the ledger has the hash of the weights.
    pub weights_covered: bool,
    /// For an algorithm as published, what can be proved about it.
    pub provable: Option<Provable>,
    /// The noise of each part of a step, where the formula of a paper sets it.
    pub published_noise: Vec<PublishedNoise>,
    /// All runs on the same data; none if the run was in memory.
    pub data: Option<DataAccount>,
}

/// The report as it appears in JSON.
#[derive(Serialize)]
struct ReportRecord<'a> {
    #[serde(flatten)]
    score: Score,
    /// Whether noise is added to what is measured on test records.
    test_set_protected: bool,
    /// Measurements on protected test records: how many were planned and charged, and their epsilon.
    #[serde(skip_serializing_if = "Option::is_none")]
    planned_measurements: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    charged_measurements: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    measurement_epsilon: Option<f64>,
    /// All metrics, each with a 95 % interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<&'a Metrics>,
    /// Whether the list of classes was taken from the labels. If it was, the guarantee does not cover the list.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    observed_classes: bool,
    test_records: Option<u64>,
    /// How many of them were held back from the data; 0 if the data has its own test set.
    held_back_records: Option<u64>,
    epsilon: Option<f64>,
    /// Whether the algorithm has no epsilon, whatever its noise.
    epsilon_infinite: bool,
    /// The epsilon that a paper or an approximation claims; not proved.
    #[serde(skip_serializing_if = "Option::is_none")]
    claimed_epsilon: Option<f64>,
    /// The epsilon that can be proved for an algorithm as published, used as a calculator; the run itself has no guarantee.
    #[serde(skip_serializing_if = "Option::is_none")]
    provable_epsilon: Option<f64>,
    /// Of the steps charged so far; valid only if the decision to stop did not depend on any output.
    #[serde(skip_serializing_if = "Option::is_none")]
    epsilon_so_far: Option<f64>,
    delta: Option<f64>,
    steps: u64,
    algorithm: &'a str,
    private: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_private_because: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    finished: bool,
    planned_steps: u64,
    training_records: u64,
    /// The unit of privacy: the column or array that identifies it. Then `training_records` counts units.
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    records_per_unit: Option<usize>,
    /// What federated training protects: clients or records.
    #[serde(skip_serializing_if = "Option::is_none")]
    protect: Option<ProtectedUnit>,
    relation: Option<String>,
    accountant: Option<&'static str>,
    noise_multiplier: Option<f64>,
    /// The noise of each part of a step, where the formula of a paper sets it.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    published_noise: &'a [PublishedNoise],
    weights_covered: bool,
    /// The files of the public model that the run builds on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    public_files: Vec<PublicFile>,
    #[serde(flatten)]
    data: Option<DataAccountRecord>,
    run: Option<&'a Path>,
}

impl RunReport<'_> {
    /// One JSON object.
    ///
    /// # Errors
    /// A plan that cannot be priced.
    pub fn json(&self) -> Result<String, TrainError> {
        self.json_with(&self.account.privacy_status()?)
    }

    /// The JSON object for this status.
    pub(crate) fn json_with(&self, status: &PrivacyStatus) -> Result<String, TrainError> {
        let (guarantee, why) = match status {
            PrivacyStatus::Private(guarantee) => (Some(*guarantee), None),
            PrivacyStatus::NotPrivate(why) => (None, Some(why.clone())),
        };
        let so_far = match self.account.is_closed() {
            true => None,
            false => match self.account.privacy_status_after(self.account.charged())? {
                PrivacyStatus::Private(guarantee) => Some(guarantee.epsilon.get()),
                PrivacyStatus::NotPrivate(_) => None,
            },
        };
        let measuring = self.account.measurement_budget();
        Ok(json(&ReportRecord {
            score: self.score.unwrap_or_default(),
            test_set_protected: measuring.is_some(),
            planned_measurements: measuring.map(|budget| budget.measurements),
            charged_measurements: measuring.map(|_| self.account.measured()),
            measurement_epsilon: measuring.map(|budget| budget.epsilon.get()),
            metrics: self.metrics,
            observed_classes: self.has_observed_classes(),
            test_records: self.test_records(),
            held_back_records: match self.settings.test_fraction {
                Some(_) => self.test_records(),
                None => Some(0),
            },
            epsilon: guarantee.map(|guarantee| guarantee.epsilon.get()),
            epsilon_infinite: self.account.is_unprotected() && self.provable.is_none(),
            claimed_epsilon: self.claim().map(|claim| claim.epsilon),
            provable_epsilon: self.provable.map(|provable| provable.epsilon.get()),
            epsilon_so_far: so_far,
            delta: guarantee.map(|guarantee| guarantee.delta.get()),
            steps: self.account.charged(),
            algorithm: self.algorithm(),
            private: guarantee.is_some(),
            not_private_because: why,
            seconds: self.seconds,
            finished: self.account.is_closed(),
            planned_steps: self.account.steps(),
            training_records: self.account.records(),
            unit: self.settings.unit.as_deref(),
            records_per_unit: self.settings.records_per_unit.filter(|_| self.settings.unit.is_some()),
            protect: self.settings.protect,
            relation: guarantee.map(|guarantee| guarantee.relation.to_string()),
            accountant: guarantee.map(|guarantee| guarantee.accountant.name()),
            noise_multiplier: self.multiplier(),
            published_noise: &self.published_noise,
            weights_covered: self.weights_covered,
            public_files: public_files(self.account),
            data: self.data.as_ref().map(DataAccount::record),
            run: self.folder,
        }))
    }

    /// Text for a person, with settings in braces.
    ///
    /// # Errors
    /// A plan that cannot be priced.
    pub fn text(&self) -> Result<Hint, TrainError> {
        self.text_with(&self.account.privacy_status()?)
    }

    /// The text, for a status that is known. Pricing the plan can take seconds.
    pub(crate) fn text_with(&self, status: &PrivacyStatus) -> Result<Hint, TrainError> {
        let mut text = match status {
            PrivacyStatus::Private(guarantee) => format!(
                "{} satisfies {}-differential privacy.\n",
                self.subject(),
                pair(guarantee.epsilon, guarantee.delta)
            ),
            PrivacyStatus::NotPrivate(_) => format!("{} is NOT PRIVATE.\n", self.subject()),
        };
        let tests = test_records_sentence(self.settings, self.test_records(), self.account)
            .filter(|_| matches!(status, PrivacyStatus::Private(_)));
        let classes =
            observed_classes_sentence(self.facts).filter(|_| matches!(status, PrivacyStatus::Private(_)));
        for sentence in classes.into_iter().chain(tests).chain(self.data.as_ref().and_then(DataAccount::text))
        {
            text += &format!("{sentence}\n");
        }
        let mut lines = self.measured().lines();
        lines.extend(self.lost_measurement());
        match status {
            PrivacyStatus::Private(guarantee) => lines.extend(self.guarantee_lines(guarantee)?),
            PrivacyStatus::NotPrivate(why) => lines.push(("NOT PRIVATE", why.clone())),
        }
        lines.extend(self.run_lines());
        Ok(Hint::new(format!("{text}\n{}{}", self.warning(status).unwrap_or_default(), labelled(&lines))))
    }

    /// What was measured.
    pub(super) fn measured(&self) -> Measured<'_> {
        Measured {
            score: self.score,
            metrics: self.metrics,
            units: self.settings.unit_noun(),
            classes: self.facts.map_or(&[], |facts| &facts.classes),
            protected: self.account.measurement_budget().is_some(),
            // Earlier versions had public test records only.
            public: self.settings.test_set != Some(TestSetName::Protected),
        }
    }

    /// Why there is no measurement, if one was planned.
    fn lost_measurement(&self) -> Option<(&'static str, String)> {
        let budget = self.account.measurement_budget().filter(|_| self.score.is_none())?;
        let why = match self.account.measured() {
            charged if charged >= budget.measurements => "it was charged, and lost when the run was killed",
            _ => "it is made when the run is finished",
        };
        Some(("measurement", format!("none: {why}")))
    }

    fn has_observed_classes(&self) -> bool {
        self.facts.is_some_and(|facts| facts.observed_classes)
    }

    fn test_records(&self) -> Option<u64> {
        self.facts.map(|facts| facts.test_records)
    }

    fn guarantee_lines(&self, guarantee: &Guarantee) -> Result<Vec<(&'static str, String)>, TrainError> {
        let protects = protects(guarantee.relation, GroupSize::ONE);
        let mut lines = vec![
            ("epsilon", self.epsilon(guarantee.epsilon.get())?),
            ("delta", self.delta(guarantee.delta.get())),
            ("protects", protects.replacen("one record", &self.settings.protected_unit(), 1)),
        ];
        if let Some(plan) = self.account.plan() {
            lines.push(("sampling", sampling(plan)));
            lines.push(("noise", noise(plan)));
        }
        if let Some(plan) = self.account.search() {
            lines.push(("search", search(plan)));
        }
        lines.push((
            "accountant",
            format!("{}: {}", guarantee.accountant, guarantee.accountant.description()),
        ));
        lines.push(("status", status(guarantee)));
        Ok(lines)
    }

    fn run_lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![("algorithm", self.training())];
        if self.facts.and_then(DataFacts::schema).is_some() {
            lines.push(("schema", "public: the columns, categories and scales of the records".to_owned()));
        }
        if let Some(scaling) = self.facts.and_then(DataFacts::scaling) {
            lines.push(("targets", format!("scaled by a public range: {scaling}")));
        }
        for PublishedNoise { symbol, sigma, noise_multiplier } in &self.published_noise {
            let [sigma, multiplier] = [sigma, noise_multiplier].map(|value| rounded_up(*value));
            lines.push(("as published", format!("{symbol} {sigma}: multiplier {multiplier} on the sum")));
        }
        if self.account.search().is_none() {
            lines.push(("steps", self.steps()));
        }
        if let Some(seconds) = self.seconds {
            lines.push(("seconds", format!("{seconds:.1}")));
        }
        for file in public_files(self.account) {
            lines.push(("built on", file.to_string()));
        }
        if !self.weights_covered {
            let why = "NOT COVERED: an earlier version trained them, and the ledger has no hash to compare them with";
            lines.push(("weights", why.to_owned()));
        }
        if self.account.is_in_memory() {
            let why = "in memory: the whole plan counts as spent from the first step on, even if training stops early; other runs on these records add to the cost";
            lines.push(("ledger", why.to_owned()));
        }
        lines.extend(self.folder.map(|folder| ("run", folder.display().to_string())));
        lines
    }

    pub(super) fn claim(&self) -> Option<Claim> {
        Claim::new(self.settings, self.account.plan())
    }

    /// The claimed epsilon next to the proved one, if there is a claim.
    fn warning(&self, status: &PrivacyStatus) -> Option<String> {
        let claim = self.claim()?;
        let holds =
            matches!(status, PrivacyStatus::Private(guarantee) if guarantee.epsilon.get() <= claim.epsilon);
        let (proved, why) = match status {
            PrivacyStatus::Private(guarantee) if holds => (
                format!("epsilon {}", rounded_up(guarantee.epsilon.get())),
                "the proved epsilon is at most the claimed epsilon".to_owned(),
            ),
            PrivacyStatus::Private(guarantee) => {
                (format!("epsilon {}", rounded_up(guarantee.epsilon.get())), claim.why)
            }
            PrivacyStatus::NotPrivate(why) => match self.provable {
                Some(Provable { epsilon, accountant, .. }) => (
                    format!(
                        "epsilon {} for the algorithm as published, by {accountant}; the run itself is not protected",
                        rounded_up(epsilon.get())
                    ),
                    why.clone(),
                ),
                None => ("nothing".to_owned(), why.clone()),
            },
        };
        let lines = [
            (
                "claimed",
                format!(
                    "epsilon {} at delta {:e}, by {}",
                    rounded_claim(claim.epsilon),
                    claim.delta,
                    claim.by
                ),
            ),
            ("proved", proved),
            ("why", why),
            ("instead", claim.instead),
        ];
        let heading = match holds {
            true => "NOTE: the noise of this run is set by a claim, and not by the proved epsilon.",
            false => "WARNING: the epsilon that is claimed for this run is not proved.",
        };
        Some(format!("{heading}\n{}\n", labelled(&lines)))
    }

    /// The smallest noise multiplier of the plan.
    fn multiplier(&self) -> Option<f64> {
        let entries = self.account.plan()?.entries().iter();
        entries.map(sordino_accounting::Entry::effective_noise_multiplier).min_by(f64::total_cmp)
    }

    pub(super) fn subject(&self) -> String {
        if self.account.search().is_some() && !self.account.is_closed() {
            return "This search, which did not finish,".to_owned();
        }
        let unfinished = if self.account.is_closed() { "" } else { "unfinished " };
        match self.settings.model.as_deref().unwrap_or("model") {
            described if described.ends_with(".toml") => format!("This {unfinished}network"),
            folder if folder.contains(['/', '\\']) => {
                let name = Path::new(folder).file_name().unwrap_or_default().display();
                format!("This {unfinished}model on top of {name}")
            }
            model => format!("This {unfinished}{} model", model.split(',').next().unwrap_or(model)),
        }
    }

    fn algorithm(&self) -> &str {
        let text = self.settings.algorithm.as_deref().unwrap_or("dp-sgd");
        text.split(',').next().unwrap_or(text)
    }

    fn epsilon(&self, whole: f64) -> Result<String, TrainError> {
        let weak = if whole > 10.0 { " (WEAK: an epsilon above 10 protects little)" } else { "" };
        let whole = format!("{}{weak}", rounded_up(whole));
        if self.account.is_closed() || self.account.is_in_memory() || self.account.search().is_some() {
            return Ok(whole);
        }
        let so_far = match self.account.privacy_status_after(self.account.charged())? {
            PrivacyStatus::Private(guarantee) => rounded_up(guarantee.epsilon.get()),
            PrivacyStatus::NotPrivate(_) => String::new(),
        };
        Ok(format!(
            "{whole} for the whole plan, whenever it stops ({so_far} so far, valid only if the decision to stop did not depend on any \
             output)"
        ))
    }

    pub(super) fn delta(&self, delta: f64) -> String {
        let records = self.account.records() as f64;
        let mut text = format!("{delta:e}");
        if delta * records >= 1.0 {
            text += &format!(
                " (WEAK: above 1 / {} {}, publishing one whole {} would be permitted)",
                grouped(self.account.records()),
                self.settings.unit_noun(),
                if self.settings.unit.is_some() { "unit" } else { "record" }
            );
        }
        text
    }

    pub(super) fn training(&self) -> String {
        let data = self.settings.data.as_ref().map(|path| format!(" of {}", path.display()));
        format!(
            "{} with {} on {}{}",
            self.settings.algorithm.as_deref().unwrap_or("dp-sgd"),
            self.settings.optimizer.as_deref().unwrap_or("?"),
            counted_units(self.settings, self.account.records()),
            data.unwrap_or_default()
        )
    }

    pub(super) fn steps(&self) -> String {
        let (charged, planned) = (grouped(self.account.charged()), grouped(self.account.steps()));
        let mut text = match self.account.is_closed() {
            true => planned,
            false if self.account.is_in_memory() => format!("stopped before the {planned} planned"),
            false => format!("{charged} of {planned} charged"),
        };
        match self.account.times_resumed() {
            0 => {}
            1 => text += ", resumed once",
            n => text += &format!(", resumed {n} times"),
        }
        if self.account.is_torn() {
            text +=
                "; the last line of the ledger is incomplete and counts with all that it may have charged";
        }
        text
    }
}

/// A sentence about a list of classes that the guarantee does not cover.
fn observed_classes_sentence(facts: Option<&DataFacts>) -> Option<String> {
    let facts = facts.filter(|facts| facts.observed_classes)?;
    Some(format!(
        "The list of the {} classes was taken from the training labels and is NOT protected: it reveals which labels occur. Declare a public \
         list with {{classes}}.",
        grouped(facts.classes.len() as u64)
    ))
}

/// A sentence about the test records of a run: whether its guarantee covers them. Their number is not known for runs of earlier versions.
pub fn test_records_sentence(
    settings: &Settings,
    test_records: Option<u64>,
    account: &Account,
) -> Option<String> {
    let (separate, records, units) =
        (settings.test_fraction.is_none(), account.records(), settings.unit_noun());
    let protection = "They are protected by the same guarantee: noise is added to what is measured on them.";
    if let Some(budget) = account.measurement_budget() {
        let count = grouped(budget.slots);
        return Some(match separate {
            true => format!("The {count} {units} of the test set are not trained on. {protection}"),
            false => format!(
                "{count} of your {} {units} were held back for testing. {protection}",
                grouped(budget.slots.saturating_add(records))
            ),
        });
    }
    match test_records {
        Some(0) => None,
        Some(count) if separate => {
            Some(format!("The {} {units} of the test set are public and NOT protected.", grouped(count)))
        }
        Some(count) => Some(format!(
            "{} of your {} {units} were held back for testing and are NOT protected.",
            grouped(count),
            grouped(count.saturating_add(records))
        )),
        None if separate => None,
        None => settings.test_fraction.filter(|&fraction| fraction > 0.0).map(|fraction| {
            format!(
                "{} % of your records were held back for testing and are NOT protected.",
                100.0 * fraction
            )
        }),
    }
}
