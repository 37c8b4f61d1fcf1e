//! Settings of the pace: how many records at a time, and how often.

use sordino_accounting::{SamplingRate, Steps};

use crate::{
    problem::Problem,
    settings::{SamplingName, Settings},
};

/// How many records at a time, and how often.
pub(crate) struct Pace {
    pub(crate) batch_size: f64,
    pub(crate) steps: Steps,
    /// The steps of an epoch, at least 1.
    pub(crate) epoch: u64,
}

impl Pace {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts"
    )]
    pub(crate) fn new(settings: &mut Settings, records: usize) -> Result<Self, Problem> {
        let records = records as u64;
        let full = settings.sampling == Some(SamplingName::FullBatch);
        if full && settings.batch_size.is_some_and(|size| size != records) {
            return Err(Problem::refused(
                format!("batch_size must be left out for full batches of {records} records"),
                "leave it out, or use --sampling poisson",
            ));
        }
        let default = if full { records } else { default_batch_size(records) };
        let batch_size = *settings.batch_size.get_or_insert(default);
        if batch_size == 0 || batch_size > records {
            return Err(Problem::refused(
                format!(
                    "batch_size must be between 1 and the number of training records, {records}; got {batch_size}"
                ),
                "256 is a good start",
            ));
        }
        let per_epoch = records as f64 / batch_size as f64;
        let steps = match settings.steps {
            Some(steps) => steps,
            None => {
                let epochs = *settings.epochs.get_or_insert(50.0);
                let steps = (epochs * per_epoch).round();
                if !(epochs > 0.0 && steps <= Steps::MAX as f64) {
                    return Err(Problem::refused(
                        format!("epochs must be a number above 0, got {epochs}"),
                        "50 is the default; more epochs need more noise for the same epsilon",
                    ));
                }
                Steps::new((steps as u64).max(1))?
            }
        };
        Ok(Self { batch_size: batch_size as f64, steps, epoch: per_epoch.ceil() as u64 })
    }

    #[expect(clippy::cast_precision_loss, reason = "a count")]
    pub(crate) fn rate(&self, records: usize) -> Result<SamplingRate, Problem> {
        Ok(SamplingRate::new(self.batch_size / records as f64)?)
    }
}

/// A sixtieth of the records, up to a power of two, but at least 256: larger batches bear more signal for the same noise,
/// smaller ones allow more steps.
fn default_batch_size(records: u64) -> u64 {
    (records / 60).next_power_of_two().max(256).min(records)
}
