//! One field of a table, read by the description of its column.

use std::collections::HashMap;

use crate::schema::{Category, Number, Unknown};

/// Why a field was refused.
pub(crate) struct Refused {
    pub(crate) permitted: String,
    pub(crate) hint: &'static str,
}

/// The result of looking up a value in a vocabulary.
pub(crate) enum Lookup {
    /// Its index.
    Place(usize),
    Missing,
    Unknown,
}

/// The index of each value of a category.
pub(crate) struct Vocabulary<'a> {
    category: &'a Category,
    places: HashMap<&'a [u8], usize>,
}

impl<'a> Vocabulary<'a> {
    pub(crate) fn new(category: &'a Category) -> Vocabulary<'a> {
        let places = category.values.iter().enumerate().map(|(place, value)| (value.as_bytes(), place));
        Vocabulary { category, places: places.collect() }
    }

    /// The public names.
    pub(crate) fn names(&self) -> &'a [String] {
        &self.category.values
    }

    /// Looks a value up.
    pub(crate) fn find(&self, text: &[u8], missing: &[String]) -> Lookup {
        match self.places.get(text) {
            Some(&place) => Lookup::Place(place),
            None if missing.iter().any(|value| value.as_bytes() == text) => Lookup::Missing,
            None => Lookup::Unknown,
        }
    }

    /// Whether the schema reads an unknown value as all zeros.
    pub(crate) fn ignores_unknown(&self) -> bool {
        self.category.unknown == Unknown::Ignore
    }

    /// The error for an unknown value.
    pub(crate) fn unknown(&self) -> Refused {
        self.refused("the vocabulary is public: add the value to the schema, or unknown = \"ignore\"")
    }

    /// The class of a value; a target is never missing.
    pub(crate) fn class(&self, text: &[u8]) -> Result<u32, Refused> {
        // There are at most 2^16 classes.
        self.places.get(text).map(|&place| place as u32).ok_or_else(|| {
            self.refused("classes are public and must be declared; they are never derived from the records")
        })
    }

    fn refused(&self, hint: &'static str) -> Refused {
        Refused { permitted: format!("one of {}", listed(&self.category.values)), hint }
    }
}

/// Any number, finite or not.
pub(crate) fn parse(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reads a number and scales it.
pub(crate) fn number_of(text: &[u8], number: &Number, missing: &[String]) -> Result<f32, Refused> {
    let refused = |hint| Err(Refused { permitted: "a finite number".to_owned(), hint });
    if missing.iter().any(|value| value.as_bytes() == text) {
        return match number.missing {
            Some(value) => Ok(value),
            None => refused(
                "the schema can give the column `missing`, a public value that replaces missing values after scaling",
            ),
        };
    }
    let Some(value) = parse(text) else {
        return refused(
            "describe columns that are not numbers in {schema}; their vocabulary is public and never derived from the \
             records",
        );
    };
    if !value.is_finite() {
        return refused("the schema can list it under `missing`");
    }
    let value = number.clip.map_or(value, |[low, high]| value.clamp(low, high));
    let scaled = ((value - number.center) / number.scale) as f32;
    if !scaled.is_finite() {
        return refused(
            "after scaling it exceeds single precision; the schema can clip it or give it a larger scale",
        );
    }
    Ok(scaled)
}

/// Reads a text. It is not trimmed.
pub(crate) fn text_of(text: &[u8]) -> Result<&str, Refused> {
    std::str::from_utf8(text).map_err(|error| {
        let line = 1 + text[..error.valid_up_to()].iter().filter(|&&byte| byte == b'\n').count();
        let place = match text.contains(&b'\n') {
            true => format!(" (line {line} of the text is not)"),
            false => String::new(),
        };
        let hint = "save the file as UTF-8, for example with `iconv -f latin1 -t utf-8`";
        Refused { permitted: format!("UTF-8{place}"), hint }
    })
}

/// The first 12 of a list of public names.
pub(crate) fn listed(names: &[String]) -> String {
    let mut list = names.iter().take(12).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if names.len() > 12 {
        list += &format!(" and {} more", names.len() - 12);
    }
    list
}
