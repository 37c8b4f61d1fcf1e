//! The predictions of a model for test records: exact scores, and the cells of tables.

use serde::{Deserialize, Serialize};
use sordino_data::Dataset;
use sordino_nn::{Engine, Loss, Network, NetworkError, Params, Pass, Targets};

use crate::measurement::{
    Estimate, Layout, Metrics, exact_log_loss, log_odds, residual_weights, token_weights,
};

/// Measures models on test records. [Scores](Self::score) and [tables](Self::table) are exact: for public records only. Protected records are
/// measured through the trusted base.
pub struct Evaluator<'d> {
    engine: Engine,
    data: &'d Dataset,
    loss: Loss,
    /// The slot of each record, and the weight of the record in it. Records of a unit beyond its public maximum have none.
    members: Vec<Option<(usize, f64)>>,
}

/// The records that are evaluated at once. What is kept in memory does not grow with the number of records.
const PIECE: usize = 1 << 14;

/// The score of a model on test records.
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
    /// A 95 % interval for the score; none for an exact score without one.
    #[serde(rename = "test_interval", default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
}

impl Score {
    /// The score that a table gives.
    pub fn estimated(metrics: &Metrics) -> Self {
        let value = |estimate: Option<Estimate>| estimate.map(|estimate| estimate.value);
        Self {
            accuracy: value(metrics.accuracy),
            mean_squared_error: value(metrics.mean_squared_error),
            token_loss: value(metrics.token_loss),
            interval: metrics.headline().map(|headline| [headline.low, headline.high]),
        }
    }
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
        let members = match data.units() {
            None => (0..data.len()).map(|record| Some((record, 1.0))).collect(),
            Some(units) => {
                let mut members = vec![None; data.len()];
                for slot in 0..units.len() {
                    let records = units.members(slot);
                    records
                        .iter()
                        .for_each(|&record| members[record] = Some((slot, 1.0 / records.len() as f64)));
                }
                members
            }
        };
        Ok(Self { engine, data, loss, members })
    }

    /// The number of slots: units of privacy.
    pub fn slots(&self) -> usize {
        self.data.slots()
    }

    /// The layout of a table for these records; none if they have no targets.
    pub fn layout(&self, noise_variance: f64) -> Option<Layout> {
        let targets = self.data.targets()?;
        let (classes, probabilities) = (self.data.classes().len(), self.loss != Loss::Hinge);
        Some(Layout::new(
            &targets,
            self.data.shape(),
            classes,
            probabilities,
            self.slots() as u64,
            noise_variance,
        ))
    }

    /// The exact counts of a model's predictions in each cell of a table.
    ///
    /// # Errors
    /// As for [`score`](Self::score).
    pub fn table(&mut self, params: &Params, layout: &Layout) -> Result<Vec<f64>, NetworkError> {
        let mut counts = vec![0.0; layout.cells()];
        self.tally(params, layout, &mut |_, cell, weight| counts[cell] += weight)?;
        Ok(counts)
    }

    /// Calls `add` with the slot, the cell and the weight of everything that a record adds to a table.
    pub(crate) fn tally(
        &mut self,
        params: &Params,
        layout: &Layout,
        add: &mut dyn FnMut(usize, usize, f64),
    ) -> Result<(), NetworkError> {
        let Some(targets) = self.data.targets() else { return Ok(()) };
        let width = self.engine.network().outputs();
        for first in (0..self.data.len()).step_by(PIECE) {
            let piece: Vec<usize> = (first..self.data.len().min(first + PIECE)).collect();
            let losses = match layout {
                Layout::Tokens { .. } => self.losses(params, targets, &piece)?,
                _ => Vec::new(),
            };
            let outputs = match layout {
                Layout::Tokens { .. } => Vec::new(),
                _ => self.outputs(params, &piece)?,
            };
            for (place, &record) in piece.iter().enumerate() {
                let Some((slot, weight)) = self.members[record] else { continue };
                let mut add = |cell, share: f64| add(slot, cell, weight * share);
                match (layout, &targets) {
                    (Layout::Classes(cells), Targets::Classes(classes)) => {
                        add(cells.cell(classes[record], &outputs[place * width..][..width]), 1.0);
                    }
                    (Layout::Numbers { .. }, Targets::Values { values, width }) => {
                        let pairs = outputs[place * width..].iter().zip(&values[record * width..]);
                        for (z, y) in pairs.take(*width) {
                            for (cell, share) in residual_weights(f64::from(z - y)) {
                                add(cell, share / *width as f64);
                            }
                        }
                    }
                    (Layout::Tokens { largest }, _) => {
                        token_weights(losses[place], *largest)
                            .into_iter()
                            .for_each(|(cell, share)| add(cell, share));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// The exact log loss of a model; none if it has no probabilities of classes.
    ///
    /// # Errors
    /// As for [`score`](Self::score).
    pub(crate) fn log_loss(&mut self, params: &Params) -> Result<Option<Estimate>, NetworkError> {
        let Some(Targets::Classes(classes)) = self.data.targets() else { return Ok(None) };
        if self.loss == Loss::Hinge {
            return Ok(None);
        }
        let (mut records, width) = (Vec::with_capacity(self.data.len()), self.engine.network().outputs());
        for first in (0..self.data.len()).step_by(PIECE) {
            let piece: Vec<usize> = (first..self.data.len().min(first + PIECE)).collect();
            let outputs = self.outputs(params, &piece)?;
            for (record, outputs) in piece.into_iter().zip(outputs.chunks_exact(width)) {
                let (Some((_, weight)), class) = (self.members[record], classes[record]) else { continue };
                records.push((weight, log_odds(outputs, class as usize), class_of(outputs) == class));
            }
        }
        Ok(Some(exact_log_loss(&records, self.slots() as f64)))
    }

    /// Measures a model. Every record counts the same, or every unit if records belong to units.
    ///
    /// # Errors
    /// Parameters of another network; records that cannot be read.
    pub fn score(&mut self, params: &Params) -> Result<Score, NetworkError> {
        let Some(targets) = self.data.targets() else { return Ok(Score::default()) };
        let mut total = 0.0;
        for first in (0..self.data.len()).step_by(PIECE) {
            let piece: Vec<usize> = (first..self.data.len().min(first + PIECE)).collect();
            let scores: Vec<f64> = match targets {
                Targets::Classes(classes) => {
                    let (outputs, width) = (self.outputs(params, &piece)?, self.engine.network().outputs());
                    let pairs = outputs.chunks_exact(width).zip(&classes[first..]);
                    pairs.map(|(outputs, class)| f64::from(u8::from(class_of(outputs) == *class))).collect()
                }
                Targets::Values { values, width } => {
                    let outputs = self.outputs(params, &piece)?;
                    let pairs = outputs.chunks_exact(width).zip(values[first * width..].chunks_exact(width));
                    let squares = |(z, y): (&[f32], &[f32])| {
                        z.iter().zip(y).fold(0.0, |sum, (z, y)| sum + f64::from(z - y).powi(2))
                    };
                    pairs.map(squares).collect()
                }
                Targets::NextTokens { .. } => self.losses(params, targets, &piece)?,
            };
            for (record, score) in piece.into_iter().zip(scores) {
                total += self.members[record].map_or(0.0, |(_, weight)| weight * score);
            }
        }
        let mean = Some(total / self.slots() as f64);
        Ok(match targets {
            Targets::Classes(_) => Score { accuracy: mean, ..Score::default() },
            Targets::Values { .. } => Score { mean_squared_error: mean, ..Score::default() },
            Targets::NextTokens { .. } => Score { token_loss: mean, ..Score::default() },
        })
    }

    fn losses(
        &mut self,
        params: &Params,
        targets: Targets<'_>,
        chosen: &[usize],
    ) -> Result<Vec<f64>, NetworkError> {
        let records = self.engine.records(self.data.inputs(), targets)?;
        let mut unused = [vec![0.0; params.values().len()]];
        Ok(self.engine.pass(&Pass::new(params, &records, chosen), &mut unused)?.losses)
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
