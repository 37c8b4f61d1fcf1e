//! Rows of fields: the lines of a CSV file, or the rows of another file.

use std::io::BufRead;

use ::csv::{ByteRecord, Reader, ReaderBuilder};

use crate::error::DataError;
use crate::input::unreadable;
use crate::line_numbers::LineNumbers;

/// The longest row, line or text file, in bytes.
pub(crate) const MAX_ROW: u64 = 64 << 20;

/// A reader positioned at a row. Every field is text: a number has its digits, and a missing value is empty.
pub(crate) trait Rows {
    /// The name of the file or folder in messages.
    fn file(&self) -> &str;

    /// The fields of the row.
    fn record(&self) -> &ByteRecord;

    /// Reads the next row; false at the end.
    fn next(&mut self) -> Result<bool, DataError>;

    /// Where the row is.
    fn place(&self) -> String;

    /// Whether the first row has the names of the columns, whatever the schema states.
    fn names_columns(&self) -> bool {
        true
    }

    /// What identifies the row, if its number does not.
    fn id(&self) -> Option<String> {
        None
    }
}

/// The error for a row that is too long.
pub(crate) fn too_long(place: impl Into<String>) -> DataError {
    DataError::file(
        place,
        format!("is longer than {} MiB", MAX_ROW >> 20),
        "check the format of the file, and quotes that are not closed",
    )
}

/// The notation of a CSV file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notation {
    pub(crate) delimiter: u8,
    /// Whether a field in double quotes may contain the delimiter and line ends.
    pub(crate) quotes: bool,
}

/// The lines of a CSV file.
pub(crate) struct CsvRows<'a> {
    file: String,
    reader: Reader<LineNumbers<Box<dyn BufRead + 'a>>>,
    record: ByteRecord,
    /// The line where the record begins.
    line: u64,
}

impl<'a> CsvRows<'a> {
    pub(crate) fn new(file: &str, source: Box<dyn BufRead + 'a>, notation: Notation) -> CsvRows<'a> {
        let reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(notation.delimiter)
            .quoting(notation.quotes)
            .from_reader(LineNumbers::new(source));
        CsvRows { file: file.to_owned(), reader, record: ByteRecord::new(), line: 1 }
    }
}

impl Rows for CsvRows<'_> {
    fn file(&self) -> &str {
        &self.file
    }

    fn record(&self) -> &ByteRecord {
        &self.record
    }

    fn next(&mut self) -> Result<bool, DataError> {
        self.reader.get_mut().begin_row();
        let more = self.reader.read_byte_record(&mut self.record);
        let start = self.reader.position().byte();
        let more = more.map_err(|error| match error.into_kind() {
            ::csv::ErrorKind::Io(_) if self.reader.get_ref().row_is_too_long() => {
                let line = self.reader.get_mut().line_from(start);
                too_long(format!("{}, line {line}", self.file))
            }
            ::csv::ErrorKind::Io(error) => unreadable(&self.file, &error),
            _ => {
                DataError::file(&*self.file, "is not a CSV file", "check the path and the format of the file")
            }
        })?;
        if let Some(position) = self.record.position() {
            self.line = self.reader.get_mut().line_from(position.byte());
        }
        Ok(more)
    }

    fn place(&self) -> String {
        format!("{}, line {}", self.file, self.line)
    }

    fn names_columns(&self) -> bool {
        false
    }
}
