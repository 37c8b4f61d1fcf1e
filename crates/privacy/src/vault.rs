//! The vault: records go in, releases come out.

use std::{path::Path, time::Duration};

use rand_chacha::rand_core::Rng;
use sordino_accounting::Sampling;

use crate::{
    Account, Bounded, ClipRule, Gradients, PerRecord, PrivacyError, Randomness, Release, Sensitive, Sum,
    Terms, WeightRule,
    ledger::Ledger,
    memory::{Band, Memory},
    noise::Noise,
    sampling,
    sensitive::{Brand, Kind},
    terms::{Cursor, Step},
};

/// Private records behind a door that opens once for each step of a plan.
///
/// **Guarantees.** Everything that leaves through [`round`](Self::round), together, satisfies the guarantee of the
/// [`Terms`], as `PROOF.md` argues; what was charged to the ledger covers what has left, whenever the process dies.
pub struct Vault<G> {
    gradients: G,
    ledger: Ledger,
    randomness: Randomness,
    /// Steps that have been drawn or given up.
    position: u64,
    cursor: Cursor,
    steps_per_charge: u64,
    batch: Vec<usize>,
    /// What was clipped away, to be fed back.
    memory: Memory,
    /// Memory of an earlier release and of earlier sums: fresh pages cost more than the noise.
    spare: Vec<f32>,
    spare_sums: Vec<Vec<f64>>,
}

impl<G: Gradients> Vault<G> {
    /// Seals records behind priced terms and begins a ledger.
    ///
    /// # Errors
    /// Terms for another number of records; a ledger that exists already or cannot be written.
    pub fn seal(
        gradients: G,
        terms: &Terms,
        randomness: Randomness,
        ledger: &Path,
    ) -> Result<Self, PrivacyError> {
        fitting(&gradients, terms)?;
        let ledger = Ledger::create(ledger, terms, randomness.is_seeded())?;
        Ok(Self::new(gradients, ledger, randomness, 0))
    }

    /// Seals records behind priced terms with a ledger in memory.
    ///
    /// Nothing survives the process, so that nothing can say later how many steps were drawn. The whole plan counts as charged from
    /// the start, and neither stopping early nor [closing](Self::close) gives steps back.
    ///
    /// # Errors
    /// Terms for another number of records.
    pub fn seal_in_memory(gradients: G, terms: &Terms, randomness: Randomness) -> Result<Self, PrivacyError> {
        fitting(&gradients, terms)?;
        let ledger = Ledger::in_memory(terms, randomness.is_seeded());
        Ok(Self::new(gradients, ledger, randomness, 0))
    }

    /// Opens the vault of a run that stopped. All steps that the ledger has charged count as taken; what is left of the
    /// plan can still be drawn, with fresh randomness.
    ///
    /// # Errors
    /// A ledger that was written under other terms, has been changed, or is in use; records that do not fit.
    pub fn resume(
        gradients: G,
        terms: &Terms,
        randomness: Randomness,
        ledger: &Path,
    ) -> Result<Self, PrivacyError> {
        fitting(&gradients, terms)?;
        let ledger = Ledger::resume(ledger, terms, randomness.is_seeded())?;
        let position = ledger.account().charged();
        Ok(Self::new(gradients, ledger, randomness, position))
    }

    fn new(gradients: G, ledger: Ledger, randomness: Randomness, position: u64) -> Self {
        Self {
            gradients,
            ledger,
            randomness,
            position,
            cursor: Cursor::default(),
            steps_per_charge: 1,
            batch: Vec::new(),
            memory: Memory::default(),
            spare: Vec::new(),
            spare_sums: Vec::new(),
        }
    }

    /// Pays for this many steps at a time. More of them cost less time for syncing; when the process is killed, those that
    /// were paid for and not drawn are given up.
    pub fn charge_by(&mut self, steps: u64) {
        self.steps_per_charge = steps.max(1);
    }

    /// Takes memory that is no longer needed for the next release.
    pub fn reuse(&mut self, memory: Vec<f32>) {
        self.spare = memory;
    }

