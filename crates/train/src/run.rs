//! The fourth stage: the training loop, with checkpoints.

use std::{
    collections::HashMap,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use sordino_data::Dataset;
use sordino_nn::Params;
use sordino_privacy::{Account, Communicator, PrivacyError, Randomness, Ranks, Vault};

use crate::{
    Evaluator, Measurement, Metrics, NetworkGradients, PricedRun, RunFolder, Score, TrainError,
    folder::{self, failed, write_whole},
    inspection::TEMPERATURE,
    learner::Learner,
    metrics::{self, Moment, Recorder},
    seal::{self, Seals},
    state::{Position, TrainState},
};

/// A run before it starts. Everything about it except the records is fixed and public.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    priced: &'a PricedRun,
    records: &'a Dataset,
    test: Option<&'a Dataset>,
    folder: Option<&'a RunFolder>,
    seed: Option<u64>,
    measure_every: u64,
    /// The other ranks; none for a process that trains alone.
    communicator: Option<&'a Arc<dyn Communicator>>,
}

/// The vault of a run.
pub(crate) type SealedRecords<'a> = Vault<NetworkGradients<'a>>;

/// Receives the events of a run.
pub trait Observer {
    /// The frozen layers of a public model are about to be applied to this many records, once, before training.
    fn encoding(&mut self, _records: usize) {}
    /// A fixed public transform is about to be computed for this many records, once, before training.
    fn transforming(&mut self, _records: usize) {}
    /// All records are encoded; training begins.
    fn encoded(&mut self) {}
    /// A run was resumed. Its checkpoint is from step `checkpoint`, and it continues after step `position`. The steps in between were
    /// charged and are lost.
    fn resumed(&mut self, _checkpoint: u64, _position: u64) {}
    /// A step was taken. `position` counts the steps taken or given up.
    fn stepped(&mut self, _position: u64, _account: &Account) {}
    /// The model was measured on test records.
    fn measured(&mut self, _measurement: &Measurement) {}
}

/// The observer that ignores all events.
impl Observer for () {}

/// The result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    /// The parameters of the model.
    pub params: Params,
    /// The last score on test records, if there is one.
    pub score: Option<Score>,
    /// All metrics of the last measurement, at the end of training.
    pub metrics: Option<Metrics>,
    /// The content of the ledger.
    pub account: Account,
    /// Whether the plan is finished. If not, the run was stopped and can be resumed.
    pub finished: bool,
    /// Seconds of training, in all processes.
    pub seconds: f64,
}

impl Ending {
    /// The temperature that was fitted to the last measurement; 1 if none was.
    pub fn temperature(&self) -> f64 {
        let fitted = self.metrics.as_ref().filter(|_| self.finished).and_then(|metrics| metrics.temperature);
        fitted.map_or(1.0, |fitted| fitted.value)
    }
}

impl PricedRun {
    /// A run on these private records. It is measured on the test records, which are public or held back. Without a folder, nothing is written, the ledger is in
    /// memory, and the run cannot be resumed.
    pub fn run<'a>(
        &'a self,
        records: &'a Dataset,
        test: Option<&'a Dataset>,
        folder: Option<&'a RunFolder>,
    ) -> Run<'a> {
        let seed = self.resolved.values.seed.as_ref().map(|seed| seed.value);
        let measure_every = self.resolved.measure_every;
        Run { priced: self, records, test, folder, seed, measure_every, communicator: None }
    }
}

impl<'a> Run<'a> {
    /// The same run, with a number added to its seed, if it has one.
    #[must_use]
    pub fn with_seed_offset(self, offset: u64) -> Self {
        Self { seed: self.seed.map(|seed| seed.wrapping_add(offset)), ..self }
    }

    /// The same run on several ranks, where `records` are the share of this one. Only rank 0 has a folder and test records.
    #[must_use]
    pub fn among(self, communicator: &'a Arc<dyn Communicator>) -> Self {
        Self { communicator: Some(communicator), ..self }
    }

    /// The same run, measured only after its last step. A run that is stopped earlier is not measured.
    #[must_use]
    pub fn measured_once(self) -> Self {
        Self { measure_every: u64::MAX, ..self }
    }

