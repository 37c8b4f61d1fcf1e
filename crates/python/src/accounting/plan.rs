//! The class `Plan`: a list of steps and its privacy cost.

use pyo3::{
    exceptions::{PyIndexError, PyTypeError},
    prelude::*,
    types::PyDict,
};
use sordino::{
    Error,
    accounting::{
        self, Accountant, Delta, Entry, Epsilon, NoiseMultiplier, SamplingRate, pld, profile::Profile,
    },
};

use super::{
    group,
    numbers::{Numbers, number},
    price::Price,
    renamed,
    step::{Step, sampling_keys},
};
use crate::{errors::to_python, threads::run_short};

/// The plan of a training run: a list of noisy steps, which are composed.
///
/// A plan is public. It states how records are sampled and how much noise is added, but nothing about the records. Steps may depend on the
/// releases of earlier steps. The order of the steps does not change the privacy cost.
///
/// Parameters
/// ----------
/// steps : iterable of Step
///     The steps. A plan without steps costs nothing.
///
/// Examples
/// --------
/// >>> import sordino
/// >>> warm_up = sordino.Step(noise_multiplier=2.0, sample_rate=0.01, steps=100)
/// >>> main = sordino.Step(noise_multiplier=1.0, sample_rate=0.01, steps=900)
/// >>> plan = sordino.Plan([warm_up, main])
/// >>> plan.steps
/// 1000
/// >>> 1.70 < plan.epsilon(delta=1e-5).epsilon < 1.80
/// True
/// >>> plan == sordino.Plan([warm_up]).compose(sordino.Plan([main]))
/// True
#[pyclass(frozen, eq, module = "sordino")]
#[derive(PartialEq)]
pub(crate) struct Plan(pub(super) accounting::Plan);

const MALFORMED: &str = "a plan is a list such as [{\"noise_multiplier\": 1.1, \"sample_rate\": 0.01, \"steps\": 1000}]; docs/plans.md lists all keys";

fn epsilons(name: &'static str, value: &Bound<'_, PyAny>) -> PyResult<Numbers<Epsilon>> {
    Numbers::read(name, value)?.checked(Epsilon::new).map_err(to_python)
}

fn floor(value: &Bound<'_, PyAny>) -> PyResult<Delta> {
    Delta::new(number("floor", value)?).map_err(|error| to_python(renamed(error, "floor")))
}

