//! Measurements on public records.

use serde::{Deserialize, Serialize};
use sordino_data::Dataset;
use sordino_nn::{Engine, Loss, Network, NetworkError, Params, Targets};

/// Measures models on public records.
pub struct Evaluator<'d> {
    engine: Engine,
    data: &'d Dataset,
    all: Vec<usize>,
}

/// The score of a model on public records.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// The fraction of records whose class is predicted correctly; for classification.
    #[serde(rename = "test_accuracy")]
    pub accuracy: Option<f64>,
    /// The mean squared error; for regression.
    #[serde(rename = "test_mean_squared_error", default, skip_serializing_if = "Option::is_none")]
    pub mean_squared_error: Option<f64>,
}

impl<'d> Evaluator<'d> {
    /// An evaluator for these records.
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

        let count = self.data.len() as f64;
        Ok(match self.data.targets() {
            Some(Targets::Classes(classes)) => {
                let correct =
                    outputs.chunks_exact(width).zip(classes).filter(|(o, class)| class_of(o) == **class);

                let accuracy = correct.count() as f64 / count;
                Score { accuracy: Some(accuracy), mean_squared_error: None }
            }
            Some(Targets::Values { values, .. }) => {
                let error: f64 = outputs.iter().zip(values).map(|(z, y)| f64::from(z - y).powi(2)).sum();
                Score { accuracy: None, mean_squared_error: Some(error / count) }
            }
            Some(Targets::NextTokens { .. }) | None => Score { accuracy: None, mean_squared_error: None },
        })
    }
}

/// The predicted class: the index of the largest output, or for a single output whether it is positive.
pub fn class_of(outputs: &[f32]) -> u32 {
    match outputs {
        [only] => u32::from(*only > 0.0),
        _ => {
            let best = (0..outputs.len()).max_by(|&a, &b| outputs[a].total_cmp(&outputs[b]));
            u32::try_from(best.unwrap_or(0)).unwrap_or(u32::MAX)
        }
    }
}
