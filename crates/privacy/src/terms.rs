//! The terms of a run, fixed before any record is read: a plan and its price.

use serde::{Deserialize, Serialize};
use sordino_accounting::{
    Accountant, Delta, Entry, Epsilon, Guarantee, NoiseMultiplier, Plan, Relation, Sampling,
    calibrate::Budget,
};

use crate::{MeasurementBudget, PrivacyError, SearchPlan};

/// The releases that a run may make, the number of its records, and the price.
///
/// A plan becomes terms when it is priced, and only terms open a [`Vault`](crate::Vault).
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    pub(crate) text: TermsText,
    guarantee: Option<Guarantee>,
}

/// The terms as they are written to the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TermsText {
    /// The public number of records.
    pub(crate) records: u64,
    /// A description of the run. A resumed run must have the same description.
    pub(crate) about: String,
    pub(crate) agreed: Agreed,
    /// Measurements on held-back slots. Ledgers of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) measuring: Option<MeasurementBudget>,
}

/// A priced plan, a plan without a price, or a priced search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Agreed {
    Plan {
        plan: Plan,
        delta: Delta,
        accountant: Accountant,
    },
    Unprotected {
        plan: Plan,
        why: String,
    },
    /// The price is stored: it is the same for every number of trials.
    Search {
        search: SearchPlan,
        delta: Delta,
        epsilon: Epsilon,
        accountant: Accountant,
    },
}

/// What a run guarantees.
#[derive(Debug, Clone, PartialEq)]
pub enum PrivacyStatus {
    /// This guarantee, for every record.
    Private(Guarantee),
    /// No guarantee, for this reason.
    NotPrivate(String),
}

/// What one step may do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    pub(crate) sampling: Sampling,
    /// The index of the plan entry, and the number of this step within the entry.
    pub(crate) entry: usize,
    pub(crate) turn: u64,
    pub(crate) releases: Vec<NoiseMultiplier>,
}

/// A position in a plan: an entry, and the number of steps before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cursor {
    entry: usize,
    before: u64,
}

impl Terms {
    /// Prices a plan for a public number of records, and compares the price with the budget if there is one.
    ///
    /// ```
    /// use sordino_accounting::{Accountant, Delta, Epsilon, NoiseMultiplier, Plan, SamplingRate, Steps};
    /// use sordino_privacy::Terms;
    ///
    /// let plan = Plan::dp_sgd(NoiseMultiplier::new(1.0)?, SamplingRate::new(0.01)?, Steps::new(100)?);
    /// let (delta, budget) = (Delta::new(1e-5)?, Epsilon::new(2.0)?);
    /// let terms = Terms::price(plan, 10_000, delta, Some(budget), Accountant::Pld)?;
    /// assert!(terms.guarantee().is_some_and(|guarantee| guarantee.epsilon <= budget));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A plan that exceeds the budget; an accountant that only approximates or cannot bound the plan; a plan for another number of
    /// records.
    pub fn price(
        plan: Plan,
        records: u64,
        delta: Delta,
        budget: Option<Epsilon>,
        accountant: Accountant,
    ) -> Result<Self, PrivacyError> {
        if !accountant.proves() {
            return Err(PrivacyError::NoBound(accountant.name()));
        }
        if plan.entries().is_empty() {
            return Err(PrivacyError::Mismatch("the plan has no entries, so it permits no step".to_owned()));
        }
        for entry in plan.entries() {
            let population = match entry.sampling() {
                Sampling::Poisson { cap: Some(cap), .. } => cap.population,
                Sampling::FixedSize { population, .. } => population,
                _ => continue,
            };
            if population != records {
                return Err(PrivacyError::Mismatch(format!(
                    "the plan is for {population} records, but there are {records}"
                )));
            }
        }
        let guarantee = accountant.price(&plan, delta)?;
        if let Some(budget) = budget
            && !(guarantee.epsilon <= budget)
        {
            return Err(PrivacyError::OverBudget { cost: guarantee.epsilon, budget, delta });
        }
        let agreed = Agreed::Plan { plan, delta, accountant };
        let text = TermsText { records, about: String::new(), agreed, measuring: None };
        Ok(Self { text, guarantee: Some(guarantee) })
    }

    /// Terms without protection: every step may disclose what it computes. The plan determines how batches are drawn and has no price.
    pub fn unprotected(plan: Plan, records: u64, why: &str) -> Self {
        let agreed = Agreed::Unprotected { plan, why: why.to_owned() };
        Self { text: TermsText { records, about: String::new(), agreed, measuring: None }, guarantee: None }
    }

    /// The terms of a [`Search`](crate::Search): the whole search is one step, which is charged at once.
    ///
    /// # Errors
    /// A search that exceeds the budget, or that cannot be priced.
    pub fn search(search: SearchPlan, records: u64, budget: Budget) -> Result<Self, PrivacyError> {
        let guarantee = search.price(budget)?;
        let Guarantee { epsilon, delta, accountant, .. } = guarantee;
        // For a held-back slot, the measurements of all trials together cost at most the epsilon of the search.
        let measuring = search.measuring.map(|one| MeasurementBudget { epsilon, ..one });
        let agreed = Agreed::Search { search, delta, epsilon, accountant };
        Ok(Self {
            text: TermsText { records, about: String::new(), agreed, measuring },
            guarantee: Some(guarantee),
        })
    }

