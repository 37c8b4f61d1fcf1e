//! Protection against files that make the Parquet reader panic.

use ::parquet::errors::ParquetError;

use super::{DAMAGED, damaged};
use crate::error::DataError;
use crate::guard::caught;

/// Calls the Parquet reader. The reader checks most of a file but panics at a page that contradicts its header; the panic becomes an error
/// here.
pub(super) fn guarded<T>(
    place: &str,
    read: impl FnOnce() -> Result<T, ParquetError>,
) -> Result<T, DataError> {
    match caught(read) {
        Some(read) => read.map_err(|error| damaged(place, &error)),
        None => Err(DataError::file(place, "cannot be read: the content contradicts itself", DAMAGED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        let error = guarded::<()>("t.parquet, row 3", || panic!("as at a damaged page")).unwrap_err();
        assert_eq!(error.to_string(), "t.parquet, row 3: cannot be read: the content contradicts itself");
        assert_eq!(guarded("t.parquet", || Ok(7)).unwrap(), 7);
    }
}
