//! Protection against files that make a library panic.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread is expected and is not printed.
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// Calls a library that panics at some files; `None` if it does. The panic is not printed: its message may quote a record.
pub(crate) fn caught<T>(call: impl FnOnce() -> T) -> Option<T> {
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
    // What the library has changed is not used after a panic.
    let result = panic::catch_unwind(AssertUnwindSafe(call));
    EXPECTED.set(false);
    result.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_caught() {
        assert_eq!(caught::<()>(|| panic!("as at a damaged page")), None);
        assert_eq!(caught(|| 7), Some(7));
        assert!(!EXPECTED.get());
    }
}
