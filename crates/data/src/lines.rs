//! The line that a byte is on.

use std::collections::VecDeque;
use std::io::{self, Read};

/// Passes bytes on and remembers where the lines begin that are not empty.
///
/// The `csv` crate gives the line where it began to look for a record, which is too early if empty lines come first.
pub(crate) struct Lines<R> {
    source: R,
    /// The bytes, and the whole lines, passed on so far.
    offset: u64,
    line: u64,
    /// Whether nothing has been seen of this line.
    fresh: bool,
    /// Offset and number of the lines that are still asked for.
    starts: VecDeque<(u64, u64)>,
}

impl<R> Lines<R> {
    pub(crate) fn new(source: R) -> Lines<R> {
        Lines { source, offset: 0, line: 1, fresh: true, starts: VecDeque::new() }
    }

    /// The first line that begins at `offset` or later and is not empty; offsets must not descend.
    pub(crate) fn line_from(&mut self, offset: u64) -> u64 {
        while self.starts.front().is_some_and(|&(start, _)| start < offset) {
            self.starts.pop_front();
        }
        self.starts.front().map_or(self.line, |&(_, line)| line)
    }
}

impl<R: Read> Read for Lines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
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
