//! Measurements on public records.

use serde::{Deserialize, Serialize};
use sordino_data::Dataset;
use sordino_nn::{Engine, Loss, Network, NetworkError, Params, Pass, Targets};

/// Measures models on public records.
pub struct Evaluator<'d> {
    engine: Engine,
    data: &'d Dataset,
}

/// The records that are evaluated at once. What is kept in memory does not grow with the number of records.
const PIECE: usize = 1 << 14;

/// The score of a model on public records.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Score {
    /// The fraction of records whose class is predicted correctly; for classification.
    #[serde(rename = "test_accuracy")]
    pub accuracy: Option<f64>,
    /// The mean squared error; for regression.
    #[serde(rename = "test_mean_squared_error", default, skip_serializing_if = "Option::is_none")]
    pub mean_squared_error: Option<f64>,
    /// The mean over records of their mean cross-entropy per predicted token; for language models.
    #[serde(rename = "test_token_loss", default, skip_serializing_if = "Option::is_none")]
    pub token_loss: Option<f64>,
}

impl Score {
    /// One number to compare models by, larger for better ones: the accuracy, or an error or a loss with a minus sign.
    pub fn to_compare(&self) -> f64 {
        let loss = self.mean_squared_error.or(self.token_loss);
        self.accuracy.or(loss.map(|loss| -loss)).unwrap_or(f64::NAN)
    }
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
        Ok(Self { engine, data })
    }

    /// Measures a model.
    ///
    /// # Errors
    /// Parameters of another network; records that cannot be read.
    pub fn score(&mut self, params: &Params) -> Result<Score, NetworkError> {
        let (mut correct, mut error, mut loss) = (0_usize, 0.0, 0.0);
        for first in (0..self.data.len()).step_by(PIECE) {
            let piece: Vec<usize> = (first..self.data.len().min(first + PIECE)).collect();
            match self.data.targets() {
                Some(Targets::Classes(classes)) => {
                    let (outputs, width) = (self.outputs(params, &piece)?, self.engine.network().outputs());
                    let pairs = outputs.chunks_exact(width).zip(&classes[first..]);
                    correct += pairs.filter(|(outputs, class)| class_of(outputs) == **class).count();
                }
                Some(Targets::Values { values, width }) => {
                    let outputs = self.outputs(params, &piece)?;
                    let pairs = outputs.iter().zip(&values[first * width..]);
                    error = pairs.fold(error, |error, (z, y)| error + f64::from(z - y).powi(2));
                }
                Some(targets @ Targets::NextTokens { .. }) => {
                    let records = self.engine.records(self.data.inputs(), targets)?;
                    let mut unused = [vec![0.0; params.values().len()]];
                    let outcome = self.engine.pass(&Pass::new(params, &records, &piece), &mut unused)?;
                    loss += outcome.losses.iter().sum::<f64>();
                }
                None => {}
            }
        }
        let count = self.data.len() as f64;
        Ok(match self.data.targets() {
            Some(Targets::Classes(_)) => Score { accuracy: Some(correct as f64 / count), ..Score::default() },
            Some(Targets::Values { .. }) => {
                Score { mean_squared_error: Some(error / count), ..Score::default() }
            }
            Some(Targets::NextTokens { .. }) => Score { token_loss: Some(loss / count), ..Score::default() },
            None => Score::default(),
        })
    }

    fn outputs(&mut self, params: &Params, chosen: &[usize]) -> Result<Vec<f32>, NetworkError> {
        let inputs = self.engine.unlabelled(self.data.inputs())?;
        self.engine.outputs(params, &inputs, chosen)
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
