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
    /// The settings of one run, given settings with the budget of the whole search.
    ///
    /// # Errors
    /// Settings without a budget, or a budget that no noise meets.
    pub(super) fn one_run(self, whole: Experiment) -> Result<Settings, TrainError> {
        let settings = whole.settings.clone();
        let (Some(epsilon), Some(delta)) = (settings.epsilon, settings.delta) else {
            return Err(TrainError::refused("a search needs a budget", "report this as a bug"));
        };
        match self.method {
            Method::LiuTalwar => {
                let search = LiuTalwar::of_candidates(self.candidates)?;
                let one = search.one_run(Budget { epsilon, delta })?;
                Ok(Settings { epsilon: Some(one.epsilon), delta: Some(one.delta), ..settings })
            }
            Method::Composition => {
                // The runs of all G candidates together cost as much as one run of G times as many epochs.
                let epochs = settings.epochs.map(|epochs| epochs * self.candidates as f64);
                let all =
                    Experiment { settings: Settings { epochs, ..settings.clone() }, ..whole }.priced()?;
                let noise =
                    all.plan.entries().first().map_or(1.0, |entry| entry.effective_noise_multiplier());
                Ok(Settings { noise_multiplier: Some(NoiseMultiplier::new(noise)?.shortened()), ..settings })
            }
        }
    }

    /// The smallest epsilon of the whole search that is proved, if each run follows this plan.
    ///
    /// # Errors
    /// A plan that cannot be priced.
    pub(super) fn epsilon(self, one_run: &Plan, delta: Delta) -> Result<Epsilon, AccountingError> {
        match self.method {
            Method::LiuTalwar => LiuTalwar::of_candidates(self.candidates)?.geometric_epsilon(one_run, delta),
            Method::Composition => {
                let runs = vec![one_run.clone(); usize::try_from(self.candidates).unwrap_or(usize::MAX)];
                sequential_epsilon(&runs, Accountant::Pld, delta)
            }
        }
    }
}
