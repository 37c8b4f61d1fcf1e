//! The keys of an entry in a plan file, and their permitted combinations.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Cap, Entry, Sampling};
use crate::{
    AccountingError, NoiseMultiplier, SamplingRate, Steps,
    number::{real, real_index},
};

/// An entry as written in a plan file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EntryText {
    #[serde(default, skip_serializing_if = "SamplingKind::is_default")]
    sampling: SamplingKind,
    noise_multiplier: OneOrMany,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sample_rate: Option<SamplingRate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    batch_size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_batch_size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    population: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    groups: Option<u64>,
    #[serde(alias = "reach", default, skip_serializing_if = "Option::is_none")]
    later_shift: Option<f64>,
    steps: Steps,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SamplingKind {
    #[default]
    Poisson,
    FixedSize,
    // The aliases are the names in plans and ledgers of earlier versions.
    #[serde(alias = "everybody")]
    FullBatch,
    #[serde(alias = "grouped")]
    Rotating,
    #[serde(alias = "remembered")]
    Stateful,
}

impl SamplingKind {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes a reference")]
    fn is_default(&self) -> bool {
        *self == Self::Poisson
    }
}

/// `1.1` or `[1.1, 5.0]`.
struct OneOrMany(Vec<NoiseMultiplier>);

impl Serialize for OneOrMany {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0[..] {
            [only] => only.serialize(serializer),
            _ => self.0.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = OneOrMany;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a noise multiplier or a list of them")
            }
            fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<OneOrMany, E> {
                NoiseMultiplier::new(v).map(|z| OneOrMany(vec![z])).map_err(E::custom)
            }
            fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<OneOrMany, E> {
                self.visit_f64(real(v))
            }
            fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<OneOrMany, E> {
                self.visit_f64(real_index(v))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<OneOrMany, A::Error> {
                let mut releases = Vec::new();
                while let Some(z) = seq.next_element()? {
                    releases.push(z);
                }
                Ok(OneOrMany(releases))
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
                return Entry::new(Sampling::Rotating { rate, groups }, noise_multiplier.0, steps);
            }
            (SamplingKind::Stateful, Some(rate), None, None, None) if groups.is_none() => {
                let later_shift = later_shift.ok_or_else(|| bad("a stateful entry needs later_shift"))?;
                return Entry::new(Sampling::Stateful { rate, later_shift }, noise_multiplier.0, steps);
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
        Entry::new(sampling, noise_multiplier.0, steps)
    }
}

impl From<Entry> for EntryText {
    fn from(Entry { sampling, releases, steps }: Entry) -> Self {
        let mut text = EntryText {
            sampling: SamplingKind::Poisson,
            noise_multiplier: OneOrMany(releases),
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