#[pymethods]
impl Plan {
    #[new]
    #[pyo3(signature = (steps=None, /))]
    fn new(steps: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(steps) = steps else { return Ok(Self(accounting::Plan::default())) };
        let entry = |step: PyResult<Bound<'_, PyAny>>| -> PyResult<Entry> {
            let step = step?;
            let refused = || format!("a plan must be a list of Step, got {}", step.get_type());
            Ok(step.cast::<Step>().map_err(|_| PyTypeError::new_err(refused()))?.get().0.clone())
        };
        Ok(Self(steps.try_iter()?.map(entry).collect::<PyResult<_>>()?))
    }

    /// A plan with one step for each noise multiplier of a schedule.
    ///
    /// Parameters
    /// ----------
    /// noise_multipliers : array of float
    ///     The noise multiplier of each step.
    /// sample_rate : float, optional
    ///     Probability that a record is in a batch. For other kinds of sampling, give the other parameters of `Step`.
    ///
    /// Examples
    /// --------
    /// >>> import numpy as np, sordino
    /// >>> plan = sordino.Plan.from_multipliers(np.linspace(2.0, 1.0, 1000), sample_rate=0.01)
    /// >>> plan.steps
    /// 1000
    /// >>> 1.07 < plan.epsilon(delta=1e-5).epsilon < 1.08
    /// True
    #[staticmethod]
    #[pyo3(signature = (noise_multipliers, *, sample_rate=None, **sampling))]
    fn from_multipliers(
        noise_multipliers: &Bound<'_, PyAny>,
        sample_rate: Option<&Bound<'_, PyAny>>,
        sampling: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let multipliers = Numbers::read("noise_multipliers", noise_multipliers)?;
        let multipliers = multipliers.checked(NoiseMultiplier::new).map_err(to_python)?;
        let mut text = sampling_keys("from_multipliers()", sampling)?;
        let rate = sample_rate.map(|rate| number("sample_rate", rate)).transpose()?;
        text.sample_rate = rate.map(SamplingRate::new).transpose().map_err(to_python)?;
        let entry = |z: &NoiseMultiplier| {
            text.noise_multiplier = vec![*z];
            Entry::try_from(text.clone())
        };
        let entries: Result<_, _> = multipliers.as_slice().iter().map(entry).collect();
        entries.map(Self).map_err(to_python)
    }

    /// Reads a plan from the text of a plan file, the format of ``sordino epsilon --plan``.
    ///
    /// Examples
    /// --------
    /// >>> import sordino
    /// >>> sordino.Plan.from_json('[{"noise_multiplier": 1.1, "sample_rate": 0.01, "steps": 1000}]')
    /// Plan([Step(noise_multiplier=1.1, sample_rate=0.01, steps=1000)])
    #[staticmethod]
    #[pyo3(signature = (text, /))]
    pub(super) fn from_json(text: &str) -> PyResult<Self> {
        serde_json::from_str(text)
            .map(Self)
            .map_err(|error| to_python(Error::refused(format!("this is not a plan: {error}"), MALFORMED)))
    }

    /// Writes the plan as the text of a plan file, the format of ``sordino epsilon --plan``.
    ///
    /// Examples
    /// --------
    /// >>> import sordino
    /// >>> sordino.Plan([sordino.Step(sampling="full-batch", noise_multiplier=30.0, steps=10)]).to_json()
    /// '[{"sampling":"full-batch","noise_multiplier":30.0,"steps":10}]'
    pub(super) fn to_json(&self) -> PyResult<String> {
        serde_json::to_string(&self.0)
            .map_err(|error| to_python(Error::refused(error.to_string(), MALFORMED)))
    }

    /// The composition of both plans. The second plan may depend on the releases of the first.
    #[pyo3(signature = (other, /))]
    fn compose(&self, other: &Bound<'_, Plan>) -> Self {
        let entries = [self.0.entries(), other.get().0.entries()].concat();
        Self(accounting::Plan::new(entries))
    }

    /// The guarantee of the plan at this delta.
    ///
    /// Parameters
    /// ----------
    /// delta : float or array of float
    ///     Delta of the guarantee.
    /// accountant : str
    ///     ``"pld"``, ``"rdp"``, ``"gdp-clt"``, ``"zcdp"``, ``"tcdp"`` or ``"first-participation"``.
    /// group_size : int
    ///     Number of records that are protected as a group.
    ///
    /// Returns
    /// -------
    /// Price
    #[pyo3(signature = (delta, *, accountant="pld", group_size=None))]
    fn epsilon(
        &self,
        py: Python<'_>,
        delta: &Bound<'_, PyAny>,
        accountant: &str,
        group_size: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Price> {
        let deltas = Numbers::read("delta", delta)?.checked(Delta::new).map_err(to_python)?;
        let method = (accountant.parse::<Accountant>().map_err(to_python)?, group(group_size)?);
        Price::of(py, deltas.len(), method, |index| Ok((self.0.clone(), deltas.at(index))))
    }

    /// A proved upper bound on delta at this epsilon, by the accountant ``pld``. For an array of epsilons, the result is an array.
    ///
    /// Examples
    /// --------
    /// >>> import sordino
    /// >>> plan = sordino.Plan([sordino.Step(noise_multiplier=1.0, sample_rate=0.01, steps=1000)])
    /// >>> epsilon = plan.epsilon(delta=1e-5).epsilon
    /// >>> 0.9e-5 < plan.delta(epsilon) < 1.1e-5
    /// True
    fn delta<'py>(&self, py: Python<'py>, epsilon: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let epsilons = epsilons("epsilon", epsilon)?;
        let delta = |epsilon| Ok(pld::delta(&self.0, epsilon)?.upper);
        Ok(run_short(py, || epsilons.checked(delta))?.map_err(to_python)?.into_python(py))
    }

    /// The privacy profile: proved upper bounds on delta at these epsilons, all from one composition.
    ///
    /// It is faster than `delta` for many epsilons.
    ///
    /// Examples
    /// --------
    /// >>> import numpy as np, sordino
    /// >>> plan = sordino.Plan([sordino.Step(noise_multiplier=1.0, sample_rate=0.01, steps=1000)])
    /// >>> deltas = plan.profile(np.linspace(0, 2, 5))
    /// >>> bool(np.all(np.diff(deltas) < 0))
    /// True
    fn profile<'py>(&self, py: Python<'py>, epsilons: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let epsilons = self::epsilons("epsilons", epsilons)?;
        let brackets = run_short(py, || pld::profile(&self.0, epsilons.as_slice()))?.map_err(to_python)?;
        let mut deltas = brackets.into_iter().map(|bracket| bracket.upper);
        Ok(match epsilons.len() {
            Some(_) => Numbers::Many(deltas.collect()),
            None => Numbers::One(deltas.next().unwrap_or(1.0)),
        }
        .into_python(py))
    }

    /// The trade-off curve. Consider a test of whether a record was used that has this false positive rate. The result is a lower bound on its
    /// false negative rate.
    ///
    /// Parameters
    /// ----------
    /// alphas : float or array of float
    ///     False positive rates, from 0 to 1.
    /// floor : float
    ///     Smallest delta of the profile from which the curve is computed.
    ///
    /// Examples
    /// --------
    /// >>> import numpy as np, sordino
    /// >>> plan = sordino.Plan([sordino.Step(sampling="full-batch", noise_multiplier=3**0.5, steps=3)])
    /// >>> bool(0.60 < plan.tradeoff(0.1) < 0.62)
    /// True
    #[pyo3(signature = (alphas, *, floor=None))]
    fn tradeoff<'py>(
        &self,
        py: Python<'py>,
        alphas: &Bound<'py, PyAny>,
        floor: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let alphas = Numbers::read("alphas", alphas)?;
        if let Some(bad) = alphas.as_slice().iter().find(|alpha| !(0.0..=1.0).contains(*alpha)) {
            let problem = format!("alphas must be between 0 and 1, got {bad}");
            return Err(to_python(Error::refused(problem, "give false positive rates")));
        }
        let profile = self.curve(py, floor)?;
        let miss = |alpha| Ok(profile.type_two_error(alpha));
        Ok(alphas.checked(miss).map_err(to_python)?.into_python(py))
    }

    /// A `mu` such that `mu`-Gaussian differential privacy bounds the privacy profile of the plan for deltas down to `floor`.
    ///
    /// Examples
    /// --------
    /// >>> import sordino
    /// >>> plan = sordino.Plan([sordino.Step(sampling="full-batch", noise_multiplier=2.0, steps=4)])
    /// >>> 1.0 <= plan.mu() < 1.1
    /// True
    #[pyo3(signature = (*, floor=None))]
    fn mu(&self, py: Python<'_>, floor: Option<&Bound<'_, PyAny>>) -> PyResult<f64> {
        Ok(self.curve(py, floor)?.mu().map_err(to_python)?.get())
    }

    /// The number of steps.
    #[getter]
    fn steps(&self) -> u64 {
        self.0.steps()
    }

    /// The neighbouring relation of the guarantee. The kind of sampling determines it.
    #[getter]
    fn relation(&self) -> String {
        self.0.relation().to_string()
    }

    fn __add__(&self, other: &Bound<'_, Plan>) -> Self {
        self.compose(other)
    }

    fn __mul__(&self, runs: u64) -> PyResult<Self> {
        self.0.repeated(runs).map(Self).map_err(to_python)
    }

    fn __rmul__(&self, runs: u64) -> PyResult<Self> {
        self.__mul__(runs)
    }

    fn __len__(&self) -> usize {
        self.0.entries().len()
    }

    fn __getitem__(&self, index: isize) -> PyResult<Step> {
        let entries = self.0.entries();
        let index = if index < 0 { index + entries.len() as isize } else { index };
        let entry = usize::try_from(index).ok().and_then(|index| entries.get(index));
        entry.cloned().map(Step).ok_or_else(|| PyIndexError::new_err("the index is out of range"))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        /// The largest number of entries that are all shown.
        const SHOWN: usize = 8;
        let entries = self.0.entries();
        let shown = if entries.len() > SHOWN { 3 } else { entries.len() };
        let mut parts = (0..shown as isize)
            .map(|index| Ok(Bound::new(py, self.__getitem__(index)?)?.repr()?.to_string()))
            .collect::<PyResult<Vec<_>>>()?;
        if shown < entries.len() {
            parts.push(format!("... {} more", entries.len() - shown));
        }
        Ok(format!("Plan([{}])", parts.join(", ")))
    }

    fn __getnewargs__(&self) -> (Vec<Step>,) {
        (self.0.entries().iter().cloned().map(Step).collect(),)
    }
}

impl Plan {
    fn curve(&self, py: Python<'_>, floor: Option<&Bound<'_, PyAny>>) -> PyResult<Profile> {
        let floor = floor.map_or_else(|| Delta::new(1e-9).map_err(to_python), self::floor)?;
        run_short(py, || Profile::of(&self.0, floor, Profile::POINTS))?.map_err(to_python)
    }
}
