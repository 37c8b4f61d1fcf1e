//! The meaning of each field of a row.

use super::column_order::{id_place, named, order_by_header, order_without_header};
use super::rows::Rows;
use super::{Options, name_of, no_such_target};
use crate::error::{DataError, quoted};
use crate::field::{Lookup, Refused, Vocabulary, listed, number_of, text_of};
use crate::schema::{Column, Number, Schema};
use crate::text::Form;
use crate::unit::UnitId;

/// The meaning of each field of a row.
pub(super) struct Layout<'a> {
    cells: Vec<Cell<'a>>,
    /// The name of each field's column.
    names: Vec<String>,
    /// The field that identifies the row.
    id: Option<usize>,
    /// The field that identifies the unit of privacy, if labels are read.
    unit: Option<usize>,
    missing: &'a [String],
    ignore_unknown: bool,
    /// Whether the schema belongs to a trained model and cannot be changed.
    predicting: bool,
    /// The number of features.
    pub(super) width: usize,
    /// The form of records that are texts.
    pub(super) form: Form,
}

enum Cell<'a> {
    Skip,
    /// The number, and the index of its feature.
    Number(&'a Number, usize),
    /// The vocabulary, and the index of its first feature.
    Category(Vocabulary<'a>, usize),
    /// The index of the text in the record.
    Text(usize),
    Class(Vocabulary<'a>),
    Target(&'a Number),
}

/// The label and the texts of a row, and its unknown categories.
#[derive(Default)]
pub(super) struct ParsedRow<'r> {
    pub(super) texts: [&'r str; 2],
    pub(super) class: Option<u32>,
    pub(super) number: Option<f32>,
    pub(super) unit: Option<UnitId>,
    /// Fields with a category that is not listed.
    pub(super) unknown: Vec<usize>,
}

/// The type of the labels.
pub(super) enum Labelling<'a> {
    Absent,
    Class(&'a [String]),
    Number(&'a Number),
    NextTokens,
}

impl<'a> Layout<'a> {
    /// `rows` is positioned at the header, or at the first record if there is none.
    pub(super) fn new(
        rows: &dyn Rows,
        schema: &'a Schema,
        options: &Options<'_>,
    ) -> Result<Layout<'a>, DataError> {
        let target = schema.target_place(options.target);
        if options.labelled {
            check_target(rows.file(), schema, target, options)?;
        }
        let id = options.id.map(|name| id_place(rows, schema, name)).transpose()?;
        let order = match named(rows, schema) {
            true => {
                let mut problem = None;
                let order = order_by_header(rows, schema, target, options.labelled, id, |found| {
                    problem.get_or_insert(found);
                });
                problem.map_or(Ok(order), Err)?
            }
            false => order_without_header(rows, schema, target, options.labelled, id)?,
        };
        schema.check_texts(target).map_err(|(problem, hint)| DataError::file(rows.file(), problem, hint))?;
        let starts = starts(rows.file(), schema, target, options.features)?;
        let cell = |&place: &Option<usize>| match place.map(|place| (place, &schema.columns[place])) {
            None => Cell::Skip,
            Some((place, _)) if Some(place) == target && !options.labelled => Cell::Skip,
            Some((_, Column::Ignore(_))) => Cell::Skip,
            Some((place, Column::Number(number))) if Some(place) == target => Cell::Target(number),
            Some((place, Column::Number(number))) => Cell::Number(number, starts[place]),
            Some((place, Column::Category(category))) if Some(place) == target => {
                Cell::Class(Vocabulary::new(category))
            }
            Some((place, Column::Category(category))) => {
                Cell::Category(Vocabulary::new(category), starts[place])
            }
            Some((place, Column::Text(_))) => Cell::Text(schema.text_index(place, target)),
        };
        let name = |place: &Option<usize>| {
            place.map_or_else(|| "id".to_owned(), |place| schema.columns[place].name().to_owned())
        };
        Ok(Layout {
            cells: order.iter().map(cell).collect(),
            names: order.iter().map(name).collect(),
            id,
            unit: schema
                .unit_place()
                .filter(|_| options.labelled)
                .and_then(|unit| order.iter().position(|&place| place == Some(unit))),
            missing: &schema.missing,
            ignore_unknown: options.ignore_unknown,
            predicting: !options.labelled,
            width: starts[schema.columns.len()],
            form: schema.text_form(target, options.labelled),
        })
    }

    /// The number of fields of a row.
    pub(super) fn fields(&self) -> usize {
        self.cells.len()
    }

    pub(super) fn has_id(&self) -> bool {
        self.id.is_some()
    }

    /// The id of the row; empty if the row ends before it.
    pub(super) fn id(&self, rows: &dyn Rows) -> String {
        if let (None, Some(id)) = (self.id, rows.id()) {
            return id;
        }
        name_of(self.id.and_then(|field| rows.record().get(field)).unwrap_or_default())
    }

    /// Reads the row into `features`, which are 0 before the call; the first problem is an error.
    pub(super) fn read<'r>(
        &self,
        rows: &'r dyn Rows,
        features: &mut [f32],
    ) -> Result<ParsedRow<'r>, DataError> {
        let mut problem = None;
        let row = self.read_all(rows, features, |found| {
            problem.get_or_insert(found);
        });
        problem.map_or(Ok(row), Err)
    }

    /// Reads the row into `features`, and reports every problem.
    pub(super) fn read_all<'r>(
        &self,
        rows: &'r dyn Rows,
        features: &mut [f32],
        mut report: impl FnMut(DataError),
    ) -> ParsedRow<'r> {
        let mut row = ParsedRow::default();
        if let Err(error) = self.check_length(rows) {
            report(error);
            return row;
        }
        for (field, cell) in self.cells.iter().enumerate() {
            let text = rows.record()[field].trim_ascii();
            let read = match cell {
                Cell::Skip => Ok(()),
                Cell::Number(number, at) => {
                    number_of(text, number, self.missing).map(|value| features[*at] = value)
                }
                Cell::Category(vocabulary, at) => match vocabulary.find(text, self.missing) {
                    Lookup::Place(place) => {
                        features[at + place] = 1.0;
                        Ok(())
                    }
                    Lookup::Missing => Ok(()),
                    Lookup::Unknown if self.ignore_unknown || vocabulary.ignores_unknown() => {
                        row.unknown.push(field);
                        Ok(())
                    }
                    Lookup::Unknown => Err(vocabulary.unknown()),
                },
                Cell::Text(index) => text_of(&rows.record()[field]).map(|text| row.texts[*index] = text),
                Cell::Class(vocabulary) => vocabulary.class(text).map(|class| row.class = Some(class)),
                Cell::Target(number) => number_of(text, number, &[]).map(|value| row.number = Some(value)),
            };
            if let Err(refused) = read {
                report(self.error(rows, field, refused));
            }
        }
        if let Some(field) = self.unit {
            let id = rows.record()[field].trim_ascii();
            match self.missing.iter().any(|missing| missing.as_bytes() == id) {
                false => row.unit = Some(UnitId::of(id)),
                true => report(self.missing_unit(rows, field)),
            }
        }
        row
    }

    fn missing_unit(&self, rows: &dyn Rows, field: usize) -> DataError {
        DataError::value(
            format!("{}, column {} ({})", rows.place(), field + 1, self.names[field]),
            "the id of a unit",
            quoted(&rows.record()[field]),
            "every record needs the id of its unit; a record that is a unit by itself needs its own id",
        )
    }

    /// The name of the column that identifies the unit of privacy.
    pub(super) fn unit(&self) -> Option<&str> {
        self.unit.map(|field| self.names[field].as_str())
    }

    /// The type of the labels.
    pub(super) fn labelling(&self) -> Labelling<'_> {
        let label = self.cells.iter().find_map(|cell| match cell {
            Cell::Class(vocabulary) => Some(Labelling::Class(vocabulary.names())),
            Cell::Target(number) => Some(Labelling::Number(number)),
            _ => None,
        });
        let absent = if self.form == Form::Continuation { Labelling::NextTokens } else { Labelling::Absent };
        label.unwrap_or(absent)
    }

    /// The names of the columns with their counts, without counts of 0.
    pub(super) fn named(&self, counts: &[u64]) -> Vec<(String, u64)> {
        let counts = self.names.iter().zip(counts).filter(|&(_, &count)| count > 0);
        counts.map(|(name, &count)| (name.clone(), count)).collect()
    }

    fn check_length(&self, rows: &dyn Rows) -> Result<(), DataError> {
        let (found, expected) = (rows.record().len(), self.cells.len());
        if found == expected {
            return Ok(());
        }
        let column = match self.names.get(found) {
            Some(name) => format!("column {} ({name})", found + 1),
            None => format!("column {}", expected + 1),
        };
        Err(DataError::file(
            format!("{}, {column}", rows.place()),
            format!("the record has {found} fields, expected {expected}"),
            "check the delimiter, and quotes around fields that contain it; or the schema describes another table",
        ))
    }

    fn error(&self, rows: &dyn Rows, field: usize, refused: Refused) -> DataError {
        let place = format!("{}, column {} ({})", rows.place(), field + 1, self.names[field]);
        let hint = match (&self.cells[field], self.predicting) {
            (_, false) | (Cell::Text(_), _) => refused.hint,
            (Cell::Category(..), true) => {
                "the model was trained with these values only; {ignore_unknown} reads an unknown category as all zeros"
            }
            (_, true) => "the model was trained with this column as a number: write a number here",
        };
        DataError::value(place, refused.permitted, quoted(&rows.record()[field]), hint)
    }
}

