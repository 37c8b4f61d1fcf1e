//! Protection against files that make the Parquet reader panic.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use ::parquet::errors::ParquetError;

use super::{DAMAGED, damaged};
use crate::error::DataError;

thread_local! {
    /// Whether a panic of this thread is expected and is not printed.
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// Calls the Parquet reader. The reader checks most of a file but panics at a page that contradicts its header; the panic becomes an error
/// here.
pub(super) fn guarded<T>(
    place: &str,
    read: impl FnOnce() -> Result<T, ParquetError>,
) -> Result<T, DataError> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !EXPECTED.get() {
                print(panic);
            }
        }));
    });
    EXPECTED.set(true);
    // What the reader has changed is not used after a panic.
    let result = panic::catch_unwind(AssertUnwindSafe(read));
    EXPECTED.set(false);
    match result {
        Ok(read) => read.map_err(|error| damaged(place, &error)),
        Err(_) => Err(DataError::file(place, "cannot be read: the content contradicts itself", DAMAGED)),
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
        assert!(!EXPECTED.get());
    }
}
