//! The loop.

use std::{
    collections::HashMap,
    fs::{self, OpenOptions},
    io::Write,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use sordino_data::Dataset;
use sordino_nn::{Engine, Loss, Network, NetworkError};
use sordino_privacy::{Account, Randomness, Terms, Vault};

use crate::{
    Algorithm, Learning, NetworkGradients, RunFolder, Score, TrainError,
    evaluation::Examination,
    folder::{self, failed, write_whole},
    learner::Learner,
    seal,
};

/// A run before it starts: everything about it is decided and public.
pub struct Run<'a> {
    /// Where its files are.
    pub folder: &'a RunFolder,
    /// What is trained; called once for the private records and once for the public ones.
    pub network: &'a dyn Fn() -> Result<Network, NetworkError>,
    /// What is minimised.
    pub loss: Loss,
    /// The private records.
    pub records: &'a Dataset,
    /// Public records to measure on.
    pub test: Option<&'a Dataset>,
    /// What each step releases.
    pub algorithm: &'a Algorithm,
    /// What was agreed.
    pub terms: &'a Terms,
    /// The expected size of a batch: public, and the divisor of every sum.
    pub expected_batch_size: f64,
    /// How releases become steps.
    pub learning: &'a Learning,
    /// A seed makes the run repeatable and NOT PRIVATE.
    pub seed: Option<u64>,
    /// Steps between measurements.
    pub measure_every: u64,
    /// Time between checkpoints.
    pub checkpoint_every: Duration,
    /// What is noted in the file of the weights: public facts that go with them.
    pub notes: &'a HashMap<String, String>,
}

/// Somebody who watches a run.
pub trait Observer {
    /// A step was taken; `position` of them are taken or given up.
    fn stepped(&mut self, _position: u64, _account: &Account) {}
    /// The model was measured on public records.
    fn measured(&mut self, _measurement: &Measurement) {}
}

/// Nobody watches.
impl Observer for () {}

/// A line of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Steps taken or given up.
    pub step: u64,
    /// What was measured.
    #[serde(flatten)]
    pub score: Score,
    /// Seconds since the run began or was resumed.
    pub seconds: f64,
    /// Whether the run is private: false with a fixed seed and without noise.
    pub private: bool,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    /// What the model is worth on public records, if there are any.
    pub score: Option<Score>,
    /// What the ledger says.
    pub account: Account,
    /// Whether the plan is finished; if not, the run was asked to stop and can be resumed.
    pub finished: bool,
    /// Time in this process.
    pub seconds: f64,
}

