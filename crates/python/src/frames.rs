//! Data frames as tables: named columns, encoded by a public schema.

use std::path::PathBuf;

use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;
use sordino::{
    Dataset, Error,
    data::{self, DataError, Fields, TableColumn},
    nn::{Inputs, Targets},
};

use crate::{errors::to_python, threads::run_short};

/// A column of a data frame, as `sordino._frames` prepares it.
#[derive(FromPyObject)]
pub(crate) enum Column<'py> {
    Integers(PyReadonlyArray1<'py, i64>),
    Doubles(PyReadonlyArray1<'py, f64>),
    Singles(PyReadonlyArray1<'py, f32>),
    Listed(PyReadonlyArray1<'py, i64>, Vec<String>),
    Texts(Vec<Option<String>>),
}

impl Column<'_> {
    fn fields(self) -> Fields {
        match self {
            Self::Integers(numbers) => Fields::Integers(numbers.as_array().to_vec()),
            Self::Doubles(numbers) => Fields::Doubles(numbers.as_array().to_vec()),
            Self::Singles(numbers) => Fields::Singles(numbers.as_array().to_vec()),
            Self::Listed(places, texts) => Fields::Listed { places: places.as_array().to_vec(), texts },
            Self::Texts(texts) => Fields::Texts(texts),
        }
    }
}

/// The columns of a table, with their names.
pub(crate) type Columns<'py> = Vec<(String, Column<'py>)>;

fn table(columns: Columns<'_>) -> Vec<TableColumn> {
    columns.into_iter().map(|(name, column)| TableColumn { name, fields: column.fields() }).collect()
}

/// The public description of a table.
#[pyclass(frozen, eq, module = "sordino._sordino")]
#[derive(PartialEq)]
pub(crate) struct Schema(data::Schema);

type Arrays<'py> = (Bound<'py, PyArray2<f32>>, Bound<'py, PyArray1<u32>>);

#[pymethods]
impl Schema {
    /// The schema of a TOML file.
    #[staticmethod]
    fn read(path: PathBuf) -> PyResult<Self> {
        data::Schema::read(&path).map(Self).map_err(to_python)
    }

    /// The schema of a TOML text.
    #[staticmethod]
    fn from_toml(text: &str) -> PyResult<Self> {
        data::Schema::parse("schema", text).map(Self).map_err(to_python)
    }

    /// The schema of a JSON text with the same keys.
    #[staticmethod]
    fn from_json(text: &str) -> PyResult<Self> {
        serde_json::from_str(text).map(Self).map_err(|error| {
            let (problem, hint) =
                (error.to_string(), "docs/data.md describes the keys of a schema".to_owned());
            to_python(DataError::Schema { place: "schema".to_owned(), problem, hint })
        })
    }

    /// The schema as a JSON text.
    fn to_json(&self) -> String {
        serde_json::to_string(&self.0).expect("a schema of numbers and texts is JSON")
    }

    /// The name of the target, or None.
    #[getter]
    fn target(&self) -> Option<&str> {
        self.0.target_name()
    }

    /// The public classes of the target, or None if it is not a category.
    #[getter]
    fn classes(&self) -> Option<Vec<String>> {
        self.0.target_classes().map(<[String]>::to_vec)
    }

    /// The number of features of a record.
    #[getter]
    fn features(&self) -> usize {
        self.0.features()
    }

    /// The features of a table as an array with a row for each record. The target is not read and may be absent.
    fn encode<'py>(&self, py: Python<'py>, columns: Columns<'py>) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let (columns, schema) = (table(columns), self.0.clone());
        let records = run_short(py, || Dataset::from_columns_unlabelled(columns, schema))?;
        features(py, &records.map_err(about_the_schema).map_err(to_python)?)
    }

    /// The features of a table, and the index of each record's class in `classes`.
    fn encode_labelled<'py>(&self, py: Python<'py>, columns: Columns<'py>) -> PyResult<Arrays<'py>> {
        let (columns, schema) = (table(columns), self.0.clone());
        let records = run_short(py, || Dataset::from_columns(columns, schema))?.map_err(to_python)?;
        let Some(Targets::Classes(classes)) = records.targets() else {
            return Err(to_python(Error::refused(
                "the target of the schema is not a category",
                "give the target type = \"category\" and values",
            )));
        };
        Ok((features(py, &records)?, classes.to_vec().into_pyarray(py)))
    }
}

/// The features of records without text.
fn features<'py>(py: Python<'py>, records: &Dataset) -> PyResult<Bound<'py, PyArray2<f32>>> {
    match records.inputs() {
        Inputs::Dense(values) => {
            let shape = [records.len(), records.shape().len()];
            PyArray1::from_slice(py, values).reshape(shape)
        }
        _ => Err(to_python(Error::refused(
            "the schema has a column of texts, which cannot be converted to an array",
            "train on a file with the command `sordino train`",
        ))),
    }
}

/// The same error with a hint that applies to training and to prediction.
fn about_the_schema(error: DataError) -> DataError {
    match error {
        DataError::Value { place, permitted, got, .. } => {
            let hint = "correct the value, or describe it in {schema}: unknown = \"ignore\" permits other categories, and missing = 0.0 \
                        replaces missing numbers";
            DataError::Value { place, permitted, got, hint: hint.to_owned() }
        }
        other => other,
    }
}
