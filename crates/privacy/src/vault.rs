//! The vault: it holds private records, and only releases leave it.

use std::{path::Path, time::Duration};

use rand_chacha::rand_core::Rng;
use rayon::prelude::*;
use sordino_accounting::Sampling;

use crate::{
    Account, Bounded, Gradients, Outcomes, PerRecord, PrivacyError, Randomness, Ranks, Release, Sensitive,
    Sum, Tally, Terms, WeightRule,
    ledger::{Event, Ledger},
    memory::{BandMemory, Spread},
    noise::GaussianNoise,
    sampling,
    sensitive::{Brand, SumKind},
    terms::{Cursor, Step},
};

/// A function that receives the values of a release and the standard deviation of their noise.
type ReleaseObserver = Box<dyn FnMut(&[f32], f64) + Send>;

/// Private records that can be used once for each step of a plan.
///
/// **Guarantees.** Everything that leaves through [`round`](Self::round) and [`measure`](Self::measure), together, satisfies the guarantee of the [`Terms`], as
/// `PROOF.md` proves. The charges in the ledger cover everything that has left, even if the process is killed.
pub struct Vault<G> {
    gradients: G,
    ranks: Ranks,
    ledger: Ledger,
    randomness: Randomness,
    /// The number of steps that were taken or given up.
    position: u64,
    cursor: Cursor,
    steps_per_charge: u64,
    batch: Vec<usize>,
    /// Sums of earlier steps that contribute to later releases.
    memory: Option<BandMemory>,
    /// Receives every release.
    observer: Option<ReleaseObserver>,
    /// Buffers of an earlier release and of earlier sums: allocating new ones takes longer than the noise.
    spare: Vec<f32>,
    spare_sums: Vec<Vec<f64>>,
}

impl<G: Gradients> Vault<G> {
    /// Seals records under priced terms and begins a ledger.
    ///
    /// # Errors
    /// Terms for another number of records; a plan with stateful sampling; a ledger that exists already or cannot be written.
    pub fn seal(
        gradients: G,
        terms: &Terms,
        randomness: Randomness,
        ledger: &Path,
    ) -> Result<Self, PrivacyError> {
        Self::seal_among(&Ranks::alone(gradients.records()), gradients, terms, randomness, Some(ledger))
    }

    /// Seals records under priced terms, with a ledger in memory.
    ///
    /// No file records how many steps were taken. So the whole plan counts as charged from the start, and neither
    /// stopping early nor [closing](Self::close) refunds steps.
    ///
    /// # Errors
    /// Terms for another number of records; a plan with stateful sampling.
    pub fn seal_in_memory(gradients: G, terms: &Terms, randomness: Randomness) -> Result<Self, PrivacyError> {
        Self::seal_among(&Ranks::alone(gradients.records()), gradients, terms, randomness, None)
    }

    /// Seals the share of this rank under the terms of all ranks. Rank 0 begins the ledger, in memory if there is no path.
    ///
    /// # Errors
    /// As [`seal`](Self::seal); records that are not the share of this rank.
    pub fn seal_among(
        ranks: &Ranks,
        gradients: G,
        terms: &Terms,
        randomness: Randomness,
        ledger: Option<&Path>,
    ) -> Result<Self, PrivacyError> {
        check(ranks, &gradients, terms)?;
        let ledger = match ledger.filter(|_| ranks.is_first()) {
            Some(path) => Ledger::create(path, terms, randomness.is_seeded())?,
            None => Ledger::in_memory(terms, randomness.is_seeded()),
        };
        Ok(Self::new(ranks.clone(), gradients, ledger, randomness, 0))
    }

    /// Opens the vault of a run that stopped. All steps that were charged to the ledger count as taken. The remaining steps of the
    /// plan can be taken, with fresh randomness.
    ///
    /// # Errors
    /// A ledger that was written under other terms, was changed, or is in use; records that do not fit the terms.
    pub fn resume(
        gradients: G,
        terms: &Terms,
        randomness: Randomness,
        ledger: &Path,
    ) -> Result<Self, PrivacyError> {
        Self::resume_among(&Ranks::alone(gradients.records()), gradients, terms, randomness, ledger)
    }

