//! Measurements on public records.

use serde::{Deserialize, Serialize};
use sordino_data::Dataset;
use sordino_nn::{Engine, Loss, Network, NetworkError, Params, Targets};

/// Records that are public, and an engine of their own to measure with.
pub struct Examination<'d> {
    engine: Engine,
    data: &'d Dataset,
    all: Vec<usize>,
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// The share of records whose class was found, for classes.
    #[serde(rename = "test_accuracy")]
    pub accuracy: Option<f64>,
    /// The mean squared error, for values.
    #[serde(rename = "test_mean_squared_error", default, skip_serializing_if = "Option::is_none")]
    pub mean_squared_error: Option<f64>,
}

impl<'d> Examination<'d> {
    /// Checks that the records fit.
    ///
    /// # Errors
    /// Records that do not fit the network or the loss.
    pub fn new(network: Network, loss: Loss, data: &'d Dataset) -> Result<Self, NetworkError> {
        let engine = Engine::new(network, loss)?;
        if let Some(targets) = data.targets() {
            engine.records(data.inputs(), targets)?;
        }
        Ok(Self { engine, data, all: (0..data.len()).collect() })
    }

    /// Measures a model.
    ///
    /// # Errors
    /// Parameters of another network.
    pub fn score(&mut self, params: &Params) -> Result<Score, NetworkError> {
        let inputs = self.engine.unlabelled(self.data.inputs())?;
        let outputs = self.engine.outputs(params, &inputs, &self.all)?;
        let width = self.engine.network().outputs();
        #[expect(clippy::cast_precision_loss, reason = "a count of records")]
        let count = self.data.len() as f64;
        Ok(match self.data.targets() {
            Some(Targets::Classes(classes)) => {
                let found =
                    outputs.chunks_exact(width).zip(classes).filter(|(o, class)| class_of(o) == **class);
                #[expect(clippy::cast_precision_loss, reason = "a count of records")]
                let accuracy = found.count() as f64 / count;
                Score { accuracy: Some(accuracy), mean_squared_error: None }
            }
            Some(Targets::Values { values, .. }) => {
                let error: f64 = outputs.iter().zip(values).map(|(z, y)| f64::from(z - y).powi(2)).sum();
                Score { accuracy: None, mean_squared_error: Some(error / count) }
            }
            None => Score { accuracy: None, mean_squared_error: None },
        })
    }
}

/// The class that outputs speak for: the greatest, or for one output its sign.
pub fn class_of(outputs: &[f32]) -> u32 {
    match outputs {
        [only] => u32::from(*only > 0.0),
        _ => {
            let best = (0..outputs.len()).max_by(|&a, &b| outputs[a].total_cmp(&outputs[b]));
            u32::try_from(best.unwrap_or(0)).unwrap_or(u32::MAX)
        }
    }
}
