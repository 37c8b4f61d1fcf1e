//! The updates of clients, as the gradients of a vault.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
};

use numpy::{PyArray1, PyArrayMethods};
use pyo3::{exceptions::PyValueError, prelude::*};
use sordino::own_loop::{Gradients, Sum, WeightRule};

/// The updates of clients, as the gradients of a vault. A client has one slot.
///
/// # Guarantees
/// These are the properties that [`Gradients`] requires of an engine:
/// - A client's update is read once. Its norm and what it adds are computed from the same copy, and from nothing else.
/// - The norm that the rule is given is never below the norm of the update ([`norm_bound`]).
/// - `weight * update` has at most 48 significant bits, so it is exact in double precision. It is rounded once to the step of the sum, for
///   each client separately, and then added exactly. So two sums whose batches differ in one client differ by the rounded vector of that
///   client: one of the six roundings that the trait permits, and [`rounding`](Gradients::rounding) is 0.
/// - A client that did not reply adds nothing. Neither does an update that is not finite, or that has another length.
///
/// The clients' own code is not trusted.
pub(super) struct ClientUpdates {
    pub(super) clients: usize,
    pub(super) dimension: usize,
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
            return Err(io::Error::other("updates of clients cannot be computed at an anchor"));
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
/// small by at most the factor `1 - n 2^-53`. The factor below covers this error and the rounding of the product and of the root.
fn norm_bound(vector: &[f32]) -> f64 {
    let squares: f64 = vector.iter().map(|&value| f64::from(value) * f64::from(value)).sum();
    (squares * (1.0 + (vector.len() as f64 + 4.0) * f64::EPSILON)).sqrt()
}

/// The current model, at which clients compute their updates. It is stored in Python, so a pass sends the numbers of the chosen clients to
/// Python and receives their updates.
#[derive(Clone)]
pub(super) struct CurrentModel(Arc<Exchange>);

/// The update of a client; None if it did not reply.
type Update = Option<Vec<f32>>;

struct Exchange {
    question: Sender<Vec<usize>>,
    /// One for each chosen client.
    updates: Mutex<Receiver<Update>>,
}

impl CurrentModel {
    /// The model, the receiver of the numbers of the chosen clients, and the sender of their updates.
    pub(super) fn new() -> (Self, Receiver<Vec<usize>>, SyncSender<Update>) {
        let (question, asked) = channel();
        // At most one update is queued, so that few copies are in memory.
        let (answer, updates) = sync_channel(1);
        (Self(Arc::new(Exchange { question, updates: Mutex::new(updates) })), asked, answer)
    }
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

/// Calls `ask` and sends copies of the updates, one by one.
pub(super) fn send_updates(
    ask: &Bound<'_, PyAny>,
    chosen: Vec<usize>,
    answer: &SyncSender<Update>,
) -> PyResult<()> {
    let asked = chosen.len();
    let updates: Vec<Bound<'_, PyAny>> = ask.call1((chosen,))?.try_iter()?.collect::<PyResult<_>>()?;
    if updates.len() != asked {
        let got = updates.len();
        return Err(PyValueError::new_err(format!(
            "ask must return {asked} items, each an update or None, got {got}"
        )));
    }
    for update in updates {
        let array = update.cast::<PyArray1<f32>>().ok();
        let copy = array.and_then(|array| array.try_readonly().ok()?.as_array().to_vec().into());
        if answer.send(copy).is_err() {
            // The round has failed, and its own error states the reason.
            break;
        }
    }
    Ok(())
}
