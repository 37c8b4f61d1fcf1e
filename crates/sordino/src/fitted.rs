//! A trained model and its predictions.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sordino_data::{Dataset, Labels, Preparation};
use sordino_nn::{Description, Engine, Loss, Params, pretrained::Export};
use sordino_train::{
    DataFacts, Evaluator, LossName, Metrics, PoolingName, Provable, PublicModel, ResolvedModel, RunFiles,
    RunFolder, Score, Settings, class_of, inspect, read_published_noise, read_weights, temperature,
    verified_settings, write_weights,
};

use crate::{Error, Guarantee, report::RunReport};

/// A trained model with its guarantee.
///
/// Its predictions for any records, private or not, are computed from the released weights, so they reveal no more about the training
/// records than the guarantee permits. They may reveal the records that are predicted.
#[derive(Debug, Clone)]
pub struct Fitted {
    pub(crate) recipe: ModelRecipe,
    pub(crate) model: ResolvedModel,
    pub(crate) params: Params,
    pub(crate) facts: DataFacts,
    pub(crate) guarantee: Guarantee,
    pub(crate) test_score: Option<Score>,
    pub(crate) metrics: Option<Metrics>,
    /// The outputs are divided by it before they become probabilities.
    pub(crate) temperature: f64,
    pub(crate) finished: bool,
    pub(crate) weights_covered: bool,
}

/// How to build the network again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ModelRecipe {
    name: String,
    hidden: Option<Vec<usize>>,
    network: Option<Description>,
    #[serde(default)]
    loss: Option<LossName>,
    #[serde(default)]
    train: Option<String>,
    #[serde(default)]
    encoder: Option<PathBuf>,
    #[serde(default)]
    features: Option<String>,
    #[serde(default)]
    pooling: Option<PoolingName>,
    /// The files of the public model, with their hashes.
    #[serde(default)]
    public_model: Option<String>,
}

impl ModelRecipe {
    /// The recipe of a run with these settings, which stores its network as this text.
    pub(crate) fn new(settings: &Settings, files: &RunFiles) -> Result<Self, Error> {
        let network = files.network.as_deref().map(toml::from_str).transpose();
        Ok(Self {
            name: settings.model.clone().unwrap_or_else(|| "logistic".to_owned()),
            hidden: settings.hidden.clone(),
            network: network.map_err(|error| Error::refused(error.to_string(), "restore network.toml"))?,
            loss: settings.loss,
            train: settings.train.clone(),
            encoder: settings.encoder.clone(),
            features: settings.features.clone(),
            pooling: settings.pooling,
            public_model: files.public_model.clone(),
        })
    }

    /// Whether the network can be built again from the recipe. A network with custom layers, which are Rust code, cannot.
    fn is_complete(&self) -> bool {
        self.network.is_some() || self.name != RunFiles::NETWORK
    }

    fn model(&self, facts: &DataFacts) -> Result<ResolvedModel, Error> {
        let settings = Settings {
            model: self.network.is_none().then(|| self.name.clone()),
            hidden: self.hidden.clone(),
            loss: self.loss,
            train: self.train.clone(),
            encoder: self.encoder.clone(),
            features: self.features.clone(),
            pooling: self.pooling,
            ..Settings::default()
        };
        let model = match &self.network {
            Some(network) => ResolvedModel::described_with(network.clone(), &settings, facts)?,
            None => ResolvedModel::from_settings(&settings, facts)?.1,
        };
        if model.public().map(PublicModel::listing) != self.public_model {
            return Err(Error::refused(
                "the public model that this model builds on has changed",
                "restore its files; the statement has their paths and hashes",
            ));
        }
        Ok(model)
    }
}

/// The prediction for one record.
#[derive(Debug, Clone, PartialEq)]
pub enum Prediction {
    /// A class.
    Class {
        /// The number of the class.
        class: usize,
        /// The probability of each class; empty for a model that [has none](Fitted::has_probabilities).
        probabilities: Vec<f64>,
    },
    /// Numbers, in the units of the targets.
    Numbers(Vec<f64>),
    /// The outputs of the model are not finite.
    NotFinite,
}

