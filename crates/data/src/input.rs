//! The bytes of a file, decompressed if necessary.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::error::DataError;

/// Opens a file that may be compressed with gzip.
pub(crate) fn open(path: &Path) -> Result<Box<dyn BufRead>, DataError> {
    let refuse = |error: io::Error| unreadable(&path.display().to_string(), &error);
    let file = File::open(path).map_err(refuse)?;
    decompressed(BufReader::with_capacity(1 << 16, file)).map_err(refuse)
}

/// Decompresses a source that begins with the signature of gzip, whatever the name of the file.
pub(crate) fn decompressed<'a>(mut source: impl BufRead + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    if source.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(source))));
    }
    Ok(Box::new(source))
}

/// The error for a file that cannot be read.
pub(crate) fn unreadable(file: &str, error: &io::Error) -> DataError {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "check the path; it is relative to the current directory",
        io::ErrorKind::PermissionDenied => "you need permission to read the file",
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            "the file may be truncated; copy or compress it again"
        }
        _ => "the file must be readable to its end",
    };
    DataError::file(file, error.to_string(), hint)
}

/// Reads exactly `total` bytes and checks that the source ends there. `take` receives them in pieces; all but the last are multiples of 8
/// bytes. If the header states too large a size, no more memory is used than the size of the file.
///
/// `start` is the current position in the source, for error messages.
pub(crate) fn read_exactly(
    file: &str,
    source: &mut dyn Read,
    start: u64,
    total: u64,
    mut take: impl FnMut(&[u8]) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let mut piece = vec![0; 1 << 16];
    let mut done = 0;
    while done < total {
        let wanted = (total - done).min(piece.len() as u64) as usize;
        let got = fill(source, &mut piece[..wanted]).map_err(|error| unreadable(file, &error))?;
        if got < wanted {
            return Err(DataError::file(
                format!("{file}, byte {}", start + done + got as u64),
                format!("the file ends here, but its header states {} bytes", start + total),
                "the file is truncated; copy or download it again",
            ));
        }
        take(&piece[..wanted])?;
        done += wanted as u64;
    }
    if fill(source, &mut piece[..1]).map_err(|error| unreadable(file, &error))? > 0 {
        return Err(DataError::file(
            format!("{file}, byte {}", start + total),
            "there are bytes beyond the last value that the header states",
            "header and data do not belong together; write the file again",
        ));
    }
    Ok(())
}

/// Reads until the buffer is full or the source ends; returns the number of bytes.
pub(crate) fn fill(source: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
