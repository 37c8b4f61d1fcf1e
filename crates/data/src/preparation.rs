//! How records that are given in memory were made.

use serde::{Deserialize, Serialize};

use crate::Dataset;

/// How a program made the records that it gives in memory: what it needs to make records for prediction in the same way. All of it is
/// public. It is stored with the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preparation {
    /// The schema by which a table was read, as TOML or JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// The names of the features, in their order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<Vec<String>>,
    /// The type of the labels, in the words of the program. The classes are their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<String>,
    /// The lengths of the axes of a record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axes: Option<Vec<usize>>,
}

impl Dataset {
    /// Declares how the records were made.
    #[must_use]
    pub fn prepared(mut self, preparation: Preparation) -> Dataset {
        self.preparation = Some(preparation);
        self
    }

    /// How the records were made, if it was declared.
    pub fn preparation(&self) -> Option<&Preparation> {
        self.preparation.as_ref()
    }
}
