//! The draft of a schema: what the header states, and gaps for what must come from knowledge of the subject.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use crate::dataset::no_records;
use crate::error::DataError;
use crate::field::parse;
use crate::format::Format;
use crate::gaps::GAP;
use crate::schema::Schema;
use crate::table::{Rows, TableFormat};
use crate::text::Part;

/// The largest number of values that a drafted vocabulary lists.
const VOCABULARY: usize = 50;

/// An open table, positioned before its first line.
pub(crate) struct Table {
    rows: Box<dyn Rows>,
    delimiter: u8,
}

/// What a public sample shows about a column.
enum Kind {
    Unknown,
    Number,
    /// The values of the sample.
    Category(BTreeSet<String>),
    /// More values than a vocabulary usually has.
    Text,
}

/// Drafts a schema for a table from its first line and, if given, from a sample, which determines the types of the columns and some values
/// of the vocabularies. Whatever must come from knowledge of the subject is left as a gap, `"FILL IN: ..."`, which [`Schema::read`] refuses
/// with an error that names its line.
///
/// # Guarantees
///
/// The draft contains no value of a record, provided that `without_header` is true for a table without a header. (A first line with a
/// number, a missing value or two equal values is never taken for a header.) **The sample must be public:** its values are copied into the
/// draft.
///
/// # Errors
///
/// A file that is not a table or cannot be read; a sample without a column of the table.
pub fn draft(path: &Path, sample: Option<&Path>, without_header: bool) -> Result<String, DataError> {
    let table = Table::open(path)?;
    let sample = sample.map(Table::open).transpose()?;
    let delimiter = table.delimiter;
    let (header, names) = table.first_line(without_header)?;
    let kinds = match sample {
        Some(sample) => kinds(sample, header, &names)?,
        None => names.iter().map(|_| Kind::Unknown).collect(),
    };
    let mut text = String::from(
        "# The draft of a schema. Fill in every gap from your knowledge of the subject, not by looking at the records:\n\
         # what a schema states is public. Bounds and vocabularies that were taken from the records reveal them.\n\n",
    );
    let list = names.iter().take(12).cloned().collect::<Vec<_>>().join(", ");
    let more = if names.len() > 12 { ", ..." } else { "" };
    line(&mut text, "target", &gap(&format!("the column to predict, one of {list}{more}")));
    if !header {
        text += "header = false\n";
    }
    if delimiter != b',' {
        line(&mut text, "delimiter", &string(&char::from(delimiter).to_string()));
    }
    for group in groups(&names, &kinds) {
        text += "\n[[columns]]\n";
        match &names[group.clone()] {
            [name] => line(&mut text, "name", &string(name)),
            several => {
                let list: Vec<String> = several.iter().map(|name| string(name)).collect();
                line(&mut text, "names", &format!("[{}]", list.join(", ")));
            }
        }
        describe(&mut text, &kinds[group.start]);
    }
    Ok(text)
}

impl Table {
    /// Opens a table. The delimiter of a CSV file is the one that occurs most often in its first line.
    pub(crate) fn open(path: &Path) -> Result<Table, DataError> {
        match Format::of(path)? {
            Format::Table(table) if table != TableFormat::TextFolder => {
                let table = table.with_usual_delimiter(path)?;
                let rows = table.rows(path, None, Part::Train, true)?;
                Ok(Table { rows, delimiter: table.delimiter() })
            }
            _ => Err(DataError::file(
                path.display().to_string(),
                "is not a table, so it needs no schema",
                "give a table (.csv, .tsv, .txt, .data, .jsonl, .ndjson, .parquet)",
            )),
        }
    }

    /// Whether the first line is a header, and the names of the columns. A line with a number, a missing value or two equal values is a
    /// record, unless the format names its columns.
    pub(crate) fn first_line(mut self, without_header: bool) -> Result<(bool, Vec<String>), DataError> {
        if !self.rows.next()? {
            return Err(no_records(self.rows.file()));
        }
        // The values of a record must not get into a schema.
        let fields: Vec<&[u8]> = self.rows.record().iter().map(<[u8]>::trim_ascii).collect();
        let different = fields.iter().collect::<BTreeSet<_>>().len() == fields.len();
        // In a table that pandas wrote with its index, the first column has an empty name.
        let missing = |(place, field): (usize, &&[u8])| {
            Schema::counts_as_missing(field) && !(place == 0 && field.is_empty())
        };
        let is_header = different
            && !fields.iter().any(|field| parse(field).is_some())
            && !fields.iter().enumerate().any(missing);
        if !self.rows.names_columns() && (!is_header || without_header) {
            return Ok((false, (1..=fields.len()).map(|number| number.to_string()).collect()));
        }
        Ok((true, fields.into_iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()))
    }

