//! Batch settings: how many records in a batch, and how many batches.

use sordino_accounting::{Cap, Sampling, SamplingRate, Steps};

use crate::{NetworkAlgorithm, Origin, SamplingName, Settings, TrainError, Value, settings::given};

/// The default number of passes over the data.
const DEFAULT_EPOCHS: f64 = 40.0;

/// How many records in a batch, and how many batches.
pub(crate) struct Batches {
    /// The expected size of a batch.
    pub(crate) size: Value<u64>,
    /// The number of steps, if it is given in place of epochs.
    pub(crate) given_steps: Option<Value<Steps>>,
    pub(crate) epochs: Option<Value<f64>>,
    pub(crate) steps: Steps,
    /// The steps of an epoch, at least 1.
    pub(crate) steps_per_epoch: u64,
    records: u64,
}

impl Batches {
    pub(crate) fn new(
        settings: &Settings,
        records: usize,
        algorithm: &dyn NetworkAlgorithm,
    ) -> Result<Self, TrainError> {
        let records = records as u64;
        let full = settings.sampling == Some(SamplingName::FullBatch);
        if full && settings.batch_size.is_some_and(|size| size != records) {
            return Err(TrainError::refused(
                format!("batch_size must be left out for full batches of {records} records"),
                "leave out {batch_size}, or use {sampling=poisson}",
            ));
        }
        let default = if full { records } else { default_batch_size(records) };
        let size = Value::given_or(settings.batch_size, default, Origin::PublicFact);
        if size.value == 0 || size.value > records {
            return Err(TrainError::refused(
                format!(
                    "batch_size must be between 1 and the number of training records, {records}; got {}",
                    size.value
                ),
                "256 is a good start",
            ));
        }
        let per_epoch = records as f64 / algorithm.records_per_step(size.value as f64, records)?;
        let (epochs, steps) = match settings.steps {
            Some(steps) => (given(settings.epochs), steps),
            None => {
                let epochs = Value::given_or(settings.epochs, DEFAULT_EPOCHS, Origin::Default);
                let steps = steps_of(epochs.value, per_epoch)?;
                (Some(epochs), steps)
            }
        };
        Ok(Self {
            size,
            given_steps: given(settings.steps),
            epochs,
            steps,
            steps_per_epoch: per_epoch.ceil() as u64,
            records,
        })
    }

    /// How the batches are drawn.
    pub(crate) fn sampling(&self, kind: SamplingName, max: Option<u64>) -> Result<Sampling, TrainError> {
        let population = self.records;
        match (kind, max) {
            (SamplingName::Poisson, max) => {
                let rate = SamplingRate::new(self.size.value as f64 / population as f64)?;
                let cap = max.map(|max_batch_size| Cap { max_batch_size, population });
                Ok(Sampling::Poisson { rate, cap })
            }
            (SamplingName::FixedSize, None) => {
                Ok(Sampling::FixedSize { batch_size: self.size.value, population })
            }
            (SamplingName::FullBatch, None) => Ok(Sampling::FullBatch),
            (_, Some(_)) => Err(TrainError::refused(
                "max_batch_size belongs to Poisson sampling",
                "other batches have a fixed size; leave out {max_batch_size}",
            )),
        }
    }
}

/// The nearest whole number of steps, at least 1.
fn steps_of(epochs: f64, per_epoch: f64) -> Result<Steps, TrainError> {
    let steps = (epochs * per_epoch).round();
    if !(epochs > 0.0 && steps <= Steps::MAX as f64) {
        return Err(TrainError::refused(
            format!("epochs must be a number above 0, with at most 2^40 steps in all, got {epochs}"),
            "40 is the default; more epochs need more noise for the same epsilon",
        ));
    }
    Ok(Steps::new((steps as u64).max(1))?)
}

/// A 32nd of the records, rounded up to a power of two, but at least 256. Larger batches have more signal for the same noise; smaller
/// batches allow more steps.
fn default_batch_size(records: u64) -> u64 {
    (records / 32).next_power_of_two().max(256).min(records)
}
