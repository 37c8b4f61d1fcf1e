//! Plans: public data that state how records are sampled and how much noise is added to each release.
//!
//! The same entry determines the sampling, the noise and the accounting, so they cannot disagree.

mod cap;
mod sampling;
mod text;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{AccountingError, NoiseMultiplier, SamplingRate, Steps};

pub use sampling::{Cap, Sampling};
pub use text::{EntryText, SamplingKind};

/// The neighbouring relation: which pairs of data sets a guarantee is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// One record is replaced by a null record that contributes exactly zero. The number of records is public.
    ZeroOut,
    /// One record is replaced by any other record.
    ReplaceOne,
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ZeroOut => "add/remove with public N (zero-out)",
            Self::ReplaceOne => "replace-one",
        })
    }
}

/// A number of identical steps: how they are sampled, and the noise multipliers of the releases of each step.
///
/// All releases of a step use the same batch and have independent Gaussian noise. Together they are one Gaussian release with
/// multiplier `(sum_j z_j^-2)^(-1/2)`. Composing them as if each had its own batch would under-report epsilon.
///
/// ```
/// use sordino_accounting::{Entry, Plan};
///
/// let entry: Entry = serde_json::from_str(r#"{"noise_multiplier": 1.1, "sample_rate": 0.01, "steps": 1000}"#)?;
/// let two_releases: Entry =
///     serde_json::from_str(r#"{"noise_multiplier": [1.1, 5.0], "sample_rate": 0.01, "steps": 1000}"#)?;
/// assert!(two_releases.effective_noise_multiplier() < entry.effective_noise_multiplier());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "text::EntryText", into = "text::EntryText")]
pub struct Entry {
    sampling: Sampling,
    releases: Vec<NoiseMultiplier>,
    steps: Steps,
}

impl Entry {
    const MAX_POPULATION: u64 = 1 << 40;

    /// An entry with any kind of sampling and any number of releases per step.
    ///
    /// # Errors
    /// There is no release; a fixed-size batch or a cap is 0 or larger than the population; the number of groups is below 2;
    /// `later_shift` is out of range.
    pub fn new(
        sampling: Sampling,
        releases: Vec<NoiseMultiplier>,
        steps: Steps,
    ) -> Result<Self, AccountingError> {
        let bad = |problem: String| Err(AccountingError::BadEntry { problem });
        if releases.is_empty() {
            return bad("noise_multiplier must hold at least one multiplier, got none".to_owned());
        }
        let (size, population, name) = match sampling {
            Sampling::FixedSize { batch_size, population } => (batch_size, population, "batch_size"),
            Sampling::Poisson { cap: Some(cap), .. } => {
                (cap.max_batch_size, cap.population, "max_batch_size")
            }
            Sampling::Rotating { groups, .. } if groups < 2 => {
                return bad(format!("groups must be at least 2, got {groups}"));
            }
            Sampling::Stateful { later_shift, .. } if !(1.0..=1e12).contains(&later_shift) => {
                return bad(format!("later_shift must be between 1 and 1e12, got {later_shift}"));
            }
            _ => (1, 1, ""),
        };
        if population > Self::MAX_POPULATION {
            return bad(format!("population must be at most 2^40, got {population}"));
        }
        if size == 0 || size > population {
            return bad(format!("{name} must be between 1 and the population of {population}, got {size}"));
        }
        Ok(Self { sampling, releases, steps })
    }

    /// Steps of DP-SGD: Poisson sampling and one release.
    pub fn poisson(noise_multiplier: NoiseMultiplier, rate: SamplingRate, steps: Steps) -> Self {
        Self { sampling: Sampling::Poisson { rate, cap: None }, releases: vec![noise_multiplier], steps }
    }

    /// Full-batch releases.
    pub fn full_batch(noise_multiplier: NoiseMultiplier, steps: Steps) -> Self {
        Self { sampling: Sampling::FullBatch, releases: vec![noise_multiplier], steps }
    }

    /// How the batch of each step is sampled.
    pub fn sampling(&self) -> Sampling {
        self.sampling
    }

    /// The noise multipliers of the releases of each step.
    pub fn releases(&self) -> &[NoiseMultiplier] {
        &self.releases
    }

    /// The number of steps.
    pub fn steps(&self) -> Steps {
        self.steps
    }

    /// The number of steps that can sample the same record.
    pub fn exposures(&self) -> u64 {
        match self.sampling {
            Sampling::Rotating { groups, .. } => self.steps.get().div_ceil(groups),
            _ => self.steps.get(),
        }
    }

    /// The multiplier of the single release that reveals as much as all releases of one step together.
    ///
    /// `z = (sum_j z_j^-2)^(-1/2)`.
    pub fn effective_noise_multiplier(&self) -> f64 {
        match self.releases[..] {
            [only] => only.get(),
            _ => self.releases.iter().map(|z| z.get().powi(-2)).sum::<f64>().powf(-0.5),
        }
    }

