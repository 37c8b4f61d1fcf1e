//! Tables: rows of fields, read by a schema.

mod check;
mod column_order;
mod convert;
mod csv;
mod default_schema;
mod formats;
mod in_memory;
mod json_lines;
mod layout;
mod rows;

use sordino_nn::Shape;

pub(crate) use self::csv::{CsvRows, Notation};
use self::default_schema::default_schema;
pub(crate) use self::formats::TableFormat;
pub use self::in_memory::{Fields, TableColumn};
pub(crate) use self::json_lines::JsonRows;
use self::layout::{Labelling, Layout};
pub(crate) use self::rows::{MAX_ROW, Rows, too_long};
use crate::dataset::{Dataset, check_size, no_records};
use crate::encoding::Encoding;
use crate::error::DataError;
use crate::field::listed;
use crate::labels::{LabelValues, Scale};
use crate::schema::Schema;
use crate::text::{TextEncoder, TokenBuffer, Tokenization};
use crate::unit::{RecordUnits, UnitId};
use crate::unlabelled::UnlabelledRows;
use crate::values::RecordValues;

/// Options for reading a table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options<'a> {
    pub(crate) schema: Option<Schema>,
    pub(crate) target: Option<&'a str>,
    /// The column that identifies the unit of privacy, if there is no schema.
    pub(crate) unit: Option<&'a str>,
    pub(crate) classes: Option<usize>,
    pub(crate) features: Option<usize>,
    pub(crate) delimiter: u8,
    /// How texts are read if there is no schema; without it, the columns are numbers.
    pub(crate) texts: Option<Tokenization>,
    /// Whether labels are read.
    pub(crate) labelled: bool,
    /// The column that identifies rows; only without labels.
    pub(crate) id: Option<&'a str>,
    /// Whether a category that is not listed is read as all zeros, even if the schema does not permit it.
    pub(crate) ignore_unknown: bool,
}

/// Reads a table with labels; the first value that is not permitted is an error.
pub(crate) fn read(mut rows: Box<dyn Rows>, options: Options<'_>) -> Result<(Dataset, Schema), DataError> {
    let table = Table::read(&mut *rows, options)?;
    match table.refused.into_iter().next() {
        Some((_, error)) => Err(error),
        None => Ok((table.records, table.schema)),
    }
}

/// Reads a table without labels; a row that cannot be read is reported separately.
pub(crate) fn read_unlabelled(
    mut rows: Box<dyn Rows>,
    options: Options<'_>,
) -> Result<UnlabelledRows, DataError> {
    let Table { records, refused, ids, unknown, .. } = Table::read(&mut *rows, options)?;
    Ok(UnlabelledRows { unknown, ..UnlabelledRows::new(records, refused, ids) })
}

/// The content of a table.
struct Table {
    /// A record for every row; values that could not be read are 0.
    records: Dataset,
    /// The rows, from 0, that could not be read. With labels there is at most one, the last row that was read.
    refused: Vec<(usize, DataError)>,
    ids: Option<Vec<String>>,
    unknown: Vec<(String, u64)>,
    schema: Schema,
}

impl Table {
    fn read(rows: &mut dyn Rows, mut options: Options<'_>) -> Result<Table, DataError> {
        let schema = begin(rows, &mut options)?;
        let layout = Layout::new(rows, &schema, &options)?;
        first_record(rows, &schema)?;
        let (file, encoder) = (rows.file().to_owned(), schema.encoder()?);
        let Read { values, labels, units, refused, ids, unknown } =
            Read::all(&file, rows, &layout, encoder.as_ref(), options.labelled)?;
        let unknown = layout.named(&unknown);
        let shape = shape_of(&layout, encoder.as_ref());
        let records = Dataset::new(&file, shape, Encoding::Text, values, labels)?;
        // After a row that cannot be read, there is an error and no data set.
        let records = match layout.unit() {
            Some(unit) if refused.is_empty() => records.with_units(RecordUnits::new(unit, units)),
            _ => records,
        };
        Ok(Table { records, refused, ids, unknown, schema: schema.with_target(options.target) })
    }
}

