//! Normalisation of the features of a record, which uses only this record.

use serde::{Deserialize, Serialize};

/// How the features of a record are normalised. Only the record itself is used, so this has no privacy cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Normalisation {
    /// Mean 0 and variance 1 of each group of three consecutive channels, over all positions: GroupNorm (Wu and He 2018) without parameters.
    Groups,
    /// Scaled to the norm 30, as in `bag-of-words`. The default learning rate suits records of about this norm.
    Norm,
    /// Unchanged.
    None,
}

/// The norm to which a record is scaled.
const NORM: f64 = 30.0;

/// The number of channels in a group.
const GROUP: usize = 3;

/// Added to a variance before its square root, as in GroupNorm.
const SMALLEST_VARIANCE: f64 = 1e-5;

impl Normalisation {
    /// Normalises features that are stored channel by channel, with this many positions in each channel.
    pub(super) fn apply(self, features: &mut [f32], positions: usize) {
        match self {
            Self::Groups => features.chunks_mut(GROUP * positions).for_each(standardise),
            Self::Norm => {
                let norm = sum(features, |x| x * x).sqrt();
                let scale = if norm > 0.0 { NORM / norm } else { 1.0 };
                features.iter_mut().for_each(|x| *x = (f64::from(*x) * scale) as f32);
            }
            Self::None => {}
        }
    }
}

fn standardise(group: &mut [f32]) {
    let count = group.len() as f64;
    let mean = sum(group, |x| x) / count;
    let variance = sum(group, |x| (x - mean) * (x - mean)) / count;
    let scale = 1.0 / (variance + SMALLEST_VARIANCE).sqrt();
    group.iter_mut().for_each(|x| *x = ((f64::from(*x) - mean) * scale) as f32);
}

fn sum(values: &[f32], term: impl Fn(f64) -> f64) -> f64 {
    values.iter().map(|x| term(f64::from(*x))).sum()
}
