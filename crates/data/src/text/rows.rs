//! Texts as the rows of a table: a text, and its class if there is one.

use std::io::{BufRead, Read};
use std::path::PathBuf;
use std::vec;

use ::csv::ByteRecord;

use super::lines::Lines;
use crate::error::DataError;
use crate::input::{open, unreadable};
use crate::table::{MAX_ROW, Rows, too_long};

/// A reader of text files, positioned at a row. The first row has the names of the columns.
pub(crate) struct TextRows {
    /// The folder or file, for messages.
    source: PathBuf,
    file: String,
    /// The names of the columns, until they have been read.
    header: Option<ByteRecord>,
    files: vec::IntoIter<(PathBuf, Option<String>)>,
    /// Whether each line of a file is a text.
    by_line: bool,
    /// The file that is being read.
    path: PathBuf,
    class: Option<String>,
    lines: Option<Lines<Box<dyn BufRead>>>,
    record: ByteRecord,
}

impl TextRows {
    /// The rows of these files, which are in the folder `source`. `columns` are the names of the text and, if the files have
    /// classes, of the class.
    pub(crate) fn new(
        source: PathBuf,
        columns: &[&str],
        files: Vec<(PathBuf, Option<String>)>,
        by_line: bool,
    ) -> TextRows {
        TextRows {
            file: source.display().to_string(),
            header: Some(columns.iter().map(|name| name.as_bytes()).collect()),
            path: source.clone(),
            source,
            files: files.into_iter(),
            by_line,
            class: None,
            lines: None,
            record: ByteRecord::new(),
        }
    }

    fn set_record(&mut self, text: &[u8]) {
        self.record.clear();
        self.record.push_field(text);
        if let Some(class) = &self.class {
            self.record.push_field(class.as_bytes());
        }
    }

    /// Goes to the next line of the current file; false at its end.
    fn next_line(&mut self) -> Result<bool, DataError> {
        let Some(mut lines) = self.lines.take() else { return Ok(false) };
        let more = lines.next()?;
        if more {
            self.set_record(lines.text());
            self.lines = Some(lines);
        }
        Ok(more)
    }

    /// Reads the current file as one text.
    fn read_text(&mut self) -> Result<(), DataError> {
        let place = || self.path.display().to_string();
        let mut text = Vec::new();
        let read = open(&self.path)?.take(MAX_ROW + 1).read_to_end(&mut text);
        if read.map_err(|error| unreadable(&place(), &error))? as u64 > MAX_ROW {
            return Err(too_long(place()));
        }
        self.set_record(text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&text));
        Ok(())
    }
}

impl Rows for TextRows {
    fn file(&self) -> &str {
        &self.file
    }

    fn record(&self) -> &ByteRecord {
        &self.record
    }

    fn next(&mut self) -> Result<bool, DataError> {
        if let Some(header) = self.header.take() {
            self.record = header;
            return Ok(true);
        }
        loop {
            if self.next_line()? {
                return Ok(true);
            }
            let Some((path, class)) = self.files.next() else { return Ok(false) };
            (self.path, self.class) = (path, class);
            if !self.by_line {
                return self.read_text().map(|()| true);
            }
            self.lines = Some(Lines::new(self.path.display().to_string(), open(&self.path)?));
        }
    }

    fn resumes(&self) -> bool {
        true
    }

    fn place(&self) -> String {
        self.lines.as_ref().map_or_else(|| self.path.display().to_string(), Lines::place)
    }

    fn id(&self) -> Option<String> {
        let path = self.path.strip_prefix(&self.source).unwrap_or(&self.path);
        (!self.by_line).then(|| path.display().to_string())
    }
}
