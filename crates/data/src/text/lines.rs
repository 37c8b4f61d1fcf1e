//! The lines of a text file, one at a time.

use std::io::{BufRead, Read};

use crate::error::DataError;
use crate::input::unreadable;
use crate::table::{MAX_ROW, too_long};

/// A reader positioned at a line that is not blank.
pub(crate) struct Lines<R> {
    file: String,
    source: R,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(file: impl Into<String>, source: R) -> Lines<R> {
        Lines { file: file.into(), source, line: Vec::new(), number: 0 }
    }

    /// The name of the file.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// The line, without its end.
    pub(crate) fn text(&self) -> &[u8] {
        &self.line
    }

    /// The file and the number of the line.
    pub(crate) fn place(&self) -> String {
        format!("{}, line {}", self.file, self.number)
    }

    /// Reads the next line that is not blank; false at the end.
    pub(crate) fn next(&mut self) -> Result<bool, DataError> {
        loop {
            self.line.clear();
            self.number += 1;
            let read = (&mut self.source).take(MAX_ROW + 1).read_until(b'\n', &mut self.line);
            match read.map_err(|error| unreadable(&self.file, &error))? as u64 {
                0 => return Ok(false),
                read if read > MAX_ROW => return Err(too_long(self.place())),
                _ => {}
            }
            if self.number == 1 && self.line.starts_with("\u{feff}".as_bytes()) {
                self.line.drain(.."\u{feff}".len());
            }
            let end = self.line.trim_ascii_end().len();
            if end > 0 {
                // Spaces at the end belong to the text, the end of the line does not.
                let kept = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
                let kept = kept.strip_suffix(b"\r").unwrap_or(kept).len();
                self.line.truncate(kept);
                return Ok(true);
            }
        }
    }
}
