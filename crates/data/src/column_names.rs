//! The names of the columns to which a rule of a schema applies.

use serde::{Deserialize, Serialize};

/// The name of a column, or the names of several columns with the same rule. In a checked schema, each column has one name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "OneOrMany", into = "String")]
pub(crate) struct Names(pub(crate) Vec<String>);

#[derive(Deserialize)]
#[serde(untagged, expecting = "a name, or a list of names")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl From<OneOrMany> for Names {
    fn from(names: OneOrMany) -> Names {
        match names {
            OneOrMany::One(name) => Names(vec![name]),
            OneOrMany::Many(names) => Names(names),
        }
    }
}

impl From<Names> for String {
    fn from(names: Names) -> String {
        names.0.into_iter().next().unwrap_or_default()
    }
}

impl From<&str> for Names {
    fn from(name: &str) -> Names {
        Names(vec![name.to_owned()])
    }
}

impl Names {
    /// The name of a column of a schema that has been checked.
    pub(crate) fn first(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }
}
