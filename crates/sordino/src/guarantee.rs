//! What a fitted model guarantees.

use std::fmt;

use serde::{Deserialize, Serialize};
use sordino_accounting::{Accountant, Delta, Epsilon};
use sordino_privacy::PrivacyStatus;

use crate::{Error, report::RunReport};

/// What a fitted model guarantees. It is displayed as the statement that `sordino train` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Guarantee {
    statement: String,
    status: GuaranteeStatus,
    /// All details of the guarantee, as JSON; empty for models that earlier versions saved.
    #[serde(default)]
    json: String,
}

/// Whether a model is private.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum GuaranteeStatus {
    /// It satisfies (epsilon, delta)-differential privacy.
    Private {
        /// The proved upper bound.
        epsilon: Epsilon,
        /// Its delta.
        delta: Delta,
        /// Which data sets cannot be told apart.
        relation: String,
        /// The accountant that proves it.
        accountant: Accountant,
    },
    /// Nothing is guaranteed, for this reason.
    NotPrivate(String),
}

impl Guarantee {
    pub(crate) fn new(report: &RunReport<'_>) -> Result<Self, Error> {
        let status = report.account.privacy_status()?;
        let (statement, json) = (report.text_with(&status)?.to_string(), report.json_with(&status)?);
        let status = match status {
            PrivacyStatus::Private(guarantee) => GuaranteeStatus::Private {
                epsilon: guarantee.epsilon,
                delta: guarantee.delta,
                relation: guarantee.relation.to_string(),
                accountant: guarantee.accountant,
            },
            PrivacyStatus::NotPrivate(why) => GuaranteeStatus::NotPrivate(why),
        };
        Ok(Self { statement, status, json })
    }

    /// Whether the model is private.
    pub fn status(&self) -> &GuaranteeStatus {
        &self.status
    }

    /// The details of the guarantee as one JSON object, as `sordino train --json` prints them; empty for models that earlier versions saved.
    pub fn to_json(&self) -> &str {
        &self.json
    }

    /// Whether the model is private.
    pub fn is_private(&self) -> bool {
        matches!(self.status, GuaranteeStatus::Private { .. })
    }

    /// The proved epsilon of the whole plan; none if the model is not private.
    pub fn epsilon(&self) -> Option<Epsilon> {
        match &self.status {
            GuaranteeStatus::Private { epsilon, .. } => Some(*epsilon),
            GuaranteeStatus::NotPrivate(_) => None,
        }
    }

    /// The delta; none if the model is not private.
    pub fn delta(&self) -> Option<Delta> {
        match &self.status {
            GuaranteeStatus::Private { delta, .. } => Some(*delta),
            GuaranteeStatus::NotPrivate(_) => None,
        }
    }

    /// Which data sets cannot be told apart; none if the model is not private.
    pub fn relation(&self) -> Option<&str> {
        match &self.status {
            GuaranteeStatus::Private { relation, .. } => Some(relation),
            GuaranteeStatus::NotPrivate(_) => None,
        }
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.statement.trim_end())
    }
}