    /// Opens the vault of a run that stopped, with any number of ranks. Rank 0 reads the ledger and tells the others where to continue.
    ///
    /// # Errors
    /// As [`resume`](Self::resume); records that are not the share of this rank.
    pub fn resume_among(
        ranks: &Ranks,
        gradients: G,
        terms: &Terms,
        randomness: Randomness,
        ledger: &Path,
    ) -> Result<Self, PrivacyError> {
        check(ranks, &gradients, terms)?;
        let ledger = match ranks.is_first() {
            true => Ledger::resume(ledger, terms, randomness.is_seeded())?,
            false => Ledger::in_memory(terms, randomness.is_seeded()),
        };
        let mut position = ledger.account().charged().to_le_bytes().to_vec();
        ranks.agree(&mut position)?;
        let position = position.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes));
        Ok(Self::new(ranks.clone(), gradients, ledger, randomness, position))
    }

    fn new(ranks: Ranks, gradients: G, ledger: Ledger, randomness: Randomness, position: u64) -> Self {
        Self {
            gradients,
            ranks,
            ledger,
            randomness,
            position,
            cursor: Cursor::default(),
            steps_per_charge: 1,
            batch: Vec::new(),
            memory: None,
            observer: None,
            spare: Vec::new(),
            spare_sums: Vec::new(),
        }
    }

    /// Charges this many steps at a time. A larger number spends less time on syncing the ledger. If the process is killed, steps that
    /// were charged and not taken are lost.
    pub fn charge_by(&mut self, steps: u64) {
        self.steps_per_charge = steps.max(1);
    }

    /// Calls `observer` with the values of every noisy release, and with the standard deviation of their noise. An algorithm may make
    /// several releases in a step and return only what it computed from them; an audit sees them all. Disclosed values are not observed.
    pub fn observe_releases(&mut self, observer: impl FnMut(&[f32], f64) + Send + 'static) {
        self.observer = Some(Box::new(observer));
    }

    /// Takes a buffer that is no longer needed, for the next release.
    pub fn reuse(&mut self, buffer: Vec<f32>) {
        self.spare = buffer;
    }

    /// Takes the next step of the plan: charges it, draws its batch, and calls `f` with a [`Round`].
    ///
    /// `None` when the plan is finished.
    ///
    /// # Errors
    /// A ledger that cannot be written. Then no batch is drawn.
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
        // Ranks draw one batch together if its size is limited, or if the run can be repeated. Otherwise every rank draws its own slots,
        // with its own randomness.
        let joint = self.randomness.is_seeded() || !sampling::is_independent(step.sampling);
        let streams = self.ranks.begin(self.position, self.randomness.streams(), joint)?;
        let (share, slots) = (self.ranks.share(), self.ranks.slots());
        let drawn = if joint { 0..slots } else { share.clone() };
        sampling::draw(step.sampling, step.turn, drawn, &mut streams.number(0), &mut self.batch);
        self.batch.retain(|slot| share.contains(slot));
        // The engine counts from the first slot of the share.
        self.batch.iter_mut().for_each(|slot| *slot -= share.start);
        let mut round = Round { vault: self, step, released: 0, stored: false, brand: Brand::default() };
        Ok(Some(f(&mut round)))
    }

    /// Measures a model on held-back slots: charges the next measurement of the terms, lets `outcomes` fill a table, and releases it with
    /// discrete Laplace noise, in counts of slots. [`noise_std`](Release::noise_std) is the standard deviation of a cell's noise.
    ///
    /// # Errors
    /// Terms without measurements, for another number of held-back slots, or with none left; a ledger that cannot be written. Then
    /// nothing is computed. If the table cannot be computed, the measurement stays charged.
    pub fn measure<O: Outcomes>(
        &mut self,
        outcomes: &mut O,
        at: &O::Point,
    ) -> Result<Release<Vec<f64>>, PrivacyError> {
        let account = self.ledger.account();
        let Some(budget) = account.measurement_budget() else {
            return Err(PrivacyError::NoMeasurementLeft { planned: 0 });
        };
        let (held, agreed, number) = (outcomes.slots() as u64, budget.slots, account.measured());
        if held != agreed {
            return Err(PrivacyError::Mismatch(format!(
                "the terms are for {agreed} held-back records, but {held} are to be measured"
            )));
        }
        if number >= budget.measurements {
            return Err(PrivacyError::NoMeasurementLeft { planned: budget.measurements });
        }
        let scale = budget.scale(account.terms().relation())?;
        self.ledger.write(Event::Measured { number })?;
        let mut tally = Tally::new(outcomes.slots(), outcomes.cells());
        outcomes.tally(at, &mut tally).map_err(|error| PrivacyError::Engine(Box::new(error)))?;
        Ok(tally.release(scale, &self.randomness.streams()))
    }

    /// The number of steps that were taken or given up.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The state of the ledger.
    pub fn account(&self) -> &Account {
        self.ledger.account()
    }

    /// Enters the hash of weights into the ledger, before the weights are written. Weights are computed from releases, so their hash
    /// reveals nothing more.
    ///
    /// # Errors
    /// A ledger that cannot be written.
    pub fn enter_model(&mut self, hash: &str) -> Result<(), PrivacyError> {
        self.ledger.write(Event::Model { hash: hash.to_owned() })
    }

    /// How long it took to sync the last line of the ledger to the disk.
    pub fn sync_time(&self) -> Duration {
        self.ledger.sync_time()
    }

    /// Closes the vault. A finished plan is marked as finished. Otherwise, steps that were charged and not taken are refunded,
    /// unless the ledger is in memory.
    ///
    /// # Errors
    /// A ledger that cannot be written. Then all charged steps count as taken.
    pub fn close(mut self) -> Result<Account, PrivacyError> {
        let account = self.ledger.account();
        if self.position == account.steps() {
            self.ledger.write(Event::Closed { steps: self.position })?;
        } else if self.position < account.charged() && !account.is_in_memory() {
            self.ledger.write(Event::Settled { drawn: self.position })?;
        }
        Ok(self.ledger.account().clone())
    }
}