    /// Takes the next step of the plan: charges it, draws its batch, and hands a [`Round`] to `f`.
    ///
    /// `None` when the plan is finished.
    ///
    /// # Errors
    /// A ledger that cannot be written: then nothing is drawn.
    pub fn round<R>(
        &mut self,
        f: impl for<'r> FnOnce(&mut Round<'r, G>) -> R,
    ) -> Result<Option<R>, PrivacyError> {
        let Some(step) = self.ledger.account().terms().step(self.position, &mut self.cursor) else {
            return Ok(None);
        };
        self.ledger.check()?;
        if self.position == self.ledger.account().charged() {
            let left = self.ledger.account().steps() - self.position;
            self.ledger.charge(self.steps_per_charge.min(left))?;
        }
        // From here on the step counts as taken, whatever happens.
        self.position += 1;
        let mut coins = self.randomness.streams().number(0);
        sampling::draw(step.sampling, step.turn, self.gradients.records(), &mut coins, &mut self.batch);
        let mut round = Round { vault: self, step, released: 0, fed: false, brand: Brand::default() };
        Ok(Some(f(&mut round)))
    }

    /// The number of steps taken or given up.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// What the ledger says.
    pub fn account(&self) -> &Account {
        self.ledger.account()
    }

    /// Enters the hash of weights into the ledger; the weights are written afterwards. Weights are computed from releases, so their hash
    /// reveals nothing more.
    ///
    /// # Errors
    /// A ledger that cannot be written.
    pub fn enter_model(&mut self, hash: &str) -> Result<(), PrivacyError> {
        self.ledger.enter_model(hash)
    }

    /// How long the last line of the ledger took to later_shift the disk.
    pub fn sync_time(&self) -> Duration {
        self.ledger.sync_time()
    }

    /// Closes the vault: steps that were charged and not drawn are given back (not to a ledger in memory), and a finished plan is
    /// marked as finished.
    ///
    /// # Errors
    /// A ledger that cannot be written: then all that was paid for counts as taken.
    pub fn close(mut self) -> Result<Account, PrivacyError> {
        let account = self.ledger.account();
        if self.position == account.steps() {
            self.ledger.close()?;
        } else if self.position < account.charged() && !account.is_in_memory() {
            self.ledger.settle(self.position)?;
        }
        Ok(self.ledger.account().clone())
    }
}

/// One step of the plan: a batch has been drawn, and what the plan permits can be released.
///
/// Values made in a round carry its lifetime `'r` and cannot leave it, except by [`release`](Self::release).
pub struct Round<'r, G> {
    vault: &'r mut Vault<G>,
    step: Step,
    released: usize,
    /// Whether the memory has taken up what this step leaves behind.
    fed: bool,
    brand: Brand<'r>,
}

