//! The class `Step`: an entry of a plan. Its keyword arguments are the keys of plan files.

use pyo3::{
    IntoPyObjectExt,
    exceptions::PyTypeError,
    prelude::*,
    types::{PyDict, PyString, PyTuple},
};
use sordino::accounting::{Entry, EntryText, NoiseMultiplier, SamplingKind, SamplingRate, Steps};

use super::{
    numbers::{Numbers, number, steps, whole},
    price::shown,
};
use crate::errors::to_python;

/// Identical steps of a plan: how records are sampled, and how much noise is added.
///
/// Parameters
/// ----------
/// noise_multiplier : float or list of float
///     Standard deviation of the noise on each sum, divided by the clipping norm. A list means several releases from the *same* batch.
///     For a schedule with a different noise multiplier for each step, see `Plan.from_multipliers`.
/// sample_rate : float, optional
///     Probability that a record is in a batch.
/// steps : int
///     Number of steps.
/// sampling : str
///     ``"poisson"`` (with `sample_rate`), ``"fixed-size"`` (with `batch_size` and `population`), ``"full-batch"``, ``"rotating"`` (with
///     `sample_rate` and `groups`) or ``"stateful"`` (with `sample_rate` and `later_shift`).
/// batch_size, population, max_batch_size, groups : int, optional
///     Parameters of the kinds of sampling. `max_batch_size` with `population` limits the size of Poisson batches.
/// later_shift : float, optional
///     How far a record can shift later releases, as a multiple of the sensitivity.
///
/// Examples
/// --------
/// >>> import sordino
/// >>> step = sordino.Step(noise_multiplier=1.1, sample_rate=0.01, steps=1000)
/// >>> step
/// Step(noise_multiplier=1.1, sample_rate=0.01, steps=1000)
/// >>> sordino.Step(sampling="fixed-size", noise_multiplier=4.0, batch_size=600, population=60_000, steps=10).batch_size
/// 600
#[pyclass(frozen, eq, module = "sordino")]
#[derive(PartialEq)]
pub(crate) struct Step(pub(super) Entry);

/// Reads the kind of sampling and its parameters: the common keyword arguments of `Step` and the functions of this module.
pub(super) fn sampling_keys(function: &str, keywords: Option<&Bound<'_, PyDict>>) -> PyResult<EntryText> {
    let mut text = EntryText {
        sampling: SamplingKind::default(),
        noise_multiplier: Vec::new(),
        sample_rate: None,
        batch_size: None,
        max_batch_size: None,
        population: None,
        groups: None,
        later_shift: None,
        steps: Steps::new(1).map_err(to_python)?,
    };
    for (name, value) in keywords.into_iter().flatten() {
        let name = name.cast::<PyString>()?.to_string();
        let key = match name.as_str() {
            "sampling" => {
                let kind: String =
                    value.extract().map_err(|_| PyTypeError::new_err("sampling must be a string"))?;
                text.sampling = kind.parse().map_err(to_python)?;
                continue;
            }
            "later_shift" => {
                text.later_shift = (!value.is_none()).then(|| number(&name, &value)).transpose()?;
                continue;
            }
            "batch_size" => &mut text.batch_size,
            "max_batch_size" => &mut text.max_batch_size,
            "population" => &mut text.population,
            "groups" => &mut text.groups,
            _ => {
                let unexpected = format!("{function} got an unexpected keyword argument '{name}'");
                return Err(PyTypeError::new_err(unexpected));
            }
        };
        *key = (!value.is_none()).then(|| whole(&name, &value)).transpose()?;
    }
    Ok(text)
}

/// The sampling rate, if it is given.
pub(super) fn read_rate(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Numbers<SamplingRate>>> {
    let rate = |value| Numbers::read("sample_rate", value)?.checked(SamplingRate::new).map_err(to_python);
    value.map(rate).transpose()
}

impl Step {
    /// The keys of the entry and their values.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let text = EntryText::from(self.0.clone());
        let keys = PyDict::new(py);
        if text.sampling != SamplingKind::default() {
            keys.set_item("sampling", text.sampling.name())?;
        }
        keys.set_item("noise_multiplier", self.noise_multiplier(py)?)?;
        let numbers = [("sample_rate", text.sample_rate.map(f64::from)), ("later_shift", text.later_shift)];
        for (name, value) in numbers.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            keys.set_item(name, value)?;
        }
        let counts = [
            ("batch_size", text.batch_size),
            ("max_batch_size", text.max_batch_size),
            ("population", text.population),
            ("groups", text.groups),
            ("steps", Some(text.steps.get())),
        ];
        for (name, value) in counts.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            keys.set_item(name, value)?;
        }
        Ok(keys)
    }
}

#[pymethods]
impl Step {
    #[new]
    #[pyo3(signature = (*, noise_multiplier, steps, sample_rate=None, **sampling))]
    fn new(
        noise_multiplier: &Bound<'_, PyAny>,
        steps: &Bound<'_, PyAny>,
        sample_rate: Option<&Bound<'_, PyAny>>,
        sampling: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut text = sampling_keys("Step()", sampling)?;
        let releases = Numbers::read("noise_multiplier", noise_multiplier)?;
        text.noise_multiplier =
            releases.checked(NoiseMultiplier::new).map_err(to_python)?.as_slice().to_vec();
        let rate = sample_rate.map(|rate| number("sample_rate", rate)).transpose()?;
        text.sample_rate = rate.map(SamplingRate::new).transpose().map_err(to_python)?;
        text.steps = self::steps(number("steps", steps)?).map_err(to_python)?;
        Entry::try_from(text).map(Self).map_err(to_python)
    }

    /// The noise multiplier, or a list with the noise multiplier of each release.
    #[getter]
    fn noise_multiplier<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.0.releases() {
            [only] => only.get().into_bound_py_any(py),
            several => several.iter().map(|z| z.get()).collect::<Vec<_>>().into_bound_py_any(py),
        }
    }

    /// The kind of sampling.
    #[getter]
    fn sampling(&self) -> &'static str {
        EntryText::from(self.0.clone()).sampling.name()
    }

    /// The number of steps.
    #[getter]
    fn steps(&self) -> u64 {
        self.0.steps().get()
    }

    /// The probability that a record is in a batch, or None.
    #[getter]
    fn sample_rate(&self) -> Option<f64> {
        EntryText::from(self.0.clone()).sample_rate.map(f64::from)
    }

    /// The number of records in each fixed-size batch, or None.
    #[getter]
    fn batch_size(&self) -> Option<u64> {
        EntryText::from(self.0.clone()).batch_size
    }

    /// The limit on the size of Poisson batches, or None.
    #[getter]
    fn max_batch_size(&self) -> Option<u64> {
        EntryText::from(self.0.clone()).max_batch_size
    }

    /// The public number of records, or None.
    #[getter]
    fn population(&self) -> Option<u64> {
        EntryText::from(self.0.clone()).population
    }

    /// The number of rotating groups, or None.
    #[getter]
    fn groups(&self) -> Option<u64> {
        EntryText::from(self.0.clone()).groups
    }

    /// How far a record can shift later releases, as a multiple of the sensitivity, or None.
    #[getter]
    fn later_shift(&self) -> Option<f64> {
        EntryText::from(self.0.clone()).later_shift
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let keys: PyResult<Vec<String>> =
            self.keys(py)?.iter().map(|(name, value)| Ok(format!("{name}={}", shown(&value)?))).collect();
        Ok(format!("Step({})", keys?.join(", ")))
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        Ok((PyTuple::empty(py), self.keys(py)?))
    }
}
