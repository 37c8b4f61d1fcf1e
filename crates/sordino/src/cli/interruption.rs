//! Ctrl-C and SIGTERM: the first signal stops the command cleanly, the second quits at once.

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

/// Signals within this time of the first count as the same request, because `timeout` and job schedulers signal a process and its group.
const TOGETHER: Duration = Duration::from_secs(1);

/// The exit code of a command that was stopped.
pub(crate) const STOPPED: i32 = 130;

/// Handles signals from now on. The returned flag is set by the first signal. The messages state what is kept, and what a second
/// signal loses.
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
        let _ = writeln!(io::stderr(), "warning: Ctrl-C will quit at once, {lost}: {error}");
    }
    &STOP
}
