//! Reports as pages: runs, comparisons, audits and reproduced tables.

mod attacker;
mod audit;
mod charts;
mod run;
mod run_part;
mod schedules;
mod statement;

use std::{fs, path::Path};

use serde_json::{Value, json};
use sordino_audit::AuditResult;
use sordino_report::Page;
use sordino_train::TrainError;

pub use attacker::{Attacker, Rates};
pub use run::RunEvidence;
pub use schedules::{AtStep, Schedules};

use crate::{comparison::Comparison, reproduction::SideBySide};

/// The largest file of results that is read.
const LARGEST: u64 = 100_000_000;

/// Something that a report can show.
pub enum Evidence {
    /// The folder of a run.
    Run(Box<RunEvidence>),
    /// The results of `sordino compare --out FILE`.
    Comparison(Comparison),
    /// The results of `sordino audit --out FILE`.
    Audit(AuditResult),
    /// The output of `sordino reproduce TABLE --json`.
    Reproduction(SideBySide),
}

impl Evidence {
    /// Reads a folder or a file, and checks it.
    ///
    /// # Errors
    /// A path that is neither the folder of a run nor the JSON of a comparison, an audit or a reproduction.
    pub fn read(path: &Path) -> Result<Self, TrainError> {
        if path.is_dir() {
            return Ok(Self::Run(Box::new(RunEvidence::read(path)?)));
        }
        let refused = |problem: String| {
            TrainError::refused(
                format!("{} {problem}", path.display()),
                "give the folder of a run, or the JSON of a comparison, an audit or a reproduction",
            )
        };
        let size = fs::metadata(path).map_or(0, |found| found.len());
        if size > LARGEST {
            return Err(refused(format!("has {size} bytes; results have at most {LARGEST}")));
        }
        let text = fs::read_to_string(path).map_err(|error| refused(format!("cannot be read: {error}")))?;
        let value: Value =
            serde_json::from_str(&text).map_err(|error| refused(format!("is not JSON: {error}")))?;
        if value.get("attacks").is_some() {
            let audit: AuditResult = serde_json::from_value(value)
                .map_err(|error| refused(format!("is not the result of an audit: {error}")))?;
            audit.check().map_err(|problem| refused(format!("is not the result of an audit: {problem}")))?;
            return Ok(Self::Audit(audit));
        }
        if value.get("rows").is_some() {
            let comparison = serde_json::from_value(value);
            return comparison
                .map(Self::Comparison)
                .map_err(|error| refused(format!("is not the result of a comparison: {error}")));
        }
        if value.get("cells").is_some() {
            let reproduction = serde_json::from_value(value);
            return reproduction
                .map(Self::Reproduction)
                .map_err(|error| refused(format!("is not the result of a reproduction: {error}")));
        }
        Err(refused(
            "is not the result of a comparison (with `rows`), an audit (with `attacks`) or a reproduction (with `cells`)"
                .to_owned(),
        ))
    }

    fn json(&self) -> Value {
        let tagged = |kind: &str, value: Value| match value {
            Value::Object(mut fields) => {
                fields.insert("kind".to_owned(), kind.into());
                Value::Object(fields)
            }
            other => other,
        };
        match self {
            Self::Run(run) => run.json(),
            Self::Comparison(comparison) => {
                tagged("comparison", serde_json::to_value(comparison).unwrap_or_default())
            }
            Self::Reproduction(table) => {
                tagged("reproduction", serde_json::to_value(table).unwrap_or_default())
            }
            Self::Audit(audit) => {
                let mut value = tagged("audit", serde_json::to_value(audit).unwrap_or_default());
                value["lower_bound"] = audit.lower_bound().into();
                value["claim_refuted"] = audit.refutes_the_claim().into();
                value
            }
        }
    }
}

/// One page about all of these, with their names.
pub fn page(evidence: &[(String, Evidence)]) -> Page {
    let runs: Vec<&RunEvidence> = evidence
        .iter()
        .filter_map(|(_, evidence)| match evidence {
            Evidence::Run(run) => Some(&**run),
            _ => None,
        })
        .collect();
    let audits: Vec<&AuditResult> = evidence
        .iter()
        .filter_map(|(_, evidence)| match evidence {
            Evidence::Audit(audit) => Some(audit),
            _ => None,
        })
        .collect();
    let part = |(name, evidence): &(String, Evidence)| match evidence {
        Evidence::Run(run) => {
            let own: Vec<&AuditResult> =
                audits.iter().copied().filter(|audit| run.is_tested_by(audit)).collect();
            run.part(name, &own)
        }
        Evidence::Comparison(comparison) => comparison.part(name),
        Evidence::Reproduction(table) => table.part(name),
        Evidence::Audit(audit) => {
            let run = runs.iter().find(|run| run.is_tested_by(audit));
            audit::part(name, audit, run.and_then(|run| run.attacker.as_ref()))
        }
    };
    Page {
        title: "Privacy report".to_owned(),
        parts: evidence.iter().map(part).collect(),
        footer: format!(
            "Written by Sordino {} (sordino report). An HTML report has no scripts and loads no other files.",
            env!("CARGO_PKG_VERSION")
        ),
    }
}

/// All of these as one JSON object.
pub fn json_report(evidence: &[(String, Evidence)]) -> Value {
    let item = |(name, evidence): &(String, Evidence)| {
        let mut value = evidence.json();
        value["path"] = name.as_str().into();
        value
    };
    json!({"version": env!("CARGO_PKG_VERSION"), "reports": evidence.iter().map(item).collect::<Vec<_>>()})
}

/// A share as a percentage with two decimals, never below the share.
fn percent_up(share: f64) -> String {
    format!("{:.2}", (1e4 * share).ceil() / 100.0)
}

/// A share as a percentage, as short as possible.
fn percent(share: f64) -> String {
    sordino_report::significant(100.0 * share)
}