    /// The search, if these are the terms of one.
    pub fn search_plan(&self) -> Option<&SearchPlan> {
        self.text.search_plan()
    }

    /// Describes the run. The description is written to the ledger, and a run can be resumed only with the same description.
    #[must_use]
    pub fn about(mut self, description: &str) -> Self {
        description.clone_into(&mut self.text.about);
        self
    }

    /// Permits measurements on held-back slots, which are not among the records of the plan. A held-back slot is protected by
    /// (epsilon, 0)-differential privacy with the budget's epsilon, which must not exceed that of the plan. So the guarantee does
    /// not change.
    ///
    /// # Errors
    /// Terms without a price; a budget that exceeds the price, or is too small for its number of measurements.
    pub fn measuring(mut self, budget: MeasurementBudget) -> Result<Self, PrivacyError> {
        let Some(guarantee) = &self.guarantee else {
            return Err(PrivacyError::Mismatch(
                "a run without a guarantee has no budget for measurements".to_owned(),
            ));
        };
        if !(budget.epsilon <= guarantee.epsilon) {
            let (cost, budget, delta) = (budget.epsilon, guarantee.epsilon, guarantee.delta);
            return Err(PrivacyError::OverBudget { cost, budget, delta });
        }
        budget.scale(guarantee.relation)?;
        self.text.measuring = Some(budget);
        Ok(self)
    }

    /// The measurements on held-back slots that are permitted.
    pub fn measurement_budget(&self) -> Option<MeasurementBudget> {
        self.text.measuring
    }

    /// The price of the whole plan; none for unprotected terms.
    pub fn guarantee(&self) -> Option<&Guarantee> {
        self.guarantee.as_ref()
    }

    /// The plan; none for unprotected terms and for a search.
    pub fn plan(&self) -> Option<&Plan> {
        self.text.plan()
    }

    /// The number of steps.
    pub fn steps(&self) -> u64 {
        self.text.steps()
    }
}

impl TermsText {
    /// Refuses entries that the accountant can price but the base cannot run.
    pub(crate) fn check_sampling(&self) -> Result<(), PrivacyError> {
        let stateful = |entry: &&Entry| matches!(entry.sampling(), Sampling::Stateful { .. });
        let Some(plan) = self.batches() else {
            return Err(PrivacyError::Mismatch(
                "no vault can be sealed under the terms of a search".to_owned(),
            ));
        };
        match plan.entries().iter().find(stateful) {
            Some(entry) => Err(PrivacyError::Stateful(entry.to_string())),
            None => Ok(()),
        }
    }

    /// The plan that determines the batches, with or without a price. A search has one for each candidate.
    fn batches(&self) -> Option<&Plan> {
        match &self.agreed {
            Agreed::Plan { plan, .. } | Agreed::Unprotected { plan, .. } => Some(plan),
            Agreed::Search { .. } => None,
        }
    }

    pub(crate) fn search_plan(&self) -> Option<&SearchPlan> {
        match &self.agreed {
            Agreed::Search { search, .. } => Some(search),
            _ => None,
        }
    }

    /// The plan; none for unprotected terms and for a search.
    pub(crate) fn plan(&self) -> Option<&Plan> {
        self.batches().filter(|_| matches!(self.agreed, Agreed::Plan { .. }))
    }

    pub(crate) fn steps(&self) -> u64 {
        // A search is one step.
        self.batches().map_or(1, Plan::steps)
    }

    /// The number of measurements that are permitted.
    pub(crate) fn measurements(&self) -> u64 {
        self.measuring.map_or(0, |budget| budget.measurements)
    }

    /// Which data sets are neighbours.
    pub(crate) fn relation(&self) -> Relation {
        let plan = self.batches().or_else(|| self.search_plan()?.candidates.first());
        plan.map_or(Relation::ZeroOut, Plan::relation)
    }

    /// What the step with this number may do; `None` after the last. Numbers must not decrease from one call to the next.
    pub(crate) fn step(&self, number: u64, cursor: &mut Cursor) -> Option<Step> {
        loop {
            let entry = self.batches()?.entries().get(cursor.entry)?;
            if number < cursor.before + entry.steps().get() {
                return Some(Step {
                    sampling: entry.sampling(),
                    entry: cursor.entry,
                    turn: number - cursor.before,
                    releases: entry.releases().to_vec(),
                });
            }
            cursor.before += entry.steps().get();
            cursor.entry += 1;
        }
    }

    /// The price of the first steps.
    pub(crate) fn privacy_status(&self, steps: u64) -> Result<PrivacyStatus, PrivacyError> {
        match &self.agreed {
            Agreed::Plan { plan, delta, accountant } => {
                Ok(PrivacyStatus::Private(accountant.price(&plan.first(steps), *delta)?))
            }
            Agreed::Unprotected { why, .. } => Ok(PrivacyStatus::NotPrivate(why.clone())),
            Agreed::Search { delta, epsilon, accountant, .. } => Ok(PrivacyStatus::Private(Guarantee {
                epsilon: *epsilon,
                epsilon_lower: None,
                delta: *delta,
                accountant: *accountant,
                relation: self.relation(),
            })),
        }
    }
}
