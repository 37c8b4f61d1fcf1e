//! Runs that end at any moment: by `kill -9`, at a limit on the size of a file, or on a full disk. The ledger covers what was released, no
//! half-written file is taken for a whole one, and the work can be continued.
//!
//! `SORDINO_KILLS` is the number of kills, 30 by default; `bench/kills.py` sets it to 1,000 and writes the table of docs/testing.md.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod full_disk;
mod outputs;
mod train;
mod tune;

use std::{
    env,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

/// The number of kills of a test that has this share of them, in percent.
fn kills(percent: usize) -> usize {
    let all = env::var("SORDINO_KILLS").map_or(30, |number| number.parse().unwrap());
    (all * percent).div_ceil(100)
}

fn sordino() -> Command {
    Command::new(env!("CARGO_BIN_EXE_sordino"))
}

/// Random moments.
struct Moments(ChaCha8Rng);

impl Moments {
    fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound.max(1)
    }

    /// A delay below this one.
    fn within(&mut self, longest: Duration) -> Duration {
        Duration::from_micros(self.below(longest.as_micros() as u64))
    }
}

/// A process whose standard output is dropped and whose messages are kept.
fn start(mut command: Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Kills a process. Returns whether it ended by itself before; then it must have succeeded.
fn kill(mut child: Child) -> bool {
    let ended = child.try_wait().unwrap();
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    if let Some(status) = ended {
        assert!(status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    ended.is_some()
}

/// Kills a process after a delay.
fn kill_after(command: Command, delay: Duration) -> bool {
    let child = start(command);
    thread::sleep(delay);
    kill(child)
}

/// Kills a process when one of these paths appears, and a short delay has passed.
fn kill_on_sight(command: Command, paths: &[&Path], delay: Duration) -> bool {
    let mut child = start(command);
    while child.try_wait().unwrap().is_none() && !paths.iter().any(|path| path.exists()) {
        thread::yield_now();
    }
    thread::sleep(delay);
    kill(child)
}

/// Runs a command that must succeed.
fn succeed(mut command: Command) -> Vec<u8> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
