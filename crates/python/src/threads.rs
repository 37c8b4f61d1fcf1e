//! Runs Rust code without the GIL.

use std::{
    sync::{
        OnceLock,
        mpsc::{RecvTimeoutError, channel},
    },
    time::Duration,
};

use pyo3::{exceptions::PyRuntimeError, prelude::*};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// The interval at which signals are checked and progress is reported.
const WATCH_EVERY: Duration = Duration::from_millis(50);

/// The stack size of a thread, which is that of a main thread.
const STACK_SIZE: usize = 8 << 20;

/// The message after a panic.
const PANICKED: &str = "internal error; please report it with the message that is printed above";

/// Runs `work` without the GIL, on a thread pool of its own. `watch` is called on the calling thread, with the GIL, every 50 ms and once at
/// the end. If `watch` fails, or if a signal such as Ctrl-C raises an exception, `stop` is called once, and the exception is raised after `work`
/// has returned.
///
/// The pool exists only for this call. The threads of the global rayon pool do not exist after a fork. If several Python threads
/// used one pool, their work would be nested on the stacks of its threads.
///
/// # Errors
/// The first exception, or an exception if `work` panics, which is a bug.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    threads: usize,
    work: impl FnOnce() -> T + Send,
    stop: impl Fn() + Sync,
    mut watch: impl FnMut(Python<'_>) -> PyResult<()> + Send,
) -> PyResult<T> {
    let failed = |error: &dyn std::fmt::Display| PyRuntimeError::new_err(format!("no threads: {error}"));
    py.detach(|| {
        let pool = ThreadPoolBuilder::new().num_threads(threads).stack_size(STACK_SIZE);
        let pool = pool.build().map_err(|error| failed(&error))?;
        std::thread::scope(|scope| {
            let (done, result) = channel::<()>();
            let worker = std::thread::Builder::new()
                .spawn_scoped(scope, || {
                    let returned = pool.install(work);
                    drop(done);
                    returned
                })
                .map_err(|error| failed(&error))?;
            let mut raised = None;
            while result.recv_timeout(WATCH_EVERY) == Err(RecvTimeoutError::Timeout) {
                if raised.is_none() {
                    raised = Python::attach(|py| py.check_signals().and_then(|()| watch(py))).err();
                    if raised.is_some() {
                        stop();
                    }
                }
            }
            let returned = worker.join().map_err(|_| PyRuntimeError::new_err(PANICKED));
            match raised {
                Some(error) => Err(error),
                None => {
                    let returned = returned?;
                    Python::attach(|py| py.check_signals().and_then(|()| watch(py)))?;
                    Ok(returned)
                }
            }
        })
    })
}

/// Runs work on this many records without progress reports.
///
/// # Errors
/// Those of [`run`].
pub(crate) fn run_unwatched<T: Send>(
    py: Python<'_>,
    records: usize,
    work: impl FnOnce() -> T + Send,
) -> PyResult<T> {
    // Starting a thread takes about as long as the work on some tens of records.
    if records < 256 { run_short(py, work) } else { run(py, 0, work, || {}, |_| Ok(())) }
}

/// Runs short work without the GIL, on a thread pool that all calls share.
///
/// # Errors
/// The threads cannot be started.
pub(crate) fn run_short<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| match shared_pool() {
        Ok(pool) => Ok(pool.install(work)),
        Err(error) => Err(PyRuntimeError::new_err(format!("no threads: {error}"))),
    })
}

/// Runs `work` on the thread pool that all calls share, and at the same time `beside` on the calling thread. Both run without the GIL.
///
/// # Errors
/// The threads cannot be started, or `work` panics, which is a bug.
pub(crate) fn run_beside<T: Send, U: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send,
    beside: impl FnOnce() -> U + Send,
) -> PyResult<(T, U)> {
    py.detach(|| {
        let failed = |error: &dyn std::fmt::Display| PyRuntimeError::new_err(format!("no threads: {error}"));
        let pool = shared_pool().map_err(|error| failed(&error))?;
        std::thread::scope(|scope| {
            let worker = std::thread::Builder::new().spawn_scoped(scope, || pool.install(work));
            let worker = worker.map_err(|error| failed(&error))?;
            let second = beside();
            let first = worker.join().map_err(|_| PyRuntimeError::new_err(PANICKED))?;
            Ok((first, second))
        })
    })
}

/// The thread pool of a process. After a fork, the child process does not have the threads of its parent, so it has its own pool.
struct SharedPool {
    process: u32,
    pool: Result<ThreadPool, String>,
    of_child: OnceLock<Box<SharedPool>>,
}

impl SharedPool {
    fn new() -> Self {
        let pool = ThreadPoolBuilder::new().stack_size(STACK_SIZE).build();
        let pool = pool.map_err(|error| error.to_string());
        Self { process: std::process::id(), pool, of_child: OnceLock::new() }
    }
}

fn shared_pool() -> Result<&'static ThreadPool, &'static str> {
    static FIRST: OnceLock<SharedPool> = OnceLock::new();
    let mut shared = FIRST.get_or_init(SharedPool::new);
    while shared.process != std::process::id() {
        shared = shared.of_child.get_or_init(|| Box::new(SharedPool::new()));
    }
    shared.pool.as_ref().map_err(String::as_str)
}
