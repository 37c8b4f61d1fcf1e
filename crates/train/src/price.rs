//! The third stage: the plan of a run and its price, before any record is used.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use sordino_accounting::{Accountant, AccountingError, Delta, Epsilon, NoiseMultiplier, Plan};
use sordino_algorithms::{AlgorithmError, NoiseSource, PublishedNoise};
use sordino_privacy::{Account, MeasurementBudget, PrivacyError, PrivacyStatus, Terms};

use crate::{
    Claim, Hint, ResolvedSettings, RunFolder, Settings, TrainError,
    format::{rounded_claim, rounded_up},
    model_notes, write_whole,
};

/// A run that is ready to start: its plan is priced, and its terms are fixed.
#[derive(Debug, Clone)]
pub struct PricedRun {
    /// The settings that were priced.
    pub resolved: ResolvedSettings,
    /// The plan.
    pub plan: Plan,
    /// The plan, its price, and what the ledger stores about the run.
    pub terms: Terms,
    /// For an algorithm as published, what can be proved about it.
    pub provable: Option<Provable>,
    /// The noise of each part of a step, where the formula of a paper sets it.
    pub published_noise: Vec<PublishedNoise>,
}

/// A bound that can be proved for an algorithm as its paper prints it. The accountant is used as a calculator: the run itself has no
/// guarantee.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Provable {
    /// The proved upper bound.
    pub epsilon: Epsilon,
    /// Its delta.
    pub delta: Delta,
    /// The accountant that proves it.
    pub accountant: Accountant,
}

/// Prices the plan, with the smallest noise that the budget allows, the given noise multiplier, or the noise that a paper
/// claims to be enough. A resumed run keeps the plan of its ledger.
///
/// # Errors
/// A plan that exceeds the budget or that the accountant cannot price.
pub fn price(mut resolved: ResolvedSettings, resumed: Option<&Account>) -> Result<PricedRun, TrainError> {
    if let Some(account) = resumed {
        keep_older_settings(&mut resolved, account);
    }
    let plan = match resumed.and_then(Account::plan) {
        Some(plan) => plan.clone(),
        None => plan(&resolved)?,
    };
    let terms = match resolved.algorithm.about().verdict.problem() {
        Some(problem) => {
            Terms::unprotected(plan.clone(), resolved.facts.records, &recorded_reason(resumed, problem)?)
        }
        None => with_measurements(&resolved, priced_terms(&resolved, plan.clone())?)?,
    };
    Ok(PricedRun {
        provable: provable(&resolved, &plan),
        published_noise: resolved.algorithm.published_noise(&resolved.facts)?,
        terms: terms.about(&about(&resolved)),
        plan,
        resolved,
    })
}

/// What the ledger stores about the settings of a run.
fn about(resolved: &ResolvedSettings) -> String {
    resolved.files.about(&resolved.values.to_settings()) + &resolved.last_changed
}

/// Permits the planned measurements on held-back records, with the epsilon of the run.
fn with_measurements(resolved: &ResolvedSettings, terms: Terms) -> Result<Terms, TrainError> {
    let (Some(measurements), Some(guarantee)) = (&resolved.values.measurements, terms.guarantee()) else {
        return Ok(terms);
    };
    let (slots, epsilon) = (resolved.data.test_records, guarantee.epsilon);
    Ok(terms.measuring(MeasurementBudget { slots, measurements: measurements.value, epsilon })?)
}

/// A run that an earlier version began may lack settings that now have defaults. Without them, its test records are public, it has no
/// average, and its fixed transform has version 1.
fn keep_older_settings(resolved: &mut ResolvedSettings, account: &Account) {
    let has = |name: &str| account.about().lines().any(|line| line.starts_with(&format!("{name} = ")));
    if !has("test_set") {
        (resolved.values.test_set, resolved.values.measurements) = (None, None);
    }
    if !has("average") {
        (resolved.values.average, resolved.learning.average) = (None, None);
    }
    let records_version =
        account.about().lines().any(|line| line.starts_with("features = ") && line.contains(",version="));
    if let (Some(features), false) = (&mut resolved.values.features, records_version)
        && let Some(text) = features.value.strip_suffix(",version=1")
    {
        features.value = text.to_owned();
    }
}

