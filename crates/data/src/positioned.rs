//! A file that is read at given positions, by several threads at the same time. Files are not memory-mapped; ADR 13 gives the reasons.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::error::DataError;
use crate::input::unreadable;

/// An open file. Reads do not share a file position.
pub(crate) struct PositionedFile {
    #[cfg(unix)]
    file: File,
    #[cfg(not(unix))]
    file: std::sync::Mutex<File>,
    /// The number of bytes when it was opened.
    pub(crate) len: u64,
}

impl PositionedFile {
    pub(crate) fn open(path: &Path) -> Result<PositionedFile, DataError> {
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = opened.map_err(|error| unreadable(&path.display().to_string(), &error))?;
        if !metadata.is_file() {
            return Err(DataError::file(
                path.display().to_string(),
                "is not a regular file, so its records cannot be read where they lie",
                "write the records to a file",
            ));
        }
        #[cfg(not(unix))]
        let file = std::sync::Mutex::new(file);
        Ok(PositionedFile { file, len: metadata.len() })
    }

    /// Fills the buffer with the bytes from `position` on.
    #[cfg(unix)]
    pub(crate) fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, buffer, position)
    }

    /// Fills the buffer with the bytes from `position` on.
    #[cfg(not(unix))]
    pub(crate) fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        use std::io::{Read, Seek, SeekFrom};
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.seek(SeekFrom::Start(position))?;
        file.read_exact(buffer)
    }

    /// Checks that the file has exactly `expected` bytes.
    pub(crate) fn check_len(&self, file: &str, expected: u64) -> Result<(), DataError> {
        if self.len < expected {
            return Err(DataError::file(
                format!("{file}, byte {}", self.len),
                format!("the file ends here, but its header states {expected} bytes"),
                "the file is truncated; copy or download it again",
            ));
        }
        if self.len > expected {
            return Err(DataError::file(
                format!("{file}, byte {expected}"),
                "there are bytes beyond the last value that the header states",
                "header and data do not belong together; write the file again",
            ));
        }
        Ok(())
    }

    /// Calls `take` with the bytes from `start` to `end`, in pieces with their positions; all but the last are multiples of 8 bytes.
    pub(crate) fn pieces(
        &self,
        file: &str,
        start: u64,
        end: u64,
        mut take: impl FnMut(u64, &[u8]) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let mut piece = vec![0; 1 << 18];
        let mut position = start;
        while position < end {
            let wanted = (end - position).min(piece.len() as u64) as usize;
            self.read_at(&mut piece[..wanted], position).map_err(|error| unreadable(file, &error))?;
            take(position, &piece[..wanted])?;
            position += wanted as u64;
        }
        Ok(())
    }
}
