//! The keys of an entry in a plan file, and their permitted combinations.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{Cap, Entry, Sampling};
use crate::{AccountingError, NoiseMultiplier, SamplingRate, Steps};

/// An entry of a plan file. `docs/plans.md` describes the keys. The conversion to an [`Entry`] checks that the keys may be combined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntryText {
    /// The kind of sampling.
    #[serde(default, skip_serializing_if = "SamplingKind::is_default")]
    pub sampling: SamplingKind,
    /// The noise multipliers of the releases of each step: `1.1` or `[1.1, 5.0]`.
    #[serde(with = "one_or_many")]
    pub noise_multiplier: Vec<NoiseMultiplier>,
    /// The probability that a record is in a batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_rate: Option<SamplingRate>,
    /// The number of records in each fixed-size batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<u64>,
    /// The limit on the size of Poisson batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_batch_size: Option<u64>,
    /// The public number of records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub population: Option<u64>,
    /// The number of rotating groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<u64>,
    /// How far a record can shift later releases of a stateful algorithm, as a multiple of the sensitivity.
    #[serde(alias = "reach", default, skip_serializing_if = "Option::is_none")]
    pub later_shift: Option<f64>,
    /// The number of steps.
    pub steps: Steps,
}

/// The kind of sampling of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SamplingKind {
    /// [`Sampling::Poisson`].
    #[default]
    Poisson,
    /// [`Sampling::FixedSize`].
    FixedSize,
    // The aliases are the names in plans and ledgers of earlier versions.
    /// [`Sampling::FullBatch`].
    #[serde(alias = "everybody")]
    FullBatch,
    /// [`Sampling::Rotating`].
    #[serde(alias = "grouped")]
    Rotating,
    /// [`Sampling::Stateful`].
    #[serde(alias = "remembered")]
    Stateful,
}

impl SamplingKind {
    const ALL: [Self; 5] = [Self::Poisson, Self::FixedSize, Self::FullBatch, Self::Rotating, Self::Stateful];

    /// The name, as in plan files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Poisson => "poisson",
            Self::FixedSize => "fixed-size",
            Self::FullBatch => "full-batch",
            Self::Rotating => "rotating",
            Self::Stateful => "stateful",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes a reference")]
    fn is_default(&self) -> bool {
        *self == Self::Poisson
    }
}

impl FromStr for SamplingKind {
    type Err = AccountingError;

    fn from_str(text: &str) -> Result<Self, AccountingError> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| AccountingError::OutOfRange {
            what: "sampling",
            range: "one of poisson, fixed-size, full-batch, rotating, stateful",
            got: text.to_owned(),
            hint: "{sampling=poisson} is the default",
        })
    }
}

/// A list that is written without brackets if it has one element.
mod one_or_many {
    use serde::{Deserializer, Serialize, Serializer, de};

    use super::{NoiseMultiplier, fmt};
    use crate::number::{real, real_index};

    pub(super) fn serialize<S: Serializer>(
        list: &[NoiseMultiplier],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match list {
            [only] => only.serialize(serializer),
            _ => list.serialize(serializer),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<NoiseMultiplier>, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Vec<NoiseMultiplier>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a noise multiplier or a list of them")
            }
            fn visit_f64<E: de::Error>(self, v: f64) -> Result<Self::Value, E> {
                NoiseMultiplier::new(v).map(|z| vec![z]).map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Self::Value, E> {
                self.visit_f64(real(v))
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Self::Value, E> {
                self.visit_f64(real_index(v))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut releases = Vec::new();
                while let Some(z) = seq.next_element()? {
                    releases.push(z);
                }
                Ok(releases)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl TryFrom<EntryText> for Entry {
    type Error = AccountingError;

    fn try_from(text: EntryText) -> Result<Self, AccountingError> {
        let bad = |problem: &str| AccountingError::BadEntry { problem: problem.to_owned() };
        let EntryText {
            sampling,
            noise_multiplier,
            sample_rate,
            batch_size,
            max_batch_size,
            population,
            groups,
            later_shift,
            steps,
        } = text;
        let sampling = match (sampling, sample_rate, batch_size, max_batch_size, population) {
            (SamplingKind::Rotating, Some(rate), None, None, None) if later_shift.is_none() => {
                let groups = groups.ok_or_else(|| bad("a rotating entry needs groups"))?;
                return Entry::new(Sampling::Rotating { rate, groups }, noise_multiplier, steps);
            }
            (SamplingKind::Stateful, Some(rate), None, None, None) if groups.is_none() => {
                let later_shift = later_shift.ok_or_else(|| bad("a stateful entry needs later_shift"))?;
                return Entry::new(Sampling::Stateful { rate, later_shift }, noise_multiplier, steps);
            }
            (SamplingKind::Rotating, ..) => {
                return Err(bad("a rotating entry takes sample_rate and groups, and nothing else"));
            }
            (SamplingKind::Stateful, ..) => {
                return Err(bad("a stateful entry takes sample_rate and later_shift, and nothing else"));
            }
            _ if groups.is_some() || later_shift.is_some() => {
                return Err(bad(
                    "this entry takes sample_rate or batch_size; groups is for rotating entries, later_shift for stateful ones",
                ));
            }
            (SamplingKind::Poisson, Some(rate), None, None, None) => Sampling::Poisson { rate, cap: None },
            (SamplingKind::Poisson, Some(rate), None, Some(max_batch_size), Some(population)) => {
                Sampling::Poisson { rate, cap: Some(Cap { max_batch_size, population }) }
            }
            (SamplingKind::Poisson, Some(_), ..) => {
                return Err(bad(
                    "a Poisson entry takes sample_rate and, for a cap, max_batch_size with population",
                ));
            }
            (SamplingKind::Poisson, None, ..) => return Err(bad("a Poisson entry needs sample_rate")),
            (SamplingKind::FixedSize, None, Some(batch_size), None, Some(population)) => {
                Sampling::FixedSize { batch_size, population }
            }
            (SamplingKind::FixedSize, ..) => {
                return Err(bad("a fixed-size entry takes batch_size and population, and no sample_rate"));
            }
            (SamplingKind::FullBatch, None, None, None, None) => Sampling::FullBatch,
            (SamplingKind::FullBatch, ..) => {
                return Err(bad("a full-batch entry takes only noise_multiplier and steps"));
            }
        };
        Entry::new(sampling, noise_multiplier, steps)
    }
}

impl From<Entry> for EntryText {
    fn from(Entry { sampling, releases, steps }: Entry) -> Self {
        let mut text = EntryText {
            sampling: SamplingKind::Poisson,
            noise_multiplier: releases,
            sample_rate: None,
            batch_size: None,
            max_batch_size: None,
            population: None,
            groups: None,
            later_shift: None,
            steps,
        };
        match sampling {
            Sampling::Poisson { rate, cap } => {
                text.sample_rate = Some(rate);
                text.max_batch_size = cap.map(|c| c.max_batch_size);
                text.population = cap.map(|c| c.population);
            }
            Sampling::FixedSize { batch_size, population } => {
                text.sampling = SamplingKind::FixedSize;
                text.batch_size = Some(batch_size);
                text.population = Some(population);
            }
            Sampling::FullBatch => text.sampling = SamplingKind::FullBatch,
            Sampling::Rotating { rate, groups } => {
                text.sampling = SamplingKind::Rotating;
                text.sample_rate = Some(rate);
                text.groups = Some(groups);
            }
            Sampling::Stateful { rate, later_shift } => {
                text.sampling = SamplingKind::Stateful;
                text.sample_rate = Some(rate);
                text.later_shift = Some(later_shift);
            }
        }
        text
    }
}
