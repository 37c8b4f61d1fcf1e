//! The loop.

use std::{
    collections::HashMap,
    fs::{self, OpenOptions},
    io::Write,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use sordino_algorithms::{Algorithm, Choice, Setting};
use sordino_data::Dataset;
use sordino_nn::{Engine, Loss, Network, NetworkError};
use sordino_privacy::{Account, Randomness, Terms, Vault};

use crate::{
    Learning, NetworkGradients, RunFolder, Score, TrainError,
    evaluation::Examination,
    folder::{self, failed, write_whole},
    learner::Learner,
    seal::{self, Seals},
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
    pub algorithm: &'a Choice,
    /// What the algorithm is told.
    pub setting: &'a Setting,
    /// What was agreed.
    pub terms: &'a Terms,
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
    /// A run goes on: its checkpoint is from one step, and it goes on after another. What lies between was paid for and is lost.
    fn resumed(&mut self, _checkpoint: u64, _position: u64) {}
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
    /// Seconds of training, in all processes.
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
    /// Seconds of training, in all processes.
    pub seconds: f64,
}

impl<'a> Run<'a> {
    /// Trains from the beginning.
    ///
    /// # Errors
    /// As [`TrainError`] has them. What was released before is in the ledger.
    pub fn begin(&self, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Ending, TrainError> {
        let pupil = Pupil { learner: self.learner()?, algorithm: self.algorithm.begin(self.setting)? };
        let mut vault =
            Vault::seal(self.gradients()?, self.terms, self.randomness()?, &self.folder.ledger())?;
        self.save(&pupil, &Progress::default(), &mut vault)?;
        self.train(vault, pupil, Progress::default(), stop, observer)
    }

    /// Goes on with a run that stopped or was killed: from its last checkpoint, after all steps that were paid for.
    ///
    /// # Errors
    /// As [`TrainError`] has them; a checkpoint that knows of lines which the ledger lacks.
    pub fn resume(&self, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Ending, TrainError> {
        let mut pupil = Pupil { learner: self.learner()?, algorithm: self.algorithm.begin(self.setting)? };
        // The ledger is locked before anything else is looked at.
        let mut vault =
            Vault::resume(self.gradients()?, self.terms, self.randomness()?, &self.folder.ledger())?;
        Seals::read(self.folder)?.check_ledger(self.folder, vault.account())?;
        let path = self.folder.checkpoint();
        let mut progress = Progress::default();
        if path.is_file() {
            let notes = pupil.restore(&folder::read(&path)?)?;
            progress = Progress::read(&notes).ok_or_else(|| failed(&path, &"does not say where it was"))?;
        } else if vault.position() > 0 {
            return Err(failed(&path, &"is missing, so there are no weights to go on with"));
        } else {
            // Killed before its first checkpoint and its first step.
            self.save(&pupil, &progress, &mut vault)?;
        }
        mend_metrics(self.folder)?;
        observer.resumed(progress.step, vault.position());
        self.train(vault, pupil, progress, stop, observer)
    }

    fn train(
        &self,
        mut vault: Vault<NetworkGradients<'a>>,
        mut pupil: Pupil<'a>,
        before: Progress,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Ending, TrainError> {
        let begun = Instant::now();
        // To the millisecond: how long a step takes is nobody's business.
        let seconds = || (1e3 * (before.seconds + begun.elapsed().as_secs_f64())).round() / 1e3;
        let mut examination =
            self.test.map(|test| Examination::new((self.network)()?, self.loss, test)).transpose()?;
        let mut measure = |learner: &Learner, step: u64, observer: &mut dyn Observer| {
            let Some(examination) = &mut examination else { return Ok(None) };
            let score = examination.score(&learner.best())?;
            let private = self.seed.is_none() && self.terms.guarantee().is_some();
            let measurement = Measurement { step, score, seconds: seconds(), private };
            note(self.folder, &measurement)?;
            observer.measured(&measurement);
            Ok::<_, TrainError>(Some(score))
        };
        let steps = self.terms.steps();
        let operations = (self.network)()?.operations() * self.setting.expected_batch_size;
        // At most a tenth of the plan: so much is lost if the process is killed right after it has paid.
        vault.charge_by(steps_per_charge(operations, vault.sync_time()).min(steps.div_ceil(10)));
        let mut saved = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let step = vault.position();
            let Some(taken) =
                vault.round(|round| pupil.algorithm.step(round, pupil.learner.params(), step))?
            else {
                break;
            };
            if let Some(release) = taken? {
                #[expect(clippy::cast_possible_truncation, reason = "a factor")]
                let mean = release.scaled((1.0 / self.setting.expected_batch_size) as f32);
                vault.reuse(pupil.learner.learn(mean, step, steps));
            }
            let position = vault.position();
            observer.stepped(position, vault.account());
            if position.is_multiple_of(self.measure_every) && position < steps {
                measure(&pupil.learner, position, observer)?;
            }
            if saved.elapsed() >= self.checkpoint_every {
                self.save(&pupil, &Progress { step: position, seconds: seconds() }, &mut vault)?;
                saved = Instant::now();
            }
        }
        let position = vault.position();
        // Saved before the ledger says that all is done: whatever happens in between, there is a model.
        self.save(&pupil, &Progress { step: position, seconds: seconds() }, &mut vault)?;
        let account = vault.close()?;
        let score = measure(&pupil.learner, position, observer)?;
        let finished = account.is_closed();
        if finished {
            // Once more, with the ledger's last line.
            self.save_model(&pupil.learner, &account)?;
            let checkpoint = self.folder.checkpoint();
            fs::remove_file(&checkpoint).map_err(|error| failed(&checkpoint, &error))?;
        }
        Ok(Ending { score, account, finished, seconds: seconds() })
    }

    /// Writes a checkpoint and the weights. The hash of the weights is entered into the ledger first. A run that is killed in between
    /// still has the previous weights, and their hash is in the ledger, too.
    fn save(
        &self,
        pupil: &Pupil<'_>,
        progress: &Progress,
        vault: &mut Vault<NetworkGradients<'a>>,
    ) -> Result<(), TrainError> {
        let weights = self.model_file(&pupil.learner, HashMap::new())?;
        let hash = seal::weights_hash(&weights).map_err(|error| failed(&self.folder.model(), &error))?;
        vault.enter_model(&hash)?;
        let mut notes = seal::notes(vault.account());
        notes.extend(progress.notes());
        write_whole(&self.folder.checkpoint(), &pupil.save(notes)?)?;
        self.save_model(&pupil.learner, vault.account())
    }

    fn save_model(&self, learner: &Learner, account: &Account) -> Result<(), TrainError> {
        write_whole(&self.folder.model(), &self.model_file(learner, seal::notes(account))?)
    }

    fn model_file(
        &self,
        learner: &Learner,
        mut notes: HashMap<String, String>,
    ) -> Result<Vec<u8>, TrainError> {
        notes.extend(self.notes.clone());
        Ok(learner.best().to_safetensors_noting(notes)?)
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

    fn gradients(&self) -> Result<NetworkGradients<'a>, TrainError> {
        let engine = Engine::new((self.network)()?, self.loss)?;
        let targets = self.records.targets().ok_or_else(|| TrainError::Refused {
            problem: "the records have no targets to learn".to_owned(),
            hint: "name the target's column".to_owned(),
        })?;
        let records = engine.records(self.records.inputs(), targets)?;
        Ok(NetworkGradients::new(engine, records))
    }
}

/// What is trained, and what trains it.
struct Pupil<'a> {
    learner: Learner,
    algorithm: Box<dyn Algorithm<NetworkGradients<'a>>>,
}

impl Pupil<'_> {
    fn save(&self, notes: HashMap<String, String>) -> Result<Vec<u8>, TrainError> {
        self.learner.save(self.algorithm.state(), notes)
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<HashMap<String, String>, TrainError> {
        let (algorithm, notes) = self.learner.restore(bytes)?;
        self.algorithm.restore(&algorithm);
        Ok(notes)
    }
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Progress {
    /// Steps taken or given up.
    step: u64,
    /// Time it took, in all processes.
    seconds: f64,
}

impl Progress {
    fn notes(&self) -> [(String, String); 2] {
        [("step".to_owned(), self.step.to_string()), ("seconds".to_owned(), self.seconds.to_string())]
    }

    fn read(notes: &HashMap<String, String>) -> Option<Self> {
        let step = notes.get("step")?.parse().ok()?;
        let seconds = notes.get("seconds")?.parse().ok().filter(|seconds: &f64| seconds.is_finite())?;
        Some(Self { step, seconds })
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
