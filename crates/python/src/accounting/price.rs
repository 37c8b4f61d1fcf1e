//! The class `Price`: the privacy guarantee of one plan, or of each of several plans.

use numpy::{IntoPyArray, PyArray1};
use pyo3::{IntoPyObjectExt, exceptions::PyTypeError, prelude::*};
use sordino::{
    accounting::{Accountant, Delta, Epsilon, Guarantee, Plan, pld::GroupSize},
    report::plan_statement,
};

use super::numbers::Numbers;
use crate::{
    errors::{argument, to_python},
    threads::run_short,
};

/// The privacy guarantee of a plan, or of several plans that were given in one call.
///
/// With several plans, `epsilon`, `epsilon_lower`, `delta`, `noise_multiplier` and `steps` are arrays. ``float(price)`` is `epsilon`, and
/// ``print(price)`` is the statement that the command ``sordino epsilon`` prints.
///
/// Examples
/// --------
/// >>> import sordino
/// >>> price = sordino.epsilon(noise_multiplier=1.1, sample_rate=0.004, steps=15_000, delta=1e-5)
/// >>> price.proved, price.accountant, price.relation
/// (True, 'pld', 'add/remove with public N (zero-out)')
/// >>> price.epsilon_lower <= 2.2955 <= float(price)
/// True
/// >>> print(price)
/// This plan satisfies (2.2957, 1e-5)-differential privacy.
/// ...
#[pyclass(frozen, eq, module = "sordino")]
#[derive(PartialEq)]
pub(crate) struct Price {
    priced: Vec<(Plan, Guarantee)>,
    group: GroupSize,
    is_array: bool,
}

impl Price {
    /// Computes the guarantee of one plan, or of `length` plans. The GIL is released. Signals such as Ctrl-C are checked before
    /// each plan.
    pub(super) fn of(
        py: Python<'_>,
        length: Option<usize>,
        (accountant, group): (Accountant, GroupSize),
        plan: impl Fn(usize) -> PyResult<(Plan, Delta)>,
    ) -> PyResult<Self> {
        let mut priced = Vec::with_capacity(length.unwrap_or(1));
        for index in 0..length.unwrap_or(1) {
            py.check_signals()?;
            let (plan, delta) = plan(index)?;
            let guarantee = run_short(py, || accountant.price_for_group(&plan, group, delta))?;
            priced.push((plan, guarantee.map_err(to_python)?));
        }
        Ok(Self { priced, group, is_array: length.is_some() })
    }

    fn numbers<'py>(&self, py: Python<'py>, number: impl Fn(&Plan, &Guarantee) -> f64) -> Bound<'py, PyAny> {
        let mut values = self.priced.iter().map(|(plan, guarantee)| number(plan, guarantee));
        match self.is_array {
            true => Numbers::Many(values.collect()),
            false => Numbers::One(values.next().unwrap_or(f64::NAN)),
        }
        .into_python(py)
    }

    fn guarantee(&self) -> &Guarantee {
        &self.priced[0].1
    }
}

/// The noise multiplier, if all steps have the same one.
fn multiplier(plan: &Plan) -> Option<f64> {
    match plan.entries() {
        [entry] => match entry.releases() {
            [only] => Some(only.get()),
            _ => None,
        },
        _ => None,
    }
}

