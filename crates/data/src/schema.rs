//! The public description of a table: the type of each column and its permitted values.

mod columns;
mod texts;

use std::collections::HashSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use self::columns::TextColumn;
pub(crate) use self::columns::{Category, Column, Number, Unknown};
use crate::dataset::MAX_VALUES;
use crate::error::DataError;
use crate::gaps::first_gap;
use crate::input::unreadable;
use crate::labels::{MAX_CLASSES, numbered};
use crate::table::Notation;
use crate::text::Tokenization;

/// The public description of a table, as a TOML file.
///
/// Features are in the order of the schema: one for each `number`, one for each value of each `category`. A `text` becomes
/// tokens (see [`TextEncoder`](crate::TextEncoder)). A table has one text or a pair of texts, and then no numbers and categories
/// besides the target. The target is one of the columns: a category is a class; a number is predicted as a number and scaled like
/// any other; a text is predicted token by token from the other text.
///
/// # Guarantees
///
/// Deserialised schemas are checked. Nothing in a schema is derived from the records. Choose bounds, scales and vocabularies
/// without looking at them.
///
/// ```
/// let schema = sordino_data::Schema::parse("people.toml", r#"
///     target = "income"          # a name, or a number from 1 if there is no header
///     # unit = "person"          # the column that identifies the unit of privacy; without it, every record is a unit
///     # header = true            # these are the defaults
///     # delimiter = ","
///     # quotes = true            # false: a double quote is a character like any other
///     # missing = ["", "?", "NA"]
///     # others = "error"         # "ignore": columns that are not described are not read
///
///     [[columns]]
///     name = "age"
///     type = "number"            # (x - center) / scale
///     clip = [0, 100]            # bounds x before it is scaled
///     center = 40.0
///     scale = 20.0
///     missing = 0.0              # replaces a missing value, after scaling; without it a missing value is an error
///
///     [[columns]]
///     name = "colour"
///     type = "category"          # one feature for each value; a missing value is all zeros
///     values = ["red", "green"]
///     unknown = "ignore"         # all zeros for an unknown value; without it an unknown value is an error
///
///     [[columns]]
///     names = ["id", "phone"]    # one rule for several columns
///     type = "ignore"
///
///     [[columns]]
///     name = "income"
///     type = "category"
///     values = ["low", "high"]
/// "#)?;
/// assert_eq!(schema.features(), 3);
///
/// let schema = sordino_data::Schema::parse("reviews.toml", r#"
///     target = "stars"
///
///     [[columns]]
///     name = "review"
///     type = "text"
///     tokenizer = "hashed,size=16384"   # the default; or the path of a tokenizer.json, relative to the schema
///     max_length = 256                  # in tokens; the default
///     truncation = "end"                # or "middle"; the default is end
///
///     [[columns]]
///     name = "stars"
///     type = "number"
///     scale = 5.0
/// "#)?;
/// # Ok::<(), sordino_data::DataError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawSchema")]
pub struct Schema {
    pub(crate) header: bool,
    delimiter: char,
    #[serde(skip_serializing_if = "is_yes")]
    quotes: bool,
    pub(crate) missing: Vec<String>,
    #[serde(skip_serializing_if = "Unknown::is_error")]
    pub(crate) others: Unknown,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<ColumnReference>,
    /// The column that identifies the unit of privacy.
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<ColumnReference>,
    pub(crate) columns: Vec<Column>,
}

/// A schema as it is written, before the checks.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSchema {
    #[serde(default = "yes")]
    header: bool,
    #[serde(default = "comma")]
    delimiter: char,
    #[serde(default = "yes")]
    quotes: bool,
    #[serde(default = "blanks")]
    missing: Vec<String>,
    #[serde(default)]
    others: Unknown,
    target: Option<ColumnReference>,
    unit: Option<ColumnReference>,
    columns: Vec<Column>,
}

/// A column, by its name or by its number from 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a column's name, or its number from 1")]
enum ColumnReference {
    Number(usize),
    Name(String),
}

fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}

fn comma() -> char {
    ','
}

fn blanks() -> Vec<String> {
    ["", "?", "NA"].map(str::to_owned).to_vec()
}

