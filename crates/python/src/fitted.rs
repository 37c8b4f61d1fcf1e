//! A trained model and its predictions.

use std::{collections::BTreeMap, path::PathBuf};

use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayDyn, PyArrayMethods};
use pyo3::{prelude::*, types::PyDict};
use sordino::{Dataset, Error, Fitted, GuaranteeStatus, Prediction};

use crate::{
    arrays::Data,
    errors::to_python,
    threads::{run_short, run_unwatched},
    training::number,
};

/// A trained model with its guarantee.
#[pyclass(frozen, name = "Fitted", module = "sordino._sordino")]
pub(crate) struct Model {
    pub(crate) fitted: Fitted,
    /// The scores during training, by step; empty if the model was read from a file.
    pub(crate) history: BTreeMap<u64, f64>,
}

#[pymethods]
impl Model {
    /// Reads a model that `save` wrote.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Ok(run_short(py, || Fitted::load(path))?.map_err(to_python)?.into())
    }

    /// Opens the model in a run folder, after checking the files.
    #[staticmethod]
    fn open(py: Python<'_>, folder: PathBuf) -> PyResult<Self> {
        Ok(run_short(py, || Fitted::open(folder))?.map_err(to_python)?.into())
    }

    /// Writes the model to one safetensors file.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.fitted.save(path)).map_err(to_python)
    }

    /// The index of the predicted class of each record.
    fn predict_classes<'py>(&self, py: Python<'py>, data: &Data) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let class = |prediction| match prediction {
            Prediction::Class { class, .. } => Some(class as u32),
            _ => None,
        };
        Ok(self.predicted(py, data, class)?.into_pyarray(py))
    }

    /// The probability of each class, for each record.
    fn predict_proba<'py>(&self, py: Python<'py>, data: &Data) -> PyResult<Bound<'py, PyArray2<f64>>> {
        if !self.fitted.has_probabilities() {
            return Err(to_python(Error::refused(
                "this model has no probabilities",
                "use predict, or train with {loss=logistic}",
            )));
        }
        let probabilities = |prediction| match prediction {
            Prediction::Class { probabilities, .. } => Some(probabilities),
            _ => None,
        };
        self.table(py, self.predicted(py, data, probabilities)?, self.fitted.classes().len())
    }

    /// The predicted targets of each record, in the units of the targets.
    fn predict_values<'py>(&self, py: Python<'py>, data: &Data) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let numbers = |prediction| match prediction {
            Prediction::Numbers(numbers) => Some(numbers),
            _ => None,
        };
        self.table(py, self.predicted(py, data, numbers)?, self.fitted.facts().numbers.len())
    }

    /// The parameters by name.
    fn parameters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (parameters, params) = (PyDict::new(py), self.fitted.params());
        for slice in params.layout().slices() {
            let values = PyArray1::from_slice(py, &params.values()[slice.range.clone()]);
            let values: Bound<'py, PyArrayDyn<f32>> = values.reshape(slice.shape.as_slice())?;
            parameters.set_item(&slice.name, values)?;
        }
        Ok(parameters)
    }

    /// The names of the classes; empty for regression.
    #[getter]
    fn classes(&self) -> Vec<String> {
        self.fitted.classes().to_vec()
    }

    /// The number of targets of a regression; 0 for classification.
    #[getter]
    fn outputs(&self) -> usize {
        self.fitted.facts().numbers.len()
    }

    /// The shape of a record: `[features]` or `[channels, height, width]`.
    #[getter]
    fn input_shape(&self) -> Vec<usize> {
        match self.fitted.facts().input {
            sordino::Shape::Features(features) => vec![features],
            sordino::Shape::Image { channels, height, width } => vec![channels, height, width],
            sordino::Shape::Sequence { steps, width } => vec![steps, width],
            sordino::Shape::Tokens { steps, .. } => vec![steps],
        }
    }

    /// How the records were made, as JSON; None if it is not known.
    #[getter]
    fn preparation(&self) -> Option<String> {
        let preparation = self.fitted.facts().preparation.as_ref()?;
        serde_json::to_string(preparation).ok()
    }

    /// The score on the test records, if there were any.
    #[getter]
    fn score(&self) -> Option<f64> {
        self.fitted.test_score().and_then(number)
    }

    /// The scores that were measured during training, each with the number of steps taken.
    #[getter]
    fn history(&self) -> Vec<(u64, f64)> {
        self.history.iter().map(|(step, score)| (*step, *score)).collect()
    }

    /// Whether training took all steps of its plan.
    #[getter]
    fn finished(&self) -> bool {
        self.fitted.is_finished()
    }

    /// The proved epsilon; None if the model is not private.
    #[getter]
    fn epsilon(&self) -> Option<f64> {
        self.fitted.guarantee().epsilon().map(f64::from)
    }

    /// The delta; None if the model is not private.
    #[getter]
    fn delta(&self) -> Option<f64> {
        self.fitted.guarantee().delta().map(f64::from)
    }

    /// The reason why the model is not private; None if it is private.
    #[getter]
    fn not_private_because(&self) -> Option<&str> {
        match self.fitted.guarantee().status() {
            GuaranteeStatus::NotPrivate(why) => Some(why),
            GuaranteeStatus::Private { .. } => None,
        }
    }

    /// The statement of the guarantee.
    #[getter]
    fn statement(&self) -> String {
        self.fitted.guarantee().to_string()
    }

    /// The details of the guarantee, as JSON.
    #[getter]
    fn facts(&self) -> &str {
        self.fitted.guarantee().to_json()
    }
}

impl From<Fitted> for Model {
    fn from(fitted: Fitted) -> Self {
        Self { fitted, history: BTreeMap::new() }
    }
}

impl Model {
    /// The part of each prediction that `take` selects.
    fn predicted<T: Send>(
        &self,
        py: Python<'_>,
        data: &Data,
        take: impl Fn(Prediction) -> Option<T> + Sync,
    ) -> PyResult<Vec<T>> {
        let predict = || {
            self.check_encoding(&data.dataset)?;
            let predictions = self.fitted.predictions(&data.dataset)?;
            let taken = predictions.into_iter().enumerate().map(|(record, prediction)| match prediction {
                Prediction::NotFinite => Err(Error::refused(
                    format!("x[{record}]: the outputs of the model are not finite"),
                    "the record has extreme values, or training has diverged: try a smaller {learning_rate}",
                )),
                prediction => take(prediction).ok_or_else(|| {
                    Error::refused(
                        "the model does not have this kind of prediction",
                        "a classifier predicts classes, and a regressor predicts numbers",
                    )
                }),
            });
            taken.collect::<Result<Vec<T>, Error>>()
        };
        run_unwatched(py, data.dataset.len(), predict)?.map_err(to_python)
    }

    /// Checks that pixels have the same scale as in the training records.
    fn check_encoding(&self, data: &Dataset) -> Result<(), Error> {
        use sordino::data::Encoding::Bytes;
        let hint = match (self.fitted.facts().encoding, data.encoding()) {
            (Bytes, Bytes) => return Ok(()),
            (Bytes, _) => "give the pixels as uint8, from 0 to 255",
            (_, Bytes) => "give the pixels as float32, in the scale of the training records",
            _ => return Ok(()),
        };
        let (here, there) = (data.encoding(), self.fitted.facts().encoding);
        Err(Error::refused(format!("x has {here}; the training records have {there}"), hint))
    }

    fn table<'py>(
        &self,
        py: Python<'py>,
        rows: Vec<Vec<f64>>,
        width: usize,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let count = rows.len();
        rows.concat().into_pyarray(py).reshape([count, width])
    }
}
