//! The columns of a schema: their types, and the checks of each.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::SchemaProblem;
use crate::column_names::Names;
use crate::text::Truncation;

/// The type of a column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Column {
    Number(Number),
    Category(Category),
    Text(TextColumn),
    Ignore(Ignored),
}

/// A number, scaled to `(clip(x) - center) / scale`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Number {
    #[serde(alias = "names")]
    pub(super) name: Names,
    #[serde(default)]
    pub(crate) center: f64,
    #[serde(default = "one")]
    pub(crate) scale: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clip: Option<[f64; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) missing: Option<f32>,
}

/// A value of a public vocabulary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Category {
    #[serde(alias = "names")]
    pub(super) name: Names,
    pub(crate) values: Vec<String>,
    #[serde(default, skip_serializing_if = "Unknown::is_error")]
    pub(crate) unknown: Unknown,
}

/// The treatment of a value outside the vocabulary, or of a column that is not described.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Unknown {
    #[default]
    Error,
    Ignore,
}

impl Unknown {
    pub(super) fn is_error(&self) -> bool {
        *self == Unknown::Error
    }
}

/// A text, read as tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TextColumn {
    #[serde(alias = "names")]
    pub(super) name: Names,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tokenizer: Option<String>,
    /// The SHA-256 hash that the tokenizer's file must have, if it is checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tokenizer_sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_length: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) truncation: Option<Truncation>,
}

/// A column that is not read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ignored {
    #[serde(alias = "names")]
    pub(super) name: Names,
}

fn one() -> f64 {
    1.0
}

impl Column {
    /// A column that is not read.
    pub(super) fn ignored(name: &str) -> Column {
        Column::Ignore(Ignored { name: name.into() })
    }

    pub(crate) fn name(&self) -> &str {
        self.names().first()
    }

    pub(super) fn names(&self) -> &Names {
        match self {
            Column::Number(Number { name, .. })
            | Column::Category(Category { name, .. })
            | Column::Text(TextColumn { name, .. })
            | Column::Ignore(Ignored { name }) => name,
        }
    }

    fn names_mut(&mut self) -> &mut Names {
        match self {
            Column::Number(Number { name, .. })
            | Column::Category(Category { name, .. })
            | Column::Text(TextColumn { name, .. })
            | Column::Ignore(Ignored { name }) => name,
        }
    }

    /// A column for each name of the rule.
    pub(super) fn each(mut self) -> impl Iterator<Item = Column> {
        let names = std::mem::take(&mut self.names_mut().0);
        names.into_iter().map(move |name| {
            let mut column = self.clone();
            column.names_mut().0 = vec![name];
            column
        })
    }

    /// The number of features that it becomes.
    pub(crate) fn width(&self) -> usize {
        match self {
            Column::Number(_) => 1,
            Column::Category(category) => category.values.len(),
            Column::Text(_) | Column::Ignore(_) => 0,
        }
    }

    pub(super) fn check(&self) -> Result<(), SchemaProblem> {
        let refuse = |problem: String, hint| Err((format!("column `{}`: {problem}", self.name()), hint));
        match self {
            // The tokenizer is checked when it is read.
            Column::Text(_) | Column::Ignore(_) => {}
            Column::Number(number) => {
                if !number.center.is_finite() {
                    return refuse(
                        format!("center must be finite, got {}", number.center),
                        "leave it out for 0",
                    );
                }
                if !number.scale.is_finite() || number.scale == 0.0 {
                    let problem = format!("scale must be finite and not 0, got {}", number.scale);
                    return refuse(problem, "leave it out for 1");
                }
                if let Some([low, high]) = number.clip
                    && !(low.is_finite() && high.is_finite() && low < high)
                {
                    let problem =
                        format!("clip must be two finite numbers, the lower first, got [{low}, {high}]");
                    return refuse(problem, "leave it out for no bounds");
                }
                if let Some(missing) = number.missing
                    && !missing.is_finite()
                {
                    let problem = format!("missing must be a finite number, got {missing}");
                    return refuse(problem, "it replaces a missing value after scaling: 0.0 is the center");
                }
            }
            Column::Category(category) => {
                if category.values.is_empty() {
                    return refuse(
                        "values must not be empty".to_owned(),
                        "list the public vocabulary; it is never derived from the records",
                    );
                }
                let mut seen = HashSet::new();
                for value in &category.values {
                    if value.trim_ascii() != value {
                        let problem = format!("the value {value:?} begins or ends with a space");
                        return refuse(problem, "spaces around a value are not read; leave them out");
                    }
                    if !seen.insert(value) {
                        let problem = format!("the value {value:?} is listed twice");
                        return refuse(problem, "a vocabulary lists each value once");
                    }
                }
            }
        }
        Ok(())
    }
}
