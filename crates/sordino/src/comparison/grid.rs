//! Settings to try in a comparison: lists of values in a TOML file, for all algorithms or for one.

use std::{fs, path::Path};

use sordino_algorithms::owners;
use sordino_train::{Settings, TrainError, public_folder};
use toml::{Table, Value};

use super::maps::{Choice, plain};
use crate::combinations::{combinations, count};

/// A grid of settings.
///
/// ```toml
/// learning_rate = [10, 20, 40]
/// [dp-c4]
/// max_grad_norm = [0.5, 1]
/// routine = [1, 4]
/// ```
pub struct Grid(Table);

/// The most combinations for one algorithm.
const MOST: usize = 1000;

/// The settings that may be tried. Privacy budget, data and seeds are the same for all.
const PERMITTED: [&str; 11] = [
    "learning_rate",
    "optimizer",
    "schedule",
    "average",
    "epochs",
    "steps",
    "batch_size",
    "max_grad_norm",
    "clipping",
    "model",
    "hidden",
];

const HINT: &str = "a grid has lists of settings, such as learning_rate = [10, 20, 40], and tables of them under the names \
                    of algorithms, such as [dp-c4]";

impl Grid {
    /// Reads a TOML file.
    ///
    /// # Errors
    /// A file that cannot be read or parsed.
    pub fn read(path: &Path) -> Result<Self, TrainError> {
        let wrong = |problem: String| TrainError::refused(format!("{}: {problem}", path.display()), HINT);
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let table: Table =
            toml::from_str(&text).map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
        Ok(Self(table))
    }

    /// Rejects tables for algorithms that are not compared.
    ///
    /// # Errors
    /// The first such table.
    pub fn check(&self, names: &[String]) -> Result<(), TrainError> {
        let known = |name: &str| names.iter().any(|other| base(other) == name);
        let stray = self.0.iter().find(|(key, value)| value.is_table() && !known(key));
        match stray {
            None => Ok(()),
            Some((key, _)) => Err(TrainError::refused(
                format!("[{key}] is not among the algorithms that are compared"),
                HINT,
            )),
        }
    }

    /// All combinations for an algorithm: what was chosen, and all settings with it.
    ///
    /// # Errors
    /// Settings that cannot be tuned, or too many combinations.
    pub fn combinations(
        &self,
        algorithm: &str,
        given: &Settings,
    ) -> Result<Vec<(Choice, Settings)>, TrainError> {
        let mut lists: Table = self.0.iter().filter(|(_, value)| !value.is_table()).map(own).collect();
        if let Some(Value::Table(table)) = self.0.get(base(algorithm)) {
            lists.extend(table.iter().map(own));
        }
        let count = count(&lists)
            .map_err(|key| TrainError::refused(format!("{key} is not a list of values to try"), HINT))?;
        if !(1..=MOST).contains(&count) {
            let count = if count == usize::MAX { "too many".to_owned() } else { count.to_string() };
            return Err(TrainError::refused(
                format!("{algorithm} has {count} combinations to try; 1 to {MOST} are permitted"),
                HINT,
            ));
        }
        let settings = |choice: Table| {
            let chosen = Choice::new(choice.clone());
            let (options, choice): (Table, Table) =
                choice.into_iter().partition(|(key, _)| owners(key).contains(&base(algorithm)));
            if let Some(key) = choice.keys().find(|key| !PERMITTED.contains(&key.as_str())) {
                return Err(TrainError::refused(
                    format!(
                        "{key} cannot be tuned; these can: {}, and the options of {}",
                        PERMITTED.join(", "),
                        base(algorithm)
                    ),
                    HINT,
                ));
            }
            let named = options
                .iter()
                .fold(algorithm.to_owned(), |name, (key, value)| format!("{name},{key}={}", plain(value)));
            let text = toml::to_string(&choice).expect("a table of values is TOML");
            let tried = Settings::parse(&text).map_err(|problem| TrainError::refused(problem, HINT))?;
            let named = Settings { algorithm: Some(named), ..Settings::default() };
            let whole = tried.or(named).or(given.clone());
            // The records are read once for all runs.
            if public_folder(&whole) != public_folder(given) {
                return Err(TrainError::refused(
                    format!(
                        "{chosen}: a grid reads the records once, but different pre-trained models read them in different ways"
                    ),
                    "run a separate command for each pre-trained model, and set {model} there",
                ));
            }
            Ok((chosen, whole))
        };
        combinations(&lists).into_iter().map(settings).collect()
    }
}

/// The name of an algorithm without its options.
fn base(algorithm: &str) -> &str {
    algorithm.split(',').next().unwrap_or(algorithm)
}

fn own((key, value): (&String, &Value)) -> (String, Value) {
    (key.replace('-', "_"), value.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(text: &str) -> Grid {
        Grid(toml::from_str(text).unwrap())
    }

    #[test]
    fn all_combinations_are_tried_and_tables_take_precedence() {
        let grid = grid(
            "learning_rate = [1, 2]\nbatch-size = [32]\n[dp-c4]\nlearning_rate = [3, 4, 5]\nanchor_scale = [7]\n",
        );
        let given = Settings { batch_size: Some(64), epochs: Some(3.0), ..Settings::default() };
        let tried = |name: &str| grid.combinations(name, &given).unwrap();
        assert_eq!(tried("dp-sgd").len(), 2);
        let coupled = tried("dp-c4,routine=4");
        let rates: Vec<Option<f64>> = coupled.iter().map(|(_, settings)| settings.learning_rate).collect();
        assert_eq!(rates, [Some(3.0), Some(4.0), Some(5.0)]);
        let (choice, settings) = &coupled[0];
        assert_eq!(choice.to_string(), "anchor_scale=7 batch_size=32 learning_rate=3");
        assert_eq!((settings.batch_size, settings.epochs), (Some(32), Some(3.0)));
        assert_eq!(settings.algorithm.as_deref(), Some("dp-c4,routine=4,anchor_scale=7"));
    }

    #[test]
    fn a_grid_cannot_have_models_that_read_records_in_different_ways() {
        let folder = std::env::temp_dir().join(format!("sordino-grid-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("config.json"), "{}").unwrap();
        let public = Settings { model: Some(folder.display().to_string()), ..Settings::default() };
        let models = grid(&format!("model = [\"logistic\", {:?}]", folder.display().to_string()));
        for given in [&Settings::default(), &public] {
            let message = models.combinations("dp-sgd", given).unwrap_err().to_string();
            assert!(message.contains("different pre-trained models"), "{message}");
        }
        assert_eq!(grid("learning_rate = [1, 2]").combinations("dp-sgd", &public).unwrap().len(), 2);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn wrong_grids_are_refused() {
        let given = Settings::default();
        for text in [
            "learning_rate = 3",
            "learning_rate = []",
            "colour = [\"blue\"]",
            "epsilon = [1]",
            "seed = [1]",
            "algorithm = [\"none\"]",
            "window = [3]",
            "learning_rate = [\"x\"]",
        ] {
            assert!(grid(text).combinations("dp-sgd", &given).is_err(), "{text}");
        }
        assert!(grid("[dp-c4]\nlearning_rate = [1]").check(&["dp-sgd".to_owned()]).is_err());
        assert!(grid("[dp-sgd]\nlearning_rate = [1]").check(&["dp-sgd".to_owned()]).is_ok());
    }
}