impl<'r, G: Gradients> Round<'r, G> {
    /// The per-record gradients of the batch at these parameters.
    pub fn gradients<'a>(&'a mut self, at: &'a G::Point) -> PerRecord<'a, 'r, G> {
        PerRecord { round: self, at, anchor: None }
    }

    /// Adds the plan's noise to a bounded sum and lets it go.
    ///
    /// The noise has standard deviation `z * sensitivity` (and a little more for rounding, `PROOF.md`), where `z` is
    /// the multiplier that the plan has for this release: the first, the second, and so on, of this step.
    ///
    /// # Errors
    /// More releases than the plan has for this step.
    pub fn release(&mut self, sum: Bounded<'r>) -> Result<Release<Vec<f32>>, PrivacyError> {
        let planned = self.step.releases.len();
        let Some(multiplier) = self.step.releases.get(self.released) else {
            return Err(PrivacyError::OffPlan { planned });
        };
        if self.fed && !matches!(sum.kind, Kind::Fed { .. }) {
            return Err(PrivacyError::Rule(
                "a step that feeds back residuals releases the sum they belong to, and nothing else"
                    .to_owned(),
            ));
        }
        self.released += 1;
        let Vault { gradients, randomness, spare, spare_sums, .. } = &mut *self.vault;
        let value = sum.value.value;
        let everything = 0..value.len();
        let trainable = if sum.kind == Kind::Counts { vec![everything] } else { gradients.trainable() };
        let dimension = trainable.iter().map(|range| range.len() as u64).sum::<u64>();
        // What is fed back comes on top of what the records of a batch can add up to, and every release is rounded.
        let (records, releases) = match sum.kind {
            Kind::Fed { releases } => (usize::MAX, releases),
            Kind::Gradients | Kind::Counts => (gradients.records(), 1),
        };
        let noise =
            Noise::new(multiplier.get(), sum.sensitivity, records, dimension.saturating_mul(releases));
        let mut released = std::mem::take(spare);
        noise.add(&value, &trainable, &randomness.streams(), &mut released);
        if sum.kind != Kind::Counts {
            spare_sums.push(value);
        }
        Ok(Release::new(released, noise.std))
    }

    /// Noise alone, with this standard deviation in each trained coordinate: it tells nothing about any record.
    pub fn noise(&mut self, std: f64) -> Release<Vec<f32>> {
        let Vault { gradients, randomness, .. } = &mut *self.vault;
        let zeros = vec![0.0; gradients.dimension()];
        if !(std > 0.0) {
            return Release::new(vec![0.0; zeros.len()], 0.0);
        }
        let noise = Noise::new(1.0, std, 0, 0);
        let mut released = Vec::new();
        noise.add(&zeros, &gradients.trainable(), &randomness.streams(), &mut released);
        Release::new(released, noise.std)
    }

    /// Lets a value go without noise: the one hole. From here on the run is **not private**, the ledger says so, and no
    /// epsilon is ever stated for it.
    ///
    /// # Errors
    /// A ledger that cannot be written: then nothing leaves.
    pub fn disclose<T>(
        &mut self,
        value: Sensitive<'r, T>,
        why: &'static str,
    ) -> Result<Release<T>, PrivacyError> {
        self.vault.ledger.disclose(why)?;
        Ok(Release::new(value.value, 0.0))
    }

    pub(crate) fn records(&self) -> usize {
        self.vault.gradients.records()
    }

    pub(crate) fn layers(&self) -> usize {
        self.vault.gradients.layers()
    }

    /// The effect of rounding on a sensitivity, relative to it.
    pub(crate) fn rounding(&self, differences: bool) -> Result<f64, PrivacyError> {
        match self.vault.gradients.rounding(differences) {
            // The noise depends on this number: a NaN or a negative number could leave a sum without enough noise.
            rounding if (0.0..=1.0).contains(&rounding) => Ok(rounding),
            wrong => Err(PrivacyError::Rule(format!("an engine's rounding must be in [0, 1], got {wrong}"))),
        }
    }

    pub(crate) fn pass(
        &mut self,
        at: &G::Point,
        anchor: Option<&G::Point>,
        rule: Option<&WeightRule<'_>>,
        sums: &mut [Sum],
    ) -> Result<(), PrivacyError> {
        let Vault { gradients, randomness, batch, spare_sums, .. } = &mut *self.vault;
        let mut key = [0; 32];
        randomness.streams().number(0).fill_bytes(&mut key);
        for sum in &mut *sums {
            sum.values = spare_sums.pop().unwrap_or_default();
            // Nothing of an earlier sum is left, even if an engine adds nothing.
            sum.values.clear();
            sum.values.resize(gradients.dimension(), 0.0);
        }
        let passed = gradients.pass(at, anchor, batch, rule, key, sums);
        passed.map_err(|error| PrivacyError::Engine(Box::new(error)))
    }

    /// Adds the residuals of the last steps to a clipped sum of this step, and keeps this step's residual. `moved` is how far one record moves
    /// the clipped sum and the residual. Returns the sum's kind and sensitivity.
    pub(crate) fn feed_band(
        &mut self,
        (rule, residual): (&ClipRule, &ClipRule),
        moved: [f64; 2],
        sum: &mut [f64],
        left: &Sum,
    ) -> Result<(Kind, f64), PrivacyError> {
        let wrong = |problem: &str| Err(PrivacyError::Rule(problem.to_owned()));
        let Sampling::Rotating { groups, .. } = self.step.sampling else {
            return wrong("banded feedback needs a plan whose batches are drawn from groups in turn");
        };
        if self.step.releases.len() != 1 || self.released > 0 || self.fed {
            return wrong("a step with banded feedback has one release");
        }
        let (records, dimension) = (self.records() as u64, sum.len());
        if records >= 1 << 32 {
            return wrong("banded feedback is for fewer than 2^32 records");
        }
        let Some(band) = self.vault.memory.band(self.step.entry, (rule, residual), moved, dimension) else {
            return wrong(
                "banded feedback needs the same thresholds and the same kind of sum (gradients or differences) from the first step to the last",
            );
        };
        // One less than the groups: a residual is forgotten when its records can be sampled again.
        let window = groups - 1;
        #[expect(clippy::cast_precision_loss, reason = "a bound, rounded up")]
        let most = records.div_ceil(groups) as f64 * moved[1] * 1.0001;
        band.feed(self.step.turn, window, sum, left, most);
        self.fed = true;
        Ok((Kind::Fed { releases: groups }, Band::sensitivity(moved[0], moved[1], window)))
    }
}

/// Refuses terms that are not for these records, or whose plan the base cannot run.
fn fitting(gradients: &impl Gradients, terms: &Terms) -> Result<(), PrivacyError> {
    let (held, agreed) = (gradients.records() as u64, terms.text.records);
    terms.text.check_sampling()?;
    match held == agreed {
        true => Ok(()),
        false => Err(PrivacyError::Mismatch(format!(
            "the terms are for {agreed} records, the vault is given {held}"
        ))),
    }
}
