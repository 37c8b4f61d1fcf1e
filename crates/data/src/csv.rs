//! CSV: a table of text, read by its schema.

use std::io::BufRead;

use ::csv::{ByteRecord, Reader, ReaderBuilder};
use sordino_nn::Shape;

use crate::dataset::{Dataset, Labels, Scale, check_classes, check_size, empty};
use crate::error::{DataError, quoted};
use crate::field::{Refused, Vocabulary, listed, number_of, parse};
use crate::input::unreadable;
use crate::lines::Lines;
use crate::schema::{Column, Number, Schema};

/// How a table is to be read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options<'a> {
    pub(crate) schema: Option<Schema>,
    pub(crate) target: Option<&'a str>,
    pub(crate) classes: Option<usize>,
    pub(crate) features: Option<usize>,
    pub(crate) delimiter: u8,
    /// Whether records have labels that are wanted.
    pub(crate) labelled: bool,
}

/// Reads a table.
pub(crate) fn read(
    file: &str,
    source: impl BufRead,
    mut options: Options<'_>,
) -> Result<(Dataset, Schema), DataError> {
    let delimiter = options.schema.as_ref().map_or(options.delimiter, Schema::delimiter);
    let mut rows = Rows::new(file, source, delimiter);
    if !rows.next()? {
        return Err(empty(file));
    }
    let schema = match options.schema.take() {
        Some(schema) => schema,
        None => {
            let schema = plain(&rows, &options)?;
            // Found, or found to be absent.
            options.target = None;
            schema
        }
    };
    let layout = Layout::new(&rows, &schema, &options)?;
    if schema.header && !rows.next()? {
        return Err(empty(file));
    }
    let mut values: Vec<f32> = Vec::new();
    let mut classes = Vec::new();
    let mut numbers = Vec::new();
    loop {
        let start = values.len();
        check_size(|| rows.place(), start.saturating_add(layout.width))?;
        values.resize(start + layout.width, 0.0);
        layout.check_length(&rows)?;
        for (field, cell) in layout.cells.iter().enumerate() {
            let text = rows.record[field].trim_ascii();
            let read = match cell {
                Cell::Skip => Ok(()),
                Cell::Number(number, at) => {
                    number_of(text, number, &schema.missing).map(|value| values[start + at] = value)
                }
                Cell::Category(vocabulary, at) => vocabulary
                    .place(text, &schema.missing)
                    .map(|place| place.into_iter().for_each(|place| values[start + at + place] = 1.0)),
                Cell::Class(vocabulary) => vocabulary.class(text).map(|class| classes.push(class)),
                Cell::Target(number) => number_of(text, number, &[]).map(|value| numbers.push(value)),
            };
            read.map_err(|refused| layout.error(&rows, field, refused))?;
        }
        if !rows.next()? {
            break;
        }
    }
    let labels = match layout.cells.iter().find(|cell| matches!(cell, Cell::Class(_) | Cell::Target(_))) {
        Some(Cell::Class(vocabulary)) => Labels::Classes { classes, names: vocabulary.names().to_vec() },
        Some(Cell::Target(number)) => {
            let scale = Scale { center: number.center, scale: number.scale };
            Labels::Numbers { values: numbers, scales: vec![scale] }
        }
        _ => Labels::Absent,
    };
    let dataset = Dataset::new(file, Shape::Features(layout.width), values, labels)?;
    Ok((dataset, schema.with_target(options.target)))
}

