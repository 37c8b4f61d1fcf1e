//! The auditor's own randomness.

use sordino_privacy::Randomness;

use crate::{AuditError, synthetic::Uniform};

/// Randomness of the auditor.
pub(crate) struct Coins {
    seed: Option<u64>,
    members: Vec<u8>,
}

impl Coins {
    /// Draws `count` coins from the operating system, or from a seed.
    pub(crate) fn new(seed: Option<u64>, part: u64, count: usize) -> Result<Self, AuditError> {
        let mut members = vec![0; count];
        let seed = seed.map(|seed| seed.wrapping_mul(1_000_003).wrapping_add(part << 40));
        match seed {
            None => getrandom::fill(&mut members).map_err(|error| AuditError::Refused {
                problem: format!("the operating system provides no randomness: {error}"),
                hint: "run the audit on a system with getrandom(2) or its equivalent".to_owned(),
            })?,
            Some(seed) => {
                let mut random = Uniform::new(seed);
                members.iter_mut().for_each(|coin| *coin = u8::from(random.number() < 0.5));
            }
        }
        Ok(Self { seed, members })
    }

    /// Whether the canary with this number is a member. If each run has one canary: whether it is a member in the run with this number.
    pub(crate) fn member(&self, number: u64) -> bool {
        self.members.get(number as usize).is_some_and(|coin| coin & 1 == 1)
    }

    pub(crate) fn all(&self) -> Vec<bool> {
        (0..self.members.len() as u64).map(|number| self.member(number)).collect()
    }

    /// The randomness of a run.
    pub(crate) fn randomness(&self, number: u64) -> Result<Randomness, AuditError> {
        Ok(match self.seed {
            None => Randomness::from_os()?,
            Some(seed) => Randomness::seeded(seed.wrapping_add(number)),
        })
    }

    /// A seed for public values, such as initial parameters.
    pub(crate) fn public_seed(&self, number: u64) -> Result<u64, AuditError> {
        match self.seed {
            Some(seed) => Ok(seed.wrapping_add(number)),
            None => getrandom::u64().map_err(|error| AuditError::Refused {
                problem: format!("the operating system provides no randomness: {error}"),
                hint: "run the audit on a system with getrandom(2) or its equivalent".to_owned(),
            }),
        }
    }
}