impl Run<'_> {
    /// Trains from the beginning.
    ///
    /// # Errors
    /// As [`TrainError`] has them. What was released before is in the ledger.
    pub fn begin(&self, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Ending, TrainError> {
        let learner = self.learner()?;
        let vault = Vault::seal(self.gradients()?, self.terms, self.randomness()?, &self.folder.ledger())?;
        self.train(vault, learner, stop, observer)
    }

    /// Goes on with a run that stopped or was killed: from its last checkpoint, after all steps that were paid for.
    ///
    /// # Errors
    /// As [`TrainError`] has them; a checkpoint that knows of lines which the ledger lacks.
    pub fn resume(&self, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Ending, TrainError> {
        let mut learner = self.learner()?;
        let path = self.folder.checkpoint();
        // Killed before its first checkpoint, a run begins with new parameters and what is left of its plan.
        if path.is_file() {
            learner.restore(&folder::read(&path)?)?;
        }
        seal::verify(self.folder, &Account::read(&self.folder.ledger())?)?;
        mend_metrics(self.folder)?;
        let vault = Vault::resume(self.gradients()?, self.terms, self.randomness()?, &self.folder.ledger())?;
        self.train(vault, learner, stop, observer)
    }

    fn train(
        &self,
        mut vault: Vault<NetworkGradients<'_>>,
        mut learner: Learner,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Ending, TrainError> {
        let begun = Instant::now();
        let mut examination =
            self.test.map(|test| Examination::new((self.network)()?, self.loss, test)).transpose()?;
        let mut measure = |learner: &Learner, step: u64, observer: &mut dyn Observer| {
            let Some(examination) = &mut examination else { return Ok(None) };
            let score = examination.score(&learner.best())?;
            let seconds = begun.elapsed().as_secs_f64();
            let private = self.seed.is_none() && self.terms.guarantee().is_some();
            let measurement = Measurement { step, score, seconds, private };
            note(self.folder, &measurement)?;
            observer.measured(&measurement);
            Ok::<_, TrainError>(Some(score))
        };
        let steps = self.terms.steps();
        let operations = (self.network)()?.operations() * self.expected_batch_size;
        vault.charge_by(steps_per_charge(operations, vault.sync_time()));
        let mut saved = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let step = vault.position();
            let Some(release) = vault.round(|round| self.algorithm.step(round, learner.params()))? else {
                break;
            };
            #[expect(clippy::cast_possible_truncation, reason = "a factor")]
            let mean = release?.scaled((1.0 / self.expected_batch_size) as f32);
            vault.reuse(learner.learn(mean, step, steps));
            let position = vault.position();
            observer.stepped(position, vault.account());
            if position.is_multiple_of(self.measure_every) && position < steps {
                measure(&learner, position, observer)?;
            }
            if saved.elapsed() >= self.checkpoint_every {
                self.save(&learner, vault.account())?;
                saved = Instant::now();
            }
        }
        let position = vault.position();
        let account = vault.close()?;
        self.save(&learner, &account)?;
        let score = measure(&learner, position, observer)?;
        let finished = account.is_closed();
        if finished {
            let checkpoint = self.folder.checkpoint();
            fs::remove_file(&checkpoint).map_err(|error| failed(&checkpoint, &error))?;
        }
        Ok(Ending { score, account, finished, seconds: begun.elapsed().as_secs_f64() })
    }

    fn save(&self, learner: &Learner, account: &Account) -> Result<(), TrainError> {
        let mut notes = seal::notes(account);
        write_whole(&self.folder.checkpoint(), &learner.save(notes.clone())?)?;
        notes.extend(self.notes.clone());
        write_whole(&self.folder.model(), &learner.best().to_safetensors_noting(notes)?)
    }

    fn learner(&self) -> Result<Learner, TrainError> {
        // Where parameters begin is public; it differs from run to run all the same.
        let seed = match self.seed {
            Some(seed) => seed,
            None => getrandom::u64().map_err(|error| TrainError::Refused {
                problem: format!("the operating system gives no randomness: {error}"),
                hint: "training needs getrandom(2) or its like".to_owned(),
            })?,
        };
        Learner::new(&(self.network)()?, self.learning, seed)
    }

    fn randomness(&self) -> Result<Randomness, TrainError> {
        Ok(match self.seed {
            None => Randomness::from_os()?,
            Some(seed) => Randomness::seeded(seed),
        })
    }

    fn gradients(&self) -> Result<NetworkGradients<'_>, TrainError> {
        let engine = Engine::new((self.network)()?, self.loss)?;
        let targets = self.records.targets().ok_or_else(|| TrainError::Refused {
            problem: "the records have no targets to learn".to_owned(),
            hint: "name the target's column".to_owned(),
        })?;
        let records = engine.records(self.records.inputs(), targets)?;
        Ok(NetworkGradients::new(engine, records))
    }
}

/// So many steps of this many operations that a sync of the ledger takes less than a hundredth of their time; not fewer than take
/// a twentieth of a second.
///
/// Both are guessed from public numbers: how long the ledger's first line took, and the arithmetic of a step at 200 billion
/// operations a second, so that a step does not take less time than is guessed.
pub fn steps_per_charge(operations: f64, sync_time: Duration) -> u64 {
    let step = operations / 2e11 + 2e-5;
    let wanted = (100.0 * sync_time.as_secs_f64()).max(0.05) / step;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let steps = wanted.ceil() as u64;
    steps.max(1)
}

/// Appends a line to the measurements.
fn note(folder: &RunFolder, measurement: &Measurement) -> Result<(), TrainError> {
    let path = folder.metrics();
    let line = serde_json::to_string(measurement).map_err(|error| failed(&path, &error))? + "\n";
    let file = OpenOptions::new().create(true).append(true).open(&path);
    file.and_then(|mut file| file.write_all(line.as_bytes())).map_err(|error| failed(&path, &error))
}

/// Removes a line that a killed run left half written.
fn mend_metrics(folder: &RunFolder) -> Result<(), TrainError> {
    let path = folder.metrics();
    let Ok(text) = fs::read(&path) else { return Ok(()) };
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    if whole < text.len() { write_whole(&path, &text[..whole]) } else { Ok(()) }
}
