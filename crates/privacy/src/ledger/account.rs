//! The state of a ledger, checked line by line.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sordino_accounting::{Epsilon, Guarantee, Plan};

use crate::{
    MeasurementBudget, PrivacyError, PrivacyStatus, SearchPlan,
    terms::{Agreed, TermsText},
};

/// The format of a ledger.
const FORMAT: &str = "sordino ledger 1";

/// The first line of a ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LedgerHead {
    format: String,
    /// Whether sampling and noise come from a fixed seed. Then nothing is private.
    seeded: bool,
    terms: TermsText,
}

impl LedgerHead {
    pub(super) fn new(terms: TermsText, seeded: bool) -> Self {
        Self { format: FORMAT.to_owned(), seeded, terms }
    }
}

/// Any other line: a charge for steps before they are taken; the number of charged steps that were actually taken; a disclosure; a
/// resumption; the hash of the weights that are written next; a measurement before it is made; the end of the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Event {
    Charge {
        from: u64,
        steps: u64,
    },
    Settled {
        drawn: u64,
    },
    Disclosed {
        why: String,
    },
    Resumed {
        at: u64,
    },
    Model {
        hash: String,
    },
    /// The settings of the candidate that a search has selected.
    Chosen {
        about: String,
    },
    Measured {
        number: u64,
    },
    Closed {
        steps: u64,
    },
}

type Hash = [u8; 32];

/// The state of a ledger: how many steps were charged, and what they cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    pub(super) head: LedgerHead,
    hashes: Vec<Hash>,
    charged: u64,
    /// The number of charged steps that cannot be refunded.
    settled: u64,
    /// The number of measurements that were charged.
    measured: u64,
    disclosed: Option<String>,
    /// The hashes of all weights that were written or were about to be written.
    models: Vec<String>,
    /// The description of the candidate that a search has selected.
    chosen: Option<String>,
    resumed: u64,
    closed: bool,
    /// Where the last complete line ends, if bytes follow it.
    pub(super) torn: Option<u64>,
    in_memory: bool,
}

impl Account {
    /// A new account, and its first line.
    pub(super) fn begin(head: LedgerHead) -> (Self, String) {
        let (line, hash) = line(&[0; 32], &head);
        let account = Self {
            head,
            hashes: vec![hash],
            charged: 0,
            settled: 0,
            measured: 0,
            disclosed: None,
            models: Vec::new(),
            chosen: None,
            resumed: 0,
            closed: false,
            torn: None,
            in_memory: false,
        };
        (account, line)
    }

    /// An account without a file: all steps are charged at once, and none can be refunded.
    pub(super) fn in_memory(head: LedgerHead) -> Self {
        let (account, _) = Self::begin(head);
        let steps = account.steps();
        Self { charged: steps, settled: steps, in_memory: true, ..account }
    }

    /// Reads a ledger and checks every line.
    ///
    /// # Errors
    /// A file that cannot be read; the first line that does not follow from the previous line.
    pub fn read(path: &Path) -> Result<Self, PrivacyError> {
        let text = fs::read(path).map_err(|error| super::failed(path, "cannot be read", &error))?;
        let broken = |line, problem| PrivacyError::LedgerBroken { path: path.to_owned(), line, problem };
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let mut account = None;
        for (number, line) in text[..whole].split_inclusive(|&byte| byte == b'\n').enumerate() {
            let next = Self::read_line(account, line).map_err(|problem| broken(number + 1, problem))?;
            account = Some(next);
        }
        let mut account = account.ok_or_else(|| broken(1, "the ledger has no complete line".to_owned()))?;
        account.torn = (whole < text.len()).then_some(whole as u64);
        Ok(account)
    }

    /// The account after one more line.
    fn read_line(account: Option<Self>, line: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(line).map_err(|_| "is not text")?;
        let (_, json) = text.trim_end().split_once(' ').ok_or("is not HASH JSON")?;
        let hash = chain(&account.as_ref().map_or([0; 32], Self::last_hash), json);
        if format!("{} {json}\n", hex(&hash)) != text {
            return Err(
                "its hash does not follow from the previous line: a line was changed, removed or added here"
                    .to_owned(),
            );
        }
        let Some(mut account) = account else {
            let head: LedgerHead = serde_json::from_str(json).map_err(|error| error.to_string())?;
            return match head.format == FORMAT {
                // The hash of the line as it is: an earlier version may have written the same terms in other words.
                true => Ok(Self { hashes: vec![hash], ..Self::begin(head).0 }),
                false => Err(format!("the format is {:?}, expected {FORMAT:?}", head.format)),
            };
        };
        account.apply(serde_json::from_str(json).map_err(|error| error.to_string())?)?;
        account.hashes.push(hash);
        Ok(account)
    }

