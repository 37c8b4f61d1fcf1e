//! The rows of a JSON Lines file: an object on each line, all with the same keys.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io::BufRead;

use ::csv::ByteRecord;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::rows::Rows;
use crate::error::{DataError, quoted};
use crate::text::Lines;

/// A reader of JSON Lines, positioned at a row. The first row has the keys of the objects, sorted: their order in an object has no
/// meaning.
pub(crate) struct JsonRows<R> {
    lines: Lines<R>,
    keys: Vec<String>,
    /// The object whose keys are the first row.
    first: Option<Object>,
    record: ByteRecord,
}

/// The fields of an object, in their order.
struct Object(Vec<(String, Field)>);

/// A value as the text of a field. `null` is empty.
struct Field(String);

impl<R: BufRead> JsonRows<R> {
    pub(crate) fn new(file: &str, source: R) -> JsonRows<R> {
        let lines = Lines::new(file, source);
        JsonRows { lines, keys: Vec::new(), first: None, record: ByteRecord::new() }
    }

    /// The next object; `None` at the end.
    fn object(&mut self) -> Result<Option<Object>, DataError> {
        if !self.lines.next()? {
            return Ok(None);
        }
        serde_json::from_slice(self.lines.text()).map(Some).map_err(|error| {
            let place = format!("{}, byte {}", self.lines.place(), error.column());
            let message = error.to_string();
            let problem = message.split(" at line ").next().unwrap_or_default();
            let hint = "each line is an object such as {\"text\": \"...\", \"label\": \"...\"} with strings, numbers, true, \
                        false and null";
            DataError::file(place, problem, hint)
        })
    }

    /// Puts the fields of an object into the order of the keys.
    fn arrange(&mut self, Object(fields): Object) -> Result<(), DataError> {
        let refused = |place, key: &str, problem| {
            let hint = "every object has the keys of the first one; write null for a missing value";
            Err(DataError::file(place, format!("the key {} {problem}", quoted(key.as_bytes())), hint))
        };
        let mut fields: BTreeMap<String, Field> = fields.into_iter().collect();
        self.record.clear();
        for key in &self.keys {
            match fields.remove(key) {
                Some(Field(text)) => self.record.push_field(text.as_bytes()),
                None => return refused(self.lines.place(), key, "is missing"),
            }
        }
        match fields.first_key_value() {
            Some((key, _)) => refused(self.lines.place(), key, "is unknown"),
            None => Ok(()),
        }
    }
}

impl<R: BufRead> Rows for JsonRows<R> {
    fn file(&self) -> &str {
        self.lines.file()
    }

    fn record(&self) -> &ByteRecord {
        &self.record
    }

    fn next(&mut self) -> Result<bool, DataError> {
        if let Some(first) = self.first.take() {
            return self.arrange(first).map(|()| true);
        }
        let Some(object) = self.object()? else { return Ok(false) };
        if !self.keys.is_empty() {
            return self.arrange(object).map(|()| true);
        }
        self.keys = object.0.iter().map(|(name, _)| name.clone()).collect();
        self.keys.sort_unstable();
        if self.keys.is_empty() {
            return Err(DataError::file(self.lines.place(), "the object has no keys", "give it the columns"));
        }
        self.record = self.keys.iter().map(String::as_bytes).collect();
        self.first = Some(object);
        Ok(true)
    }

    fn resumes(&self) -> bool {
        true
    }

    fn orders_columns(&self) -> bool {
        false
    }

    fn place(&self) -> String {
        self.lines.place()
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let (mut fields, mut seen) = (Vec::new(), HashSet::new());
                while let Some(name) = map.next_key::<String>()? {
                    if !seen.insert(name.clone()) {
                        return Err(A::Error::custom(format!(
                            "the key {} occurs twice",
                            quoted(name.as_bytes())
                        )));
                    }
                    fields.push((name, map.next_value()?));
                }
                Ok(Object(fields))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Field, D::Error> {
        struct Text;

        /// Values whose text is that of `to_string`.
        macro_rules! as_text {
            ($($visit:ident: $type:ty),*) => {$(
                fn $visit<E: Error>(self, value: $type) -> Result<Field, E> {
                    Ok(Field(value.to_string()))
                }
            )*};
        }

        impl Visitor<'_> for Text {
            type Value = Field;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a number, true, false or null")
            }

            as_text!(visit_str: &str, visit_bool: bool, visit_u64: u64, visit_i64: i64, visit_f64: f64);

            fn visit_unit<E: Error>(self) -> Result<Field, E> {
                Ok(Field(String::new()))
            }
        }

        deserializer.deserialize_any(Text)
    }
}