impl Fitted {
    /// The privacy guarantee of the model.
    pub fn guarantee(&self) -> &Guarantee {
        &self.guarantee
    }

    /// The score on the test records that were given for training, if there were any.
    pub fn test_score(&self) -> Option<Score> {
        self.test_score
    }

    /// All metrics on these test records, each with an interval, if they were measured at the end of training.
    pub fn metrics(&self) -> Option<&Metrics> {
        self.metrics.as_ref()
    }

    /// The temperature: the outputs of the model are divided by it before they become probabilities. It was fitted to what was measured
    /// on the test records, and is 1 if nothing was measured or no temperature improves the log loss.
    pub fn temperature(&self) -> f64 {
        self.temperature
    }

    /// Whether the plan of the run is finished. If not, training was stopped.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether the weights were checked against a hash. Runs of earlier versions have no hash.
    pub fn weights_are_covered(&self) -> bool {
        self.weights_covered
    }

    /// The public facts about the records that the model reads.
    pub fn facts(&self) -> &DataFacts {
        &self.facts
    }

    /// The parameters.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The names of the classes; empty for regression.
    pub fn classes(&self) -> &[String] {
        &self.facts.classes
    }

    /// Whether it predicts the probability of each class. A model with the hinge loss does not, nor does one that predicts numbers or
    /// tokens.
    pub fn has_probabilities(&self) -> bool {
        !self.facts.classes.is_empty() && self.model.loss != Loss::Hinge
    }

    /// The score on labelled records. The result is exact, so it does not protect these records: use public ones.
    ///
    /// # Errors
    /// Records that do not fit the model.
    pub fn score(&self, data: &Dataset) -> Result<Score, Error> {
        self.check_shape(data)?;
        if data.targets().is_none() {
            return Err(Error::refused("the records have no labels", "give labelled records"));
        }
        self.facts.check_labels(data, "the records", "the model")?;
        let encoded = self.model.encode(data)?;
        let data = encoded.as_ref().unwrap_or(data);
        Ok(Evaluator::new(self.model.network()?, self.model.loss, data)?.score(&self.params)?)
    }

    /// The name of the predicted class of each row. If the training records were normalised images, the rows are normalised in the same way.
    ///
    /// # Errors
    /// Rows of another length, values that are not finite, or a model that predicts numbers.
    pub fn predict<R: AsRef<[f32]>>(&self, rows: &[R]) -> Result<Vec<String>, Error> {
        Ok(self.predict_classes(rows)?.into_iter().map(|class| self.facts.classes[class].clone()).collect())
    }

    /// The number of the predicted class of each row, from 0.
    ///
    /// # Errors
    /// As for [`predict`](Self::predict).
    pub fn predict_classes<R: AsRef<[f32]>>(&self, rows: &[R]) -> Result<Vec<usize>, Error> {
        self.predictions_of_rows(rows)?.into_iter().map(|(class, _)| Ok(class)).collect()
    }

    /// The probability of each class, for each row.
    ///
    /// # Errors
    /// As for [`predict`](Self::predict), and a model with the hinge loss.
    pub fn predict_proba<R: AsRef<[f32]>>(&self, rows: &[R]) -> Result<Vec<Vec<f64>>, Error> {
        if self.model.loss == Loss::Hinge {
            return Err(Error::refused(
                "a model with the hinge loss has no probabilities",
                "use predict, or train with {loss=logistic}",
            ));
        }
        Ok(self.predictions_of_rows(rows)?.into_iter().map(|(_, probabilities)| probabilities).collect())
    }

