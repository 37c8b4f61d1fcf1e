//! The rows of a CSV file.

use std::io::BufRead;

use ::csv::{ByteRecord, Reader, ReaderBuilder};

use super::rows::{Rows, too_long};
use crate::error::DataError;
use crate::input::unreadable;
use crate::line_numbers::LineNumbers;

/// The notation of a CSV file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notation {
    pub(crate) delimiter: u8,
    /// Whether a field in double quotes may contain the delimiter and line ends.
    pub(crate) quotes: bool,
}

/// A reader of CSV, positioned at a row.
pub(crate) struct CsvRows<R> {
    file: String,
    reader: Reader<LineNumbers<R>>,
    record: ByteRecord,
    /// The line where the record begins.
    line: u64,
}

impl<R: BufRead> CsvRows<R> {
    pub(crate) fn new(file: String, source: R, notation: Notation) -> CsvRows<R> {
        let reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(notation.delimiter)
            .quoting(notation.quotes)
            .from_reader(LineNumbers::new(source));
        CsvRows { file, reader, record: ByteRecord::new(), line: 1 }
    }
}

impl<R: BufRead> Rows for CsvRows<R> {
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