/// What is wrong with a schema, and the hint.
type SchemaProblem = (String, &'static str);

impl Schema {
    /// Reads a schema's file.
    ///
    /// # Errors
    ///
    /// Text that is not TOML, unknown keys and types, and contradictions, with their line or column.
    pub fn read(path: &Path) -> Result<Schema, DataError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(&file, &error))?;
        let schema = Schema::parse(&file, &text)?;
        Ok(schema.with_tokenizer_below(path.parent().unwrap_or(Path::new(""))))
    }

    /// Reads a schema; `file` is its name in errors.
    ///
    /// # Errors
    ///
    /// Those of [`Schema::read`].
    pub fn parse(file: &str, text: &str) -> Result<Schema, DataError> {
        if let Some(error) = first_gap(file, text) {
            return Err(error);
        }
        let raw: RawSchema = toml::from_str(text).map_err(|error| {
            let place = match error.span().filter(|span| span.start > 0) {
                Some(span) => format!("{file}, line {}", 1 + text[..span.start].matches('\n').count()),
                None => file.to_owned(),
            };
            let hint = "a schema has header, delimiter, quotes, missing, others, target, unit and [[columns]] with name or names and a \
                        type: number (center, scale, clip, missing), category (values, unknown), text (tokenizer, max_length, \
                        truncation, tokenizer_sha256) or ignore";
            DataError::schema(place, error.message().trim().replace('\n', ", "), hint)
        })?;
        raw.check().map_err(|(problem, hint)| DataError::schema(file, problem, hint))
    }

    /// A schema in which every column is a text, or a number that is not scaled, except a target with classes.
    pub(crate) fn plain(
        file: &str,
        header: bool,
        delimiter: u8,
        names: &[String],
        target: Option<(usize, Option<usize>)>,
        unit: Option<usize>,
        texts: Option<&Tokenization>,
    ) -> Result<Schema, DataError> {
        let column = |(place, name): (usize, &String)| match (target, texts) {
            _ if unit == Some(place) => Column::ignored(name),
            (Some((target, Some(classes))), _) if target == place => Column::Category(Category {
                name: name.as_str().into(),
                values: numbered(classes),
                unknown: Unknown::Error,
            }),
            (_, Some(texts)) => Column::Text(TextColumn::new(name, texts)),
            _ => Column::Number(Number {
                name: name.as_str().into(),
                center: 0.0,
                scale: 1.0,
                clip: None,
                missing: None,
            }),
        };
        let raw = RawSchema {
            header,
            delimiter: char::from(delimiter),
            quotes: true,
            missing: blanks(),
            others: Unknown::Error,
            target: target.map(|(place, _)| ColumnReference::Number(place + 1)),
            unit: unit.map(|place| ColumnReference::Number(place + 1)),
            columns: names.iter().enumerate().map(column).collect(),
        };
        raw.check().map_err(|(problem, hint)| DataError::file(file, problem, hint))
    }

    /// The number of features that a record becomes: one for each number, one for each value of each category, none for texts.
    pub fn features(&self) -> usize {
        let target = self.target_place(None);
        let features = self.columns.iter().enumerate().filter(|&(place, _)| Some(place) != target);
        features.map(|(_, column)| column.width()).sum()
    }

    /// The name of the target, if the schema has one.
    pub fn target_name(&self) -> Option<&str> {
        self.target_place(None).map(|place| self.columns[place].name())
    }

    /// The public classes of the target, if it is a category.
    pub fn target_classes(&self) -> Option<&[String]> {
        match &self.columns[self.target_place(None)?] {
            Column::Category(category) => Some(&category.values),
            _ => None,
        }
    }

    pub(crate) fn notation(&self) -> Notation {
        // The delimiter is checked to be ASCII.
        Notation { delimiter: self.delimiter as u8, quotes: self.quotes }
    }

    /// The index of the target: the column with the name or the number `other`, or else the target of the schema.
    pub(crate) fn target_place(&self, other: Option<&str>) -> Option<usize> {
        self.place(other, self.target.as_ref())
    }

    /// The index of the column that identifies the unit of privacy.
    pub(crate) fn unit_place(&self) -> Option<usize> {
        self.place(None, self.unit.as_ref())
    }

    /// The index of the column with the name or the number `other`, or else of a column that the schema refers to.
    fn place(&self, other: Option<&str>, own: Option<&ColumnReference>) -> Option<usize> {
        let by_name = |name: &str| self.columns.iter().position(|column| column.name() == name);
        let by_number = |number: usize| number.checked_sub(1).filter(|&place| place < self.columns.len());
        match (other, own) {
            (Some(name), _) => by_name(name).or_else(|| name.parse().ok().and_then(by_number)),
            (None, Some(ColumnReference::Name(name))) => by_name(name),
            (None, Some(ColumnReference::Number(number))) => by_number(*number),
            (None, None) => None,
        }
    }

    /// The same schema with another unit of privacy, if one is named. A column that is not described becomes an ignored column of a table
    /// with a header.
    ///
    /// # Errors
    ///
    /// The unit is not a column, or it is the target.
    pub fn with_unit(mut self, other: Option<&str>) -> Result<Schema, DataError> {
        let Some(name) = other else { return Ok(self) };
        self.unit = Some(match self.place(other, None) {
            Some(place) => ColumnReference::Number(place + 1),
            None => ColumnReference::Name(name.to_owned()),
        });
        let refused = |(problem, hint)| DataError::file("the unit", problem, hint);
        self.with_described_unit().map_err(refused)
    }

    /// Adds the column of the unit as an ignored column, if it is not described.
    fn with_described_unit(mut self) -> Result<Schema, SchemaProblem> {
        match (&self.unit, self.unit_place()) {
            (Some(ColumnReference::Name(name)), None) if self.header => {
                self.columns.push(Column::ignored(name));
            }
            (Some(ColumnReference::Name(name)), None) => {
                let problem = format!("the unit `{name}` is not one of the {} columns", self.columns.len());
                return Err((
                    problem,
                    "without a header, describe it under [[columns]], possibly as type = \"ignore\"",
                ));
            }
            (Some(ColumnReference::Number(number)), None) => {
                let problem = format!("the unit {number} is not one of the {} columns", self.columns.len());
                return Err((problem, "give the name of a column, or its number from 1"));
            }
            (_, Some(place)) if Some(place) == self.target_place(None) => {
                let problem = format!("the unit `{}` is also the target", self.columns[place].name());
                return Err((problem, "name a column that is not the target"));
            }
            _ => {}
        }
        // One notation, because a resumed run compares schemas as text.
        self.unit = self.unit_place().map(|place| match self.header {
            true => ColumnReference::Name(self.columns[place].name().to_owned()),
            false => ColumnReference::Number(place + 1),
        });
        Ok(self)
    }

    /// Whether a field counts as missing by default.
    pub(crate) fn counts_as_missing(field: &[u8]) -> bool {
        blanks().iter().any(|blank| blank.as_bytes() == field.trim_ascii())
    }

    /// The same schema with another target, if one is named.
    pub(crate) fn with_target(mut self, other: Option<&str>) -> Schema {
        if let (Some(_), Some(place)) = (other, self.target_place(other)) {
            self.target = Some(ColumnReference::Number(place + 1));
        }
        self
    }

    /// Checks that this column can be a target.
    pub(crate) fn check_target(&self, place: usize) -> Result<(), SchemaProblem> {
        let column = &self.columns[place];
        let refuse = |problem: &str, hint| Err((format!("the target `{}` {problem}", column.name()), hint));
        match column {
            Column::Ignore(_) => refuse("is ignored", "its type must be category or number"),
            Column::Category(category) if category.unknown == Unknown::Ignore => refuse(
                "must not ignore unknown values",
                "every record needs a class: remove `unknown`, or add a class for the rest",
            ),
            Column::Category(category) if !(2..=MAX_CLASSES).contains(&category.values.len()) => refuse(
                &format!("must have 2 to {MAX_CLASSES} classes, got {}", category.values.len()),
                "list every class in `values`; they are public and never derived from the records",
            ),
            Column::Number(number) if number.missing.is_some() => {
                refuse("must not replace missing values", "every record needs a target: remove `missing`")
            }
            _ => Ok(()),
        }
    }
}

