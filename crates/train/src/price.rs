//! The third stage: the plan of a run and its price, before any record is used.

use std::collections::HashMap;

use sordino_accounting::{Accountant, AccountingError, Delta, NoiseMultiplier, Plan};
use sordino_algorithms::{AlgorithmError, Noise, Setting};
use sordino_privacy::{PrivacyError, Terms};

use crate::{
    Claim, ResolvedSettings, RunFolder, Settings, TrainError,
    format::{rounded_to_nearest, rounded_up},
    write_whole,
};

/// A run that is ready to start: its plan is priced, and its terms are fixed.
#[derive(Debug, Clone)]
pub struct PricedRun {
    /// The settings that were priced.
    pub resolved: ResolvedSettings,
    /// What the algorithm is told about the run, with the noise of the first step.
    pub facts: Setting,
    /// The plan and its guarantee.
    pub terms: Terms,
}

/// Prices the plan: with the smallest noise that the budget allows, the noise multiplier that is given, or the noise that a paper claims
/// to be enough. A resumed run keeps the plan that it began with.
///
/// # Errors
/// A plan that exceeds the budget or that the accountant cannot price.
pub fn price(resolved: ResolvedSettings, begun: Option<&Plan>) -> Result<PricedRun, TrainError> {
    let plan = match begun {
        Some(plan) => plan.clone(),
        None => plan(&resolved)?,
    };
    let terms = match resolved.algorithm.unprotected() {
        Some(why) => Terms::unprotected(plan, resolved.facts.records, why),
        None => priced_terms(&resolved, plan)?,
    };
    let about = resolved.files.about(&resolved.values.to_settings()) + &resolved.last_changed;
    let terms = terms.about(&about);
    let first = terms.plan().and_then(|plan| plan.entries().first()?.releases().first().copied());
    Ok(PricedRun { facts: Setting { noise_multiplier: first, ..resolved.facts }, terms, resolved })
}

fn plan(resolved: &ResolvedSettings) -> Result<Plan, TrainError> {
    let noise = match (resolved.noise_multiplier, resolved.budget) {
        (Some(z), _) => Noise::Multiplier(z),
        (None, Some(budget)) => Noise::Budget(budget, resolved.accountant),
        // Training without privacy has no noise.
        (None, None) => Noise::Multiplier(NoiseMultiplier::new(1.0)?),
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
        accountant if resolved.algorithm.sound_form().is_some() => (None, accountant),
        accountant => (epsilon, accountant),
    };
    Ok(Terms::price(plan, resolved.facts.records, delta, budget, accountant)?)
}

impl PricedRun {
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

    /// The notes that are stored with the weights: the guarantee and the facts about the data.
    pub(crate) fn notes(&self) -> HashMap<String, String> {
        let guarantee = match (self.not_private(), self.terms.guarantee()) {
            (None, Some(guarantee)) => format!(
                "({}, {})-differential privacy, {}, for the whole run{}",
                rounded_up(guarantee.epsilon.get()),
                guarantee.delta,
                guarantee.relation,
                if guarantee.epsilon.get() > 10.0 { " (WEAK: little is promised)" } else { "" }
            ),
            (why, _) => format!("NOT PRIVATE: {}", why.unwrap_or_default()),
        };
        let facts = serde_json::to_string(&self.resolved.data).expect("shapes and names are JSON");
        HashMap::from([("guarantee".to_owned(), guarantee), ("facts".to_owned(), facts)])
    }

    /// A warning, as the text of a [`Hint`](crate::Hint), if an epsilon is claimed that is not proved.
    pub fn warning(&self) -> Option<String> {
        let claim = Claim::new(&self.settings(), self.terms.plan())?;
        let proved = match (self.not_private(), self.terms.guarantee()) {
            (None, Some(guarantee)) => format!("epsilon {}", rounded_up(guarantee.epsilon.get())),
            _ => "nothing".to_owned(),
        };
        let claimed = rounded_to_nearest(claim.epsilon);
        Some(format!("epsilon {claimed} is claimed, {proved} is proved; use {}", claim.instead))
    }

    /// Why nothing is guaranteed, if that is so.
    pub fn not_private(&self) -> Option<&'static str> {
        let seeded = self.resolved.values.seed.as_ref().map(|_| "noise and batches come from a fixed seed");
        self.resolved.algorithm.unprotected().or(seeded)
    }
}
