//! What an attacker with full access sees: every release of a run, step by step.

use std::{
    fs,
    ops::Range,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use sordino_accounting::{Entry, Plan, Sampling};
use sordino_algorithms::{Algorithm, AlgorithmConfig, RunFacts, Steps};
use sordino_optim::{Average, Optimizer};
use sordino_privacy::{Account, Gradients, Randomness, Terms, Vault};
use sordino_train::Learning;

use crate::{AuditError, Canaried, Canaries, canaries::Drawn};

/// A mechanism under test.
pub trait Mechanism {
    /// What the next step reveals; none after the last step.
    ///
    /// # Errors
    /// Those of the mechanism.
    fn step(&mut self) -> Result<Option<ObservedStep>, AuditError>;

    /// The number of steps that the ledger has charged; none if there is no ledger.
    ///
    /// # Errors
    /// A ledger that cannot be read.
    fn charged(&self) -> Result<Option<u64>, AuditError> {
        Ok(None)
    }
}

/// What one step reveals.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ObservedStep {
    /// The canary slots in the batch, in ascending order. Only the auditor knows them.
    pub drawn: Vec<u32>,
    /// The releases, in the order of the plan.
    pub releases: Vec<ObservedRelease>,
    /// The gradient that the optimizer is given: the projection on each canary, and the free coordinates. None if the step only
    /// prepares the next one.
    pub update: Option<Projections>,
}

/// A noisy release.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedRelease {
    /// The standard deviation of the noise, as it is stated.
    pub noise_std: f64,
    /// What is released.
    pub content: Content,
}

/// What is released.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// A sum of gradients.
    Gradients(Projections),
    /// Counts of records.
    Counts(Vec<f32>),
}

/// The coordinates of a vector that the audit evaluates.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Projections {
    /// The projection on the direction of each canary.
    pub canaries: Vec<f32>,
    /// The free coordinates.
    pub free: Vec<f32>,
}

/// The releases of the current step, as the vault passes them to the observer.
type Released = Arc<Mutex<Vec<(Vec<f32>, f64)>>>;

/// An algorithm in the real vault, with canaries beside its records.
pub struct VaultMechanism<G: Gradients> {
    vault: Vault<Canaried<G>>,
    steps: Box<dyn Steps<Canaried<G>>>,
    point: G::Point,
    /// The parameters of the network and of the canaries.
    params: Vec<f32>,
    optimizer: Optimizer,
    average: Option<Average>,
    learning: Learning,
    batch_size: f64,
    planned_steps: u64,
    dimension: usize,
    /// Coordinates of the network that are observed like free ones. There are none if the records are members.
    watched: Vec<usize>,
    canaries: Canaries,
    drawn: Drawn,
    released: Released,
    ledger: Option<PathBuf>,
}

/// The public parts of a run under test.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The algorithm with its options.
    pub algorithm: &'a AlgorithmConfig,
    /// The facts that its steps depend on.
    pub facts: &'a RunFacts,
    /// Its plan.
    pub plan: &'a Plan,
    /// How releases update the model.
    pub learning: &'a Learning,
}

impl<G: Gradients> VaultMechanism<G>
where
    G::Point: 'static,
{
    /// The run under test, with these canaries beside the records of the engine. If the records are not members, their slots are empty, and
    /// coordinates of the network are observed as free ones. If `with_ledger`, there is a ledger in a temporary file.
    ///
    /// # Errors
    /// Those of the algorithm and the trusted base.
    pub fn new(
        subject: Subject<'_>,
        gradients: G,
        records_are_members: bool,
        canaries: Canaries,
        point: G::Point,
        randomness: Randomness,
        with_ledger: bool,
    ) -> Result<Self, AuditError> {
        let dimension = gradients.dimension();
        let watched = if records_are_members { Vec::new() } else { watched(&gradients.trainable()) };
        let engine = Canaried::new(gradients, records_are_members, canaries.clone());
        let plan = for_slots(subject.plan, engine.records() as u64)?;
        let steps = subject.algorithm.start(subject.facts, &plan)?;
        let planned_steps = plan.steps();
        let terms = Terms::unprotected(
            plan,
            engine.records() as u64,
            "an audit, whose batches are known to the auditor",
        );
        let (drawn, released) = (engine.drawn(), Released::default());
        let optimizer = Optimizer::new(&subject.learning.optimizer, engine.trainable(), engine.dimension())?;
        let ledger = with_ledger.then(temporary_file);
        let mut vault = match &ledger {
            Some(path) => Vault::seal(engine, &terms, randomness, path)?,
            None => Vault::seal_in_memory(engine, &terms, randomness)?,
        };
        let sink = released.clone();
        vault.observe_releases(move |values, noise_std| {
            sink.lock().unwrap_or_else(PoisonError::into_inner).push((values.to_vec(), noise_std));
        });
        let mut params = point.as_ref().to_vec();
        params.resize(dimension + canaries.coordinates(), 0.0);
        Ok(Self {
            vault,
            steps,
            point,
            params,
            optimizer,
            average: subject.learning.average.map(Average::new).transpose()?,
            learning: subject.learning.clone(),
            batch_size: subject.facts.expected_batch_size,
            planned_steps,
            dimension,
            watched,
            canaries,
            drawn,
            released,
            ledger,
        })
    }

    fn projections(&self, values: &[f32]) -> Projections {
        let (canaries, mut free) = self.canaries.projections(&values[self.dimension..]);
        free.extend(self.watched.iter().map(|&coordinate| values[coordinate]));
        Projections { canaries, free }
    }

    fn content(&self, values: Vec<f32>) -> Content {
        match values.len() == self.params.len() {
            true => Content::Gradients(self.projections(&values)),
            false => Content::Counts(values),
        }
    }

    /// The parameters of the model: their average, if there is one.
    pub fn model(&self) -> G::Point {
        let mut model = self.point.clone();
        if let Some(average) = &self.average
            && !average.values().is_empty()
        {
            model.as_mut().copy_from_slice(average.values());
        }
        model
    }
}

