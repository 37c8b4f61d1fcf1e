//! What a run was and what it guarantees, as text and as JSON.

use std::path::Path;

use serde::Serialize;
use sordino_accounting::pld::GroupSize;
use sordino_privacy::{Account, PrivacyStatus};
use sordino_train::Score;

use crate::{
    claim::{Claim, shown},
    data_account::{DataAccount, DataAccountRecord},
    problem::Problem,
    settings::Settings,
    statement::{grouped, json, noise, pair, protects, rounded_up, rows, sampling, status},
};

/// A run as a report shows it.
pub(crate) struct Report<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) account: &'a Account,
    pub(crate) score: Option<Score>,
    pub(crate) seconds: Option<f64>,
    pub(crate) folder: &'a Path,
    /// The number of public test records; none if the run is of an earlier version that did not store it.
    pub(crate) test_records: Option<u64>,
    /// Whether the ledger has the hash of the weights.
    pub(crate) weights_covered: bool,
    /// All runs on the same data.
    pub(crate) data: DataAccount,
}

/// The report as it appears in JSON.
#[derive(Serialize)]
struct ReportRecord<'a> {
    test_accuracy: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    test_mean_squared_error: Option<f64>,
    /// Test records are public; what is said about them is not noised.
    test_set_protected: bool,
    test_records: Option<u64>,
    /// How many of them were taken from the records of the data; 0 if the data has a test set of its own.
    held_back_records: Option<u64>,
    epsilon: Option<f64>,
    /// Whether there is none because the algorithm has none, whatever its noise.
    epsilon_infinite: bool,
    /// What a paper or a theorem that is no bound says; not proved.
    #[serde(skip_serializing_if = "Option::is_none")]
    claimed_epsilon: Option<f64>,
    /// Of the steps paid for; a bound only if nothing that was released had a say in when the run stopped.
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
    relation: Option<String>,
    accountant: Option<&'static str>,
    noise_multiplier: Option<f64>,
    weights_covered: bool,
    #[serde(flatten)]
    data: DataAccountRecord,
    run: &'a Path,
}

