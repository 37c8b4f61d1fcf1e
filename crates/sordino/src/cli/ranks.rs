//! Several processes that `mpirun` started, the ranks, which train one model.

use std::{env, sync::Arc};

use sordino_privacy::Communicator;

use super::problem::Problem;

/// Variables with the number of started processes: of Open MPI, MPICH and its relatives, MVAPICH, and Slurm's `srun`.
const SIZES: [&str; 4] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"];

/// The number of processes that were started together, or 1.
pub(super) fn started() -> usize {
    SIZES.iter().find_map(|name| env::var(name).ok()?.parse().ok()).unwrap_or(1)
}

/// Whether `mpirun` started several processes.
pub(crate) fn are_several() -> bool {
    started() > 1
}

/// Refuses several processes for a command that trains in one. Each would train by itself, and together they would spend the privacy budget
/// several times.
pub(crate) fn refusal() -> Problem {
    Problem::refused(
        format!("{} processes were started, but this command works in one process", started()),
        "start it without mpirun; only `sordino train` works in several processes",
    )
}

/// Connects this process to the others that `mpirun` started; `None` if there are no others.
pub(crate) fn connect() -> Result<Option<Connection>, Problem> {
    if started() <= 1 {
        return Ok(None);
    }
    #[cfg(feature = "mpi")]
    return super::mpi::connect().map(Some);
    #[cfg(not(feature = "mpi"))]
    Err(Problem::refused(
        format!("{} processes were started, but this build of sordino does not support MPI", started()),
        "build it with `cargo build --release --features mpi`, or start it without mpirun",
    ))
}

/// A connection to the other ranks. Dropping it ends the connection.
pub(crate) struct Connection {
    pub(crate) communicator: Arc<dyn Communicator>,
    /// Ends all ranks with this exit code.
    pub(crate) abort: fn(i32),
    /// Kept until the end.
    #[expect(dead_code, reason = "dropped last")]
    pub(crate) library: Box<dyn std::any::Any>,
}

impl Connection {
    pub(crate) fn is_first(&self) -> bool {
        self.communicator.rank() == 0
    }
}
