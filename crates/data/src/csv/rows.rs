//! The rows of a file, one at a time.

use std::io::BufRead;

use ::csv::{ByteRecord, Reader, ReaderBuilder};

use crate::error::DataError;
use crate::input::unreadable;
use crate::line_numbers::LineNumbers;

/// A reader positioned at a row.
pub(crate) struct Rows<'a, R> {
    pub(crate) file: &'a str,
    reader: Reader<LineNumbers<R>>,
    pub(crate) record: ByteRecord,
    /// The line where the record begins.
    line: u64,
}

impl<'a, R: BufRead> Rows<'a, R> {
    pub(crate) fn new(file: &'a str, source: R, delimiter: u8) -> Rows<'a, R> {
        let reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(delimiter)
            .from_reader(LineNumbers::new(source));
        Rows { file, reader, record: ByteRecord::new(), line: 1 }
    }

    /// Reads the next record; false at the end.
    pub(crate) fn next(&mut self) -> Result<bool, DataError> {
        let more =
            self.reader.read_byte_record(&mut self.record).map_err(|error| match error.into_kind() {
                ::csv::ErrorKind::Io(error) => unreadable(self.file, &error),
                _ => DataError::file(
                    self.file,
                    "is not a CSV file",
                    "check the path and the format of the file",
                ),
            })?;
        if let Some(position) = self.record.position() {
            self.line = self.reader.get_mut().line_from(position.byte());
        }
        Ok(more)
    }

    pub(crate) fn place(&self) -> String {
        format!("{}, line {}", self.file, self.line)
    }
}
