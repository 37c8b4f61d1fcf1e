//! The included data.

use numpy::{PyArray1, PyArray2, PyArrayMethods, ToPyArray};
use pyo3::{exceptions::PyValueError, prelude::*};
use sordino::{
    Dataset,
    data::embedded,
    nn::{Inputs, Targets},
};

/// Records and class indices.
type Part<'py> = (Bound<'py, PyArray2<f32>>, Bound<'py, PyArray1<u32>>);

/// The UCI Mushroom data: training records, test records, and the names of the classes.
#[pyfunction]
pub(crate) fn mushroom(
    py: Python<'_>,
    test_fraction: f64,
    split_seed: u64,
) -> PyResult<(Part<'_>, Option<Part<'_>>, Vec<String>)> {
    let refused = |error: sordino::data::DataError| {
        PyValueError::new_err(format!("{error}\nhint: {}", sordino::Hint::new(error.hint())))
    };
    let all = embedded::mushroom().map_err(refused)?;
    let names = all.classes().to_vec();
    let (train, test) = all.split(test_fraction, split_seed).map_err(refused)?;
    Ok((part(py, &train)?, test.map(|test| part(py, &test)).transpose()?, names))
}

fn part<'py>(py: Python<'py>, data: &Dataset) -> PyResult<Part<'py>> {
    match (data.inputs(), data.targets()) {
        (Inputs::Dense(values), Some(Targets::Classes(classes))) => {
            Ok((values.to_pyarray(py).reshape([data.len(), data.shape().len()])?, classes.to_pyarray(py)))
        }
        _ => Err(PyValueError::new_err("the included data is not a table with classes")),
    }
}