    /// The same entry with all multipliers times `factor`, or `None` if a product is out of range.
    pub(crate) fn scaled(&self, factor: f64) -> Option<Self> {
        let releases = self.releases.iter().map(|z| NoiseMultiplier::new(z.get() * factor).ok());
        Some(Self { releases: releases.collect::<Option<_>>()?, ..self.clone() })
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.steps.get() == 1 { "" } else { "s" };
        write!(f, "{} step{plural} with {}", self.steps, self.sampling)
    }
}

/// A list of entries, which are composed adaptively. Their order does not matter.
///
/// The empty plan releases nothing and costs nothing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Plan {
    entries: Vec<Entry>,
}

impl Plan {
    /// A plan with these entries.
    pub fn new(entries: Vec<Entry>) -> Self {
        Self { entries }
    }

    /// The plan of DP-SGD.
    pub fn dp_sgd(noise_multiplier: NoiseMultiplier, rate: SamplingRate, steps: Steps) -> Self {
        Self::new(vec![Entry::poisson(noise_multiplier, rate, steps)])
    }

    /// The entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The number of steps over all entries.
    pub fn steps(&self) -> u64 {
        self.entries.iter().map(|e| e.steps.get()).fold(0, u64::saturating_add)
    }

    /// The first steps of the plan, in the order of its entries.
    #[must_use]
    pub fn first(&self, steps: u64) -> Self {
        let mut left = steps;
        let mut entries = Vec::new();
        for entry in &self.entries {
            let taken = left.min(entry.steps.get());
            left -= taken;
            if let Ok(steps) = Steps::new(taken) {
                entries.push(Entry { steps, ..entry.clone() });
            }
        }
        Self::new(entries)
    }

    /// A plan that costs as much as this many independent runs of the plan.
    ///
    /// # Errors
    /// The runs have more steps than an entry may have.
    pub fn repeated(&self, runs: u64) -> Result<Self, AccountingError> {
        let repeat = |entry: &Entry| {
            // Every run exposes a record as often as the first run. An incomplete last rotation does not continue in the next run.
            let steps = match entry.sampling {
                Sampling::Rotating { groups, .. } => entry.exposures().saturating_mul(groups),
                _ => entry.steps.get(),
            };
            Ok(Entry { steps: Steps::new(steps.saturating_mul(runs))?, ..entry.clone() })
        };
        self.entries.iter().map(repeat).collect()
    }

    /// The neighbouring relation for which the plan is priced: replace-one if a batch has a fixed size (removing a record would
    /// change the sampling of the others), and zero-out otherwise.
    pub fn relation(&self) -> Relation {
        let fixed = self.entries.iter().any(|e| matches!(e.sampling, Sampling::FixedSize { .. }));
        if fixed { Relation::ReplaceOne } else { Relation::ZeroOut }
    }

    /// Whether some batches have a limited size.
    pub(crate) fn is_capped(&self) -> bool {
        self.entries.iter().any(|e| matches!(e.sampling, Sampling::Poisson { cap: Some(_), .. }))
    }

    /// Whether the price of the plan is attained by some data set. This is not known for capped batches, nor for rotating groups,
    /// whose last rotation may be incomplete.
    pub(crate) fn is_tight(&self) -> bool {
        !self.is_capped() && !self.entries.iter().any(|e| matches!(e.sampling, Sampling::Rotating { .. }))
    }

    /// The same plan with all multipliers times `factor`.
    ///
    /// # Errors
    /// A product is outside the range of noise multipliers.
    pub fn scaled(&self, factor: f64) -> Result<Self, AccountingError> {
        let entries = self.entries.iter().map(|e| e.scaled(factor)).collect::<Option<Vec<_>>>();
        entries.map(Self::new).ok_or_else(|| AccountingError::NoSolution {
            what: "noise multiplier",
            reason: format!("multiplying by {factor} gives a noise multiplier that is out of range"),
        })
    }
}

impl FromIterator<Entry> for Plan {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Self {
        Self::new(entries.into_iter().collect())
    }
}

