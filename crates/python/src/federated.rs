//! Federated training: clients are the records of a vault, and the updates that they send are its gradients.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
};

use numpy::{IntoPyArray, PyArray1, PyArrayMethods};
use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    prelude::*,
};
use serde_json::json;
use sordino::{
    Accountant, Error,
    accounting::{
        ClipNorm, Delta, Epsilon, Guarantee, NoiseMultiplier, Plan, SamplingRate, Steps, pld::GroupSize,
    },
    own_loop::{
        Account, ClipRule, Gradients, PrivacyError, PrivacyStatus, Randomness, Release, Sum, Terms, Vault,
        WeightRule,
    },
    report::{labelled, noise, protects, sampling, status},
    train::{
        Hint,
        format::{grouped, pair, rounded_up},
    },
};

use crate::{
    accounting::renamed,
    errors::{argument, to_python},
    threads::run_beside,
};

/// The updates of clients, as the gradients of a vault. A client has one slot.
///
/// # Guarantees
/// What [`Gradients`] trusts an engine to do:
/// - A client's update is read once. Its norm and what it adds are computed from the same copy, and from nothing else.
/// - The norm that the rule is given is never below the norm of the update ([`norm_bound`]).
/// - `weight * update` has at most 48 significant bits, so it is exact in double precision. It is rounded once to the step of the sum, for
///   each client separately, and then added exactly. So two sums whose batches differ in one client differ by the rounded vector of that
///   client: one of the six roundings that the trait permits, and [`rounding`](Gradients::rounding) is 0.
/// - A client that did not reply adds nothing. Neither does an update that is not finite, or that has another length.
///
/// The clients' own code is not trusted.
struct ClientUpdates {
    clients: usize,
    dimension: usize,
}

impl Gradients for ClientUpdates {
    type Point = CurrentModel;
    type Error = io::Error;

    fn records(&self) -> usize {
        self.clients
    }

    fn dimension(&self) -> usize {
        self.dimension
    }

    fn trainable(&self) -> Vec<std::ops::Range<usize>> {
        std::iter::once(0..self.dimension).collect()
    }

    fn layers(&self) -> usize {
        1
    }

    fn rounding(&self, _differences: bool) -> f64 {
        0.0
    }

