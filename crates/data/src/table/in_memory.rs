//! Tables in memory: named columns, read with a schema in the same way as a CSV file with the same fields.

use std::io::Write;

use ::csv::ByteRecord;

use super::rows::Rows;
use super::{Options, read, read_unlabelled};
use crate::dataset::Dataset;
use crate::error::DataError;
use crate::schema::Schema;

/// A column of a table in memory.
#[derive(Clone)]
pub struct TableColumn {
    /// The name in the header.
    pub name: String,
    /// The fields.
    pub fields: Fields,
}

/// The fields of a column. A number is read as its shortest text. In a column of floats, the text of a whole number is `1.0`, as in CSV files that
/// pandas writes.
#[derive(Clone)]
pub enum Fields {
    /// Whole numbers.
    Integers(Vec<i64>),
    /// Numbers of double precision; NaN is a missing value.
    Doubles(Vec<f64>),
    /// Numbers of single precision; NaN is a missing value.
    Singles(Vec<f32>),
    /// Texts; `None` is a missing value.
    Texts(Vec<Option<String>>),
    /// Texts by their index in a list. Any other index is a missing value.
    Listed {
        /// The index of each field.
        places: Vec<i64>,
        /// The list.
        texts: Vec<String>,
    },
}

impl Fields {
    fn len(&self) -> usize {
        match self {
            Self::Integers(numbers) => numbers.len(),
            Self::Doubles(numbers) => numbers.len(),
            Self::Singles(numbers) => numbers.len(),
            Self::Texts(texts) => texts.len(),
            Self::Listed { places, .. } => places.len(),
        }
    }

    /// Appends a field to a row. A missing value is empty.
    fn push(&self, row: usize, record: &mut ByteRecord, buffer: &mut Vec<u8>) {
        buffer.clear();
        // Writing to a vector does not fail.
        let _ = match self {
            Self::Integers(numbers) => write!(buffer, "{}", numbers[row]),
            Self::Doubles(numbers) if !numbers[row].is_nan() => write!(buffer, "{:?}", numbers[row]),
            Self::Singles(numbers) if !numbers[row].is_nan() => write!(buffer, "{:?}", numbers[row]),
            Self::Doubles(_) | Self::Singles(_) => Ok(()),
            Self::Texts(texts) => return record.push_field(texts[row].as_deref().unwrap_or("").as_bytes()),
            Self::Listed { places, texts } => {
                let text = usize::try_from(places[row]).ok().and_then(|place| texts.get(place));
                return record.push_field(text.map_or(b"", String::as_bytes));
            }
        };
        record.push_field(buffer);
    }
}

/// The rows of columns that have the same length. The first row has the names of the columns.
struct ColumnRows {
    columns: Vec<TableColumn>,
    rows: usize,
    /// The number of rows that were read, including the row with the names.
    read: usize,
    record: ByteRecord,
    buffer: Vec<u8>,
}

/// The name of a table in memory in messages.
const NAME: &str = "the table";

impl ColumnRows {
    fn new(columns: Vec<TableColumn>) -> Result<ColumnRows, DataError> {
        let rows = columns.first().map_or(0, |column| column.fields.len());
        if let Some(other) = columns.iter().find(|column| column.fields.len() != rows) {
            let problem = format!("column `{}` has {} rows, expected {rows}", other.name, other.fields.len());
            return Err(DataError::file(NAME, problem, "all columns of a table must have the same length"));
        }
        Ok(ColumnRows { columns, rows, read: 0, record: ByteRecord::new(), buffer: Vec::new() })
    }
}

impl Rows for ColumnRows {
    fn file(&self) -> &str {
        NAME
    }

    fn record(&self) -> &ByteRecord {
        &self.record
    }

    fn next(&mut self) -> Result<bool, DataError> {
        self.record.clear();
        if self.read > self.rows {
            return Ok(false);
        }
        for column in &self.columns {
            match self.read {
                0 => self.record.push_field(column.name.as_bytes()),
                row => column.fields.push(row - 1, &mut self.record, &mut self.buffer),
            }
        }
        self.read += 1;
        Ok(true)
    }

    fn place(&self) -> String {
        match self.read {
            0 | 1 => NAME.to_owned(),
            read => format!("{NAME}, row {}", read - 1),
        }
    }
}

/// Data sets from tables in memory.
impl Dataset {
    /// A data set from a table in memory. The labels are those of the schema's target. Columns may be in any order.
    ///
    /// # Errors
    ///
    /// Those of [`read`](crate::read) for a CSV file with the same fields, and columns of different lengths.
    ///
    /// ```
    /// use sordino_data::{Dataset, Fields, Schema, TableColumn};
    ///
    /// let schema = Schema::parse("schema", r#"
    ///     target = "income"
    ///     columns = [
    ///         { name = "age", type = "number", center = 40, scale = 20 },
    ///         { name = "income", type = "category", values = ["low", "high"] },
    ///     ]
    /// "#)?;
    /// let income = Fields::Listed { places: vec![1, 0], texts: vec!["low".to_owned(), "high".to_owned()] };
    /// let columns = vec![
    ///     TableColumn { name: "income".to_owned(), fields: income },
    ///     TableColumn { name: "age".to_owned(), fields: Fields::Integers(vec![60, 30]) },
    /// ];
    /// let data = Dataset::from_columns(columns.clone(), schema.clone())?;
    /// assert_eq!(data.classes(), ["low", "high"]);
    /// assert_eq!(Dataset::from_columns_unlabelled(columns[1..].to_vec(), schema)?.len(), 2);
    /// # Ok::<(), sordino_data::DataError>(())
    /// ```
    pub fn from_columns(columns: Vec<TableColumn>, schema: Schema) -> Result<Dataset, DataError> {
        let options = Options { schema: Some(schema), labelled: true, ..Options::default() };
        read(Box::new(ColumnRows::new(columns)?), options).map(|(records, _)| records)
    }

    /// A data set from a table in memory without labels, for prediction. The target and ignored columns may be absent.
    ///
    /// # Errors
    ///
    /// Those of [`from_columns`](Self::from_columns), except errors in labels, which are not read.
    pub fn from_columns_unlabelled(columns: Vec<TableColumn>, schema: Schema) -> Result<Dataset, DataError> {
        let options = Options { schema: Some(schema), ..Options::default() };
        let read = read_unlabelled(Box::new(ColumnRows::new(columns)?), options)?;
        match read.rows.into_iter().find_map(|row| row.refused) {
            Some(error) => Err(error),
            None => read.records.ok_or_else(|| crate::dataset::no_records(NAME)),
        }
    }
}
