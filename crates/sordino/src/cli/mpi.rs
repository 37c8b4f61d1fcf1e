//! Messages between ranks by MPI.

use std::{
    env,
    io::{self, Write},
    process,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use mpi::{Threading, collective::SystemOperation, topology::SimpleCommunicator, traits::*};

use super::{
    problem::Problem,
    ranks::{Connection, started},
};

/// The environment variable that sets how many seconds a rank waits for the others.
const TIMEOUT: &str = "SORDINO_MPI_TIMEOUT";
const DEFAULT_TIMEOUT: u64 = 600;

/// If this environment variable is set, rank 0 prints the time that it spent in messages, which includes waiting for the other ranks.
const TIMES: &str = "SORDINO_MPI_TIMES";

/// A broadcast of bytes begins with a message of this size. It contains the number of bytes, and the bytes themselves if they fit.
const HEADER: usize = 64;
const INLINE: usize = HEADER - 8;

/// Initialises MPI.
pub(super) fn connect() -> Result<Connection, Problem> {
    let timeout = match env::var(TIMEOUT) {
        Err(_) => DEFAULT_TIMEOUT,
        Ok(text) => text.parse().ok().filter(|seconds| *seconds > 0).ok_or_else(|| {
            Problem::refused(
                format!("{TIMEOUT} must be a whole number of seconds and at least 1, got {text:?}"),
                format!("leave it out to wait {DEFAULT_TIMEOUT} seconds"),
            )
        })?,
    };
    let refused =
        |problem: &str| Problem::refused(problem, "use mpirun and a library of the same installation of MPI");
    let (universe, threading) = mpi::initialize_with_threading(Threading::Serialized)
        .ok_or_else(|| refused("MPI was already initialised"))?;
    if threading < Threading::Serialized {
        return Err(refused("this MPI library cannot be called from several threads in turn"));
    }
    let (rank, size) = (number(universe.world().rank()), number(universe.world().size()));
    if size != started() {
        // As with the mpirun of one MPI library and a program for another: every process would be alone, and train by itself.
        return Err(refused(&format!("{} processes were started, but MPI connects {size}", started())));
    }
    let waiting = Arc::new(AtomicU64::new(0));
    watch(rank, timeout, waiting.clone());
    let (begun, spent, buffer) = (Instant::now(), AtomicU64::new(0), Mutex::default());
    let communicator = Arc::new(MpiRank { rank, size, waiting, begun, spent, buffer });
    Ok(Connection { communicator, abort: |code| world().abort(code), library: Box::new(universe) })
}

fn world() -> SimpleCommunicator {
    SimpleCommunicator::world()
}

fn number(number: i32) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// Ends the process if one call waits longer than `timeout` seconds. Then `mpirun` ends all other ranks.
fn watch(rank: usize, timeout: u64, waiting: Arc<AtomicU64>) {
    let begun = Instant::now();
    thread::spawn(move || {
        loop {
            thread::sleep(Duration::from_millis(250));
            let since = waiting.load(Ordering::Relaxed);
            let now = milliseconds(begun);
            if since > 0 && now.saturating_sub(since) > 1000 * timeout {
                let _ = writeln!(
                    io::stderr(),
                    "error: rank {rank} has waited {timeout} seconds for the other ranks\n\n\
                     hint: one of them does not respond or is much slower; steps that were charged are in the ledger, and the run can be \
                     resumed; to wait longer, set {TIMEOUT} to a number of seconds"
                );
                process::exit(2);
            }
        }
    });
}

/// At least 1: 0 means that no call is waiting.
fn milliseconds(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
}

/// A rank of the world communicator.
struct MpiRank {
    rank: usize,
    size: usize,
    /// When the current call began, in milliseconds; 0 if there is none.
    waiting: Arc<AtomicU64>,
    begun: Instant,
    /// Nanoseconds in calls.
    spent: AtomicU64,
    /// The result of a sum.
    buffer: Mutex<Vec<f64>>,
}

impl MpiRank {
    /// Makes a call, with the time limit. MPI itself ends all ranks if a call fails.
    fn timed(&self, call: impl FnOnce(&SimpleCommunicator)) {
        let begun = Instant::now();
        self.waiting.store(milliseconds(self.begun), Ordering::Relaxed);
        call(&world());
        self.waiting.store(0, Ordering::Relaxed);
        let nanoseconds = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.spent.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

impl Drop for MpiRank {
    fn drop(&mut self) {
        if env::var_os(TIMES).is_some() && self.rank == 0 {
            let seconds = Duration::from_nanos(self.spent.load(Ordering::Relaxed)).as_secs_f64();
            let numbers = self.buffer.lock().map_or(0, |buffer| buffer.capacity());
            let _ = writeln!(
                io::stderr(),
                "note: rank 0 spent {seconds:.3} seconds in messages, with sums of {numbers} numbers"
            );
        }
    }
}

impl sordino_privacy::Communicator for MpiRank {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn broadcast(&self, numbers: &mut [f32]) -> Result<(), String> {
        self.timed(|world| world.process_at_rank(0).broadcast_into(numbers));
        Ok(())
    }

    fn broadcast_bytes(&self, bytes: &mut Vec<u8>) -> Result<(), String> {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        let few = bytes.len().min(INLINE);
        header[8..8 + few].copy_from_slice(&bytes[..few]);
        self.timed(|world| world.process_at_rank(0).broadcast_into(&mut header[..]));
        let length = header.first_chunk().map_or(0, |length| u64::from_le_bytes(*length));
        let length = usize::try_from(length).map_err(|error| error.to_string())?;
        bytes.resize(length, 0);
        match length <= INLINE {
            true => bytes.copy_from_slice(&header[8..8 + length]),
            false => self.timed(|world| world.process_at_rank(0).broadcast_into(&mut bytes[..])),
        }
        Ok(())
    }

    fn sum(&self, values: &mut [f64]) -> Result<(), String> {
        if self.rank > 0 {
            let add = SystemOperation::sum();
            self.timed(|world| world.process_at_rank(0).reduce_into(&*values, add));
            values.fill(0.0);
            return Ok(());
        }
        let mut sums = self.buffer.lock().map_err(|error| error.to_string())?;
        sums.resize(values.len(), 0.0);
        let add = SystemOperation::sum();
        self.timed(|world| world.process_at_rank(0).reduce_into_root(&*values, &mut sums[..], add));
        values.copy_from_slice(&sums);
        Ok(())
    }
}
