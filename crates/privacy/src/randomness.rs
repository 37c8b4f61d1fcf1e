//! Secret randomness: a key from the operating system, and streams that are never used twice.

use rand_chacha::{
    ChaCha20Rng,
    rand_core::{Rng, SeedableRng},
};

use crate::{PrivacyError, keystream::Keystream};

/// The source of randomness for sampling and noise.
///
/// The key is never written anywhere, and no stream of it is used twice. A resumed run begins with a new key.
pub struct Randomness {
    key: ChaCha20Rng,
    families: u64,
    seeded: bool,
}

impl Randomness {
    /// ChaCha20 with a key from the operating system.
    ///
    /// # Errors
    /// The operating system has no randomness.
    pub fn from_os() -> Result<Self, PrivacyError> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|error| PrivacyError::NoRandomness(error.to_string()))?;
        Ok(Self { key: ChaCha20Rng::from_seed(key), families: 0, seeded: false })
    }

    /// Reproducible randomness. A run that uses it is **not private**, and its ledger records this.
    pub fn seeded(seed: u64) -> Self {
        Self { key: ChaCha20Rng::seed_from_u64(seed), families: 0, seeded: true }
    }

    /// Whether it comes from a fixed seed.
    pub fn is_seeded(&self) -> bool {
        self.seeded
    }

    /// A family of streams that has not been used before.
    pub(crate) fn streams(&mut self) -> Streams {
        // Stream number n of the key gives the key of the n-th family: distinct streams of ChaCha20 are independent.
        let mut rng = self.key.clone();
        rng.set_stream(self.families);
        self.families += 1;
        let mut key = [0; 32];
        rng.fill_bytes(&mut key);
        Streams { key }
    }
}

/// A family of independent streams with its own key.
pub(crate) struct Streams {
    key: [u8; 32],
}

impl Streams {
    /// The family of this key, which another rank has drawn.
    pub(crate) fn of_key(key: [u8; 32]) -> Self {
        Self { key }
    }

    /// The key, for the other ranks.
    pub(crate) fn key(&self) -> [u8; 32] {
        self.key
    }

    /// One of the streams.
    pub(crate) fn number(&self, number: u64) -> Keystream {
        Keystream::new(self.key, number)
    }
}

/// A generator that returns given words.
#[cfg(test)]
pub(crate) struct GivenWords(pub(crate) std::vec::IntoIter<u64>);

#[cfg(test)]
impl rand_chacha::rand_core::TryRng for GivenWords {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        unreachable!("words of 64 bits are drawn")
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(self.0.next().unwrap())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        for bytes in bytes.chunks_exact_mut(8) {
            bytes.copy_from_slice(&self.0.next().unwrap().to_le_bytes());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_streams_agree() {
        let mut randomness = Randomness::from_os().unwrap();
        let (first, second) = (randomness.streams(), randomness.streams());
        let mut seen: Vec<u64> = Vec::new();
        for family in [&first, &second] {
            seen.extend((0..100).map(|number| family.number(number).next_u64()));
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 200);
    }

    #[test]
    fn a_seed_repeats_and_the_operating_system_does_not() {
        let first = |mut randomness: Randomness| randomness.streams().number(0).next_u64();
        assert_eq!(first(Randomness::seeded(7)), first(Randomness::seeded(7)));
        assert_ne!(first(Randomness::seeded(7)), first(Randomness::seeded(8)));
        assert_ne!(first(Randomness::from_os().unwrap()), first(Randomness::from_os().unwrap()));
    }
}