    fn pass(
        &mut self,
        at: &CurrentModel,
        anchor: Option<&CurrentModel>,
        chosen: &[usize],
        rule: Option<&WeightRule<'_>>,
        _key: [u8; 32],
        sums: &mut [Sum],
    ) -> io::Result<()> {
        if anchor.is_some() {
            return Err(io::Error::other("the updates of clients have no anchor"));
        }
        let unanswered = || io::Error::other("the clients could not be asked");
        let CurrentModel(exchange) = at;
        exchange.question.send(chosen.to_vec()).map_err(|_| unanswered())?;
        let updates = exchange.updates.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in chosen {
            match updates.recv().map_err(|_| unanswered())? {
                Some(update) if update.len() == self.dimension => add(&update, rule, sums),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Adds the update of one client to each sum. An update that is not finite adds nothing.
fn add(update: &[f32], rule: Option<&WeightRule<'_>>, sums: &mut [Sum]) {
    if !update.iter().all(|value| value.is_finite()) {
        return;
    }
    let mut weights = vec![0.0; sums.len()];
    match rule {
        Some(rule) => rule(&[norm_bound(update)], &mut weights),
        None => weights.fill(1.0),
    }
    for (sum, weight) in sums.iter_mut().zip(weights) {
        let step = sum.step;
        // Division by a power of two is exact.
        let rounded = |value: f64| if step > 0.0 { (value / step).round() * step } else { value };
        for (total, value) in sum.values.iter_mut().zip(update) {
            *total += rounded(f64::from(weight) * f64::from(*value));
        }
    }
}

/// An upper bound on the norm of a vector. Squares of single-precision numbers are exact in double precision. The sum of `n` of them is too
/// small by at most the factor `1 - n 2^-53`; the factor below covers this, and the rounding of the product and of the root.
fn norm_bound(vector: &[f32]) -> f64 {
    let squares: f64 = vector.iter().map(|&value| f64::from(value) * f64::from(value)).sum();
    (squares * (1.0 + (vector.len() as f64 + 4.0) * f64::EPSILON)).sqrt()
}

/// Where clients compute their updates: the current model. Python has it, so a pass sends Python the numbers of the chosen clients and
/// receives their updates.
#[derive(Clone)]
struct CurrentModel(Arc<Exchange>);

struct Exchange {
    question: Sender<Vec<usize>>,
    /// One for each chosen client; None for a client that did not reply.
    updates: Mutex<Receiver<Option<Vec<f32>>>>,
}

impl AsRef<[f32]> for CurrentModel {
    fn as_ref(&self) -> &[f32] {
        &[]
    }
}

impl AsMut<[f32]> for CurrentModel {
    fn as_mut(&mut self) -> &mut [f32] {
        &mut []
    }
}

/// A vault whose records are clients. It draws clients, clips and sums their updates, adds noise, and keeps the ledger.
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
                        "there must be at least one client and one number to train, got {clients} clients and {dimension} numbers"
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
        let (vault, rule, clipping_norm) = py.detach(open).map_err(to_python)?;
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
        let (question, asked) = channel();
        let (answer, updates) = sync_channel(1);
        let model = CurrentModel(Arc::new(Exchange { question, updates: Mutex::new(updates) }));
        let (ask, rule) = (ask.clone().unbind(), &self.rule);
        let release = move || {
            // Moved into this closure, so that the channel is closed when the round has ended without a question.
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
    fn statement(&self) -> PyResult<String> {
        let state = self.lock()?;
        let account = state.account();
        let text = match account.privacy_status().map_err(to_python)? {
            PrivacyStatus::Private(guarantee) => self.private_statement(account, &guarantee)?,
            PrivacyStatus::NotPrivate(why) => format!("This federated model is NOT PRIVATE.\n\n  {why}"),
        };
        Ok(Hint::new(text).render(argument).trim_end().to_owned())
    }

    /// The details of the guarantee, as JSON.
    #[getter]
    fn facts(&self) -> PyResult<String> {
        let state = self.lock()?;
        let account = state.account();
        let status = account.privacy_status().map_err(to_python)?;
        let (guarantee, why) = match &status {
            PrivacyStatus::Private(guarantee) => (Some(guarantee), None),
            PrivacyStatus::NotPrivate(why) => (None, Some(why)),
        };
        Ok(json!({
            "private": guarantee.is_some(),
            "not_private_because": why,
            "epsilon": guarantee.map(|guarantee| guarantee.epsilon.get()),
            "epsilon_so_far": epsilon_so_far(account)?,
            "delta": guarantee.map(|guarantee| guarantee.delta.get()),
            "relation": guarantee.map(|guarantee| guarantee.relation.to_string()),
            "accountant": guarantee.map(|guarantee| guarantee.accountant.name()),
            "unit": "client",
            "clients": account.records(),
            "clipping_norm": self.clipping_norm.get(),
            "rounds": account.charged(),
            "planned_rounds": account.steps(),
            "finished": account.is_closed(),
        })
        .to_string())
    }
}

impl UpdateVault {
    fn lock(&self) -> PyResult<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(PyRuntimeError::new_err("a round is being taken")),
        }
    }

    fn private_statement(&self, account: &Account, guarantee: &Guarantee) -> PyResult<String> {
        let unfinished = if account.is_closed() { "" } else { "unfinished " };
        let mut lines = vec![
            ("epsilon", epsilon(account, guarantee)?),
            ("delta", guarantee.delta.to_string()),
            (
                "protects",
                protects(guarantee.relation, GroupSize::ONE).replacen(
                    "one record",
                    "one client's whole contribution",
                    1,
                ),
            ),
        ];
        if let Some(plan) = account.plan() {
            lines.extend([("sampling", sampling(plan)), ("noise", noise(plan))]);
        }
        lines.extend([
            ("clipping", format!("each update to norm {}; updates have equal weights", self.clipping_norm)),
            ("accountant", format!("{}: {}", guarantee.accountant, guarantee.accountant.description())),
            ("status", status(guarantee)),
            ("clients", format!("{}; this number is public", grouped(account.records()))),
            (
                "rounds",
                match account.is_closed() {
                    true => grouped(account.steps()),
                    false => {
                        format!("{} of {} charged", grouped(account.charged()), grouped(account.steps()))
                    }
                },
            ),
            (
                "trusted",
                "the server, which receives the updates and knows which clients were sampled".to_owned(),
            ),
        ]);
        if account.is_in_memory() {
            let why = "in memory: the whole plan counts as spent from the first round on, even if training stops early";
            lines.push(("ledger", why.to_owned()));
        }
        Ok(format!(
            "This {unfinished}federated model satisfies {}-differential privacy.\n\n{}",
            pair(guarantee.epsilon, guarantee.delta),
            labelled(&lines)
        ))
    }
}

/// Epsilon of the whole plan, and of the rounds so far if the run is not finished.
fn epsilon(account: &Account, guarantee: &Guarantee) -> PyResult<String> {
    let whole = guarantee.epsilon.get();
    let weak = if whole > 10.0 { " (WEAK: an epsilon above 10 protects little)" } else { "" };
    let whole = format!("{}{weak}", rounded_up(whole));
    Ok(match epsilon_so_far(account)? {
        Some(so_far) if !account.is_closed() && !account.is_in_memory() => format!(
            "{whole} for the whole plan, whenever it stops ({} so far, valid only if the decision to stop did not depend on any output)",
            rounded_up(so_far)
        ),
        _ => whole,
    })
}

/// The epsilon of the rounds that were charged.
fn epsilon_so_far(account: &Account) -> PyResult<Option<f64>> {
    Ok(match account.privacy_status_after(account.charged()).map_err(to_python)? {
        PrivacyStatus::Private(guarantee) => Some(guarantee.epsilon.get()),
        PrivacyStatus::NotPrivate(_) => None,
    })
}

/// Calls `ask` and sends copies of the updates, one by one.
fn send_updates(
    ask: &Bound<'_, PyAny>,
    chosen: Vec<usize>,
    answer: &SyncSender<Option<Vec<f32>>>,
) -> PyResult<()> {
    let asked = chosen.len();
    let updates: Vec<Bound<'_, PyAny>> = ask.call1((chosen,))?.try_iter()?.collect::<PyResult<_>>()?;
    if updates.len() != asked {
        let got = updates.len();
        return Err(PyValueError::new_err(format!("ask must return {asked} updates or None, got {got}")));
    }
    for update in updates {
        let array = update.cast::<PyArray1<f32>>().ok();
        let copy = array.and_then(|array| array.try_readonly().ok()?.as_array().to_vec().into());
        if answer.send(copy).is_err() {
            // The round has failed, and its own error says why.
            break;
        }
    }
    Ok(())
}
