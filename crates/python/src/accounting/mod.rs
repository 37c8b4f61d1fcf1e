//! Accounting: the epsilon of a plan and the noise multiplier for a privacy budget, without training.

mod numbers;
mod plan;
mod price;
mod step;

use numbers::{Numbers, steps, whole};
use pyo3::{prelude::*, types::PyDict};
use sordino::{
    Error,
    accounting::{
        self, Accountant, AccountingError, Delta, Entry, EntryText, Epsilon, NoiseMultiplier,
        calibrate::{self, Budget},
        pld::GroupSize,
    },
};
use step::{read_rate, sampling_keys};

use crate::{errors::to_python, threads::run_short};

/// Adds the functions and classes to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<plan::Plan>()?;
    module.add_class::<price::Price>()?;
    module.add_class::<step::Step>()?;
    module.add_function(wrap_pyfunction!(epsilon, module)?)?;
    module.add_function(wrap_pyfunction!(noise_multiplier, module)?)
}

/// The epsilon of DP-SGD, or of other steps with Gaussian noise.
///
/// The first four parameters can be arrays of the same length. The attributes of the result are then arrays with one value for each setting.
/// To compose steps with different noise multipliers, use `Plan`.
///
/// Parameters
/// ----------
/// noise_multiplier : float or array of float
///     Standard deviation of the noise on each sum, divided by the clipping norm.
/// sample_rate : float or array of float, optional
///     Probability that a record is in a batch: (expected batch size) / (number of records).
/// steps : int or array of int
///     Number of steps.
/// delta : float or array of float
///     Delta of the guarantee.
/// accountant : str
///     ``"pld"`` (the tightest), ``"rdp"``, ``"zcdp"``, ``"tcdp"``, ``"first-participation"`` (for stateful sampling only), or
///     ``"gdp-clt"``, an approximation that is not a bound.
/// group_size : int
///     Number of records that are protected as a group.
/// sampling, batch_size, population, max_batch_size, groups, later_shift
///     Parameters for other kinds of sampling than Poisson, as for `Step`.
///
/// Returns
/// -------
/// Price
///
/// Raises
/// ------
/// ValueError
///     If a number is out of range, or if the accountant does not support this kind of sampling.
///
/// Examples
/// --------
/// >>> import numpy as np, sordino
/// >>> price = sordino.epsilon(noise_multiplier=1.1, sample_rate=0.004, steps=15_000, delta=1e-5)
/// >>> 2.295 < price.epsilon < 2.299
/// True
/// >>> prices = sordino.epsilon(noise_multiplier=np.array([0.8, 1.0, 1.2]), sample_rate=0.01, steps=1000, delta=1e-5)
/// >>> prices.epsilon.shape
/// (3,)
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "they are Python's keyword arguments")]
#[pyo3(signature = (*, noise_multiplier, steps, delta, sample_rate=None, accountant="pld", group_size=None, **sampling))]
fn epsilon(
    py: Python<'_>,
    noise_multiplier: &Bound<'_, PyAny>,
    steps: &Bound<'_, PyAny>,
    delta: &Bound<'_, PyAny>,
    sample_rate: Option<&Bound<'_, PyAny>>,
    accountant: &str,
    group_size: Option<&Bound<'_, PyAny>>,
    sampling: Option<&Bound<'_, PyDict>>,
) -> PyResult<price::Price> {
    let settings = Settings::read("epsilon()", sample_rate, steps, delta, sampling)?;
    let multipliers = Numbers::read("noise_multiplier", noise_multiplier)?;
    let multipliers = multipliers.checked(NoiseMultiplier::new).map_err(to_python)?;
    let length = settings.length(("noise_multiplier", multipliers.len()))?;
    let method = (accountant.parse::<Accountant>().map_err(to_python)?, group(group_size)?);
    price::Price::of(py, length, method, |index| {
        let plan = settings.plan(index, multipliers.at(index)).map_err(to_python)?;
        Ok((plan, settings.deltas.at(index)))
    })
}

