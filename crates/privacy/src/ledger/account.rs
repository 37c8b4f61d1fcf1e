//! What a ledger says, checked line by line.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sordino_accounting::Plan;

use crate::{
    PrivacyError, Standing,
    terms::{Agreed, TermsText},
};

/// The format of a ledger.
const FORMAT: &str = "sordino ledger 1";

/// The first line of a ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LedgerHead {
    format: String,
    /// Whether coins and noise came from a fixed seed: then nothing is private.
    seeded: bool,
    terms: TermsText,
}

impl LedgerHead {
    pub(super) fn new(terms: TermsText, seeded: bool) -> Self {
        Self { format: FORMAT.to_owned(), seeded, terms }
    }
}

/// Any other line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Event {
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
    /// The hash of the weights that are written next.
    Model {
        hash: String,
    },
    Closed {
        steps: u64,
    },
}

type Hash = [u8; 32];

/// What a ledger says: how many steps were paid for, and what they cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    head: LedgerHead,
    hashes: Vec<Hash>,
    charged: u64,
    /// The steps charged since the last time when it was certain what had been drawn.
    certain: u64,
    disclosed: Option<String>,
    /// The hashes of all weights that were written or were about to be written.
    models: Vec<String>,
    resumed: u64,
    closed: bool,
    torn: Option<u64>,
    in_memory: bool,
}

impl Account {
    /// An account that begins, and its first line.
    pub(super) fn begin(head: LedgerHead) -> (Self, String) {
        let (line, hash) = line(&[0; 32], &head);
        let account = Self {
            head,
            hashes: vec![hash],
            charged: 0,
            certain: 0,
            disclosed: None,
            models: Vec::new(),
            resumed: 0,
            closed: false,
            torn: None,
            in_memory: false,
        };
        (account, line)
    }

    /// An account without a file: all steps are charged at once, and none can be given back.
    pub(super) fn in_memory(head: LedgerHead) -> Self {
        let (account, _) = Self::begin(head);
        let steps = account.steps();
        Self { charged: steps, certain: steps, in_memory: true, ..account }
    }

    /// Reads a ledger and checks every line.
    ///
    /// # Errors
    /// A file that cannot be read; the first line that does not follow from the one before it.
    pub fn read(path: &Path) -> Result<Self, PrivacyError> {
        let text = fs::read(path).map_err(|error| super::failed(path, "cannot be read", &error))?;
        let broken = |line: usize, problem: String| PrivacyError::LedgerBroken {
            path: path.to_owned(),
            line,
            problem,
        };
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let lines = text[..whole].split_inclusive(|&byte| byte == b'\n');
        let mut account: Option<Self> = None;
        for (number, bytes) in lines.enumerate() {
            let wrong = |problem: &str| broken(number + 1, problem.to_owned());
            let text = std::str::from_utf8(bytes).map_err(|_| wrong("is not text"))?;
            let (_, json) = text.trim_end().split_once(' ').ok_or_else(|| wrong("is not HASH JSON"))?;
            let previous = account.as_ref().map_or([0; 32], |account| account.head_hash());
            let hash = chain(&previous, json);
            let expected = format!("{} {json}\n", hex(&hash));
            if expected != text {
                return Err(wrong(
                    "its hash does not follow from the line before: a line was changed, removed or added here",
                ));
            }
            match &mut account {
                None => {
                    let head: LedgerHead =
                        serde_json::from_str(json).map_err(|error| broken(1, error.to_string()))?;
                    if head.format != FORMAT {
                        return Err(wrong(&format!("the format is {:?}, this is {FORMAT:?}", head.format)));
                    }
                    account = Some(Self::begin(head).0);
                }
                Some(account) => {
                    let event = serde_json::from_str(json).map_err(|error| wrong(&error.to_string()))?;
                    account.apply(event).map_err(|problem| wrong(&problem))?;
                    account.hashes.push(hash);
                }
            }
        }
        let mut account = account.ok_or_else(|| broken(1, "the ledger has no whole line".to_owned()))?;
        account.torn = (whole < text.len()).then_some(whole as u64);
        Ok(account)
    }

    /// Enters an event; returns its line.
    pub(super) fn enter(&mut self, event: Event) -> Result<String, String> {
        let (line, hash) = line(&self.head_hash(), &event);
        self.apply(event)?;
        self.hashes.push(hash);
        Ok(line)
    }

