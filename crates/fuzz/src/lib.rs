//! Damaged files for every reader.
//!
//! A [`Target`] has good files, which Sordino's own writers or small functions here make, and reads damaged copies of them. An input is
//! determined by the good files and its number, so a failure can be repeated. The files of a run have fresh noise, so an input that fails is
//! also kept. A target fails if a reader
//!
//! - panics or overflows its stack,
//! - takes more than 30 seconds of the processor,
//! - asks for absurd memory (the program runs with a limit on its address space), or
//! - accepts what it must refuse, such as a ledger with a broken chain of hashes.
//!
//! `cargo test` reads a few hundred inputs of each target. `cargo run -p sordino-fuzz -- all 1000000` reads as many as are given, and
//! `bench/fuzz.py` reads 12 million; `docs/testing.md` has the results. The development profile is optimised and checks for overflows.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

pub mod container;
pub mod mutation;
pub mod random;
pub mod targets;

use container::Container;
use random::Random;

/// A reader with good files.
pub trait Target {
    /// The layout of its files.
    fn container(&self) -> Container;

    /// Good files.
    fn good(&self) -> &[Vec<u8>];

    /// Reads a file. Returns whether it was accepted.
    ///
    /// # Errors
    /// What was accepted and must not be.
    fn read(&mut self, input: &[u8]) -> Result<bool, String>;
}

/// The input of a target with this number. The first inputs are the good files themselves.
pub fn input(target: &dyn Target, number: u64) -> Vec<u8> {
    let all = target.good();
    match all.get(number as usize) {
        Some(good) => good.clone(),
        None => {
            let random = &mut Random::new(number);
            let good = random.of(all);
            mutation::damaged(target.container(), good, all, random)
        }
    }
}