/// The schema of a table without one: every column is a number.
fn plain<R: BufRead>(rows: &Rows<'_, R>, options: &Options<'_>) -> Result<Schema, DataError> {
    let (file, first) = (rows.file, &rows.record);
    // A first line with a number in it is a record: one with a bad value must not pass as a header.
    let header = !first.iter().any(|field| parse(field.trim_ascii()).is_some());
    // A record without any number must not pass as one either.
    if header && first.iter().any(|field| field.trim_ascii().is_empty() || Schema::counts_as_missing(field)) {
        return Err(DataError::file(
            rows.place(),
            "is neither a header, which names every column, nor a record, which has numbers",
            "describe the file by a schema",
        ));
    }
    let names: Vec<String> = match header {
        true => first.iter().map(name_of).collect(),
        false => (1..=first.len()).map(|number| number.to_string()).collect(),
    };
    let by_number = |name: &str| name.parse().ok().filter(|number| (1..=names.len()).contains(number));
    let named = match options.target {
        None => None,
        Some(name) => {
            let place = names.iter().position(|other| other == name);
            place.or_else(|| by_number(name).map(|number| number - 1))
        }
    };
    let target = match (options.labelled, options.target, named, options.features) {
        (true, Some(name), None, _) => return Err(no_such_target(file, name, &names)),
        (true, _, place, _) => Some(place.unwrap_or(names.len() - 1)),
        (false, _, _, Some(features)) if names.len() == features => None,
        (false, _, place, Some(features)) if names.len() == features + 1 => {
            Some(place.unwrap_or(names.len() - 1))
        }
        (false, _, place, _) => place,
    };
    let features = names.len() - usize::from(target.is_some());
    if let Some(expected) = options.features
        && features != expected
    {
        return Err(DataError::file(
            rows.place(),
            format!("{features} columns are features, expected {expected}"),
            "every column but the target is a feature; a schema can ignore some",
        ));
    }
    if options.labelled && options.classes.is_none() {
        return Err(DataError::Setting {
            what: "number of classes",
            permitted: "declared for a table without a schema".to_owned(),
            got: "none".to_owned(),
            hint: "it is public and never derived from the records; to predict a number, describe the target in a schema \
                   as type = \"number\""
                .to_owned(),
        });
    }
    let classes = options.classes.filter(|_| options.labelled).map(check_classes).transpose()?;
    Schema::numbers(file, header, options.delimiter, &names, target.map(|place| (place, classes)))
}

fn no_such_target(file: &str, name: &str, names: &[String]) -> DataError {
    DataError::file(
        file,
        format!("the target `{name}` is none of the {} columns", names.len()),
        format!("permitted are {}, or their numbers from 1", listed(names)),
    )
}

fn name_of(field: &[u8]) -> String {
    String::from_utf8_lossy(field.trim_ascii()).into_owned()
}

/// The records of a file, one at a time.
struct Rows<'a, R> {
    file: &'a str,
    reader: Reader<Lines<R>>,
    record: ByteRecord,
    /// Where the record begins.
    line: u64,
}

impl<'a, R: BufRead> Rows<'a, R> {
    fn new(file: &'a str, source: R, delimiter: u8) -> Rows<'a, R> {
        let reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(delimiter)
            .from_reader(Lines::new(source));
        Rows { file, reader, record: ByteRecord::new(), line: 1 }
    }

    /// Reads the next record; false at the end.
    fn next(&mut self) -> Result<bool, DataError> {
        let more =
            self.reader.read_byte_record(&mut self.record).map_err(|error| match error.into_kind() {
                ::csv::ErrorKind::Io(error) => unreadable(self.file, &error),
                _ => DataError::file(self.file, "is no CSV", "is this the right file?"),
            })?;
        if let Some(position) = self.record.position() {
            self.line = self.reader.get_mut().line_from(position.byte());
        }
        Ok(more)
    }

    fn place(&self) -> String {
        format!("{}, line {}", self.file, self.line)
    }
}

/// What becomes of each field of a record.
struct Layout<'a> {
    cells: Vec<Cell<'a>>,
    /// The column's name of each field.
    names: Vec<&'a str>,
    /// Features.
    width: usize,
}