/// Why a run is not protected. A resumed run keeps the text in its ledger, which may be from an earlier version.
fn recorded_reason(resumed: Option<&Account>, problem: &str) -> Result<String, TrainError> {
    match resumed.filter(|account| account.is_unprotected()).map(|account| account.privacy_status_after(0)) {
        Some(Ok(PrivacyStatus::NotPrivate(reason))) => Ok(reason),
        Some(Err(error)) => Err(error.into()),
        _ => Ok(problem.to_owned()),
    }
}

/// What can be proved about an algorithm as published.
fn provable(resolved: &ResolvedSettings, plan: &Plan) -> Option<Provable> {
    let delta = resolved.values.delta.as_ref()?.value;
    let (plan, accountant) = resolved.algorithm.provable_plan(&resolved.facts, plan)?;
    let epsilon = accountant.price(&plan, delta).ok()?.epsilon;
    Some(Provable { epsilon, delta, accountant })
}

fn plan(resolved: &ResolvedSettings) -> Result<Plan, TrainError> {
    let noise = match (resolved.noise_multiplier, resolved.budget) {
        (Some(z), _) => NoiseSource::Multiplier(z),
        (None, Some(budget)) => NoiseSource::Budget(budget, resolved.accountant),
        // Training without privacy has no noise.
        (None, None) => NoiseSource::Multiplier(NoiseMultiplier::new(1.0)?),
    };
    let max_batch_size = resolved.values.max_batch_size.as_ref().map(|max| max.value);
    resolved.algorithm.plan(&resolved.facts, noise).map_err(|error| match (error, max_batch_size) {
        (error @ AlgorithmError::Accounting(AccountingError::NoSolution { .. }), Some(max)) => {
            TrainError::refused(
                error.to_string(),
                format!(
                    "batches exceed {max} records too often, and that alone costs more than delta; raise {{max_batch_size}}"
                ),
            )
        }
        (error, _) => error.into(),
    })
}

fn priced_terms(resolved: &ResolvedSettings, plan: Plan) -> Result<Terms, TrainError> {
    let delta = match &resolved.values.delta {
        Some(delta) => delta.value,
        None => Delta::new(1e-5)?,
    };
    let epsilon = resolved.values.epsilon.as_ref().map(|epsilon| epsilon.value);
    // A claimed epsilon is not a budget for the proved epsilon.
    let (budget, accountant) = match resolved.accountant {
        Accountant::GdpClt => {
            let claimed = Accountant::GdpClt.price(&plan, delta)?.epsilon;
            match epsilon {
                Some(budget) if !(claimed <= budget) => {
                    return Err(PrivacyError::OverBudget { cost: claimed, budget, delta }.into());
                }
                _ => (None, Accountant::Pld),
            }
        }
        accountant if resolved.algorithm.noise_formula().is_some() => (None, accountant),
        accountant => (epsilon, accountant),
    };
    Ok(Terms::price(plan, resolved.facts.records, delta, budget, accountant)?)
}

impl Provable {
    const NOTE: &str = "provable";

    /// What was stored with the weights of a run.
    pub fn read(folder: &RunFolder) -> Option<Self> {
        serde_json::from_str(model_notes(folder).ok()?.get(Self::NOTE)?).ok()
    }
}

const PUBLISHED_NOISE: &str = "published_noise";