    fn apply(&mut self, event: Event) -> Result<(), String> {
        if self.closed {
            return Err("the ledger was closed before".to_owned());
        }
        match event {
            Event::Charge { from, steps } => {
                let after = from.checked_add(steps).filter(|&after| steps > 0 && after <= self.steps());
                match after {
                    Some(after) if from == self.charged => self.charged = after,
                    _ => {
                        return Err(format!(
                            "steps {from} to {from} + {steps} are charged after step {} of {}",
                            self.charged,
                            self.steps()
                        ));
                    }
                }
            }
            Event::Settled { drawn } if (self.certain..=self.charged).contains(&drawn) => {
                (self.charged, self.certain) = (drawn, drawn);
            }
            Event::Settled { drawn } => {
                return Err(format!(
                    "{drawn} steps are said to be drawn, of {} to {} charged",
                    self.certain, self.charged
                ));
            }
            Event::Disclosed { why } => {
                self.disclosed.get_or_insert(why);
            }
            Event::Resumed { at } if at == self.charged => {
                self.resumed += 1;
                self.certain = at;
            }
            Event::Model { hash } => self.models.push(hash),
            Event::Closed { steps } if steps == self.charged && steps == self.steps() => self.closed = true,
            Event::Resumed { at: steps } | Event::Closed { steps } => {
                return Err(format!("the run is said to be at step {steps}, charged were {}", self.charged));
            }
        }
        Ok(())
    }

    pub(super) fn head(&self) -> &LedgerHead {
        &self.head
    }

    fn head_hash(&self) -> Hash {
        *self.hashes.last().unwrap_or(&[0; 32])
    }

    /// Where the last whole line ends, if bytes follow it.
    pub(super) fn torn(&self) -> Option<u64> {
        self.torn
    }

    /// Takes the place of a torn line: returns the line that charges as much as it may have.
    pub(super) fn mend(&mut self) -> Result<String, String> {
        let steps = self.charged() - self.charged;
        self.torn = None;
        let event = if steps > 0 {
            Event::Charge { from: self.charged, steps }
        } else {
            Event::Resumed { at: self.charged }
        };
        self.enter(event)
    }

    /// Whether the terms promised nothing from the start.
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

    /// The number of steps that were paid for: at least those that were drawn. A torn last line counts as the largest charge.
    pub fn charged(&self) -> u64 {
        match self.torn {
            Some(_) => self.steps().min(self.charged.saturating_add(super::MOST_STEPS_PER_CHARGE)),
            None => self.charged,
        }
    }

    /// Whether the ledger has no file. Then the whole plan counts as charged from the start, however many steps were drawn.
    pub fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    /// The plan; none if there was no protection to plan.
    pub fn plan(&self) -> Option<&Plan> {
        self.head.terms.plan()
    }

    /// The public number of records.
    pub fn records(&self) -> u64 {
        self.head.terms.records
    }

    /// What the run was said to be.
    pub fn about(&self) -> &str {
        &self.head.terms.about
    }

    /// How often the run was resumed.
    pub fn times_resumed(&self) -> u64 {
        self.resumed
    }

    /// Whether nothing is promised any more.
    pub(crate) fn is_given_up(&self) -> bool {
        self.disclosed.is_some() || matches!(self.head.terms.agreed, Agreed::Unprotected { .. })
    }

    /// Whether the plan was finished.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether the last line was only half written.
    pub fn is_torn(&self) -> bool {
        self.torn.is_some()
    }

    /// The number of lines, and the hash of the last one: what a checkpoint remembers of its ledger.
    pub fn seal(&self) -> (u64, String) {
        (self.hashes.len() as u64, hex(&self.head_hash()))
    }

    /// Whether the ledger once ended like this. If not, lines that were there have been removed.
    pub fn has_seal(&self, lines: u64, hash: &str) -> bool {
        let place = usize::try_from(lines).ok().and_then(|lines| lines.checked_sub(1));
        place.and_then(|place| self.hashes.get(place)).is_some_and(|found| hex(found) == hash)
    }

    /// Whether the run wrote weights with this hash. For a finished run, only the last hash counts. For an unfinished run, every hash in
    /// the ledger counts, because the run may have been killed after it entered a hash and before it wrote the weights.
    ///
    /// None if the ledger has no hash, so that it covers no weights.
    pub fn covers_model(&self, hash: &str) -> Option<bool> {
        let last = self.models.last()?;
        Some(if self.closed { last == hash } else { self.models.iter().any(|model| model == hash) })
    }

    /// Whether the other run has the same plan and price.
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.head.terms.agreed == other.head.terms.agreed
    }

    /// What the run guarantees: the price of the whole plan, whenever it stops.
    ///
    /// A run that was stopped has spent less, but if somebody stopped it because of what they saw, no theorem says how much
    /// less; the plan's price holds for every way of stopping.
    ///
    /// # Errors
    /// As the accountant's.
    pub fn standing(&self) -> Result<Standing, PrivacyError> {
        self.standing_after(self.steps())
    }

    /// What the first so many steps cost, if their number was fixed beforehand.
    ///
    /// # Errors
    /// As the accountant's.
    pub fn standing_after(&self, steps: u64) -> Result<Standing, PrivacyError> {
        if let Some(why) = &self.disclosed {
            return Ok(Standing::NotPrivate(why.clone()));
        }
        if self.head.seeded && matches!(self.head.terms.agreed, Agreed::Plan { .. }) {
            return Ok(Standing::NotPrivate(
                "noise and batches come from a fixed seed, so anybody can subtract them".to_owned(),
            ));
        }
        self.head.terms.standing(steps)
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