/// The smallest noise multiplier that meets a privacy budget.
///
/// It is rounded up to six digits, and epsilon is computed for the rounded number. The first four parameters can be arrays of the same length.
///
/// Parameters
/// ----------
/// target_epsilon : float or array of float
///     Epsilon of the privacy budget.
/// sample_rate : float or array of float, optional
///     Probability that a record is in a batch: (expected batch size) / (number of records).
/// steps : int or array of int
///     Number of steps.
/// delta : float or array of float
///     Delta of the privacy budget.
/// accountant : str
///     As for `epsilon`.
/// sampling, batch_size, population, max_batch_size, groups, later_shift
///     Parameters for other kinds of sampling than Poisson, as for `Step`.
///
/// Returns
/// -------
/// Price
///     Its `noise_multiplier` is the result. Its `epsilon` is the epsilon of this noise multiplier.
///
/// Raises
/// ------
/// BudgetError
///     If no noise multiplier meets the privacy budget.
/// ValueError
///     If a number is out of range, or if the accountant does not support this kind of sampling.
///
/// Examples
/// --------
/// >>> import sordino
/// >>> price = sordino.noise_multiplier(target_epsilon=1.0, sample_rate=0.1, steps=512, delta=1e-6)
/// >>> 9.65 < price.noise_multiplier < 9.67
/// True
/// >>> 0.998 < price.epsilon <= 1.0
/// True
#[pyfunction]
#[pyo3(signature = (*, target_epsilon, steps, delta, sample_rate=None, accountant="pld", **sampling))]
fn noise_multiplier(
    py: Python<'_>,
    target_epsilon: &Bound<'_, PyAny>,
    steps: &Bound<'_, PyAny>,
    delta: &Bound<'_, PyAny>,
    sample_rate: Option<&Bound<'_, PyAny>>,
    accountant: &str,
    sampling: Option<&Bound<'_, PyDict>>,
) -> PyResult<price::Price> {
    let settings = Settings::read("noise_multiplier()", sample_rate, steps, delta, sampling)?;
    let target = |value| Epsilon::new(value).map_err(|error| renamed(error, "target_epsilon"));
    let targets = Numbers::read("target_epsilon", target_epsilon)?.checked(target).map_err(to_python)?;
    let length = settings.length(("target_epsilon", targets.len()))?;
    let accountant = accountant.parse::<Accountant>().map_err(to_python)?;
    price::Price::of(py, length, (accountant, GroupSize::ONE), |index| {
        let budget = Budget { epsilon: targets.at(index), delta: settings.deltas.at(index) };
        let plan = run_short(py, || settings.calibrated(index, budget, accountant))?.map_err(to_python)?;
        Ok((plan, budget.delta))
    })
}

/// The common parameters of `epsilon` and `noise_multiplier`.
struct Settings {
    rates: Option<Numbers<accounting::SamplingRate>>,
    steps: Numbers<accounting::Steps>,
    deltas: Numbers<Delta>,
    text: EntryText,
}

impl Settings {
    fn read(
        function: &str,
        sample_rate: Option<&Bound<'_, PyAny>>,
        steps: &Bound<'_, PyAny>,
        delta: &Bound<'_, PyAny>,
        sampling: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        Ok(Self {
            rates: read_rate(sample_rate)?,
            steps: Numbers::read("steps", steps)?.checked(self::steps).map_err(to_python)?,
            deltas: Numbers::read("delta", delta)?.checked(Delta::new).map_err(to_python)?,
            text: sampling_keys(function, sampling)?,
        })
    }

    /// The length of the arrays, or None if there is no array.
    fn length(&self, first: (&str, Option<usize>)) -> PyResult<Option<usize>> {
        let rates = self.rates.as_ref().and_then(Numbers::len);
        let all = [first, ("sample_rate", rates), ("steps", self.steps.len()), ("delta", self.deltas.len())];
        let mut arrays = all.into_iter().filter_map(|(name, length)| Some((name, length?)));
        let Some((name, length)) = arrays.next() else { return Ok(None) };
        match arrays.find(|(_, other)| *other != length) {
            None => Ok(Some(length)),
            Some((other_name, other)) => Err(to_python(Error::refused(
                format!("{name} and {other_name} must have the same length, got {length} and {other}"),
                "give arrays with one number for each setting, or single numbers",
            ))),
        }
    }

    fn plan(&self, index: usize, z: NoiseMultiplier) -> Result<accounting::Plan, AccountingError> {
        let entry = Entry::try_from(EntryText {
            noise_multiplier: vec![z],
            sample_rate: self.rates.as_ref().map(|rates| rates.at(index)),
            steps: self.steps.at(index),
            ..self.text.clone()
        })?;
        Ok(accounting::Plan::new(vec![entry]))
    }

    /// The plan with the smallest noise multiplier that meets the budget, rounded up to few digits.
    fn calibrated(
        &self,
        index: usize,
        budget: Budget,
        accountant: Accountant,
    ) -> Result<accounting::Plan, AccountingError> {
        let unit = self.plan(index, NoiseMultiplier::new(1.0)?)?;
        let least = calibrate::noise_scale(&unit, budget, accountant)?.value;
        self.plan(index, NoiseMultiplier::new(least)?.shortened())
    }
}

fn group(size: Option<&Bound<'_, PyAny>>) -> PyResult<GroupSize> {
    let Some(size) = size else { return Ok(GroupSize::ONE) };
    let size = u32::try_from(whole("group_size", size)?).unwrap_or(u32::MAX);
    GroupSize::new(size).map_err(to_python)
}

/// An error about a quantity, with the name of the parameter.
pub(crate) fn renamed(error: AccountingError, what: &'static str) -> AccountingError {
    match error {
        AccountingError::OutOfRange { range, got, hint, .. } => {
            AccountingError::OutOfRange { what, range, got, hint }
        }
        other => other,
    }
}