enum Cell<'a> {
    Skip,
    /// The number, and the place of its feature.
    Number(&'a Number, usize),
    /// The vocabulary, and the place of its first feature.
    Category(Vocabulary<'a>, usize),
    Class(Vocabulary<'a>),
    Target(&'a Number),
}

impl<'a> Layout<'a> {
    /// `rows` stands at the header, or at the first record if there is none.
    fn new<R: BufRead>(
        rows: &Rows<'_, R>,
        schema: &'a Schema,
        options: &Options<'_>,
    ) -> Result<Layout<'a>, DataError> {
        let file = rows.file;
        let target = schema.target_place(options.target);
        if options.labelled {
            check_target(file, schema, target, options)?;
        }
        let order = match schema.header {
            true => order_by_header(&rows.place(), schema, &rows.record, target, options.labelled)?,
            // One field fewer than described: the target is what prediction does without.
            false
                if !options.labelled && target.is_some() && rows.record.len() + 1 == schema.columns.len() =>
            {
                (0..schema.columns.len()).filter(|&place| Some(place) != target).collect()
            }
            false => (0..schema.columns.len()).collect(),
        };
        let mut starts = vec![0; schema.columns.len()];
        let mut width = 0;
        for (place, column) in schema.columns.iter().enumerate().filter(|&(place, _)| Some(place) != target) {
            starts[place] = width;
            width += column.width();
        }
        if width == 0 {
            let hint = "describe a number or a category besides the target";
            return Err(DataError::file(file, "no column is a feature", hint));
        }
        if let Some(features) = options.features
            && features != width
        {
            return Err(DataError::Setting {
                what: "number of features",
                permitted: format!("{width} as in the schema, or left out"),
                got: features.to_string(),
                hint: "a category becomes one feature for each of its values".to_owned(),
            });
        }
        let cell = |&place: &usize| match &schema.columns[place] {
            _ if Some(place) == target && !options.labelled => Cell::Skip,
            Column::Ignore(_) => Cell::Skip,
            Column::Number(number) if Some(place) == target => Cell::Target(number),
            Column::Number(number) => Cell::Number(number, starts[place]),
            Column::Category(category) if Some(place) == target => Cell::Class(Vocabulary::new(category)),
            Column::Category(category) => Cell::Category(Vocabulary::new(category), starts[place]),
        };
        let cells = order.iter().map(cell).collect();
        let names = order.iter().map(|&place| schema.columns[place].name()).collect();
        Ok(Layout { cells, names, width })
    }

    fn check_length<R: BufRead>(&self, rows: &Rows<'_, R>) -> Result<(), DataError> {
        let (found, expected) = (rows.record.len(), self.cells.len());
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

    fn error<R: BufRead>(&self, rows: &Rows<'_, R>, field: usize, refused: Refused) -> DataError {
        let place = format!("{}, column {} ({})", rows.place(), field + 1, self.names[field]);
        DataError::value(place, refused.permitted, quoted(&rows.record[field]), refused.hint)
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
                format!("add `target = \"...\"` to the schema: one of {}", listed(&names())),
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

/// The schema's column of each field, by the header's names. Without labels, the target and what is ignored may be absent.
fn order_by_header(
    line: &str,
    schema: &Schema,
    header: &ByteRecord,
    target: Option<usize>,
    labelled: bool,
) -> Result<Vec<usize>, DataError> {
    let mut order = Vec::new();
    for (field, name) in header.iter().enumerate() {
        let place = schema.columns.iter().position(|column| column.name().as_bytes() == name.trim_ascii());
        let refuse = |problem: &str, hint: &str| {
            let place = format!("{line}, column {}", field + 1);
            Err(DataError::file(place, format!("the column {} {problem}", quoted(name.trim_ascii())), hint))
        };
        match place {
            None => {
                return refuse(
                    "is not in the schema",
                    "describe it, if only as type = \"ignore\"; or set header = false if this line is a record",
                );
            }
            Some(place) if order.contains(&place) => {
                return refuse("is there twice", "the names of a header must differ");
            }
            Some(place) => order.push(place),
        }
    }
    let optional = |place: usize| {
        !labelled && (Some(place) == target || matches!(schema.columns[place], Column::Ignore(_)))
    };
    let absent = (0..schema.columns.len()).find(|&place| !order.contains(&place) && !optional(place));
    match absent {
        Some(place) => Err(DataError::file(
            line,
            format!(
                "the header has no column `{}`, which the schema describes",
                schema.columns[place].name()
            ),
            "is it spelled the same, and is the delimiter right?",
        )),
        None => Ok(order),
    }
}