    /// The number of records.
    pub(crate) fn count(mut self, header: bool) -> Result<u64, DataError> {
        let mut count: u64 = 0;
        while self.rows.next()? {
            count += 1;
        }
        Ok(count.saturating_sub(u64::from(header)))
    }
}

fn line(text: &mut String, key: &str, value: &str) {
    writeln!(text, "{key} = {value}").expect("a string can always be extended");
}

/// A TOML string.
fn string(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn gap(needed: &str) -> String {
    // In quotes on one line, so that the line can be named.
    string(&format!("{GAP}{}", needed.replace(['"', '\n', '\r', '\\'], " ")))
}

/// The type of a column, as far as it is known.
fn describe(text: &mut String, kind: &Kind) {
    match kind {
        Kind::Unknown => {
            line(text, "type", &gap("number, category, text or ignore"));
            text.push_str(
                "# a number needs clip = [smallest, largest] and may have center, scale and missing\n",
            );
            text.push_str("# a category needs values = [\"...\", \"...\"]\n");
            text.push_str("# a text may have tokenizer and max_length\n");
        }
        Kind::Number => {
            line(text, "type", &string("number"));
            line(text, "clip", &gap("the smallest and the largest possible value, as in [0, 100]"));
            line(text, "center", &gap("a typical value; it becomes 0"));
            line(text, "scale", &gap("a typical distance from it; it becomes 1"));
        }
        Kind::Category(values) => {
            line(text, "type", &string("category"));
            let mut list: Vec<String> = values.iter().map(|value| string(value)).collect();
            list.push(gap("values that the sample lacks, or remove this entry"));
            line(text, "values", &format!("[{}]", list.join(", ")));
        }
        Kind::Text => {
            line(
                text,
                "type",
                &gap("text, ignore or category; the sample has more than 50 different values"),
            );
        }
    }
}

/// The kind of each column, according to a public sample with the same columns.
fn kinds(sample: Table, header: bool, names: &[String]) -> Result<Vec<Kind>, DataError> {
    let mut rows = sample.rows;
    let mut more = rows.next()?;
    let order: Vec<Option<usize>> = match header && more {
        true => {
            let found: Vec<&[u8]> = rows.record().iter().map(<[u8]>::trim_ascii).collect();
            let order = names.iter().map(|name| found.iter().position(|found| *found == name.as_bytes()));
            let order = order.collect();
            more = rows.next()?;
            order
        }
        false => (0..names.len()).map(Some).collect(),
    };
    if let Some(place) = order.iter().position(Option::is_none) {
        return Err(DataError::file(
            rows.file(),
            format!("the sample has no column `{}`", names[place]),
            "give a public sample with the columns of the table",
        ));
    }
    let mut kinds: Vec<Kind> = names.iter().map(|_| Kind::Unknown).collect();
    while more {
        for (kind, field) in kinds.iter_mut().zip(&order) {
            let field = field.and_then(|field| rows.record().get(field)).unwrap_or_default();
            if !Schema::counts_as_missing(field) {
                kind.observe(field.trim_ascii());
            }
        }
        more = rows.next()?;
    }
    Ok(kinds)
}

impl Kind {
    fn observe(&mut self, field: &[u8]) {
        let value = || String::from_utf8_lossy(field).into_owned();
        match self {
            Kind::Unknown | Kind::Number if parse(field).is_some() => *self = Kind::Number,
            Kind::Unknown => *self = Kind::Category([value()].into()),
            // A column with numbers and other values.
            Kind::Number => *self = Kind::Text,
            Kind::Category(values) => {
                values.insert(value());
                if values.len() > VOCABULARY {
                    *self = Kind::Text;
                }
            }
            Kind::Text => {}
        }
    }
}

/// Consecutive columns that share one rule: their names differ only in the digits at the end, and their type is number or unknown.
fn groups(names: &[String], kinds: &[Kind]) -> Vec<std::ops::Range<usize>> {
    let stem = |name: &str| name.trim_end_matches(|character: char| character.is_ascii_digit()).to_owned();
    let alike = |a: usize, b: usize| {
        let same =
            matches!((&kinds[a], &kinds[b]), (Kind::Unknown, Kind::Unknown) | (Kind::Number, Kind::Number));
        let stem_of = stem(&names[a]);
        same && !stem_of.is_empty()
            && stem_of != names[a]
            && stem_of == stem(&names[b])
            && stem_of != names[b]
    };
    let mut groups: Vec<std::ops::Range<usize>> = Vec::new();
    for place in 0..names.len() {
        match groups.last_mut() {
            Some(group) if alike(group.start, place) => group.end = place + 1,
            _ => groups.push(place..place + 1),
        }
    }
    groups
}
