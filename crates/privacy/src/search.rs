//! A search for settings: a random number of trials, of which only the best is released.

use std::path::Path;

use rand_chacha::rand_core::Rng;
use serde::{Deserialize, Serialize};
use sordino_accounting::{
    Delta, Epsilon, Guarantee, Plan,
    calibrate::Budget,
    tuning::{Runs, Trial},
};

use crate::{
    Account, MeasurementBudget, PrivacyError, PrivacyStatus, Randomness, Terms,
    ledger::{Event, Ledger},
};

/// What a search may do, fixed before its first trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchPlan {
    /// The plans of the candidates. Each trial trains one of them, drawn at random with equal probabilities.
    pub candidates: Vec<Plan>,
    /// The distribution of the number of trials.
    pub runs: Runs,
    /// What each trial may measure on held-back slots, for its score; none if scores use public records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measuring: Option<MeasurementBudget>,
}

impl SearchPlan {
    /// The largest mean number of trials. Up to there, and for shapes from -0.5 on, `Runs::ROUNDING` covers the rounding of a draw.
    const MOST_TRIALS: f64 = 100.0;

    /// The largest epsilon of a trial's measurements on held-back slots that the budget of the search allows.
    ///
    /// # Errors
    /// A budget of 0, or one whose delta is too small.
    pub fn largest_measuring(runs: Runs, budget: Budget) -> Result<Epsilon, PrivacyError> {
        Ok(Trial::largest_pure(runs, Budget { delta: exact_delta(budget)?, ..budget })?)
    }

    /// The guarantee of the search, for training slots and for held-back slots, within a budget.
    ///
    /// # Errors
    /// No candidates; a candidate that cannot be priced; a search that exceeds the budget, or that has too many trials.
    pub fn price(&self, budget: Budget) -> Result<Guarantee, PrivacyError> {
        let Budget { epsilon: most, delta } = budget;
        if !(self.runs.mean() <= Self::MOST_TRIALS) {
            return Err(PrivacyError::Mismatch(format!(
                "a search has at most {} trials on average, got {}",
                Self::MOST_TRIALS,
                self.runs.mean()
            )));
        }
        if let Runs::TruncatedNegativeBinomial { eta, .. } = self.runs
            && !(eta >= -0.5)
        {
            return Err(PrivacyError::Mismatch(format!(
                "the shape eta of a search is at least -0.5, got {eta}"
            )));
        }
        let exact = exact_delta(budget)?;
        let training = Trial::of(&self.candidates)?.price(self.runs, exact)?;
        let mut guarantee = Guarantee {
            epsilon: training.epsilon(),
            epsilon_lower: None,
            delta,
            accountant: training.accountant(),
            relation: self.candidates[0].relation(),
        };
        if let Some(measuring) = self.measuring {
            let measuring = Trial::pure(measuring.epsilon).price(self.runs, exact)?;
            if !(measuring.epsilon() <= guarantee.epsilon) {
                (guarantee.epsilon, guarantee.accountant) = (measuring.epsilon(), measuring.accountant());
            }
        }
        match guarantee.epsilon <= most {
            true => Ok(guarantee),
            false => Err(PrivacyError::OverBudget { cost: guarantee.epsilon, budget: most, delta }),
        }
    }
}

/// The delta that is left for the search if a part is for the rounding of the number of trials.
fn exact_delta(Budget { epsilon, delta }: Budget) -> Result<Delta, PrivacyError> {
    Delta::new(delta.get() - (1.0 + epsilon.get().exp()) * Runs::ROUNDING).map_err(|_| {
        PrivacyError::Mismatch(format!("a search with epsilon = {epsilon} needs a delta above {delta}"))
    })
}

/// What one trial returns: its ledger, its score, and its output.
pub struct Tried<T> {
    /// The content of the ledger of the trial's vault.
    pub account: Account,
    /// The score, larger for better models: from a release on held-back slots, or from public records. A NaN is the worst.
    pub score: f64,
    /// What is released if this trial is the best.
    pub output: T,
}

/// A search that has begun. Its ledger has charged it in full.
///
/// **Guarantees.** What [`select`](Self::select) returns satisfies the guarantee of the terms, as `PROOF.md` proves, if trials follow the
/// contract of `select`. The number of trials, and all other trials, are never released, and a search that ends early releases nothing.
pub struct Search {
    ledger: Ledger,
    plan: SearchPlan,
    randomness: Randomness,
    selected: bool,
}