impl<G: Gradients> Mechanism for VaultMechanism<G>
where
    G::Point: 'static,
{
    fn step(&mut self) -> Result<Option<ObservedStep>, AuditError> {
        let number = self.vault.position();
        let (vault, steps, point) = (&mut self.vault, &mut self.steps, &self.point);
        let Some(taken) = vault.round(|round| steps.step(round, point, number))? else { return Ok(None) };
        let mut update = None;
        if let Some(release) = taken? {
            update = Some(self.projections(&release));
            let rate =
                self.learning.learning_rate * self.learning.schedule.factor(number, self.planned_steps);
            let mean = release.scaled((1.0 / self.batch_size) as f32);
            let buffer = self.optimizer.step(mean, rate, &mut self.params);
            self.vault.reuse(buffer);
            self.point.as_mut().copy_from_slice(&self.params[..self.dimension]);
            if let Some(average) = &mut self.average {
                average.update(self.point.as_ref());
            }
        }
        let released = std::mem::take(&mut *self.released.lock().unwrap_or_else(PoisonError::into_inner));
        let releases = released
            .into_iter()
            .map(|(values, noise_std)| ObservedRelease { noise_std, content: self.content(values) })
            .collect();
        let drawn = std::mem::take(&mut *self.drawn.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Some(ObservedStep { drawn, releases, update }))
    }

    fn charged(&self) -> Result<Option<u64>, AuditError> {
        Ok(match &self.ledger {
            Some(path) => Some(Account::read(path)?.charged()),
            None => None,
        })
    }
}

impl<G: Gradients> Drop for VaultMechanism<G> {
    fn drop(&mut self) {
        if let Some(path) = &self.ledger {
            // A file that is left behind in the folder of temporary files does no harm.
            let _ = fs::remove_file(path);
        }
    }
}

/// At most about 10,000 of these coordinates: all of them, or pieces of 100 that are evenly spaced.
fn watched(trainable: &[Range<usize>]) -> Vec<usize> {
    const PIECE: usize = 100;
    let all: Vec<usize> = trainable.iter().cloned().flatten().collect();
    let pieces = all.len().div_ceil(PIECE);
    all.chunks(PIECE).step_by(pieces.div_ceil(100).max(1)).flatten().copied().collect()
}

fn temporary_file() -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("sordino-audit-{}-{number}.ledger", std::process::id()))
}

/// The plan for a data set with this number of slots, at the same rates. Batches have no cap, because canaries make them larger.
pub(crate) fn for_slots(plan: &Plan, slots: u64) -> Result<Plan, AuditError> {
    let entry = |entry: &Entry| {
        let sampling = match entry.sampling() {
            Sampling::Poisson { rate, .. } => Sampling::Poisson { rate, cap: None },
            Sampling::FixedSize { batch_size, population } => {
                let share = batch_size as f64 / population as f64;
                Sampling::FixedSize {
                    batch_size: ((share * slots as f64).round() as u64).clamp(1, slots),
                    population: slots,
                }
            }
            other => other,
        };
        Entry::new(sampling, entry.releases().to_vec(), entry.steps())
    };
    Ok(plan.entries().iter().map(entry).collect::<Result<Plan, _>>()?)
}
