//! Numbers from Python: a number or an array of numbers. Each number is checked once.

use numpy::{
    IntoPyArray, PyArray1, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::{
    exceptions::{PyOverflowError, PyTypeError},
    prelude::*,
    types::{PyByteArray, PyBytes, PyFloat, PyString},
};
use sordino::{
    Error,
    accounting::{AccountingError, Steps},
};

use crate::errors::to_python;

/// One number, or several numbers.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Numbers<T> {
    One(T),
    Many(Vec<T>),
}

impl<T: Copy> Numbers<T> {
    /// The number for this setting.
    pub(super) fn at(&self, index: usize) -> T {
        match self {
            Self::One(value) => *value,
            Self::Many(values) => values[index],
        }
    }

    /// The length, if there are several numbers.
    pub(super) fn len(&self) -> Option<usize> {
        match self {
            Self::One(_) => None,
            Self::Many(values) => Some(values.len()),
        }
    }

    pub(super) fn as_slice(&self) -> &[T] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }

    /// Applies a check to every number.
    pub(super) fn checked<U>(
        self,
        check: impl Fn(T) -> Result<U, AccountingError>,
    ) -> Result<Numbers<U>, AccountingError> {
        Ok(match self {
            Self::One(value) => Numbers::One(check(value)?),
            Self::Many(values) => Numbers::Many(values.into_iter().map(check).collect::<Result<_, _>>()?),
        })
    }
}

impl Numbers<f64> {
    /// A number, or a one-dimensional array or list of numbers.
    pub(super) fn read(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        let text = value.is_instance_of::<PyString>()
            || value.is_instance_of::<PyBytes>()
            || value.is_instance_of::<PyByteArray>();
        // Arrays without dimensions have no length.
        if text || value.len().is_err() {
            return number(name, value).map(Self::One);
        }
        let numpy = value.py().import("numpy")?;
        let array = numpy.call_method1("asarray", (value,)).map_err(|error| {
            let problem = format!("{name} must be a number or an array of numbers: {error}");
            to_python(Error::refused(problem, "give one number for each setting"))
        })?;
        let array = array.cast_into::<PyUntypedArray>()?;
        if !b"fiu".contains(&array.dtype().kind()) && array.len() > 0 {
            let got = format!("{name} must be a number or an array of numbers, got {}", array.dtype());
            return Err(PyTypeError::new_err(got));
        }
        if array.ndim() != 1 || array.len() == 0 {
            return Err(to_python(Error::refused(
                format!(
                    "{name} must be a number or a one-dimensional array of at least one number, got shape {:?}",
                    array.shape()
                ),
                "give one number for each setting",
            )));
        }
        let array = numpy.call_method1("ascontiguousarray", (array, "float64"))?;
        Ok(Self::Many(array.cast_into::<PyArray1<f64>>()?.readonly().as_slice()?.to_vec()))
    }

    /// A float, or an array.
    pub(super) fn into_python(self, py: Python<'_>) -> Bound<'_, PyAny> {
        match self {
            Self::One(value) => PyFloat::new(py, value).into_any(),
            Self::Many(values) => values.into_pyarray(py).into_any(),
        }
    }
}

/// A single number. Arrays are refused.
pub(super) fn number(name: &str, value: &Bound<'_, PyAny>) -> PyResult<f64> {
    value.extract::<f64>().map_err(|error| match error.is_instance_of::<PyOverflowError>(value.py()) {
        true => to_python(Error::refused(
            format!("{name} must be a number, got a number above 1e308"),
            "give a smaller number",
        )),
        false => PyTypeError::new_err(format!("{name} must be a number, got {}", value.get_type())),
    })
}

/// A whole number, which may be given as a float.
pub(super) fn whole(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    whole_number(number(name, value)?).ok_or_else(|| {
        to_python(Error::refused(
            format!("{name} must be a whole number from 0 to 2^53, got {value}"),
            "docs/plans.md describes the kinds of sampling and their parameters",
        ))
    })
}

/// A number of steps, which may be given as a float.
pub(super) fn steps(value: f64) -> Result<Steps, AccountingError> {
    // Parsing the text of any other number fails with the error message for steps.
    whole_number(value).map_or_else(|| value.to_string().parse(), Steps::new)
}

fn whole_number(value: f64) -> Option<u64> {
    let whole = value.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&value);
    whole.then_some(value as u64)
}