impl Search {
    /// Begins a ledger and charges the whole search. When this returns, the charge is on the disk.
    ///
    /// # Errors
    /// Terms of a single run; a ledger that exists already or cannot be written.
    pub fn begin(terms: &Terms, randomness: Randomness, ledger: &Path) -> Result<Self, PrivacyError> {
        let plan = terms.search_plan().cloned().ok_or_else(|| {
            PrivacyError::Mismatch("these are the terms of a single run, not of a search".to_owned())
        })?;
        let mut ledger = Ledger::create(ledger, terms, randomness.is_seeded())?;
        ledger.charge(1)?;
        Ok(Self { ledger, plan, randomness, selected: false })
    }

    /// Draws the number of trials and the candidate of each, calls `trial` with the number of the candidate, and returns the output with the
    /// best score. None if a search without trials is possible and was drawn.
    ///
    /// **Trusted**: `trial` trains in a vault that is sealed under the plan of its candidate. Its score and its output are computed from
    /// releases of that vault and from public values, with fresh randomness, and nothing else depends on the trial: it writes no file and
    /// prints nothing. Its errors do not depend on the values of records.
    ///
    /// # Errors
    /// The first error of a trial; a trial whose ledger has other terms; a second selection. Then nothing is released, and the search stays charged.
    pub fn select<T, E: From<PrivacyError>>(
        &mut self,
        mut trial: impl FnMut(usize) -> Result<Tried<T>, E>,
    ) -> Result<Option<T>, E> {
        // A second selection would be a second release.
        if std::mem::replace(&mut self.selected, true) {
            return Err(PrivacyError::Mismatch("a search selects once".to_owned()).into());
        }
        let mut coins = self.randomness.streams().number(0);
        best(&self.plan, &mut coins, |candidate| {
            let tried = trial(candidate)?;
            self.check(candidate, &tried.account)?;
            Ok((tried.score, tried.output))
        })
    }

    /// Refuses a trial that did not follow the terms of the search.
    fn check(&self, candidate: usize, account: &Account) -> Result<(), PrivacyError> {
        let refused = |problem: &str| Err(PrivacyError::Mismatch(format!("a trial of a search {problem}")));
        if account.plan() != self.plan.candidates.get(candidate) {
            return refused("did not follow the plan of its candidate");
        }
        // A score without noise would release held-back slots.
        let (planned, agreed) = (self.plan.measuring, account.measurement_budget());
        if planned.map(|budget| (budget.slots, budget.measurements))
            != agreed.map(|budget| (budget.slots, budget.measurements))
            || planned.zip(agreed).is_some_and(|(planned, agreed)| !(agreed.epsilon <= planned.epsilon))
        {
            return refused("was measured on other terms than the search permits");
        }
        let seeded = self.randomness.is_seeded();
        match account.privacy_status_after(0)? {
            PrivacyStatus::Private(_) => Ok(()),
            PrivacyStatus::NotPrivate(_) if seeded && account.disclosure().is_none() => Ok(()),
            PrivacyStatus::NotPrivate(_) => refused("is not private"),
        }
    }

    /// Enters the settings of the selected candidate, before they are written anywhere. They are a part of what was selected.
    ///
    /// # Errors
    /// A ledger that cannot be written.
    pub fn choose(&mut self, about: &str) -> Result<(), PrivacyError> {
        self.ledger.write(Event::Chosen { about: about.to_owned() })
    }

    /// Enters the hash of the selected weights, before they are written.
    ///
    /// # Errors
    /// A ledger that cannot be written.
    pub fn enter_model(&mut self, hash: &str) -> Result<(), PrivacyError> {
        self.ledger.write(Event::Model { hash: hash.to_owned() })
    }

    /// The state of the ledger.
    pub fn account(&self) -> &Account {
        self.ledger.account()
    }

    /// Marks the search as finished.
    ///
    /// # Errors
    /// A ledger that cannot be written.
    pub fn close(mut self) -> Result<Account, PrivacyError> {
        self.ledger.write(Event::Closed { steps: 1 })?;
        Ok(self.ledger.account().clone())
    }
}