/// Reads the first row, and takes the schema from the options or from this row.
fn begin(rows: &mut dyn Rows, options: &mut Options<'_>) -> Result<Schema, DataError> {
    if !rows.next()? {
        return Err(no_records(rows.file()));
    }
    let schema = match options.schema.take() {
        Some(schema) => schema,
        None => {
            let schema = default_schema(rows, options)?;
            // The schema now has the target, if there is one.
            options.target = None;
            schema
        }
    };
    if options.labelled && rows.names_columns() && !schema.header {
        return Err(DataError::file(
            rows.file(),
            "the columns have names, but the schema has header = false",
            "remove header = false from the schema",
        ));
    }
    Ok(schema)
}

/// Goes from the first row to the first record.
fn first_record(rows: &mut dyn Rows, schema: &Schema) -> Result<(), DataError> {
    let has_header = schema.header || rows.names_columns();
    if has_header && !rows.next()? { Err(no_records(rows.file())) } else { Ok(()) }
}

/// The shape of a record.
fn shape_of(layout: &Layout<'_>, encoder: Option<&TextEncoder>) -> Shape {
    encoder.map_or(Shape::Features(layout.width), TextEncoder::shape)
}

/// The labels of a table, with their public classes or scales.
fn labels_of(layout: &Layout<'_>, classes: Vec<u32>, numbers: Vec<f32>, from: Vec<usize>) -> LabelValues {
    match layout.labelling() {
        Labelling::Class(names) => LabelValues::Classes { classes, names: names.to_vec() },
        Labelling::Number(number) => {
            let scale = Scale { center: number.center, scale: number.scale };
            LabelValues::Numbers { values: numbers, scales: vec![scale] }
        }
        Labelling::NextTokens => LabelValues::NextTokens { from },
        Labelling::Absent => LabelValues::Absent,
    }
}

/// What was read from the rows of a table.
struct Read {
    values: RecordValues,
    labels: LabelValues,
    units: Vec<UnitId>,
    refused: Vec<(usize, DataError)>,
    ids: Option<Vec<String>>,
    /// The number of unknown categories in each field.
    unknown: Vec<u64>,
}

impl Read {
    /// Reads all rows from the current one on; with labels, up to the first one that cannot be read.
    fn all(
        file: &str,
        rows: &mut dyn Rows,
        layout: &Layout<'_>,
        encoder: Option<&TextEncoder>,
        labelled: bool,
    ) -> Result<Read, DataError> {
        let mut values: Vec<f32> = Vec::new();
        let mut tokens = encoder.map(|encoder| TokenBuffer::new(file, encoder, layout.form));
        let (mut classes, mut numbers, mut units) = (Vec::new(), Vec::new(), Vec::new());
        let mut refused = Vec::new();
        let mut ids = (layout.has_id() || rows.id().is_some()).then(Vec::new);
        let mut unknown = vec![0; layout.fields()];
        for row in 0.. {
            let start = values.len();
            check_size(|| rows.place(), start.saturating_add(layout.width))?;
            values.resize(start + layout.width, 0.0);
            if let Some(ids) = &mut ids {
                ids.push(layout.id(rows));
            }
            let mut texts = [""; 2];
            match layout.read(rows, &mut values[start..]) {
                Ok(read) => {
                    texts = read.texts;
                    classes.extend(read.class);
                    numbers.extend(read.number);
                    units.extend(read.unit);
                    read.unknown.into_iter().for_each(|field: usize| unknown[field] += 1);
                }
                Err(error) => refused.push((row, error)),
            }
            if let Some(tokens) = &mut tokens {
                tokens.push(texts)?;
            }
            // With labels, the first bad label or record ends the reading.
            if labelled && !refused.is_empty() || !rows.next()? {
                break;
            }
        }
        let (values, from) = match tokens {
            Some(tokens) => tokens.finish()?,
            None => (values.into(), Vec::new()),
        };
        let labels = labels_of(layout, classes, numbers, from);
        Ok(Read { values, labels, units, refused, ids, unknown })
    }
}

fn no_such_target(file: &str, name: &str, names: &[String]) -> DataError {
    DataError::file(
        file,
        format!("the target `{name}` is not one of the {} columns", names.len()),
        format!("the columns are {}; a number from 1 is also permitted", listed(names)),
    )
}

fn name_of(field: &[u8]) -> String {
    String::from_utf8_lossy(field.trim_ascii()).into_owned()
}
