//! The rows of Parquet files, one after another.

use std::fs::File;
use std::path::{Path, PathBuf};

use ::csv::ByteRecord;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::reader::{ReaderIter, TreeBuilder};
use ::parquet::record::{Field, Row};

use super::guard::guarded;
use super::open;
use crate::error::DataError;
use crate::table::Rows;

/// The number of rows that are decoded at once.
const BATCH: usize = 256;

/// The rows of files with the same columns.
pub(super) struct FileRows {
    /// The files that are not yet read, in reverse order.
    rest: Vec<PathBuf>,
    file: String,
    reader: SerializedFileReader<File>,
    /// The number of row groups of the file that were begun.
    groups: usize,
    group: Option<ReaderIter>,
    /// The number of rows of the file that were read.
    rows: u64,
    names: Vec<String>,
}

impl FileRows {
    /// Opens the files; there must be at least one.
    pub(super) fn open(files: &[PathBuf]) -> Result<FileRows, DataError> {
        let Some((first, rest)) = files.split_first() else {
            return Err(DataError::file(
                "the folder",
                "has no Parquet files of training records",
                "begin their names with train",
            ));
        };
        let reader = open(first)?;
        let names = column_names(&reader);
        let rest = rest.iter().rev().cloned().collect();
        let file = first.display().to_string();
        Ok(FileRows { rest, file, reader, groups: 0, group: None, rows: 0, names })
    }

    /// The names of the columns.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The current file.
    pub(super) fn reader(&self) -> &dyn FileReader {
        &self.reader
    }

    /// The next row; none at the end of the last file.
    pub(super) fn next(&mut self) -> Result<Option<Row>, DataError> {
        loop {
            if let Some(group) = &mut self.group {
                let place = format!("{}, row {}", self.file, self.rows + 1);
                if let Some(row) = guarded(&place, || group.next().transpose())? {
                    self.rows += 1;
                    return Ok(Some(row));
                }
            }
            if self.groups < self.reader.num_row_groups() {
                self.begin_group()?;
            } else if let Some(path) = self.rest.pop() {
                self.begin_file(&path)?;
            } else {
                return Ok(None);
            }
        }
    }

    fn begin_group(&mut self) -> Result<(), DataError> {
        let rows = guarded(&self.file, || {
            let group = self.reader.get_row_group(self.groups)?;
            let columns = self.reader.metadata().file_metadata().schema_descr_ptr();
            TreeBuilder::new().with_batch_size(BATCH).as_iter(columns, &*group)
        })?;
        self.group = Some(rows);
        self.groups += 1;
        Ok(())
    }

    fn begin_file(&mut self, path: &Path) -> Result<(), DataError> {
        let reader = open(path)?;
        if column_names(&reader) != self.names {
            return Err(DataError::file(
                path.display().to_string(),
                format!("the columns are not those of {}", self.file),
                "all files of a folder must have the same columns in the same order",
            ));
        }
        (self.file, self.reader) = (path.display().to_string(), reader);
        (self.groups, self.group, self.rows) = (0, None, 0);
        Ok(())
    }

    /// The file and the row that was read last, from 1.
    pub(super) fn place(&self) -> String {
        match self.rows {
            0 => self.file.clone(),
            row => format!("{}, row {row}", self.file),
        }
    }
}

fn column_names(reader: &SerializedFileReader<File>) -> Vec<String> {
    let columns = reader.metadata().file_metadata().schema().get_fields();
    columns.iter().map(|column| column.name().to_owned()).collect()
}

/// The rows of a table as fields of text. The first row has the names of the columns.
pub(crate) struct TableRows {
    rows: FileRows,
    record: ByteRecord,
    /// Whether the names of the columns were read.
    named: bool,
}

impl TableRows {
    pub(super) fn open(files: &[PathBuf]) -> Result<TableRows, DataError> {
        Ok(TableRows { rows: FileRows::open(files)?, record: ByteRecord::new(), named: false })
    }
}

impl Rows for TableRows {
    fn file(&self) -> &str {
        &self.rows.file
    }

    fn record(&self) -> &ByteRecord {
        &self.record
    }

    fn next(&mut self) -> Result<bool, DataError> {
        self.record.clear();
        if !self.named {
            self.named = true;
            self.record.extend(self.rows.names());
            return Ok(true);
        }
        let Some(row) = self.rows.next()? else { return Ok(false) };
        for (_, value) in row.get_column_iter() {
            push(&mut self.record, value);
        }
        Ok(true)
    }

    fn place(&self) -> String {
        self.rows.place()
    }
}

/// Appends a value as text. Numbers keep all digits; booleans are 0 and 1; a missing value is empty.
fn push(fields: &mut ByteRecord, value: &Field) {
    match value {
        Field::Null => fields.push_field(b""),
        Field::Bool(value) => fields.push_field(if *value { b"1" } else { b"0" }),
        Field::Str(text) => fields.push_field(text.as_bytes()),
        Field::Bytes(bytes) => fields.push_field(bytes.data()),
        // The shortest text that is read back as the same number, without a decimal point for whole numbers.
        Field::Float(value) => fields.push_field(value.to_string().as_bytes()),
        Field::Double(value) => fields.push_field(value.to_string().as_bytes()),
        // Neither a number nor a category; the schema may ignore the column.
        Field::ListInternal(_) | Field::MapInternal(_) | Field::Group(_) => {
            fields.push_field(b"(several values)");
        }
        // Integers, decimal numbers, dates and times.
        other => fields.push_field(other.to_string().as_bytes()),
    }
}
