//! Federated training: in the vault, a client takes the place of a record, and its update that of a gradient.

mod statement;
mod updates;

use std::{
    path::PathBuf,
    sync::{Mutex, MutexGuard, TryLockError},
};

use numpy::{IntoPyArray, PyArray1};
use pyo3::{exceptions::PyRuntimeError, prelude::*};
use sordino::{
    Accountant, Error,
    accounting::{ClipNorm, Delta, Epsilon, NoiseMultiplier, Plan, SamplingRate, Steps},
    own_loop::{Account, ClipRule, PrivacyError, Randomness, Release, Terms, Vault},
};
use updates::{ClientUpdates, CurrentModel, send_updates};

use crate::{
    accounting::renamed,
    errors::{argument, to_python},
    threads::{run_beside, run_short},
};

/// A vault in which clients take the place of records. It draws clients, clips and sums their updates, adds noise, and keeps the ledger.
#[pyclass(frozen, module = "sordino._sordino")]
pub(crate) struct UpdateVault {
    state: Mutex<State>,
    rule: ClipRule,
    clipping_norm: ClipNorm,
}

enum State {
    Open(Box<Vault<ClientUpdates>>),
    Closed(Box<Account>),
}

impl State {
    fn account(&self) -> &Account {
        match self {
            Self::Open(vault) => vault.account(),
            Self::Closed(account) => account,
        }
    }
}

#[pymethods]
impl UpdateVault {
    /// Prices the plan and opens the vault. `dimension` is the length of an update and `clients` the public number of clients. Without `ledger`,
    /// the ledger is in memory. With `resume`, the rounds that the ledger has charged count as taken.
    #[new]
    #[pyo3(signature = (dimension, *, clients, sample_rate, rounds, clipping_norm, noise_multiplier, delta, target_epsilon=None, ledger=None, resume=false))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        dimension: usize,
        clients: usize,
        sample_rate: f64,
        rounds: u64,
        clipping_norm: f64,
        noise_multiplier: f64,
        delta: f64,
        target_epsilon: Option<f64>,
        ledger: Option<PathBuf>,
        resume: bool,
    ) -> PyResult<Self> {
        let clipping_norm = ClipNorm::new(clipping_norm).map_err(|error| renamed(error, "clipping_norm"));
        let steps = Steps::new(rounds).map_err(|error| renamed(error, "rounds"));
        let open = || -> Result<_, Error> {
            if dimension == 0 || clients == 0 {
                return Err(Error::refused(
                    format!(
                        "there must be at least one client and one parameter, got {clients} clients and {dimension} parameters"
                    ),
                    "clients is the public number of clients",
                ));
            }
            let (clipping_norm, steps) = (clipping_norm?, steps?);
            let rule = ClipRule::flat(clipping_norm)?;
            let plan =
                Plan::dp_sgd(NoiseMultiplier::new(noise_multiplier)?, SamplingRate::new(sample_rate)?, steps);
            let budget = target_epsilon.map(Epsilon::new).transpose()?;
            let terms = Terms::price(plan, clients as u64, Delta::new(delta)?, budget, Accountant::Pld)?
                .about(&format!(
                    "updates of clients with {dimension} numbers, clipped to norm {clipping_norm}"
                ));
            let (updates, randomness) = (ClientUpdates { clients, dimension }, Randomness::from_os()?);
            let vault = match ledger {
                Some(path) if resume => Vault::resume(updates, &terms, randomness, &path)?,
                Some(path) => Vault::seal(updates, &terms, randomness, &path)?,
                None if resume => {
                    return Err(Error::refused(
                        "resume is True, but ledger is not given; only a run with a ledger can be resumed",
                        "give the ledger of the run that was stopped",
                    ));
                }
                None => Vault::seal_in_memory(updates, &terms, randomness)?,
            };
            Ok((vault, rule, clipping_norm))
        };
        let (vault, rule, clipping_norm) = run_short(py, open)?.map_err(to_python)?;
        Ok(Self { state: Mutex::new(State::Open(Box::new(vault))), rule, clipping_norm })
    }

    /// Takes the next round: charges it to the ledger, draws the clients, calls `ask` with their numbers, and returns the noisy sum of their clipped
    /// updates and the standard deviation of its noise. Returns None if no round is left.
    ///
    /// `ask` returns a list with one item for each number: the update of this client, a float32 array with one axis, or None. Any other item,
    /// or an array that is not finite or has another length, adds nothing. An exception in `ask` ends the round, which stays charged.
    fn round<'py>(
        &self,
        py: Python<'py>,
        ask: &Bound<'py, PyAny>,
    ) -> PyResult<Option<(Bound<'py, PyArray1<f32>>, f64)>> {
        let mut state = self.lock()?;
        let State::Open(vault) = &mut *state else { return Ok(None) };
        let (model, asked, answer) = CurrentModel::new();
        let (ask, rule) = (ask.clone().unbind(), &self.rule);
        let release = move || {
            // Moved into this closure, so that the channel is closed if the round ends before clients are asked.
            let model = model;
            vault.round(|round| {
                let sum = round.gradients(&model).clipped_sum(rule)?;
                round.release(sum)
            })
        };
        let reply = move || match asked.recv() {
            Ok(chosen) => Python::attach(|py| send_updates(ask.bind(py), chosen, &answer)),
            Err(_) => Ok(()),
        };
        let (released, replied) = run_beside(py, release, reply)?;
        replied?;
        let released: Option<Result<Release<Vec<f32>>, PrivacyError>> = released.map_err(to_python)?;
        let Some(release) = released.transpose().map_err(to_python)? else { return Ok(None) };
        let noise_std = release.noise_std();
        Ok(Some((release.into_inner().into_pyarray(py), noise_std)))
    }

    /// Closes the ledger. If all rounds were taken, it is marked as finished; otherwise the run can be resumed.
    fn close(&self) -> PyResult<()> {
        let mut state = self.lock()?;
        let account = Box::new(state.account().clone());
        if let State::Open(vault) = std::mem::replace(&mut *state, State::Closed(account)) {
            *state = State::Closed(Box::new(vault.close().map_err(to_python)?));
        }
        Ok(())
    }

    /// The number of rounds that can still be taken.
    #[getter]
    fn rounds_left(&self) -> PyResult<u64> {
        Ok(match &*self.lock()? {
            State::Open(vault) => vault.account().steps() - vault.position(),
            State::Closed(_) => 0,
        })
    }

    /// The statement of the guarantee.
    #[getter]
    fn statement(&self, py: Python<'_>) -> PyResult<String> {
        let state = self.lock()?;
        let account = state.account();
        let text = run_short(py, || statement::text(account, self.clipping_norm))?;
        Ok(text.map_err(to_python)?.render(argument).trim_end().to_owned())
    }

    /// The details of the guarantee, as JSON.
    #[getter]
    fn facts(&self, py: Python<'_>) -> PyResult<String> {
        let state = self.lock()?;
        let account = state.account();
        run_short(py, || statement::json(account, self.clipping_norm))?.map_err(to_python)
    }
}

impl UpdateVault {
    fn lock(&self) -> PyResult<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(PyRuntimeError::new_err("another round is in progress")),
        }
    }
}