/// One step of the plan: its batch has been drawn, and what the plan permits can be released.
///
/// Values computed in a round have its lifetime `'r` and cannot leave it, except by [`release`](Self::release) and
/// [`disclose`](Self::disclose).
pub struct Round<'r, G> {
    vault: &'r mut Vault<G>,
    step: Step,
    released: usize,
    /// Whether the memory has stored a sum of this step.
    stored: bool,
    brand: Brand<'r>,
}

impl<'r, G: Gradients> Round<'r, G> {
    /// The per-record gradients of the batch at these parameters.
    pub fn gradients<'a>(&'a mut self, at: &'a G::Point) -> PerRecord<'a, 'r, G> {
        PerRecord { round: self, at, anchor: None }
    }

    /// Adds the plan's noise to a bounded sum and releases it.
    ///
    /// The noise has standard deviation `z * sensitivity` (and a little more for rounding, see `PROOF.md`). `z` is the multiplier that
    /// the plan has for this release: the first, the second, and so on, of this step.
    ///
    /// # Errors
    /// More releases than the plan has for this step; a sum other than the one that was combined with stored sums.
    pub fn release(&mut self, sum: Bounded<'r>) -> Result<Release<Vec<f32>>, PrivacyError> {
        let planned = self.step.releases.len();
        let Some(multiplier) = self.step.releases.get(self.released) else {
            return Err(PrivacyError::OffPlan { planned });
        };
        let releases = match sum.kind {
            SumKind::Banded { releases } => releases,
            _ if self.stored => {
                return refused("a step whose sum was stored releases only the sum over several steps");
            }
            SumKind::Gradients | SumKind::Counts => 1,
        };
        self.released += 1;
        let Vault { gradients, ranks, randomness, observer, spare, spare_sums, .. } = &mut *self.vault;
        let value = sum.value.value;
        let everything = 0..value.len();
        let trainable = if sum.kind == SumKind::Counts { vec![everything] } else { gradients.trainable() };
        let dimension = trainable.iter().map(|range| range.len() as u64).sum::<u64>();
        // Every release that shares the sensitivity is rounded.
        let noise = GaussianNoise::new(multiplier.get(), sum.sensitivity, dimension.saturating_mul(releases));
        let mut released = std::mem::take(spare);
        match ranks.is_first() {
            true => noise.add(&value, &trainable, &randomness.streams(), &mut released),
            false => released.resize(value.len(), 0.0),
        }
        ranks.broadcast(&mut released)?;
        if sum.kind != SumKind::Counts {
            spare_sums.push(value);
        }
        if let Some(observer) = observer {
            observer(&released, noise.std);
        }
        Ok(Release::new(released, noise.std))
    }

    /// Noise with this standard deviation in each trained coordinate. It does not depend on any record.
    ///
    /// # Errors
    /// A rank that has ended or does not answer.
    pub fn noise(&mut self, std: f64) -> Result<Release<Vec<f32>>, PrivacyError> {
        let Vault { gradients, ranks, randomness, .. } = &mut *self.vault;
        let mut released = vec![0.0; gradients.dimension()];
        if !(std > 0.0) {
            return Ok(Release::new(released, 0.0));
        }
        let (noise, zeros) = (GaussianNoise::new(1.0, std, 0), vec![0.0; released.len()]);
        if ranks.is_first() {
            noise.add(&zeros, &gradients.trainable(), &randomness.streams(), &mut released);
        }
        ranks.broadcast(&mut released)?;
        Ok(Release::new(released, noise.std))
    }

    /// Releases a value without noise. From then on the run is **not private**: the ledger records this, and no epsilon is stated for it.
    ///
    /// # Errors
    /// A ledger that cannot be written. Then nothing is released.
    pub fn disclose(
        &mut self,
        value: Sensitive<'r, Vec<f32>>,
        why: &'static str,
    ) -> Result<Release<Vec<f32>>, PrivacyError> {
        self.vault.ledger.disclose(why)?;
        let mut disclosed = value.value;
        self.vault.ranks.broadcast(&mut disclosed)?;
        Ok(Release::new(disclosed, 0.0))
    }

    pub(crate) fn engine(&self) -> &G {
        &self.vault.gradients
    }

    /// Adds up counts over all ranks.
    pub(crate) fn sum_over_ranks(&self, counts: &mut Vec<f64>) -> Result<(), PrivacyError> {
        self.vault.ranks.sum(self.vault.position, counts)
    }

    /// Refuses to go on if this rank bounds the contribution of a record in another way than rank 0.
    pub(crate) fn agree_over_ranks(&self, own: impl FnOnce() -> String) -> Result<(), PrivacyError> {
        self.vault.ranks.check_same(own)
    }

    /// The number of slots of all ranks.
    pub(crate) fn slots(&self) -> usize {
        self.vault.ranks.slots()
    }

    /// The effect of rounding on a sensitivity, relative to the sensitivity.
    pub(crate) fn rounding(&self, differences: bool) -> Result<f64, PrivacyError> {
        match self.vault.gradients.rounding(differences) {
            // The noise depends on this number: a NaN or a negative number could leave a sum without enough noise.
            rounding if (0.0..=1.0).contains(&rounding) => Ok(rounding),
            wrong => refused(&format!("an engine's rounding must be in [0, 1], got {wrong}")),
        }
    }

    /// Lets the engine compute sums over the batch. A weighted sum that is not finite is refused: rounding would turn a NaN into 0, and
    /// the release would be far from the sum without the record that caused it. A plain sum is not checked: an honest engine computes
    /// plain sums that are not finite, so the error would reveal something about the records, and no line in the ledger would say so.
    pub(crate) fn pass(
        &mut self,
        at: &G::Point,
        anchor: Option<&G::Point>,
        rule: Option<&WeightRule<'_>>,
        sums: &mut [Sum],
    ) -> Result<(), PrivacyError> {
        let Vault { gradients, ranks, randomness, batch, spare_sums, position, .. } = &mut *self.vault;
        let mut key = [0; 32];
        randomness.streams().number(0).fill_bytes(&mut key);
        for sum in &mut *sums {
            // Nothing of an earlier sum is left, even if an engine adds nothing.
            sum.values = spare_sums.pop().unwrap_or_default();
            sum.values.clear();
            sum.values.resize(gradients.dimension(), 0.0);
        }
        let passed = gradients.pass(at, anchor, batch, rule, key, sums);
        passed.map_err(|error| PrivacyError::Engine(Box::new(error)))?;
        // Sums are whole numbers of steps, so they are added exactly, in any order. A rank without a chosen record adds zeros.
        sums.iter_mut().try_for_each(|sum| ranks.sum(*position, &mut sum.values))?;
        let finite =
            |sum: &Sum| sum.values.par_chunks(1 << 12).all(|part| part.iter().all(|v| v.is_finite()));
        if rule.is_none() || sums.iter().all(finite) { Ok(()) } else { Err(PrivacyError::NotFinite) }
    }

    /// Replaces the first of the sums of this step by a sum that also depends on stored sums of earlier steps, and stores what later
    /// steps need. Returns the kind and the sensitivity of the result.
    ///
    /// # Errors
    /// A plan without rotating groups, or with fewer groups than coefficients; another release in this step; steps that spread
    /// contributions in different ways.
    pub(crate) fn combine_with_memory(
        &mut self,
        spread: Spread,
        sums: &mut [Sum],
    ) -> Result<(SumKind, f64), PrivacyError> {
        let Sampling::Rotating { groups, .. } = self.step.sampling else {
            return refused("a sum over several steps needs a plan that samples rotating groups");
        };
        if self.step.releases.len() != 1 || self.released > 0 || self.stored {
            return refused("a step with a sum over several steps has one release");
        }
        let (memory, entry) = (&mut self.vault.memory, self.step.entry);
        memory.take_if(|memory| !memory.is_for(entry));
        let memory = match memory {
            Some(memory) if memory.agrees(&spread) => memory,
            Some(_) => {
                return refused(
                    "sums over several steps need the same rules and coefficients, and gradients or differences, in all steps",
                );
            }
            None => memory.insert(BandMemory::new(entry, spread.clone(), groups)?),
        };
        memory.combine(self.step.turn, sums);
        self.stored = true;
        // Each release of a block is computed in double precision, from sums below 2^51 steps of their lattice.
        #[expect(clippy::cast_precision_loss, reason = "a count")]
        let error = sums.iter().map(|sum| sum.step * (sum.values.len() as f64).sqrt()).sum();
        Ok((SumKind::Banded { releases: groups }, spread.sensitivity(groups, error)))
    }
}

/// Refuses terms that are not for these records, or whose plan the base cannot run.
fn check(ranks: &Ranks, gradients: &impl Gradients, terms: &Terms) -> Result<(), PrivacyError> {
    terms.text.check_sampling()?;
    let (held, agreed) = (ranks.slots() as u64, terms.text.records);
    if held != agreed {
        return Err(PrivacyError::Mismatch(format!(
            "the terms are for {agreed} records, but the vault was given {held}"
        )));
    }
    let (given, share) = (gradients.records(), ranks.share().len());
    match given == share {
        true => Ok(()),
        false => Err(PrivacyError::Mismatch(format!(
            "the share of this rank is {share} records, but it was given {given}"
        ))),
    }
}

fn refused<T>(problem: &str) -> Result<T, PrivacyError> {
    Err(PrivacyError::Rule(problem.to_owned()))
}