    /// Enters an event; returns its line.
    pub(super) fn enter(&mut self, event: Event) -> Result<String, String> {
        let (line, hash) = line(&self.last_hash(), &event);
        self.apply(event)?;
        self.hashes.push(hash);
        Ok(line)
    }

    fn apply(&mut self, event: Event) -> Result<(), String> {
        let (charged, planned) = (self.charged, self.steps());
        match event {
            _ if self.closed => return Err("the ledger is already closed".to_owned()),
            Event::Charge { from, steps }
                if from == charged && (1..=planned.saturating_sub(charged)).contains(&steps) =>
            {
                self.charged += steps;
            }
            Event::Settled { drawn } if (self.settled..=charged).contains(&drawn) => {
                (self.charged, self.settled) = (drawn, drawn);
            }
            Event::Disclosed { why } => {
                self.disclosed.get_or_insert(why);
            }
            Event::Resumed { at } if at == charged => {
                self.resumed += 1;
                self.settled = at;
            }
            Event::Model { hash } => self.models.push(hash),
            Event::Chosen { about } if self.search().is_some() && self.chosen.is_none() => {
                self.chosen = Some(about);
            }
            Event::Measured { number }
                if number == self.measured && number < self.head.terms.measurements() =>
            {
                self.measured += 1;
            }
            Event::Closed { steps } if steps == charged && steps == planned => self.closed = true,
            wrong => {
                return Err(format!(
                    "{wrong:?} cannot follow after {charged} of {planned} steps were charged"
                ));
            }
        }
        Ok(())
    }

    fn last_hash(&self) -> Hash {
        *self.hashes.last().unwrap_or(&[0; 32])
    }

    /// Returns the lines that replace a torn line. They charge the most that the torn line may have charged.
    pub(super) fn mend(&mut self) -> Result<String, String> {
        let (steps, measurements) = (self.charged() - self.charged, self.measured() - self.measured);
        self.torn = None;
        let mut lines = String::new();
        if measurements > 0 {
            lines += &self.enter(Event::Measured { number: self.measured })?;
        }
        lines += &self.enter(match steps {
            0 => Event::Resumed { at: self.charged },
            _ => Event::Charge { from: self.charged, steps },
        })?;
        Ok(lines)
    }

    /// Whether the terms had no guarantee from the start.
    pub fn is_unprotected(&self) -> bool {
        matches!(self.head.terms.agreed, Agreed::Unprotected { .. })
    }

    /// The terms of the run.
    pub(crate) fn terms(&self) -> &TermsText {
        &self.head.terms
    }

    /// The number of steps in the plan.
    pub fn steps(&self) -> u64 {
        self.head.terms.steps()
    }

    /// The number of steps that were charged, which is at least the number of steps that were taken. A torn last line counts as the
    /// largest charge.
    pub fn charged(&self) -> u64 {
        match self.torn {
            Some(_) => self.steps().min(self.charged.saturating_add(super::MAX_STEPS_PER_CHARGE)),
            None => self.charged,
        }
    }

    /// The measurements on held-back slots that the terms permit.
    pub fn measurement_budget(&self) -> Option<MeasurementBudget> {
        self.head.terms.measuring
    }

    /// The number of measurements that were charged, which is at least the number of measurements that were made. A torn last line
    /// may have charged one.
    pub fn measured(&self) -> u64 {
        let torn = u64::from(self.torn.is_some());
        self.measured.saturating_add(torn).min(self.head.terms.measurements())
    }

    /// Whether the ledger has no file. Then the whole plan counts as charged from the start, however many steps were taken.
    pub fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    /// The plan; none for unprotected terms and for a search.
    pub fn plan(&self) -> Option<&Plan> {
        self.head.terms.plan()
    }

    /// The public number of records.
    pub fn records(&self) -> u64 {
        self.head.terms.records
    }

    /// The description of the run, or of the candidate that a search has selected.
    pub fn about(&self) -> &str {
        self.chosen.as_ref().unwrap_or(&self.head.terms.about)
    }

    /// The description that the run began with. That of a search does not name the selected candidate.
    pub fn initial_about(&self) -> &str {
        &self.head.terms.about
    }