    /// The predicted numbers of each row, in the units of the targets.
    ///
    /// # Errors
    /// Rows of another length, values that are not finite, or a model that predicts classes.
    pub fn predict_values<R: AsRef<[f32]>>(&self, rows: &[R]) -> Result<Vec<Vec<f64>>, Error> {
        if self.facts.numbers.is_empty() {
            return Err(Error::refused("the model predicts classes, not numbers", "use predict"));
        }
        let value = |(row, prediction)| match prediction {
            Prediction::Numbers(numbers) => Ok(numbers),
            _ => Err(not_finite(row)),
        };
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        self.predictions(&self.records(rows)?)?.into_iter().enumerate().map(value).collect()
    }

    /// The prediction for each record of a data set. Labels are ignored.
    ///
    /// # Errors
    /// Records of a different shape; a language model, for which there is [`continuations`](Self::continuations).
    pub fn predictions(&self, data: &Dataset) -> Result<Vec<Prediction>, Error> {
        if self.is_language_model() {
            return Err(Error::refused(
                "the model is a language model, which predicts the next token",
                "use Fitted::continuations",
            ));
        }
        self.check_shape(data)?;
        let encoded = self.model.encode(data)?;
        let data = encoded.as_ref().unwrap_or(data);
        let mut engine = Engine::new(self.model.network()?, self.model.loss)?;
        let inputs = engine.unlabelled(data.inputs())?;
        let width = engine.network().outputs();
        let mut predictions = Vec::with_capacity(data.len());
        // In pieces, so that the outputs of all records are not in memory at once.
        for first in (0..data.len()).step_by(1 << 14) {
            let piece: Vec<usize> = (first..data.len().min(first + (1 << 14))).collect();
            let outputs = engine.outputs(&self.params, &inputs, &piece)?;
            predictions.extend(outputs.chunks_exact(width).map(|outputs| self.prediction(outputs)));
        }
        Ok(predictions)
    }

    fn prediction(&self, outputs: &[f32]) -> Prediction {
        if outputs.iter().any(|output| !output.is_finite()) {
            return Prediction::NotFinite;
        }
        if self.facts.numbers.is_empty() {
            let probabilities =
                if self.has_probabilities() { probabilities(outputs, self.temperature) } else { Vec::new() };
            return Prediction::Class { class: class_of(outputs) as usize, probabilities };
        }
        let numbers = outputs.iter().zip(&self.facts.numbers).map(|(z, scale)| scale.undo(*z));
        Prediction::Numbers(numbers.collect())
    }

    fn predictions_of_rows<R: AsRef<[f32]>>(&self, rows: &[R]) -> Result<Vec<(usize, Vec<f64>)>, Error> {
        if self.facts.classes.is_empty() {
            return Err(Error::refused("the model predicts numbers, not classes", "use predict_values"));
        }
        let class = |(row, prediction)| match prediction {
            Prediction::Class { class, probabilities } => Ok((class, probabilities)),
            _ => Err(not_finite(row)),
        };
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        self.predictions(&self.records(rows)?)?.into_iter().enumerate().map(class).collect()
    }

    /// Rows as records of the shape that the model reads.
    fn records<R: AsRef<[f32]>>(&self, rows: &[R]) -> Result<Dataset, Error> {
        let width = self.facts.input.len();
        if let Some((row, values)) = rows.iter().enumerate().find(|(_, row)| row.as_ref().len() != width) {
            return Err(Error::refused(
                format!("row {row} has {} values, but the model reads {width}", values.as_ref().len()),
                "give rows like those that the model was trained on",
            ));
        }
        let not_finite = |row: &R| row.as_ref().iter().position(|value| !value.is_finite());
        if let Some((row, place)) =
            rows.iter().enumerate().find_map(|(row, values)| Some((row, not_finite(values)?)))
        {
            return Err(Error::refused(
                format!(
                    "row {row}, value {place}: must be a finite number, got {}",
                    rows[row].as_ref()[place]
                ),
                "replace it by a public constant such as 0, as in the training records",
            ));
        }
        let values = rows.iter().flat_map(|row| row.as_ref().iter().copied()).collect();
        let records = Dataset::from_flat(values, self.facts.input, Labels::none())?;
        Ok(records.normalised_by(&self.facts.normalisation)?)
    }