/// The index of the first feature of each column, followed by the number of features.
fn starts(
    file: &str,
    schema: &Schema,
    target: Option<usize>,
    features: Option<usize>,
) -> Result<Vec<usize>, DataError> {
    let mut starts = vec![0];
    let mut width = 0;
    for (place, column) in schema.columns.iter().enumerate() {
        width += if Some(place) == target { 0 } else { column.width() };
        starts.push(width);
    }
    if width == 0 && !schema.has_texts() {
        let hint = "describe a number, a category or a text besides the target";
        return Err(DataError::file(file, "no column is a feature", hint));
    }
    match features {
        Some(features) if features != width => Err(DataError::Setting {
            what: "number of features",
            permitted: match schema.has_texts() {
                true => "left out for texts".to_owned(),
                false => format!("{width} as in the schema, or left out"),
            },
            got: features.to_string(),
            hint: "a category becomes one feature for each of its values".to_owned(),
        }),
        _ => Ok(starts),
    }
}

fn check_target(
    file: &str,
    schema: &Schema,
    target: Option<usize>,
    options: &Options<'_>,
) -> Result<(), DataError> {
    let names = || schema.columns.iter().map(|column| column.name().to_owned()).collect::<Vec<_>>();
    let Some(place) = target else {
        return Err(match options.target {
            Some(name) => no_such_target(file, name, &names()),
            None => DataError::file(
                file,
                "neither the schema nor the source names a target",
                format!(
                    "name one with {{target}}, or add `target = \"...\"` to the schema: {}",
                    listed(&names())
                ),
            ),
        });
    };
    schema.check_target(place).map_err(|(problem, hint)| DataError::file(file, problem, hint))?;
    let described = match &schema.columns[place] {
        Column::Category(category) => category.values.len(),
        _ => 0,
    };
    match options.classes {
        Some(classes) if classes != described => Err(DataError::Setting {
            what: "number of classes",
            permitted: match described {
                0 => "left out for a target that is a number".to_owned(),
                _ => format!("{described} as in the schema, or left out"),
            },
            got: classes.to_string(),
            hint: "classes are the `values` of the target, a category".to_owned(),
        }),
        _ => Ok(()),
    }
}