#[pymethods]
impl Price {
    /// Epsilon. It is a proved upper bound if `proved` is true.
    #[getter]
    fn epsilon<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.numbers(py, |_, guarantee| guarantee.epsilon.get())
    }

    /// A proved lower bound on the exact epsilon. It is None (NaN in arrays) if none is known.
    #[getter]
    fn epsilon_lower<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let known = self.priced.iter().any(|(_, guarantee)| guarantee.epsilon_lower.is_some());
        known.then(|| {
            self.numbers(py, |_, guarantee| guarantee.epsilon_lower.map_or(f64::NAN, |lower| lower.get()))
        })
    }

    /// The delta of the guarantee.
    #[getter]
    fn delta<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.numbers(py, |_, guarantee| guarantee.delta.get())
    }

    /// Whether epsilon is a proved upper bound. It is false only for the accountant ``gdp-clt``, which is an approximation.
    #[getter]
    fn proved(&self) -> bool {
        self.guarantee().proved()
    }

    /// The neighbouring relation of the guarantee. The kind of sampling determines it.
    #[getter]
    fn relation(&self) -> String {
        self.guarantee().relation.to_string()
    }

    /// The accountant that computed epsilon.
    #[getter]
    fn accountant(&self) -> &'static str {
        self.guarantee().accountant.name()
    }

    /// The number of records that are protected as a group.
    #[getter]
    fn group_size(&self) -> u32 {
        self.group.get()
    }

    /// The noise multiplier, or None if the plan has several.
    #[getter]
    fn noise_multiplier<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let one = self.priced.iter().all(|(plan, _)| multiplier(plan).is_some());
        one.then(|| self.numbers(py, |plan, _| multiplier(plan).unwrap_or(f64::NAN)))
    }

    /// The number of steps.
    #[getter]
    fn steps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut steps = self.priced.iter().map(|(plan, _)| i64::try_from(plan.steps()).unwrap_or(i64::MAX));
        if self.is_array {
            let steps: Bound<'py, PyArray1<i64>> = steps.collect::<Vec<_>>().into_pyarray(py);
            return Ok(steps.into_any());
        }
        Ok(steps.next().unwrap_or(0).into_pyobject(py)?.into_any())
    }

    #[staticmethod]
    fn _restored(
        priced: Vec<(String, f64, Option<f64>, f64)>,
        accountant: &str,
        group_size: u32,
        is_array: bool,
    ) -> PyResult<Self> {
        let accountant: Accountant = accountant.parse().map_err(to_python)?;
        let restored = |(plan, epsilon, lower, delta): (String, f64, Option<f64>, f64)| {
            let plan = super::plan::Plan::from_json(&plan)?.0;
            let relation = plan.relation();
            let (epsilon, epsilon_lower) = (Epsilon::new(epsilon), lower.map(Epsilon::new).transpose());
            let (epsilon, epsilon_lower) = (epsilon.map_err(to_python)?, epsilon_lower.map_err(to_python)?);
            let delta = Delta::new(delta).map_err(to_python)?;
            Ok((plan, Guarantee { epsilon, epsilon_lower, delta, accountant, relation }))
        };
        let priced: Vec<_> = priced.into_iter().map(restored).collect::<PyResult<_>>()?;
        let group = GroupSize::new(group_size).map_err(to_python)?;
        match priced.is_empty() {
            true => Err(PyTypeError::new_err("a price has at least one plan")),
            false => Ok(Self { priced, group, is_array }),
        }
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let parts = |(plan, guarantee): &(Plan, Guarantee)| {
            let lower = guarantee.epsilon_lower.map(f64::from);
            let plan = super::plan::Plan(plan.clone()).to_json()?;
            Ok((plan, guarantee.epsilon.get(), lower, guarantee.delta.get()))
        };
        let priced: Vec<_> = self.priced.iter().map(parts).collect::<PyResult<_>>()?;
        let state = (priced, self.accountant(), self.group_size(), self.is_array);
        Ok((py.get_type::<Self>().getattr("_restored")?, state.into_bound_py_any(py)?))
    }

    fn __float__(&self) -> PyResult<f64> {
        match self.is_array {
            true => Err(PyTypeError::new_err("this price has several plans; use price.epsilon")),
            false => Ok(self.guarantee().epsilon.get()),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let lower = self.epsilon_lower(py).map_or(Ok("None".to_owned()), |lower| shown(&lower))?;
        Ok(format!(
            "Price(epsilon={}, epsilon_lower={lower}, delta={}, proved={}, relation='{}', accountant='{}', steps={})",
            shown(&self.epsilon(py))?,
            shown(&self.delta(py))?,
            if self.proved() { "True" } else { "False" },
            self.relation(),
            self.accountant(),
            shown(&self.steps(py)?)?,
        ))
    }

    fn __str__(&self, py: Python<'_>) -> PyResult<String> {
        let [(plan, guarantee)] = &self.priced[..] else { return self.__repr__(py) };
        Ok(plan_statement(plan, self.group, guarantee).render(argument).trim_end().to_owned())
    }
}

/// The `repr` of a value.
pub(super) fn shown(value: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(value.repr()?.to_string())
}
