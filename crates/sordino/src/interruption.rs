//! Ctrl-C and SIGTERM: the first asks to stop, the second ends the process.

use std::{
    io::{self, Write},
    process,
    sync::atomic::{AtomicBool, Ordering},
};

static STOP: AtomicBool = AtomicBool::new(false);

/// The exit code of a command that was asked to stop.
pub(crate) const STOPPED: i32 = 130;

/// Listens from here on; what is returned is set when the user wants to stop, who is told what becomes of the work, and what would be
/// lost by asking once more.
pub(crate) fn listen(kept: &'static str, lost: &'static str) -> &'static AtomicBool {
    let handler = move || {
        if STOP.swap(true, Ordering::Relaxed) {
            process::exit(STOPPED);
        }
        let _ = writeln!(io::stderr(), "stopping {kept}; once more ends at once, {lost}");
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        let _ = writeln!(io::stderr(), "warning: Ctrl-C will end at once, {lost}: {error}");
    }
    &STOP
}