    /// The search, if this is the ledger of one.
    pub fn search(&self) -> Option<&SearchPlan> {
        self.head.terms.search_plan()
    }

    /// How often the run was resumed.
    pub fn times_resumed(&self) -> u64 {
        self.resumed
    }

    /// Why a value was released without noise, if one was. From then on the run is not private.
    pub fn disclosure(&self) -> Option<&str> {
        self.disclosed.as_deref()
    }

    /// Whether the plan was finished.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether the last line is incomplete.
    pub fn is_torn(&self) -> bool {
        self.torn.is_some()
    }

    /// The number of lines and the hash of the last one, for a checkpoint to store.
    pub fn seal(&self) -> (u64, String) {
        (self.hashes.len() as u64, hex(&self.last_hash()))
    }

    /// Whether the ledger had this [seal](Self::seal) at some point. If not, lines have been removed.
    pub fn has_seal(&self, lines: u64, hash: &str) -> bool {
        let place = usize::try_from(lines).ok().and_then(|lines| lines.checked_sub(1));
        place.and_then(|place| self.hashes.get(place)).is_some_and(|found| hex(found) == hash)
    }

    /// Whether the run wrote weights with this hash. For a finished run, only the last hash counts. For an unfinished run, every hash in
    /// the ledger counts, because the run may have been killed after it entered a hash and before it wrote the weights.
    ///
    /// None if the ledger has no hash and therefore covers no weights.
    pub fn covers_model(&self, hash: &str) -> Option<bool> {
        let last = self.models.last()?;
        Some(if self.closed { last == hash } else { self.models.iter().any(|model| model == hash) })
    }

    /// Whether the other run has the same plan and price.
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.head.terms.agreed == other.head.terms.agreed
    }

    /// What the run guarantees: the price of the whole plan, whenever the run stops.
    ///
    /// A run that was stopped has spent less. But if the decision to stop depended on releases, no theorem bounds how much less. The
    /// price of the whole plan holds for every way of stopping.
    ///
    /// # Errors
    /// As the accountant's.
    pub fn privacy_status(&self) -> Result<PrivacyStatus, PrivacyError> {
        self.privacy_status_after(self.steps())
    }

    /// The price of the first steps, valid if their number was fixed in advance.
    ///
    /// # Errors
    /// As the accountant's.
    pub fn privacy_status_after(&self, steps: u64) -> Result<PrivacyStatus, PrivacyError> {
        if let Some(why) = &self.disclosed {
            return Ok(PrivacyStatus::NotPrivate(why.clone()));
        }
        if self.head.seeded && !self.is_unprotected() {
            return Ok(PrivacyStatus::NotPrivate(
                "noise and batches come from a fixed seed and can be reproduced".to_owned(),
            ));
        }
        let status = self.head.terms.privacy_status(steps)?;
        // A held-back slot has spent its part of the measurement budget, whatever the steps have cost.
        match (status, self.head.terms.measuring) {
            (PrivacyStatus::Private(guarantee), Some(budget)) => {
                let made = match steps {
                    _ if steps >= self.steps() => budget.measurements,
                    _ if steps >= self.charged() => self.measured(),
                    // Earlier steps: the measurements that were due by then, if they are spread evenly.
                    _ => self.measured().min(steps.saturating_mul(budget.measurements) / self.steps().max(1)),
                };
                #[expect(clippy::cast_precision_loss, reason = "a ratio of counts, rounded up below")]
                let share = made as f64 / budget.measurements as f64;
                let spent = match share < 1.0 {
                    true => Epsilon::new((share * budget.epsilon.get()).next_up())?,
                    false => budget.epsilon,
                };
                let epsilon = if made > 0 && spent > guarantee.epsilon { spent } else { guarantee.epsilon };
                Ok(PrivacyStatus::Private(Guarantee { epsilon, ..guarantee }))
            }
            (status, _) => Ok(status),
        }
    }
}

fn line(previous: &Hash, event: &impl Serialize) -> (String, Hash) {
    let json = serde_json::to_string(event).expect("events of numbers and strings are JSON");
    let hash = chain(previous, &json);
    (format!("{} {json}\n", hex(&hash)), hash)
}

fn chain(previous: &Hash, json: &str) -> Hash {
    Sha256::new().chain_update(previous).chain_update(json).finalize().into()
}

fn hex(hash: &Hash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
