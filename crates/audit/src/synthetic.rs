//! Synthetic records of the same form as the real ones. They do not depend on the real ones.

use rand_chacha::{
    ChaCha20Rng,
    rand_core::{Rng, SeedableRng},
};
use sordino_data::Dataset;
use sordino_nn::{Engine, Inputs, Loss, Records, Shape, Targets, Units};
use sordino_train::{PricedRun, ResolvedSettings};

use crate::AuditError;

/// The public form of the records of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    shape: Shape,
    targets: TargetForm,
}

#[derive(Debug, Clone, Copy)]
enum TargetForm {
    Classes(usize),
    Values(usize),
    NextTokens,
}

impl Form {
    /// The form of the records that the network of a run reads.
    pub(crate) fn of(run: &PricedRun) -> Result<Self, AuditError> {
        let (data, network) = (&run.resolved.data, run.resolved.model.network()?);
        let targets = match run.resolved.model.loss {
            Loss::NextToken => TargetForm::NextTokens,
            _ if !data.classes.is_empty() => TargetForm::Classes(data.classes.len()),
            _ => TargetForm::Values(network.outputs()),
        };
        Ok(Self { shape: network.input(), targets })
    }
}

/// Records beside the canaries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Background<'a> {
    inputs: Inputs<'a>,
    targets: Targets<'a>,
    units: Option<&'a Units>,
    /// The number of slots.
    pub(crate) count: usize,
}

impl<'a> Background<'a> {
    /// The records of a data set; none if it has no targets.
    pub(crate) fn of(data: &'a Dataset) -> Option<Self> {
        let (inputs, targets) = (data.inputs(), data.targets()?);
        Some(Self { inputs, targets, units: data.units(), count: data.slots() })
    }

    /// The records, as an engine reads them, in the slots of the run.
    pub(crate) fn checked(&self, run: &ResolvedSettings, engine: &Engine) -> Result<Records<'a>, AuditError> {
        Ok(run.in_slots(engine.records(self.inputs, self.targets)?, self.units)?)
    }
}

/// Synthetic records.
#[derive(Debug, Clone)]
pub(crate) struct Synthetic {
    inputs: SyntheticInputs,
    targets: SyntheticTargets,
    /// The records of each slot; none if every record is a slot.
    units: Option<Units>,
    /// The number of slots.
    count: usize,
}

#[derive(Debug, Clone)]
enum SyntheticInputs {
    Dense(Vec<f32>),
    Tokens { tokens: Vec<u32>, starts: Vec<usize> },
}

#[derive(Debug, Clone)]
enum SyntheticTargets {
    Classes(Vec<u32>),
    Values { values: Vec<f32>, width: usize },
    NextTokens(Vec<usize>),
}

/// Uniform numbers from a seed.
pub(crate) struct Uniform(ChaCha20Rng);

impl Uniform {
    pub(crate) fn new(seed: u64) -> Self {
        Self(ChaCha20Rng::seed_from_u64(seed))
    }

    /// A number in [0, 1).
    pub(crate) fn number(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * 2.0_f64.powi(-53)
    }

    fn below(&mut self, bound: usize) -> usize {
        ((self.number() * bound as f64) as usize).min(bound.saturating_sub(1))
    }
}

impl Synthetic {
    /// One record for each size. The values of a record are random numbers between 0 and its size (blank records have size 0). Tokens
    /// and targets are random, so the targets do not match the inputs.
    pub(crate) fn new(form: &Form, sizes: &[f32], random: &mut Uniform) -> Self {
        let count = sizes.len();
        let inputs = match form.shape {
            Shape::Tokens { steps, vocabulary } => {
                let (mut tokens, mut starts) = (Vec::new(), vec![0]);
                for _ in 0..count {
                    let length = 2 + random.below(steps.saturating_sub(1).max(1));
                    tokens.extend((0..length.min(steps)).map(|_| random.below(vocabulary) as u32));
                    starts.push(tokens.len());
                }
                SyntheticInputs::Tokens { tokens, starts }
            }
            shape => SyntheticInputs::Dense(
                sizes
                    .iter()
                    .flat_map(|&size| std::iter::repeat_n(size, shape.len()))
                    .map(|size| if size == 0.0 { 0.0 } else { size * random.number() as f32 })
                    .collect(),
            ),
        };
        let targets = match form.targets {
            TargetForm::Classes(classes) => {
                SyntheticTargets::Classes((0..count).map(|_| random.below(classes) as u32).collect())
            }
            TargetForm::Values(width) => SyntheticTargets::Values {
                values: (0..count * width).map(|_| 2.0 * random.number() as f32 - 1.0).collect(),
                width,
            },
            TargetForm::NextTokens => SyntheticTargets::NextTokens(vec![1; count]),
        };
        Self { inputs, targets, units: None, count }
    }

    /// Slots of this many consecutive records each.
    ///
    /// # Errors
    /// None, if the records are a whole number of slots.
    pub(crate) fn in_units_of(self, records: usize) -> Result<Self, AuditError> {
        let count = self.count / records;
        let starts = (0..=count).map(|slot| slot * records).collect();
        Ok(Self { units: Some(Units::new((0..count * records).collect(), starts)?), count, ..self })
    }

    /// The records.
    pub(crate) fn background(&self) -> Background<'_> {
        let inputs = match &self.inputs {
            SyntheticInputs::Dense(values) => Inputs::Dense(values),
            SyntheticInputs::Tokens { tokens, starts } => Inputs::Tokens { tokens, starts },
        };
        let targets = match &self.targets {
            SyntheticTargets::Classes(classes) => Targets::Classes(classes),
            SyntheticTargets::Values { values, width } => Targets::Values { values, width: *width },
            SyntheticTargets::NextTokens(from) => Targets::NextTokens { from },
        };
        Background { inputs, targets, units: self.units.as_ref(), count: self.count }
    }
}
