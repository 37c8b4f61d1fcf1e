//! The lines of a text file, one at a time.

use std::io::{self, BufRead, Read};

use crate::error::DataError;
use crate::input::unreadable;
use crate::table::{MAX_ROW, too_long};

/// A reader positioned at a line that is not blank.
pub(crate) struct Lines<R> {
    file: String,
    source: R,
    line: Vec<u8>,
    number: u64,
    /// Whether the rest of the line must be skipped, because the line is too long.
    skip: bool,
    /// Whether the source failed, so that nothing more can be read.
    failed: bool,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(file: impl Into<String>, source: R) -> Lines<R> {
        Lines { file: file.into(), source, line: Vec::new(), number: 0, skip: false, failed: false }
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

    /// Reads the next line that is not blank; false at the end. After a line that is too long, the next one can be read.
    pub(crate) fn next(&mut self) -> Result<bool, DataError> {
        loop {
            match self.read_line() {
                Ok(0) => return Ok(false),
                Ok(read) if read as u64 > MAX_ROW => {
                    self.skip = true;
                    return Err(too_long(self.place()));
                }
                Ok(_) => {}
                Err(error) => {
                    self.failed = true;
                    return Err(unreadable(&self.file, &error));
                }
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

    /// Reads a line, but no more than one byte beyond the limit; returns the number of bytes.
    fn read_line(&mut self) -> io::Result<usize> {
        self.line.clear();
        self.number += 1;
        if self.failed {
            return Ok(0);
        }
        if std::mem::take(&mut self.skip) {
            self.source.skip_until(b'\n')?;
        }
        (&mut self.source).take(MAX_ROW + 1).read_until(b'\n', &mut self.line)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, repeat};

    use super::*;

    #[test]
    fn a_line_of_four_gigabytes_is_refused_after_the_permitted_length() {
        let source = BufReader::new(repeat(b'a').take(1 << 32)).chain(&b"\nb\n"[..]);
        let mut lines = Lines::new("file", source);
        assert_eq!(lines.next().unwrap_err().to_string(), "file, line 1: is longer than 64 MiB");
        assert_eq!(lines.line.len() as u64, MAX_ROW + 1);
    }

    #[test]
    fn the_line_after_one_that_is_too_long_is_read() {
        let source = BufReader::new(repeat(b'a').take(MAX_ROW + 7)).chain(&b"\n\nb\n"[..]);
        let mut lines = Lines::new("file", source);
        assert!(lines.next().is_err());
        assert!(lines.next().unwrap());
        assert_eq!((lines.text(), lines.place().as_str()), (&b"b"[..], "file, line 3"));
        assert!(!lines.next().unwrap());
    }
}
