//! Several processes, the ranks, that train one model together. Each holds a share of the slots.

use std::{ops::Range, sync::Arc};

use sha2::{Digest, Sha256};

use crate::{PrivacyError, randomness::Streams};

/// Messages between ranks. All ranks make the same calls in the same order.
///
/// **Guarantees.** A call returns an error, and does not wait forever, if another rank has ended or does not answer in time.
pub trait Communicator: Send + Sync {
    /// The number of this rank: 0 for the first.
    fn rank(&self) -> usize;

    /// The number of ranks.
    fn size(&self) -> usize;

    /// Replaces the numbers of every rank by those of rank 0. All ranks must pass the same length.
    ///
    /// # Errors
    /// A rank that has ended or does not answer.
    fn broadcast(&self, numbers: &mut [f32]) -> Result<(), String>;

    /// Replaces the bytes of every rank by those of rank 0. The lengths may differ.
    ///
    /// # Errors
    /// A rank that has ended or does not answer.
    fn broadcast_bytes(&self, bytes: &mut Vec<u8>) -> Result<(), String>;

    /// Adds up the values of all ranks, element by element. Rank 0 receives the sums; the values of other ranks become 0. All ranks must
    /// pass the same length.
    ///
    /// # Errors
    /// A rank that has ended or does not answer.
    fn sum(&self, values: &mut [f64]) -> Result<(), String>;
}

/// The share of the slots that a rank holds, and its connection to the others.
///
/// Rank `r` of `R` holds the slots from `N r / R` to `N (r + 1) / R` (excluded). This depends on public numbers only, and a slot, with all
/// records of its unit, belongs to one rank.
#[derive(Clone)]
pub struct Ranks {
    /// None for a process that trains alone.
    others: Option<Arc<dyn Communicator>>,
    slots: usize,
}

impl Ranks {
    /// One process that holds all of these slots.
    pub fn alone(slots: usize) -> Self {
        Self { others: None, slots }
    }

    /// One of several processes that together hold this many slots.
    pub fn among(communicator: Arc<dyn Communicator>, slots: usize) -> Self {
        Self { others: Some(communicator).filter(|communicator| communicator.size() > 1), slots }
    }

    /// Whether this is rank 0, which keeps the ledger, adds the noise, and writes files.
    pub fn is_first(&self) -> bool {
        self.others.as_ref().is_none_or(|others| others.rank() == 0)
    }

    /// Whether there are other ranks.
    pub fn has_others(&self) -> bool {
        self.others.is_some()
    }

    /// The slots of this rank.
    pub fn share(&self) -> Range<usize> {
        let Some(others) = &self.others else { return 0..self.slots };
        let border = |rank: usize| {
            let border = self.slots as u128 * rank as u128 / others.size() as u128;
            usize::try_from(border).unwrap_or(self.slots)
        };
        border(others.rank())..border(others.rank() + 1)
    }

    /// The number of slots of all ranks.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Replaces the bytes of every rank by those of rank 0.
    ///
    /// # Errors
    /// A rank that has ended or does not answer.
    pub fn agree(&self, bytes: &mut Vec<u8>) -> Result<(), PrivacyError> {
        self.call(|others| others.broadcast_bytes(bytes))
    }

    /// Adds up the values of all ranks in a step; rank 0 receives the sums.
    ///
    /// # Errors
    /// A rank that has ended, does not answer, or is at another step: every rank adds the number of its step, and rank 0 checks the total.
    #[expect(clippy::cast_precision_loss, reason = "steps and ranks are far below 2^53")]
    pub(crate) fn sum(&self, step: u64, values: &mut Vec<f64>) -> Result<(), PrivacyError> {
        let Some(others) = &self.others else { return Ok(()) };
        values.push(step as f64);
        self.call(|others| others.sum(values))?;
        let (total, expected) = (values.pop(), step as f64 * others.size() as f64);
        match others.rank() > 0 || total == Some(expected) {
            true => Ok(()),
            false => Err(PrivacyError::Ranks(format!(
                "the ranks are not all at step {step}, so nothing was released"
            ))),
        }
    }

    /// Compares how this rank bounds the contribution of a record with how rank 0 does.
    ///
    /// # Errors
    /// A rule, a lattice or a rounding that differs from that of rank 0; a rank that has ended or does not answer. The rank that differs
    /// takes no part in the sum, so rank 0 releases nothing.
    pub(crate) fn check_same(&self, own: impl FnOnce() -> String) -> Result<(), PrivacyError> {
        let Some(others) = &self.others else { return Ok(()) };
        let own = Sha256::digest(own().as_bytes()).to_vec();
        let mut first = own.clone();
        self.agree(&mut first)?;
        match own == first {
            true => Ok(()),
            false => Err(PrivacyError::Ranks(format!(
                "rank {} clips or rounds gradients in a different way from rank 0; all ranks need the same program, the \
                 same settings and processors with caches of the same size",
                others.rank()
            ))),
        }
    }

    /// Sends what rank 0 has released to every rank.
    pub(crate) fn broadcast(&self, released: &mut [f32]) -> Result<(), PrivacyError> {
        self.call(|others| others.broadcast(released))
    }

    /// Begins a step: after the ledger was charged, rank 0 announces the number of the step, and every rank must be at this step. With
    /// `joint`, all ranks receive the streams of rank 0, from which they draw one batch together. Otherwise every rank keeps its own streams.
    pub(crate) fn begin(&self, step: u64, own: Streams, joint: bool) -> Result<Streams, PrivacyError> {
        if self.others.is_none() {
            return Ok(own);
        }
        let mut message = step.to_le_bytes().to_vec();
        message.extend(if joint { own.key() } else { [0; 32] });
        self.agree(&mut message)?;
        let named = message.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let key = message.get(8..).and_then(|key| <[u8; 32]>::try_from(key).ok());
        match (named, key) {
            (Some(named), Some(key)) if named == step => Ok(if joint { Streams::of_key(key) } else { own }),
            _ => Err(PrivacyError::Ranks(format!(
                "this rank is at step {step}, and rank 0 is at step {}",
                named.map_or_else(|| "?".to_owned(), |named| named.to_string())
            ))),
        }
    }

    fn call(&self, call: impl FnOnce(&dyn Communicator) -> Result<(), String>) -> Result<(), PrivacyError> {
        let Some(others) = &self.others else { return Ok(()) };
        call(others.as_ref())
            .map_err(|problem| PrivacyError::Ranks(format!("rank {}: {problem}", others.rank())))
    }
}
