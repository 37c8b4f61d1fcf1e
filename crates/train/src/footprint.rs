//! An estimate of the memory that a run takes, made before it is allocated.

use std::{fs, thread};

use sordino_optim::OptimizerConfig;

use crate::{Learning, TrainError, format::grouped};

/// The limit on systems that do not report how much memory is available.
const PERMITTED: u64 = 16 << 30;
const GIB: f64 = (1_u64 << 30) as f64;

/// The memory of a run without its records, which are already in memory at this point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    parameters: u64,
    bytes_per_parameter: u64,
}

impl Footprint {
    /// The memory for training this many parameters on this machine, with an algorithm that keeps this many vectors of their size.
    pub fn new(parameters: usize, learning: &Learning, kept_vectors: u64) -> Self {
        Self::on_workers(
            parameters,
            learning,
            kept_vectors,
            thread::available_parallelism().map_or(1, usize::from),
        )
    }

    fn on_workers(parameters: usize, learning: &Learning, kept_vectors: u64, workers: usize) -> Self {
        let optimizer = match learning.optimizer {
            OptimizerConfig::Sgd { .. } => 0,
            OptimizerConfig::Momentum { .. }
            | OptimizerConfig::Nesterov { .. }
            | OptimizerConfig::RmsProp { .. }
            | OptimizerConfig::Adagrad { .. } => 1,
            OptimizerConfig::Adam { .. } | OptimizerConfig::AdamW { .. } => 2,
        };
        let kept = 1 + optimizer + kept_vectors + u64::from(learning.average.is_some());
        // On each worker, a sum in single precision, one in double, and twice the parameters' size for the records of a chunk.
        let training = workers as u64 * (4 + 8 + 8);
        // The result in double precision; sum, release and packed weights in single precision.
        let step = 8 + 3 * 4;
        // The engine that measures accuracy: chunks and packed weights.
        let measuring = workers as u64 * 8 + 4;
        // What is kept, and two copies of it while a checkpoint is written.
        let bytes_per_parameter = 3 * 4 * kept + training + step + measuring;
        Self { parameters: parameters as u64, bytes_per_parameter }
    }

    /// The same memory, and on each worker the parameters of a client in single precision, and its gradient and two updates in double.
    pub(crate) fn with_clients(self) -> Self {
        let workers = thread::available_parallelism().map_or(1, usize::from) as u64;
        Self { bytes_per_parameter: self.bytes_per_parameter + workers * (4 + 3 * 8), ..self }
    }

    fn bytes(&self) -> u64 {
        self.parameters.saturating_mul(self.bytes_per_parameter)
    }

    /// Checks that this many runs at a time fit into the memory that is available.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn check(&self, runs: usize) -> Result<(), TrainError> {
        self.check_within(runs, available())
    }

    fn check_within(&self, runs: usize, available: Option<u64>) -> Result<(), TrainError> {
        let (limit, kind) = match available {
            Some(bytes) => (bytes, "available"),
            None => (PERMITTED, "permitted"),
        };
        let runs = runs as u64;
        let needed = self.bytes().saturating_mul(runs);
        if needed <= limit {
            return Ok(());
        }
        let most = limit / (self.bytes_per_parameter * runs);
        let together = if runs > 1 { format!(" in each of {runs} simultaneous runs") } else { String::new() };
        let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / GIB);
        Err(TrainError::refused(
            format!(
                "training {} parameters{together} takes about {} of memory, but only {} is {kind}",
                grouped(self.parameters),
                gib(needed),
                gib(limit),
            ),
            format!(
                "up to about {} parameters fit: choose a smaller model ({{model}}, {{hidden}}), or a machine with more memory",
                grouped(most)
            ),
        ))
    }
}

/// Bytes that can be allocated without swapping: the memory that the machine has left, or what remains of a container's limit.
fn available() -> Option<u64> {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let container = || {
        Some(number("/sys/fs/cgroup/memory.max")?.saturating_sub(number("/sys/fs/cgroup/memory.current")?))
    };
    let machine = from_meminfo(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
    [machine, container()].into_iter().flatten().min()
}

/// `MemAvailable:   12345 kB`
fn from_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use sordino_optim::Schedule;

    use super::*;

    fn footprint(parameters: usize, optimizer: &str) -> Footprint {
        let learning = Learning {
            optimizer: OptimizerConfig::named(optimizer).unwrap(),
            learning_rate: 1.0,
            schedule: Schedule::default(),
            average: None,
        };
        Footprint::on_workers(parameters, &learning, 0, 2)
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_size_the_limit_and_what_fits() {
        let model = footprint(1_000_000, "sgd");
        assert!(model.check_within(1, Some(model.bytes())).is_ok());
        let error = model.check_within(1, Some(model.bytes() - 1)).unwrap_err();
        let (problem, hint) = (error.to_string(), error.hint().to_string());
        assert!(problem.contains("1,000,000 parameters takes about 0.1 GiB"), "{problem}");
        assert!(problem.contains("available") && hint.contains("999,999 parameters fit"), "{problem} {hint}");
        assert!(model.check_within(2, Some(model.bytes())).is_err());
        // If the system reports nothing, there is a fixed limit, and nothing overflows.
        assert!(model.check_within(1, None).is_ok());
        assert!(
            footprint(usize::MAX, "adam")
                .check_within(8, None)
                .unwrap_err()
                .to_string()
                .contains("16.0 GiB is permitted")
        );
    }

    /// Measured on two workers, 24 million parameters: 70 bytes for each with sgd, 91 with adam.
    #[test]
    fn estimates_lie_above_what_was_measured_and_not_far() {
        for (optimizer, measured) in [("sgd", 70), ("adam", 91)] {
            let estimate = footprint(1, optimizer).bytes_per_parameter;
            assert!(measured < estimate && estimate < 2 * measured, "{optimizer}: {estimate}");
        }
    }

    #[test]
    fn available_memory_is_read_as_the_kernel_writes_it() {
        assert_eq!(from_meminfo("MemTotal: 3 kB\nMemAvailable:   2 kB\n"), Some(2048));
        assert_eq!(from_meminfo("MemTotal: 3 kB\n"), None);
    }
}
