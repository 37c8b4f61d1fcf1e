//! A federation of clients that protect their own records, as text and as JSON.

use std::path::Path;

use serde::Serialize;
use sordino_accounting::{Guarantee, pld::GroupSize};
use sordino_privacy::{Account, PrivacyStatus};
use sordino_train::{
    Score, Settings, TrainError,
    format::{grouped, pair, rounded_up},
};

use super::{Measured, json, labelled, protects, status};

/// A federation and its guarantee: for one record, the largest guarantee of its clients.
pub struct FederationReport<'a> {
    /// The settings of the federation.
    pub settings: &'a Settings,
    /// The content of each client's ledger.
    pub accounts: &'a [Account],
    /// The score on public test records.
    pub score: Option<Score>,
    /// Seconds of training.
    pub seconds: f64,
    /// The folder with a folder for each client.
    pub folder: &'a Path,
}

#[derive(Serialize)]
struct FederationRecord<'a> {
    #[serde(flatten)]
    score: Score,
    /// The largest of the clients' epsilons; none if a client has none.
    epsilon: Option<f64>,
    delta: Option<f64>,
    private: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_private_because: Option<String>,
    /// None without test records.
    test_set_protected: Option<bool>,
    finished: bool,
    seconds: f64,
    clients: Vec<ClientRecord>,
    run: &'a Path,
}

#[derive(Serialize)]
struct ClientRecord {
    client: usize,
    training_records: u64,
    epsilon: Option<f64>,
    steps: u64,
    planned_steps: u64,
}

/// The guarantees of all clients, or why one of them has none.
type Guarantees = Result<Vec<Guarantee>, String>;

fn largest(guarantees: &[Guarantee]) -> Option<&Guarantee> {
    guarantees.iter().max_by(|a, b| a.epsilon.get().total_cmp(&b.epsilon.get()))
}

impl FederationReport<'_> {
    fn guarantees(&self) -> Result<Guarantees, TrainError> {
        let mut guarantees = Vec::new();
        for account in self.accounts {
            match account.privacy_status()? {
                PrivacyStatus::Private(guarantee) => guarantees.push(guarantee),
                PrivacyStatus::NotPrivate(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(guarantees))
    }

    fn is_finished(&self) -> bool {
        self.accounts.iter().all(Account::is_closed)
    }

    /// One JSON object.
    ///
    /// # Errors
    /// A plan that cannot be priced.
    pub fn json(&self) -> Result<String, TrainError> {
        let guarantees = self.guarantees()?;
        let largest = guarantees.as_ref().ok().and_then(|guarantees| largest(guarantees));
        let clients = self.accounts.iter().enumerate().map(|(index, account)| ClientRecord {
            client: index + 1,
            training_records: account.records(),
            epsilon: guarantees.as_ref().ok().map(|guarantees| guarantees[index].epsilon.get()),
            steps: account.charged(),
            planned_steps: account.steps(),
        });
        Ok(json(&FederationRecord {
            score: self.score.unwrap_or_default(),
            epsilon: largest.map(|guarantee| guarantee.epsilon.get()),
            delta: largest.map(|guarantee| guarantee.delta.get()),
            private: largest.is_some(),
            not_private_because: guarantees.as_ref().err().cloned(),
            test_set_protected: self.score.map(|_| false),
            finished: self.is_finished(),
            seconds: self.seconds,
            clients: clients.collect(),
            run: self.folder,
        }))
    }

    /// Text for a person.
    ///
    /// # Errors
    /// A plan that cannot be priced.
    pub fn text(&self) -> Result<String, TrainError> {
        let guarantees = self.guarantees()?;
        let measured = Measured {
            score: self.score,
            metrics: None,
            units: "records".to_owned(),
            classes: &[],
            protected: false,
            public: true,
        };
        let mut lines = measured.lines();
        let heading = match &guarantees {
            Ok(guarantees) => {
                let Some(largest) = largest(guarantees) else { return Ok(String::new()) };
                lines.extend([
                    ("epsilon", format!("{}, the largest of the clients", rounded_up(largest.epsilon.get()))),
                    ("delta", format!("{:e}", largest.delta.get())),
                    (
                        "protects",
                        protects(largest.relation, GroupSize::ONE).replacen(
                            "one record",
                            "one training record",
                            1,
                        ),
                    ),
                    ("status", status(largest)),
                ]);
                format!(
                    "This model satisfies {}-differential privacy. Every client protects its own records.\n{}The costs of other runs on the same \
                     records add to this one.\n\n",
                    pair(largest.epsilon, largest.delta),
                    match self.score {
                        Some(_) => "The test records were measured exactly and are NOT protected.\n",
                        None => "",
                    }
                )
            }
            Err(why) => {
                lines.push(("NOT PRIVATE", why.clone()));
                "This model is NOT PRIVATE.\n\n".to_owned()
            }
        };
        let records = self.accounts.iter().map(Account::records);
        let folder = self.folder.display();
        lines.extend([
            (
                "clients",
                format!(
                    "{}, with {} training records in all; their ledgers are in {folder}/clients",
                    grouped(self.accounts.len() as u64),
                    grouped(records.sum())
                ),
            ),
            ("algorithm", self.settings.algorithm.clone().unwrap_or("dp-sgd".to_owned())),
            ("steps", self.steps()),
            ("time", format!("{:.1} s", self.seconds)),
            ("model", format!("{folder}/clients/1/model.safetensors, the same for all clients")),
        ]);
        Ok(heading + &labelled(&lines))
    }

    fn steps(&self) -> String {
        let planned = self.accounts.iter().map(Account::steps).max().unwrap_or(0);
        let local = self.settings.local_steps.unwrap_or(1);
        let kind = format!("private steps of each client, {} in a round", grouped(local));
        match self.is_finished() {
            true => format!("{} {kind}", grouped(planned)),
            false => {
                let charged = self.accounts.iter().map(Account::charged).max().unwrap_or(0);
                format!("{} of {} {kind}", grouped(charged), grouped(planned))
            }
        }
    }
}
