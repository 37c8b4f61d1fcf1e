//! Sordino's best known settings for a data set and a privacy budget.

use serde::Deserialize;
use sordino_accounting::{Delta, Epsilon};
use sordino_train::{Settings, TrainError};

use super::catalogue::broken;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    best: Vec<Best>,
}

/// Settings for some data sets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Best {
    data: Vec<String>,
    settings: Settings,
    /// The budgets for which the settings are known, each with the settings that differ.
    at: Vec<Settings>,
}

/// All best settings.
#[derive(Debug)]
pub(super) struct BestSettings(Vec<Best>);

impl BestSettings {
    /// Those of the catalogue.
    ///
    /// # Errors
    /// A file that cannot be read; a test excludes this.
    pub(super) fn read() -> Result<Self, TrainError> {
        let file: File = toml::from_str(include_str!("catalogue/best.toml"))
            .map_err(|error| broken("best", &error.to_string()))?;
        Ok(Self(file.best))
    }

    /// The settings for this data set and budget, including the budget.
    pub(super) fn find(
        &self,
        data: &str,
        epsilon: Option<Epsilon>,
        delta: Option<Delta>,
    ) -> Option<Settings> {
        let of_data = self.0.iter().filter(|best| best.data.iter().any(|name| name == data));
        of_data.flat_map(|best| best.at.iter().map(|at| (at, &best.settings))).find_map(|(at, settings)| {
            let fits = at.epsilon == epsilon && at.delta == delta && epsilon.is_some();
            fits.then(|| at.clone().or(settings.clone()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_budget_of_a_data_set_has_one_setting() {
        let all = BestSettings::read().unwrap();
        let mut budgets = Vec::new();
        for best in &all.0 {
            for (name, at) in best.data.iter().flat_map(|name| best.at.iter().map(move |at| (name, at))) {
                let budget = (name, at.epsilon, at.delta);
                assert!(
                    at.epsilon.is_some() && at.delta.is_some() && !budgets.contains(&budget),
                    "{budget:?}"
                );
                budgets.push(budget);
                let found = all.find(name, at.epsilon, at.delta).unwrap();
                assert_eq!((found.epsilon, found.delta), (at.epsilon, at.delta));
                assert_eq!(found, at.clone().or(best.settings.clone()));
            }
        }
        assert!(all.find("mnist", None, None).is_none());
        assert!(all.find("svhn", budgets[0].1, budgets[0].2).is_none());
    }
}