/// The noise of each part of a step, as it was stored with the weights of a run whose noise was set by the formula of a paper.
pub fn read_published_noise(folder: &RunFolder) -> Vec<PublishedNoise> {
    let stored = model_notes(folder).unwrap_or_default();
    stored.get(PUBLISHED_NOISE).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

impl PricedRun {
    /// The same plan and price for other settings, which do not change the plan.
    pub(crate) fn for_settings(&self, resolved: ResolvedSettings) -> Self {
        Self { terms: self.terms.clone().about(&about(&resolved)), resolved, ..self.clone() }
    }

    /// The same run, whose protected test records are measured once, with this epsilon.
    ///
    /// # Errors
    /// An epsilon that is larger than that of the run, or too small for any measurement.
    pub(crate) fn measured_once_with(mut self, epsilon: Epsilon) -> Result<Self, TrainError> {
        if let Some(measurements) = &mut self.resolved.values.measurements {
            measurements.value = 1;
            let slots = self.resolved.data.test_records;
            let terms = self.terms.measuring(MeasurementBudget { slots, measurements: 1, epsilon })?;
            self.terms = terms.about(&about(&self.resolved));
        }
        Ok(self)
    }

    /// All settings, with their values.
    pub fn settings(&self) -> Settings {
        self.resolved.values.to_settings()
    }

    /// Writes the settings and the files that they refer to into the folder of the run.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub fn write_settings(&self, folder: &RunFolder) -> Result<(), TrainError> {
        self.resolved.files.write(folder)?;
        let settings = self.settings().to_toml();
        let text = match self.not_private() {
            Some(why) => format!("# NOT PRIVATE: {why}\n{settings}"),
            None => settings,
        };
        write_whole(&folder.config(), text.as_bytes())
    }

    /// The notes that are stored with the weights: the guarantee and the facts about the data. An algorithm may disclose values although
    /// it says that it is sound, and only the ledger knows.
    pub(crate) fn notes(&self, account: &Account) -> HashMap<String, String> {
        let guarantee = match (self.not_private().or(account.disclosure()), self.terms.guarantee()) {
            (None, Some(guarantee)) => format!(
                "({}, {})-differential privacy for {}, {}, for the whole run{}",
                rounded_up(guarantee.epsilon.get()),
                guarantee.delta,
                self.settings().protected_unit(),
                guarantee.relation,
                if guarantee.epsilon.get() > 10.0 { " (WEAK: protects little)" } else { "" }
            ),
            (why, _) => format!("NOT PRIVATE: {}", why.unwrap_or_default()),
        };
        let facts = serde_json::to_string(&self.resolved.data).expect("shapes and names are JSON");
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let mut notes = HashMap::from([
            ("guarantee".to_owned(), guarantee),
            ("facts".to_owned(), facts),
            ("version".to_owned(), version),
        ]);
        if let Some(provable) = self.provable {
            let provable = serde_json::to_string(&provable).expect("numbers and names are JSON");
            notes.insert(Provable::NOTE.to_owned(), provable);
        }
        if !self.published_noise.is_empty() {
            let noise = serde_json::to_string(&self.published_noise).expect("numbers and names are JSON");
            notes.insert(PUBLISHED_NOISE.to_owned(), noise);
        }
        notes
    }

    /// Whether the claimed epsilon is proved for the run; true if nothing is claimed.
    pub fn claim_holds(&self) -> bool {
        let Some(claim) = Claim::new(&self.settings(), self.terms.plan()) else { return true };
        let proved = self.terms.guarantee().filter(|_| self.not_private().is_none());
        proved.is_some_and(|proved| proved.epsilon.get() <= claim.epsilon)
    }

    /// The claimed epsilon beside the proved one, as the text of a [`Hint`].
    pub fn warning(&self) -> Option<String> {
        let claim = Claim::new(&self.settings(), self.terms.plan())?;
        let proved = match (self.not_private(), self.terms.guarantee(), self.provable) {
            (None, Some(guarantee), _) => {
                format!("epsilon {} is proved", rounded_up(guarantee.epsilon.get()))
            }
            _ if self.resolved.values.seed.is_some() => {
                "nothing is proved for a run with a fixed seed".to_owned()
            }
            (_, _, Some(provable)) => format!("epsilon {} is proved", rounded_up(provable.epsilon.get())),
            _ => "nothing is proved".to_owned(),
        };
        let claimed = rounded_claim(claim.epsilon);
        Some(format!("epsilon {claimed} is claimed, {proved}; use {}", claim.instead))
    }

    /// The notes of the algorithm about a run with these settings.
    pub fn algorithm_notes(&self) -> Vec<Hint> {
        let notes = self.resolved.algorithm.notes(&self.resolved.facts, &self.plan);
        notes.into_iter().map(Hint::new).collect()
    }

    /// The standard deviation of the noise in each cell of a table that is measured on protected records, in records; none if test records are
    /// measured exactly.
    ///
    /// # Errors
    /// A budget that permits no measurement.
    pub fn measurement_noise(&self) -> Result<Option<f64>, TrainError> {
        let relation = self.terms.guarantee().map(|guarantee| guarantee.relation);
        let budget = self.terms.measurement_budget().zip(relation);
        Ok(budget.map(|(budget, relation)| budget.noise_std(relation)).transpose()?)
    }

    /// Why nothing is guaranteed; none if there is a guarantee.
    pub fn not_private(&self) -> Option<&'static str> {
        let seeded = self.resolved.values.seed.as_ref().map(|_| "noise and batches come from a fixed seed");
        self.resolved.algorithm.about().verdict.problem().or(seeded)
    }
}