#[cfg(test)]
impl Plan {
    /// DP-SGD from plain numbers, for tests.
    pub(crate) fn of_numbers(noise_multiplier: f64, rate: f64, steps: u64) -> Self {
        let (z, rate) = (NoiseMultiplier::new(noise_multiplier).unwrap(), SamplingRate::new(rate).unwrap());
        Self::dp_sgd(z, rate, Steps::new(steps).unwrap())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Plan, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn every_kind_of_entry_survives_a_round_trip() {
        let text = r#"[{"noise_multiplier":1.5,"sample_rate":0.01,"steps":10},
            {"noise_multiplier":[1.5,6.0],"sample_rate":0.01,"max_batch_size":700,"population":60000,"steps":1},
            {"sampling":"fixed-size","noise_multiplier":2.0,"batch_size":600,"population":60000,"steps":3},
            {"sampling":"full-batch","noise_multiplier":7.0,"steps":2},
            {"sampling":"rotating","noise_multiplier":1.5,"sample_rate":0.08,"groups":9,"steps":150},
            {"sampling":"stateful","noise_multiplier":2.0,"sample_rate":0.02,"later_shift":3.0,"steps":20}]"#;
        let plan = read(text).unwrap();
        assert_eq!(plan.entries().len(), 6);
        assert_eq!(plan.entries()[4].exposures(), 17);
        let again = serde_json::to_string(&plan).unwrap();
        assert_eq!(read(&again).unwrap(), plan);
        assert!(!again.contains("null"));
    }

    #[test]
    fn names_of_earlier_versions_are_read_and_written_as_the_current_ones() {
        let old = r#"[{"sampling":"everybody","noise_multiplier":7.0,"steps":2},
            {"sampling":"grouped","noise_multiplier":1.5,"sample_rate":0.08,"groups":9,"steps":150},
            {"sampling":"remembered","noise_multiplier":2.0,"sample_rate":0.02,"reach":3.0,"steps":20}]"#;
        let current = r#"[{"sampling":"full-batch","noise_multiplier":7.0,"steps":2},
            {"sampling":"rotating","noise_multiplier":1.5,"sample_rate":0.08,"groups":9,"steps":150},
            {"sampling":"stateful","noise_multiplier":2.0,"sample_rate":0.02,"later_shift":3.0,"steps":20}]"#;
        let plan = read(old).unwrap();
        assert_eq!(plan, read(current).unwrap());
        let written = serde_json::to_string(&plan).unwrap();
        for name in ["everybody", "grouped", "remembered", "reach"] {
            assert!(!written.contains(name), "{name}: {written}");
        }
    }

    #[test]
    fn wrong_entries_are_refused_with_a_reason() {
        for (text, reason) in [
            (r#"[{"noise":1,"sample_rate":0.1,"steps":1}]"#, "unknown field `noise`"),
            (r#"[{"noise_multiplier":1,"steps":1}]"#, "needs sample_rate"),
            (r#"[{"noise_multiplier":1,"sample_rate":1.7,"steps":1}]"#, "in (0, 1], got 1.7"),
            (r#"[{"noise_multiplier":-1,"sample_rate":0.1,"steps":1}]"#, "got -1"),
            (r#"[{"noise_multiplier":[],"sample_rate":0.1,"steps":1}]"#, "at least one"),
            (r#"[{"noise_multiplier":1,"sample_rate":0.1,"steps":-4}]"#, "got -4"),
            (r#"[{"noise_multiplier":1,"sample_rate":0.1,"batch_size":3,"steps":1}]"#, "takes sample_rate"),
            (
                r#"[{"sampling":"fixed-size","noise_multiplier":1,"batch_size":9,"population":8,"steps":1}]"#,
                "between 1 and the population of 8, got 9",
            ),
            (r#"[{"sampling":"full-batch","noise_multiplier":1,"sample_rate":0.1,"steps":1}]"#, "takes only"),
            (
                r#"[{"sampling":"rotating","noise_multiplier":1,"sample_rate":0.1,"groups":1,"steps":1}]"#,
                "at least 2, got 1",
            ),
            (
                r#"[{"sampling":"stateful","noise_multiplier":1,"sample_rate":0.1,"later_shift":0.5,"steps":1}]"#,
                "between 1 and 1e12, got 0.5",
            ),
            (r#"[{"noise_multiplier":1,"sample_rate":0.1,"groups":3,"steps":1}]"#, "takes sample_rate"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(reason), "{text}: {message}");
        }
    }

    #[test]
    fn first_takes_steps_in_order() {
        let text = r#"[{"noise_multiplier":1,"sample_rate":0.1,"steps":3},{"noise_multiplier":2,"sample_rate":0.1,"steps":4}]"#;
        let plan = read(text).unwrap();
        let counts = |steps| plan.first(steps).entries().iter().map(|e| e.steps().get()).collect::<Vec<_>>();
        assert_eq!([counts(0), counts(2), counts(3), counts(5)], [vec![], vec![2], vec![3], vec![3, 2]]);
        assert_eq!(plan.first(u64::MAX), plan);
    }

    #[test]
    fn releases_of_one_batch_add_up_their_inverse_squares() {
        let z = |v| NoiseMultiplier::new(v).unwrap();
        let sampling = Sampling::Poisson { rate: SamplingRate::new(0.1).unwrap(), cap: None };
        let entry = Entry::new(sampling, vec![z(3.0), z(4.0)], Steps::new(1).unwrap()).unwrap();
        assert!((entry.effective_noise_multiplier() - 2.4).abs() < 1e-12);
    }
}