    /// Checks that the records have the shape and the normalisation of the training records.
    pub(crate) fn check_shape(&self, data: &Dataset) -> Result<(), Error> {
        if data.shape() != self.facts.input {
            return Err(Error::refused(
                format!(
                    "the records have the shape {}, but the model reads {}",
                    data.shape(),
                    self.facts.input
                ),
                "give records like those that the model was trained on",
            ));
        }
        if data.normalisation() != self.facts.normalisation {
            let described = |normalisation: &[(f64, f64)]| match normalisation {
                [] => "not normalised".to_owned(),
                channels => format!("normalised by the (mean, std) {channels:?} of each channel"),
            };
            return Err(Error::refused(
                format!(
                    "the images are {}, but those of the training records are {}",
                    described(data.normalisation()),
                    described(&self.facts.normalisation)
                ),
                "read them with the {mean} and {std} of Fitted::facts",
            ));
        }
        Ok(())
    }

    /// Writes the model to one safetensors file: weights, facts about the data, and the guarantee.
    ///
    /// # Errors
    /// A file that cannot be written; a network with custom layers.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        if !self.recipe.is_complete() {
            return Err(Error::refused(
                "a network with own layers cannot be saved: the layers are Rust code",
                "store Fitted::params, and describe the network in Rust again to use them",
            ));
        }
        let notes = [
            ("model", json(&self.recipe)),
            ("facts", json(&self.facts)),
            ("guarantee", self.guarantee.to_string()),
            ("guarantee_json", json(&self.guarantee)),
            ("test_score", json(&self.test_score)),
            ("metrics", json(&self.metrics)),
            ("temperature", json(&self.temperature)),
            ("finished", self.finished.to_string()),
        ];
        let notes = notes.into_iter().map(|(name, note)| (name.to_owned(), note)).collect();
        write_weights(path.as_ref(), &self.params, notes).map_err(|error| {
            Error::refused(error.to_string(), "give a file in a folder that exists and can be written")
        })
    }

    /// Writes a model that builds on a [pre-trained one](crate::Model::pretrained) into a new folder, with the names and shapes that
    /// Hugging Face uses: the whole model with adapters merged, or the adapters alone.
    ///
    /// # Errors
    /// A model that does not build on a pre-trained one; a folder that exists or cannot be written; adapters, if there are none.
    pub fn export(&self, folder: impl AsRef<Path>, how: Export) -> Result<(), Error> {
        match self.model.public() {
            Some(public) => public.export(&self.params, folder.as_ref(), how),
            None => Err(Error::refused(
                "the model does not build on a pre-trained model",
                "its weights are a safetensors file: model.safetensors of the run",
            )),
        }
    }

    /// Reads a model that [`save`](Self::save) wrote, and checks that the file was not changed by accident. It is not checked against a
    /// ledger: for that check, store the run in a folder and use [`open`](Self::open).
    ///
    /// # Errors
    /// A file that is incomplete, was changed, or was not written by `save`.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let hint = "give a file that Fitted::save has written, or restore it from a copy; Fitted::open reads the folder of a run";
        let (bytes, notes) = read_weights(path).map_err(|error| Error::refused(error.to_string(), hint))?;
        let (recipe, facts): (ModelRecipe, DataFacts) =
            (note(path, &notes, "model")?, note(path, &notes, "facts")?);
        let model = recipe.model(&facts)?;
        Ok(Self {
            params: Params::from_safetensors(model.network()?.layout().clone(), &bytes)?,
            guarantee: note(path, &notes, "guarantee_json")?,
            test_score: note(path, &notes, "test_score")?,
            // Earlier versions have neither.
            metrics: note(path, &notes, "metrics").unwrap_or_default(),
            temperature: note(path, &notes, "temperature").unwrap_or(1.0),
            finished: note(path, &notes, "finished")?,
            weights_covered: true,
            recipe,
            model,
            facts,
        })
    }

    /// Opens the model in the folder of a run, after checking that its ledger, settings and weights agree.
    ///
    /// # Errors
    /// Files that are missing or were changed.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, Error> {
        let folder = RunFolder::open(folder.as_ref())?;
        let inspection = inspect(&folder)?;
        let settings = verified_settings(&folder, &inspection.account)?;
        let facts = DataFacts::read(&folder)?;
        let files = RunFiles::read(&folder)?;
        let recipe = ModelRecipe::new(&settings, &files)?;
        let model = recipe.model(&facts)?;
        let report = RunReport {
            settings: &settings,
            account: &inspection.account,
            score: inspection.score,
            metrics: inspection.metrics.as_ref(),
            seconds: inspection.seconds,
            folder: Some(folder.path()),
            facts: Some(&facts),
            weights_covered: inspection.weights_covered,
            provable: Provable::read(&folder),
            published_noise: read_published_noise(&folder),
            data: None,
        };
        let guarantee = Guarantee::new(&report)?;
        // A model that is saved elsewhere keeps the schema.
        let by_schema = |schema| Preparation { schema: Some(schema), ..Preparation::default() };
        let preparation = facts.preparation.clone().or(files.schema.map(by_schema));
        Ok(Self {
            params: Params::load(model.network()?.layout().clone(), &folder.model())?,
            guarantee,
            test_score: inspection.score,
            metrics: inspection.metrics,
            temperature: temperature(&folder)?,
            finished: inspection.account.is_closed(),
            weights_covered: inspection.weights_covered,
            recipe,
            model,
            facts: DataFacts { preparation, ..facts },
        })
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("numbers and strings are JSON")
}

