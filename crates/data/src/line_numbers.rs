//! The line number of each byte.

use std::collections::VecDeque;
use std::io::{self, Read};

use crate::table::MAX_ROW;

/// A reader that passes bytes through and records where each line that is not empty begins.
///
/// The `csv` crate reports the line where it began to look for a record, which is too early if empty lines come first. It
/// also has no limit for the length of a row; this reader fails at the limit.
pub(crate) struct LineNumbers<R> {
    source: R,
    /// The number of bytes that have been read, and the current line.
    offset: u64,
    line: u64,
    /// The number of bytes that had been read when the row began.
    row: u64,
    /// Whether the current line is empty so far.
    fresh: bool,
    /// Offsets and numbers of lines that may still be requested.
    starts: VecDeque<(u64, u64)>,
}

impl<R> LineNumbers<R> {
    pub(crate) fn new(source: R) -> LineNumbers<R> {
        LineNumbers { source, offset: 0, line: 1, row: 0, fresh: true, starts: VecDeque::new() }
    }

    /// The first line that begins at `offset` or later and is not empty; offsets must not decrease.
    pub(crate) fn line_from(&mut self, offset: u64) -> u64 {
        while self.starts.front().is_some_and(|&(start, _)| start < offset) {
            self.starts.pop_front();
        }
        self.starts.front().map_or(self.line, |&(_, line)| line)
    }

    /// Begins a row. Bytes that the `csv` crate has buffered do not count towards its length; they are few.
    pub(crate) fn begin_row(&mut self) {
        self.row = self.offset;
    }

    /// Whether the row has reached the limit.
    pub(crate) fn row_is_too_long(&self) -> bool {
        self.offset - self.row >= MAX_ROW
    }
}

impl<R: Read> Read for LineNumbers<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.row_is_too_long() {
            return Err(io::Error::other("the row is too long"));
        }
        let read = self.source.read(buffer)?;
        for (offset, &byte) in (self.offset..).zip(&buffer[..read]) {
            match byte {
                b'\n' => {
                    self.line += 1;
                    self.fresh = true;
                }
                b'\r' => {}
                _ if self.fresh => {
                    self.starts.push_back((offset, self.line));
                    self.fresh = false;
                }
                _ => {}
            }
        }
        self.offset += read as u64;
        Ok(read)
    }
}
