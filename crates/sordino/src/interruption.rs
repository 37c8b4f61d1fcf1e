//! Ctrl-C and SIGTERM: the first asks to stop, the second ends the process.

use std::{
    io::{self, Write},
    process,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

static STOP: AtomicBool = AtomicBool::new(false);

/// When the first signal came.
static FIRST: OnceLock<Instant> = OnceLock::new();

/// Signals that follow the first one so soon are one and the same request: `timeout` and job schedulers signal a process and its
/// group.
const TOGETHER: Duration = Duration::from_secs(1);

/// The exit code of a command that was asked to stop.
pub(crate) const STOPPED: i32 = 130;

/// Listens from here on; what is returned is set when the user wants to stop, who is told what becomes of the work, and what would be
/// lost by asking once more.
pub(crate) fn listen(kept: &'static str, lost: &'static str) -> &'static AtomicBool {
    let handler = move || {
        if STOP.swap(true, Ordering::Relaxed) {
            if FIRST.get().is_some_and(|first| first.elapsed() > TOGETHER) {
                process::exit(STOPPED);
            }
            return;
        }
        FIRST.get_or_init(Instant::now);
        let _ = writeln!(io::stderr(), "stopping {kept}; press Ctrl-C again to quit now, {lost}");
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        let _ = writeln!(io::stderr(), "warning: Ctrl-C will end at once, {lost}: {error}");
    }
    &STOP
}