/// The output with the best score of a random number of trials, each of a random candidate.
fn best<T, E>(
    plan: &SearchPlan,
    coins: &mut impl Rng,
    mut trial: impl FnMut(usize) -> Result<(f64, T), E>,
) -> Result<Option<T>, E> {
    // 53 bits, as many as a floating-point number in [0, 1) can have.
    #[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
    let uniform = (coins.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let mut best: Option<(f64, T)> = None;
    for _ in 0..plan.runs.quantile(uniform) {
        let (score, output) = trial(below(plan.candidates.len(), coins))?;
        let score = if score.is_nan() { f64::NEG_INFINITY } else { score };
        if best.as_ref().is_none_or(|(most, _)| score > *most) {
            best = Some((score, output));
        }
    }
    Ok(best.map(|(_, output)| output))
}

/// A uniform number below `count`, without bias: numbers beyond the largest multiple of `count` are drawn again.
fn below(count: usize, coins: &mut impl Rng) -> usize {
    let count = count.max(1) as u64;
    let fair = u64::MAX - u64::MAX % count;
    loop {
        let drawn = coins.next_u64();
        if drawn < fair {
            #[expect(clippy::cast_possible_truncation, reason = "below a length")]
            return (drawn % count) as usize;
        }
    }
}

#[cfg(test)]
mod tests {
    use sordino_accounting::{NoiseMultiplier, SamplingRate, Steps};

    use super::*;

    /// A way to select an output: how many trials, and which one is released.
    type Select<'a> = &'a dyn Fn(&SearchPlan, &mut dyn FnMut(usize) -> f64, u64) -> f64;

    /// The largest deviation of the frequencies of the released outputs from their exact probabilities, in standard deviations.
    ///
    /// Candidate 0 scores 0, 1 or 2 with probabilities 0.6, 0.3 and 0.1; candidate 1 scores 1. The exact probabilities follow from the
    /// generating function of the number of trials.
    fn deviation(select: Select<'_>) -> f64 {
        const SEARCHES: u32 = 20_000;
        let z = NoiseMultiplier::new(1.0).unwrap();
        let plan = Plan::dp_sgd(z, SamplingRate::new(0.1).unwrap(), Steps::new(1).unwrap());
        let runs = Runs::negative_binomial(1.0, 4.0).unwrap();
        let plan = SearchPlan { candidates: vec![plan; 2], runs, measuring: None };
        let mut coins = Randomness::seeded(8).streams().number(0);
        let mut counts = [0_u32; 3];
        for seed in 0..SEARCHES {
            let mut trial = |candidate: usize| match below(10, &mut coins) {
                _ if candidate == 1 => 1.0,
                0..=5 => 0.0,
                6..=8 => 1.0,
                _ => 2.0,
            };
            let score = select(&plan, &mut trial, u64::from(seed));
            counts[[0.0, 1.0, 2.0].iter().position(|known| *known == score).unwrap()] += 1;
        }
        // A geometric number with mean 4: f(x) = x / (4 - 3 x).
        let f = |x: f64| x / (4.0 - 3.0 * x);
        let (zero, two) = (f(0.3), 1.0 - f(0.95));
        let exact = [zero, 1.0 - zero - two, two];
        let all = f64::from(SEARCHES);
        let off = |(count, p): (u32, f64)| (f64::from(count) - all * p).abs() / (all * p * (1.0 - p)).sqrt();
        counts.into_iter().zip(exact).map(off).fold(0.0, f64::max)
    }

    fn coins(seed: u64) -> impl Rng {
        Randomness::seeded(seed).streams().number(0)
    }

    #[test]
    fn the_selected_output_has_the_exact_distribution() {
        let sound = deviation(&|plan, trial, seed| {
            let scored = |candidate| {
                let score = trial(candidate);
                Ok::<_, ()>((score, score))
            };
            best(plan, &mut coins(seed), scored).unwrap().unwrap()
        });
        assert!(sound < 5.0, "{sound}");
    }

    /// Planted bugs: the mean number of trials every time, the first candidate every time, and the last trial in place of the best.
    #[test]
    fn wrong_selections_are_found() {
        let fixed = |plan: &SearchPlan, trial: &mut dyn FnMut(usize) -> f64, seed: u64| {
            let mut coins = coins(seed);
            (0..4).map(|_| trial(below(plan.candidates.len(), &mut coins))).fold(0.0, f64::max)
        };
        let one_candidate = |plan: &SearchPlan, trial: &mut dyn FnMut(usize) -> f64, seed: u64| {
            let scored = |_| {
                let score = trial(0);
                Ok::<_, ()>((score, score))
            };
            best(plan, &mut coins(seed), scored).unwrap().unwrap()
        };
        let last = |plan: &SearchPlan, trial: &mut dyn FnMut(usize) -> f64, seed: u64| {
            let mut number = 0.0;
            let scored = |candidate| {
                number += 1.0;
                Ok::<_, ()>((number, trial(candidate)))
            };
            best(plan, &mut coins(seed), scored).unwrap().unwrap()
        };
        let wrong: [Select<'_>; 3] = [&fixed, &one_candidate, &last];
        for select in wrong {
            assert!(deviation(select) > 10.0);
        }
    }

    #[test]
    fn candidates_are_drawn_evenly() {
        let mut coins = Randomness::seeded(3).streams().number(0);
        let mut counts = [0; 3];
        (0..3000).for_each(|_| counts[below(3, &mut coins)] += 1);
        assert!(counts.iter().all(|count| (870..1130).contains(count)), "{counts:?}");
        assert_eq!(below(1, &mut coins), 0);
    }
}