fn note<T: for<'de> Deserialize<'de>>(
    path: &Path,
    notes: &HashMap<String, String>,
    name: &str,
) -> Result<T, Error> {
    let refused = |problem: String| {
        Error::refused(
            format!("{}: {problem}", path.display()),
            "give a file that Fitted::save of this version has written",
        )
    };
    let text = notes.get(name).ok_or_else(|| refused(format!("the note {name} is missing")))?;
    serde_json::from_str(text).map_err(|error| refused(format!("{name}: {error}")))
}

fn not_finite(row: usize) -> Error {
    Error::refused(
        format!("row {row}: the outputs of the model are not finite"),
        "the row has extreme values, or training has diverged: try a smaller {learning_rate}",
    )
}

/// A probability for each class: the softmax, or the logistic function if there is one output, of the outputs divided by a temperature.
fn probabilities(outputs: &[f32], temperature: f64) -> Vec<f64> {
    let divided = |output: &f32| f64::from(*output) / temperature;
    let outputs: Vec<f64> = match outputs {
        [only] => vec![0.0, divided(only)],
        _ => outputs.iter().map(divided).collect(),
    };
    let greatest = outputs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let odds: Vec<f64> = outputs.iter().map(|output| (output - greatest).exp()).collect();
    let sum: f64 = odds.iter().sum();
    odds.into_iter().map(|odds| odds / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_keep_their_order_and_sum_to_one() {
        assert_eq!(probabilities(&[0.0], 1.0), [0.5, 0.5]);
        let wide = probabilities(&[-1000.0, 0.0, 1000.0], 1.0);
        assert_eq!(wide, [0.0, 0.0, 1.0]);
        let close = probabilities(&[1.0, 1.000_000_1, 0.5], 1.0);
        assert!(close[1] > close[0] && close[0] > close[2]);
        assert!((close.iter().sum::<f64>() - 1.0).abs() < 1e-15);
        // A temperature keeps the order and moves probabilities toward each other.
        assert_eq!(probabilities(&[2.0], 2.0), probabilities(&[1.0], 1.0));
        assert!(probabilities(&[1.0, 3.0], 4.0)[1] < probabilities(&[1.0, 3.0], 1.0)[1]);
        // A very small probability is not rounded to 0.
        assert!(probabilities(&[-40.0], 1.0)[1] > 0.0 && probabilities(&[40.0], 1.0)[0] > 0.0);
    }
}