    /// Trains from the beginning.
    ///
    /// # Errors
    /// As [`TrainError`] lists them. What was released before an error is in the ledger.
    pub fn begin(&self, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Ending, TrainError> {
        self.encoded(observer, |run, observer| run.begin_encoded(stop, observer))
    }

    fn begin_encoded(&self, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Ending, TrainError> {
        let (vault, state) = self.open()?;
        self.train(vault, state, Position::default(), stop, observer)
    }

    /// The sealed records and the state before the first step.
    pub(crate) fn open(&self) -> Result<(SealedRecords<'a>, TrainState<'a>), TrainError> {
        let mut state = self.initial_state()?;
        let (gradients, terms, randomness) = (self.gradients()?, &self.priced.terms, self.randomness()?);
        let ledger = self.folder.map(RunFolder::ledger);
        let mut vault = Vault::seal_among(&self.ranks(), gradients, terms, randomness, ledger.as_deref())?;
        self.share_state(&mut state)?;
        self.save(&state, &Position::default(), None, &mut vault)?;
        Ok((vault, state))
    }

    /// Continues a run that was stopped or killed, from its last checkpoint, after all steps that were charged.
    ///
    /// # Errors
    /// As [`TrainError`] lists them; a run without a folder; a checkpoint that refers to lines that are missing from the ledger.
    pub fn resume(&self, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Ending, TrainError> {
        self.encoded(observer, |run, observer| run.resume_encoded(stop, observer))
    }

    fn resume_encoded(&self, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Ending, TrainError> {
        if !self.ranks().is_first() {
            let mut state = self.initial_state()?;
            let (gradients, terms, randomness) = (self.gradients()?, &self.priced.terms, self.randomness()?);
            let vault = Vault::resume_among(&self.ranks(), gradients, terms, randomness, Path::new(""))?;
            self.share_state(&mut state)?;
            return self.train(vault, state, Position::default(), stop, observer);
        }
        let folder = self.folder.ok_or_else(|| {
            TrainError::refused("a run without a folder cannot be resumed", "give the folder of the run")
        })?;
        let (vault, state, position) = self.reopen(folder)?;
        observer.resumed(position.step, vault.position());
        self.train(vault, state, position, stop, observer)
    }

    /// The sealed records, and the state and the position of the last checkpoint.
    pub(crate) fn reopen(
        &self,
        folder: &RunFolder,
    ) -> Result<(SealedRecords<'a>, TrainState<'a>, Position), TrainError> {
        let mut state = self.initial_state()?;
        let (gradients, terms, randomness) = (self.gradients()?, &self.priced.terms, self.randomness()?);
        // The ledger is locked before any other file is read.
        let mut vault = Vault::resume_among(&self.ranks(), gradients, terms, randomness, &folder.ledger())?;
        Seals::read(folder)?.check_ledger(folder, vault.account())?;
        let path = folder.checkpoint();
        let mut position = Position::default();
        if path.is_file() {
            let bytes = folder::read(&path)?;
            // Checkpoints of earlier versions have no hash.
            seal::check_hash(&path, &bytes)?;
            let notes = state.restore(&bytes)?;
            position = Position::read(&notes).ok_or_else(|| failed(&path, &"does not name its step"))?;
        } else if vault.position() > 0 {
            return Err(failed(&path, &"is missing, so there are no weights to continue with"));
        } else {
            // Killed before its first checkpoint and its first step.
            self.save(&state, &position, None, &mut vault)?;
        }
        metrics::repair(folder)?;
        self.share_state(&mut state)?;
        Ok((vault, state, position))
    }

    /// Calls `f` with a run on the data that the trained network reads. The frozen layers of a public model are first applied to all
    /// records, once.
    fn encoded<T>(
        &self,
        observer: &mut dyn Observer,
        f: impl FnOnce(&Run<'_>, &mut dyn Observer) -> Result<T, TrainError>,
    ) -> Result<T, TrainError> {
        let model = &self.priced.resolved.model;
        if model.encodes(self.records) && model.features().is_some() {
            observer.transforming(self.records.slots() + self.test.map_or(0, Dataset::slots));
        } else if model.encodes(self.records) {
            observer.encoding(self.records.slots() + self.test.map_or(0, Dataset::slots));
        }
        let records = model.encode(self.records)?;
        let test = self.test.map(|test| model.encode(test)).transpose()?.flatten();
        if records.is_some() {
            observer.encoded();
        }
        let run = Run {
            records: records.as_ref().unwrap_or(self.records),
            test: test.as_ref().or(self.test),
            ..*self
        };
        f(&run, observer)
    }

    fn train(
        &self,
        mut vault: SealedRecords<'a>,
        mut state: TrainState<'a>,
        before: Position,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Ending, TrainError> {
        let clock = Clock::after(before.seconds);
        let (mut recorder, mut latest) = (self.recorder()?, None);
        let (steps, batch_size) = (self.priced.terms.steps(), self.priced.resolved.facts.expected_batch_size);
        // A client takes at least one record in each local step.
        let local = self.priced.resolved.local.map_or(1.0, |local| local.steps as f64);
        let operations = self.priced.resolved.model.network()?.operations() * batch_size * local;
        // At most a tenth of the plan is lost if the process is killed right after a charge.
        vault.charge_by(steps_per_charge(operations, vault.sync_time()).min(steps.div_ceil(10)));
        let mut saved = Instant::now();
        while !self.stops(stop)? {
            if !self.step(&mut vault, &mut state)? {
                break;
            }
            let position = vault.position();
            observer.stepped(position, vault.account());
            if position < steps && self.is_measured_at(position, steps) {
                let moment = Moment { step: position, seconds: clock.seconds(), last: false };
                latest = recorder.measure(&mut vault, &state.learner, moment, observer)?.or(latest);
            }
            if saved.elapsed() >= self.priced.resolved.checkpoint_every {
                self.save(&state, &Position { step: position, seconds: clock.seconds() }, None, &mut vault)?;
                saved = Instant::now();
            }
        }
        let position = vault.position();
        let ended = Position { step: position, seconds: clock.seconds() };
        // Saved before the ledger is closed, so that a finished run always has a model.
        self.save(&state, &ended, None, &mut vault)?;
        let finished = position == steps;
        // Protected records are measured when the plan is finished: a run that is stopped can be resumed.
        let is_measured = match recorder.noise_std {
            _ if finished => true,
            None => self.measure_every < u64::MAX,
            Some(_) => false,
        };
        if is_measured {
            let moment = Moment { step: position, seconds: ended.seconds, last: true };
            latest = recorder.measure_at_end(&mut vault, &state.learner, moment, observer)?.or(latest);
        }
        let latest = latest.filter(|latest| latest.step == position || !finished);
        let metrics = latest.as_ref().and_then(|latest| latest.metrics.clone());
        let temperature = metrics.as_ref().and_then(|metrics| metrics.temperature).map(|fitted| fitted.value);
        if finished && temperature.is_some() {
            self.save(&state, &ended, temperature, &mut vault)?;
        }
        let account = self.end(vault, &state, temperature)?;
        let score = latest.map(|latest| latest.score);
        Ok(Ending {
            params: state.learner.best(),
            score,
            metrics,
            account,
            finished,
            seconds: clock.seconds(),
        })
    }

    fn ranks(&self) -> Ranks {
        match self.communicator {
            None => Ranks::alone(self.records.slots()),
            Some(communicator) => {
                Ranks::among(communicator.clone(), self.priced.resolved.facts.records as usize)
            }
        }
    }

    /// Gives every rank the state of rank 0.
    fn share_state(&self, state: &mut TrainState<'_>) -> Result<(), TrainError> {
        let Some(communicator) = self.communicator else { return Ok(()) };
        let mut bytes = state.save(HashMap::new())?;
        communicator.broadcast_bytes(&mut bytes).map_err(PrivacyError::Ranks)?;
        if communicator.rank() > 0 {
            state.restore(&bytes)?;
        }
        Ok(())
    }

    /// Whether rank 0 has been told to stop.
    fn stops(&self, stop: &AtomicBool) -> Result<bool, TrainError> {
        let mut stops = vec![u8::from(stop.load(Ordering::Relaxed))];
        if let Some(communicator) = self.communicator {
            communicator.broadcast_bytes(&mut stops).map_err(PrivacyError::Ranks)?;
        }
        Ok(stops != [0])
    }

    /// Takes a step. Returns false if the plan is finished.
    pub(crate) fn step(
        &self,
        vault: &mut SealedRecords<'a>,
        state: &mut TrainState<'a>,
    ) -> Result<bool, TrainError> {
        let (step, batch_size) = (vault.position(), self.priced.resolved.facts.expected_batch_size);
        let taken = vault.round(|round| state.steps.step(round, state.learner.params(), step))?;
        let Some(taken) = taken else { return Ok(false) };
        if let Some(release) = taken? {
            let mean = release.scaled((1.0 / batch_size) as f32);
            vault.reuse(state.learner.learn(mean, step, self.priced.terms.steps()));
        }
        Ok(true)
    }

    /// Closes the ledger. A run whose plan is finished keeps its model and needs no checkpoint.
    pub(crate) fn end(
        &self,
        vault: SealedRecords<'a>,
        state: &TrainState<'a>,
        temperature: Option<f64>,
    ) -> Result<Account, TrainError> {
        let finished = vault.position() == self.priced.terms.steps();
        let account = vault.close()?;
        if finished && let Some(folder) = self.folder {
            // Saved again, with the last line of the ledger.
            self.save_model(folder, &state.learner, temperature, &account)?;
            let checkpoint = folder.checkpoint();
            fs::remove_file(&checkpoint).map_err(|error| failed(&checkpoint, &error))?;
        }
        Ok(account)
    }

    /// Whether a measurement is due after this step: one of the planned measurements on protected records, or as often as public records are
    /// measured.
    fn is_measured_at(&self, position: u64, steps: u64) -> bool {
        match self.priced.terms.measurement_budget() {
            Some(budget) => {
                let due = |position: u64| {
                    u128::from(position) * u128::from(budget.measurements) / u128::from(steps)
                };
                self.measure_every != u64::MAX && due(position) > due(position - 1)
            }
            None => position.is_multiple_of(self.measure_every),
        }
    }

    /// Writes a checkpoint and the weights. The hash of the weights is entered into the ledger first. A run that is killed in between
    /// still has the previous weights, and their hash is also in the ledger.
    pub(crate) fn save(
        &self,
        state: &TrainState<'_>,
        position: &Position,
        temperature: Option<f64>,
        vault: &mut SealedRecords<'a>,
    ) -> Result<(), TrainError> {
        let Some(folder) = self.folder else { return Ok(()) };
        let weights = self.model_file(&state.learner, temperature, vault.account(), HashMap::new())?;
        let hash = seal::weights_hash(&weights).map_err(|error| failed(&folder.model(), &error))?;
        vault.enter_model(&hash)?;
        let mut notes = seal::notes(vault.account());
        notes.extend(position.notes());
        let checkpoint = seal::with_hash(&state.save(notes)?);
        let checkpoint = checkpoint.map_err(|error| failed(&folder.checkpoint(), &error))?;
        write_whole(&folder.checkpoint(), &checkpoint)?;
        self.save_model(folder, &state.learner, temperature, vault.account())
    }

    fn save_model(
        &self,
        folder: &RunFolder,
        learner: &Learner,
        temperature: Option<f64>,
        account: &Account,
    ) -> Result<(), TrainError> {
        write_whole(&folder.model(), &self.model_file(learner, temperature, account, seal::notes(account))?)
    }

    fn model_file(
        &self,
        learner: &Learner,
        temperature: Option<f64>,
        account: &Account,
        mut notes: HashMap<String, String>,
    ) -> Result<Vec<u8>, TrainError> {
        notes.extend(self.priced.notes(account));
        notes.extend(temperature.map(|temperature| (TEMPERATURE.to_owned(), temperature.to_string())));
        Ok(learner.best().to_safetensors_noting(notes)?)
    }

    fn initial_state(&self) -> Result<TrainState<'a>, TrainError> {
        // The initial parameters are public, but they differ from run to run.
        let seed = match self.seed {
            Some(seed) => seed,
            None => getrandom::u64().map_err(|error| {
                TrainError::refused(
                    format!("the operating system provides no randomness: {error}"),
                    "training needs getrandom(2) or its equivalent",
                )
            })?,
        };
        TrainState::new(self.priced, &self.priced.resolved.model.network()?, seed)
    }

    fn randomness(&self) -> Result<Randomness, TrainError> {
        Ok(match self.seed {
            None => Randomness::from_os()?,
            Some(seed) => Randomness::seeded(seed),
        })
    }

    fn recorder(&self) -> Result<Recorder<'a>, TrainError> {
        let model = &self.priced.resolved.model;
        let evaluator = |test| Ok::<_, TrainError>(Evaluator::new(model.network()?, model.loss, test)?);
        Ok(Recorder {
            evaluator: self.test.map(evaluator).transpose()?,
            folder: self.folder,
            private: self.seed.is_none() && self.priced.terms.guarantee().is_some(),
            noise_std: self.priced.measurement_noise()?,
        })
    }

    fn gradients(&self) -> Result<NetworkGradients<'a>, TrainError> {
        NetworkGradients::of(self.records, &self.priced.resolved)
    }
}

/// The seconds of training, in all processes.
pub(crate) struct Clock {
    before: f64,
    begun: Instant,
}

impl Clock {
    /// A clock that starts now, after these seconds in earlier processes.
    pub(crate) fn after(before: f64) -> Self {
        Self { before, begun: Instant::now() }
    }

    /// Rounded to milliseconds, because the duration of single steps is not public.
    pub(crate) fn seconds(&self) -> f64 {
        (1e3 * (self.before + self.begun.elapsed().as_secs_f64())).round() / 1e3
    }
}

/// The number of steps to charge at once, so that syncing the ledger takes less than a hundredth of their time, and at least as many as
/// take a twentieth of a second.
///
/// Both times are estimated from public numbers: the time that the first line of the ledger took, and the operations of a step at 200
/// billion operations per second. A step takes at least that long.
pub fn steps_per_charge(operations: f64, sync_time: Duration) -> u64 {
    let step = operations / 2e11 + 2e-5;
    let steps = (100.0 * sync_time.as_secs_f64()).max(0.05) / step;
    (steps.ceil() as u64).max(1)
}
