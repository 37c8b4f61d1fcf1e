//! The errors of this crate.

use thiserror::Error;

/// Why a file, a schema, an array or a setting was refused.
///
/// The message states the place, the value and what is permitted; [`hint`](Self::hint) states the remedy. A quoted value is private:
/// the message is for the owner of the data.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum DataError {
    /// A value that its column, array or file does not permit.
    #[error("{place}: must be {permitted}, got {got}")]
    Value {
        /// The file or array, and the position in it.
        place: String,
        /// What is permitted there.
        permitted: String,
        /// What was found, at most 40 characters of it.
        got: String,
        /// The remedy.
        hint: String,
    },
    /// A file or an array that cannot be read or has the wrong form.
    #[error("{place}: {problem}")]
    File {
        /// The file or array, and the position in it.
        place: String,
        /// What is wrong.
        problem: String,
        /// The remedy.
        hint: String,
    },
    /// A schema that contradicts itself.
    #[error("{place}: {problem}")]
    Schema {
        /// The schema's file.
        place: String,
        /// What is wrong.
        problem: String,
        /// The remedy.
        hint: String,
    },
    /// A parameter that is missing or outside its permitted range.
    #[error("{what} must be {permitted}, got {got}")]
    Setting {
        /// The parameter.
        what: &'static str,
        /// The permitted range.
        permitted: String,
        /// What was given.
        got: String,
        /// The remedy.
        hint: String,
    },
}

impl DataError {
    /// What to do about it. Settings are in braces: `{schema}`, `{classes=10}`.
    pub fn hint(&self) -> &str {
        match self {
            Self::Value { hint, .. }
            | Self::File { hint, .. }
            | Self::Schema { hint, .. }
            | Self::Setting { hint, .. } => hint,
        }
    }

    pub(crate) fn value(
        place: impl Into<String>,
        permitted: impl Into<String>,
        got: impl Into<String>,
        hint: impl Into<String>,
    ) -> DataError {
        let (place, permitted) = (place.into(), permitted.into());
        DataError::Value { place, permitted, got: got.into(), hint: hint.into() }
    }

    pub(crate) fn file(
        place: impl Into<String>,
        problem: impl Into<String>,
        hint: impl Into<String>,
    ) -> DataError {
        DataError::File { place: place.into(), problem: problem.into(), hint: hint.into() }
    }

    pub(crate) fn schema(
        place: impl Into<String>,
        problem: impl Into<String>,
        hint: impl Into<String>,
    ) -> DataError {
        DataError::Schema { place: place.into(), problem: problem.into(), hint: hint.into() }
    }
}

/// The largest number of characters of a private value in a message.
const SHOWN: usize = 40;

/// A value as it appears in messages: shortened, with control characters escaped.
pub(crate) fn quoted(value: &[u8]) -> String {
    // A character has at most 4 bytes, so this cut keeps every character that is shown.
    let text = String::from_utf8_lossy(&value[..value.len().min(4 * (SHOWN + 1))]);
    let shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    let rest = if text.chars().count() > SHOWN { "..." } else { "" };
    format!("`{shown}{rest}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_value_is_cut_and_escaped() {
        assert_eq!(quoted(b""), "``");
        assert_eq!(quoted(b"\x1b[2Jx"), "`\\u{1b}[2Jx`");
        assert_eq!(quoted(&[b'a'; 40]), format!("`{}`", "a".repeat(40)));
        assert_eq!(quoted(&[b'a'; 1000]), format!("`{}...`", "a".repeat(40)));
        assert_eq!(quoted("ä".repeat(1000).as_bytes()), format!("`{}...`", "ä".repeat(40)));
    }
}