impl Report<'_> {
    /// One JSON object.
    pub(crate) fn json(&self) -> Result<String, Problem> {
        let (guarantee, why) = match self.account.privacy_status()? {
            PrivacyStatus::Private(guarantee) => (Some(guarantee), None),
            PrivacyStatus::NotPrivate(why) => (None, Some(why)),
        };
        let so_far =
            match (self.account.is_closed(), self.account.privacy_status_after(self.account.charged())?) {
                (false, PrivacyStatus::Private(guarantee)) => Some(guarantee.epsilon.get()),
                _ => None,
            };
        Ok(json(&ReportRecord {
            test_accuracy: self.score.and_then(|score| score.accuracy),
            test_mean_squared_error: self.score.and_then(|score| score.mean_squared_error),
            test_set_protected: false,
            test_records: self.test_records,
            held_back_records: match self.settings.test_fraction {
                Some(_) => self.test_records,
                None => Some(0),
            },
            epsilon: guarantee.map(|guarantee| guarantee.epsilon.get()),
            epsilon_infinite: self.account.is_unprotected(),
            claimed_epsilon: self.claim().map(|claim| claim.epsilon),
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
            relation: guarantee.map(|guarantee| guarantee.relation.to_string()),
            accountant: guarantee.map(|guarantee| guarantee.accountant.name()),
            noise_multiplier: self.multiplier(),
            weights_covered: self.weights_covered,
            data: self.data.record(),
            run: self.folder,
        }))
    }

    /// Text for a person.
    pub(crate) fn text(&self) -> Result<String, Problem> {
        let standing = self.account.privacy_status()?;
        let mut lines: Vec<(&str, String)> = Vec::new();
        let mut head = match &standing {
            PrivacyStatus::Private(guarantee) => format!(
                "{} satisfies {}-differential privacy.\n",
                self.subject(),
                pair(guarantee.epsilon, guarantee.delta)
            ),
            PrivacyStatus::NotPrivate(_) => format!("{} is NOT PRIVATE.\n", self.subject()),
        };
        let uncovered = uncovered(self.settings, self.test_records, self.account.records())
            .filter(|_| matches!(standing, PrivacyStatus::Private(_)));
        for sentence in uncovered.into_iter().chain(self.data.text()) {
            head += &format!("{sentence}\n");
        }
        if let Some(accuracy) = self.score.and_then(|score| score.accuracy) {
            lines.push((
                "accuracy",
                format!("{:.2} % on the test set, which is public and not protected", 100.0 * accuracy),
            ));
        }
        if let Some(error) = self.score.and_then(|score| score.mean_squared_error) {
            lines.push((
                "error",
                format!("{error:.4} mean squared, on the test set, which is public and not protected"),
            ));
        }
        match standing {
            PrivacyStatus::Private(guarantee) => {
                lines.push(("epsilon", self.epsilon(guarantee.epsilon.get())?));
                lines.push(("delta", self.delta(guarantee.delta.get())));
                lines.push((
                    "protects",
                    protects(guarantee.relation, GroupSize::ONE).replacen(
                        "one record",
                        "one training record",
                        1,
                    ),
                ));
                if let Some(plan) = self.account.plan() {
                    lines.push(("sampling", sampling(plan)));
                    lines.push(("noise", noise(plan)));
                }
                lines.push((
                    "accountant",
                    format!("{}: {}", guarantee.accountant, guarantee.accountant.description()),
                ));
                lines.push(("status", status(&guarantee)));
            }
            PrivacyStatus::NotPrivate(why) => lines.push(("NOT PRIVATE", why)),
        }
        lines.push(("algorithm", self.training()));
        lines.push(("steps", self.steps()));
        if let Some(seconds) = self.seconds {
            lines.push(("seconds", format!("{seconds:.1}")));
        }
        if !self.weights_covered {
            lines.push((
                "weights",
                "NOT COVERED: an earlier version trained them, and the ledger has no hash to compare them with"
                    .to_owned(),
            ));
        }
        lines.push(("run", self.folder.display().to_string()));
        Ok(format!("{head}\n{}{}", self.warning()?.unwrap_or_default(), rows(&lines)))
    }

    fn claim(&self) -> Option<Claim> {
        Claim::of(self.settings, self.account.plan())
    }

    /// What is claimed beside what is proved, if somebody claims something that is not.
    pub(crate) fn warning(&self) -> Result<Option<String>, Problem> {
        let Some(claim) = self.claim() else { return Ok(None) };
        let (proved, why) = match self.account.privacy_status()? {
            PrivacyStatus::Private(guarantee) if guarantee.epsilon.get() <= claim.epsilon => {
                let epsilon = rounded_up(guarantee.epsilon.get());
                (
                    format!("epsilon {epsilon}"),
                    "in this setting what is proved happens to be no more than the claim".to_owned(),
                )
            }
            PrivacyStatus::Private(guarantee) => {
                (format!("epsilon {}", rounded_up(guarantee.epsilon.get())), claim.why)
            }
            PrivacyStatus::NotPrivate(why) => ("nothing".to_owned(), why),
        };
        let lines = [
            (
                "claimed",
                format!("epsilon {} at delta {:e}, by {}", shown(claim.epsilon), claim.delta, claim.by),
            ),
            ("proved", proved),
            ("why", why),
            ("instead", claim.instead),
        ];
        Ok(Some(format!("WARNING: what is claimed of this run is not what is proved.\n{}\n", rows(&lines))))
    }

    /// The least multiplier of the plan.
    fn multiplier(&self) -> Option<f64> {
        let entries = self.account.plan()?.entries().iter();
        entries.map(sordino_accounting::Entry::effective_noise_multiplier).min_by(f64::total_cmp)
    }

    fn subject(&self) -> String {
        let model = self.settings.model.as_deref().unwrap_or("model");
        if self.account.is_closed() {
            format!("This {model} model")
        } else {
            format!("This unfinished {model} model")
        }
    }

    fn algorithm(&self) -> &str {
        let text = self.settings.algorithm.as_deref().unwrap_or("dp-sgd");
        text.split(',').next().unwrap_or(text)
    }

    fn epsilon(&self, whole: f64) -> Result<String, Problem> {
        let weak = if whole > 10.0 { " (WEAK: above 10, little is promised)" } else { "" };
        let whole = format!("{}{weak}", rounded_up(whole));
        if self.account.is_closed() {
            return Ok(whole);
        }
        let so_far = match self.account.privacy_status_after(self.account.charged())? {
            PrivacyStatus::Private(guarantee) => rounded_up(guarantee.epsilon.get()),
            PrivacyStatus::NotPrivate(_) => String::new(),
        };
        Ok(format!(
            "{whole} for the whole plan, whenever it stops ({so_far} so far, if nothing that was released had a say in \
             when it stopped)"
        ))
    }

    fn delta(&self, delta: f64) -> String {
        #[expect(clippy::cast_precision_loss, reason = "a count of records")]
        let records = self.account.records() as f64;
        let mut text = format!("{delta:e}");
        if delta * records >= 1.0 {
            text += &format!(
                " (WEAK: above 1 / {} records, publishing somebody's record outright would be permitted)",
                grouped(self.account.records())
            );
        }
        text
    }

    fn training(&self) -> String {
        let set = |value: Option<&str>| value.unwrap_or("?").to_owned();
        let data = self.settings.data.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        format!(
            "{} with {} on {} training records of {data}",
            self.settings.algorithm.as_deref().unwrap_or("dp-sgd"),
            set(self.settings.optimizer.as_deref()),
            grouped(self.account.records())
        )
    }

    fn steps(&self) -> String {
        let (charged, planned) = (grouped(self.account.charged()), grouped(self.account.steps()));
        let mut text = match self.account.is_closed() {
            true => planned,
            false => format!("{charged} of {planned} paid for"),
        };
        match self.account.times_resumed() {
            0 => {}
            1 => text += ", resumed once",
            n => text += &format!(", resumed {n} times"),
        }
        if self.account.is_torn() {
            text += "; the last line of the ledger is incomplete and counts as much as it may have paid for";
        }
        text
    }
}

/// Which records a guarantee does not cover; the number of test records is not known of runs of earlier versions.
pub(crate) fn uncovered(settings: &Settings, test_records: Option<u64>, records: u64) -> Option<String> {
    let own = settings.test_fraction.is_none();
    match test_records {
        Some(0) => None,
        Some(count) if own => {
            Some(format!("The {} records of the test set are public and NOT protected.", grouped(count)))
        }
        Some(count) => Some(format!(
            "{} of your {} records were held back for testing and are NOT protected.",
            grouped(count),
            grouped(count.saturating_add(records))
        )),
        None if own => None,
        None => settings.test_fraction.filter(|&fraction| fraction > 0.0).map(|fraction| {
            format!(
                "{} % of your records were held back for testing and are NOT protected.",
                100.0 * fraction
            )
        }),
    }
}
