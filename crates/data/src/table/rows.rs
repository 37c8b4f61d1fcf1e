//! Rows of fields: the lines of a CSV file, or the rows of another file or folder.

use ::csv::ByteRecord;

use crate::error::DataError;

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

    /// Whether reading can continue after a row that cannot be read.
    fn resumes(&self) -> bool {
        false
    }

    /// Whether the first row has the names of the columns, whatever the schema states.
    fn names_columns(&self) -> bool {
        true
    }

    /// Whether the columns have an order, so that the last one can be the target by default.
    fn orders_columns(&self) -> bool {
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
