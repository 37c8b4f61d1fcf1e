//! Searches for settings whose privacy cost a paper counts.

use serde::{Deserialize, Serialize};
use sordino_accounting::{
    Accountant, AccountingError, Delta, Epsilon, NoiseMultiplier, Plan,
    calibrate::Budget,
    tuning::{LiuTalwar, sequential_epsilon},
};
use sordino_train::{Settings, TrainError};

use super::Experiment;

/// A search over candidates, all of which have the same plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// How the search is priced.
    method: Method,
    /// The number of candidates.
    candidates: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Method {
    /// Random candidates and random stopping, with the constants of the DC-SGD paper.
    LiuTalwar,
    /// Every candidate is trained once.
    Composition,
}

impl Search {
    /// The settings of one run as the paper sets its noise, given settings with the budget of the whole search.
    ///
    /// # Errors
    /// Settings without a budget, or a budget that no noise meets.
    pub(super) fn one_run(self, whole: &Experiment) -> Result<Settings, TrainError> {
        let settings = whole.settings.clone();
        match (self.method, settings.epsilon, settings.delta) {
            (Method::LiuTalwar, Some(epsilon), Some(delta)) => {
                let search = LiuTalwar::of_candidates(self.candidates)?;
                let one = search.one_run(Budget { epsilon, delta })?;
                Ok(Settings { epsilon: Some(one.epsilon), delta: Some(one.delta), ..settings })
            }
            _ => self.one_of_all(whole),
        }
    }

    /// The settings of one run such that all candidates together, each trained once, are within the budget.
    ///
    /// # Errors
    /// Settings without a budget, or a budget that no noise meets.
    pub(super) fn one_of_all(self, whole: &Experiment) -> Result<Settings, TrainError> {
        let settings = &whole.settings;
        let Some(epochs) = settings.epochs else {
            return Err(TrainError::refused("the runs of a search have no epochs", "report this as a bug"));
        };
        // As many runs as candidates release as much as one run of that many times the epochs.
        let longer = Settings { epochs: Some(epochs * self.candidates as f64), ..settings.clone() };
        let all = Experiment { settings: longer, ..whole.clone() }.priced()?;
        let noise = all.plan.entries().first().map_or(1.0, |entry| entry.effective_noise_multiplier());
        Ok(Settings { noise_multiplier: Some(NoiseMultiplier::new(noise)?.shortened()), ..settings.clone() })
    }

    /// The epsilon of training every candidate once, which is what the DC-SGD paper does, if each run follows this plan. Liu and Talwar's
    /// theorem is about another search, which draws candidates at random and stops at random, and says nothing about this one.
    ///
    /// # Errors
    /// A plan that cannot be priced.
    pub(super) fn epsilon(self, one_run: &Plan, delta: Delta) -> Result<Epsilon, AccountingError> {
        let runs = vec![one_run.clone(); usize::try_from(self.candidates).unwrap_or(usize::MAX)];
        sequential_epsilon(&runs, Accountant::Pld, delta)
    }
}