impl RawSchema {
    fn check(self) -> Result<Schema, SchemaProblem> {
        let RawSchema { header, delimiter, quotes, missing, others, target, unit, columns } = self;
        if !delimiter.is_ascii() || matches!(delimiter, '"' | '\n' | '\r') {
            let problem = format!(
                "delimiter must be an ASCII character other than a quote or a line end, got {delimiter:?}"
            );
            return Err((problem, "\",\", \";\" and \"\\t\" are common"));
        }
        if others == Unknown::Ignore && !header {
            let problem = "others = \"ignore\" needs a table with a header".to_owned();
            return Err((
                problem,
                "without a header, columns are known by their order: describe all of them",
            ));
        }
        if let Some(place) = columns.iter().position(|column| column.names().0.is_empty()) {
            let problem = format!("rule {} under [[columns]] has no name", place + 1);
            return Err((problem, "give it a name, or remove it"));
        }
        let columns: Vec<Column> = columns.into_iter().flat_map(Column::each).collect();
        let mut names = HashSet::new();
        for (place, column) in columns.iter().enumerate() {
            // In a table that pandas wrote with its index, the first column has an empty name.
            if column.name().trim_ascii() != column.name() {
                let problem = format!("column {} has the name {:?}", place + 1, column.name());
                return Err((problem, "remove the spaces around the name"));
            }
            if !names.insert(column.name()) {
                let problem = format!("the name `{}` is used by two columns", column.name());
                return Err((problem, "names must differ; describe each column once"));
            }
            column.check()?;
        }
        let schema = Schema { header, delimiter, quotes, missing, others, target, unit, columns };
        let schema = schema.with_described_unit()?;
        match (&schema.target, schema.target_place(None)) {
            (Some(_), None) => return Err(no_target(&schema)),
            (_, Some(place)) => schema.check_target(place)?,
            (None, None) => {}
        }
        schema.check_texts(schema.target_place(None))?;
        if !schema.has_texts() && !(1..=MAX_VALUES).contains(&schema.features()) {
            let problem = format!("the columns become {} features; at least 1 is needed", schema.features());
            return Err((problem, "describe a number, a category or a text besides the target"));
        }
        Ok(schema)
    }
}

fn no_target(schema: &Schema) -> SchemaProblem {
    let target = match &schema.target {
        Some(ColumnReference::Name(name)) => format!("`{name}`"),
        Some(ColumnReference::Number(number)) => number.to_string(),
        None => "none".to_owned(),
    };
    let problem = format!("the target {target} is not one of the {} columns", schema.columns.len());
    (problem, "describe it under [[columns]]: as a category with its classes, or as a number")
}

impl TryFrom<RawSchema> for Schema {
    type Error = String;

    fn try_from(raw: RawSchema) -> Result<Schema, String> {
        raw.check().map_err(|(problem, hint)| format!("{problem} ({hint})"))
    }
}
