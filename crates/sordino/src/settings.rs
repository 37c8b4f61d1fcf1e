//! The settings of a run: the same names as flags and as keys of a TOML file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use sordino_accounting::{Accountant, ClipNorm, Delta, Epsilon, NoiseMultiplier, Steps};

use crate::problem::Problem;

/// Everything that can be set about a run. What is not set has a default.
#[derive(Args, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    /// Records: `mushroom` (comes with Sordino), a CSV, NPZ or SVMLight file, or a folder of IDX files [default: mushroom]
    #[arg(long, value_name = "FILE", help_heading = "Data")]
    pub(crate) data: Option<PathBuf>,
    /// The public schema of a CSV file: columns, vocabularies, scales
    #[arg(long, value_name = "FILE", help_heading = "Data")]
    pub(crate) schema: Option<PathBuf>,
    /// The column to predict, by name or number
    #[arg(long, value_name = "COLUMN", help_heading = "Data")]
    pub(crate) target: Option<String>,
    /// The public number of classes
    #[arg(long, value_name = "N", help_heading = "Data")]
    pub(crate) classes: Option<usize>,
    /// The public number of features
    #[arg(long, value_name = "N", help_heading = "Data")]
    pub(crate) features: Option<usize>,
    /// Test records in the format of the data, treated as PUBLIC; nothing is held back from the data then
    #[arg(long, value_name = "FILE", help_heading = "Data")]
    pub(crate) test_data: Option<PathBuf>,
    /// Share of the records held back for testing and treated as PUBLIC; 0 for none [default: 0.2, if the data has no test set]
    #[arg(long, value_name = "F", help_heading = "Data", allow_hyphen_values = true)]
    pub(crate) test_fraction: Option<f64>,
    /// The public seed of that split [default: 0]
    #[arg(long, value_name = "N", help_heading = "Data")]
    pub(crate) split_seed: Option<u64>,
    /// logistic, linear, mlp, mnist-cnn, lenet5, resnet20, or a TOML file that describes a network [default: by the data's shape]
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub(crate) model: Option<String>,
    /// Widths of an mlp's hidden layers [default: 128]
    #[arg(long, value_name = "N,..", help_heading = "Model", value_delimiter = ',')]
    pub(crate) hidden: Option<Vec<usize>>,
    /// One of `sordino algorithms`, with settings: dynamic,mu_growth=3; none is plain training, NOT PRIVATE [default: dp-sgd]
    #[arg(long, value_name = "NAME[,K=V]", help_heading = "Privacy")]
    pub(crate) algorithm: Option<String>,
    /// The epsilon not to exceed; of algorithms as published, the epsilon that the paper claims [default: 1, unless there is a noise
    /// multiplier]
    #[arg(long, value_name = "E", help_heading = "Privacy", allow_hyphen_values = true)]
    pub(crate) epsilon: Option<Epsilon>,
    /// The delta that goes with it [default: 1e-5]
    #[arg(long, value_name = "D", help_heading = "Privacy", allow_hyphen_values = true)]
    pub(crate) delta: Option<Delta>,
    /// Standard deviation of a step's noise over its sensitivity, all releases together [default: the least that epsilon allows]
    #[arg(long, value_name = "Z", help_heading = "Privacy", allow_hyphen_values = true)]
    pub(crate) noise_multiplier: Option<NoiseMultiplier>,
    /// The norm to which each record's gradient is clipped, or where that begins [default: 0.1; 1 if it adapts]
    #[arg(long, alias = "clip", value_name = "C", help_heading = "Privacy", allow_hyphen_values = true)]
    pub(crate) max_grad_norm: Option<ClipNorm>,
    /// Clip the whole gradient, or each layer to its share [default: flat]
    #[arg(long, value_name = "RULE", help_heading = "Privacy")]
    pub(crate) clipping: Option<Clipping>,
    /// How batches are drawn [default: poisson]
    #[arg(long, value_name = "KIND", help_heading = "Privacy")]
    pub(crate) sampling: Option<SamplingName>,
    /// Cut Poisson batches to this size, at a price in delta
    #[arg(long, value_name = "N", help_heading = "Privacy")]
    pub(crate) max_batch_size: Option<u64>,
    /// Who prices the plan: pld, rdp, zcdp, tcdp; gdp-clt sets the noise by a theorem that is no bound, and the report says what
    /// that costs in truth [default: pld; rdp for fixed-size batches; the algorithm's own]
    #[arg(long, value_name = "NAME", help_heading = "Privacy")]
    pub(crate) accountant: Option<Accountant>,
    /// Passes over the data, in expectation [default: 50]
    #[arg(
        long,
        value_name = "N",
        help_heading = "Learning",
        allow_hyphen_values = true,
        conflicts_with = "steps"
    )]
    pub(crate) epochs: Option<f64>,
    /// Steps, in place of epochs
    #[arg(long, value_name = "T", help_heading = "Learning", allow_hyphen_values = true)]
    pub(crate) steps: Option<Steps>,
    /// The expected size of a batch [default: a sixtieth of the records, at least 256]
    #[arg(long, value_name = "B", help_heading = "Learning")]
    pub(crate) batch_size: Option<u64>,
    /// The learning rate, for gradients divided by the expected batch size [default: for sgd 4 / max_grad_norm, or over
    /// the sum of thresholds where several add up]
    #[arg(long, value_name = "R", help_heading = "Learning", allow_hyphen_values = true)]
    pub(crate) learning_rate: Option<f64>,
    /// sgd, momentum, nesterov, adam, adamw, rmsprop or adagrad, with settings: adam,beta2=0.99 [default: sgd]
    #[arg(long, value_name = "NAME[,K=V]", help_heading = "Learning")]
    pub(crate) optimizer: Option<String>,
    /// constant, step, cosine, linear or cyclic, with settings: step,every=100,factor=0.5 [default: linear, down to 0]
    #[arg(long, value_name = "NAME[,K=V]", help_heading = "Learning")]
    pub(crate) schedule: Option<String>,
    /// Use an exponential average of the parameters with this decay, such as 0.99
    #[arg(long, value_name = "DECAY", help_heading = "Learning", allow_hyphen_values = true)]
    pub(crate) average: Option<f64>,
    /// Make the run repeatable and NOT PRIVATE
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub(crate) seed: Option<u64>,
    /// Seconds between checkpoints [default: 10]
    #[arg(long, value_name = "S", help_heading = "Run", allow_hyphen_values = true)]
    pub(crate) checkpoint_seconds: Option<f64>,
}

/// What is clipped.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Clipping {
    /// The whole gradient
    Flat,
    /// Each of L layers to `max_grad_norm / sqrt(L)`
    PerLayer,
}

/// How batches are drawn.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SamplingName {
    /// Every record with the same probability, independently
    Poisson,
    /// Exactly so many, without replacement; protects under replace-one
    FixedSize,
    /// Every record at every step
    FullBatch,
}

/// Replaces what is not set by what the other has.
macro_rules! fall_back {
    ($settings:ident, $other:ident: $($field:ident)*) => {
        Settings { $($field: $settings.$field.or($other.$field)),* }
    };
}

impl Settings {
    /// These settings, and what they leave open from others.
    #[must_use]
    pub(crate) fn or(self, other: Self) -> Self {
        let own_test_data = self.test_data.is_some();
        let mut settings = fall_back!(self, other:
            data schema target classes features test_data test_fraction split_seed model hidden algorithm epsilon delta
            noise_multiplier max_grad_norm clipping sampling max_batch_size accountant epochs steps batch_size
            learning_rate optimizer schedule average seed checkpoint_seconds);
        // A flag for the one goes before a key for the other.
        if own_test_data {
            (settings.test_fraction, settings.split_seed) = (self.test_fraction, self.split_seed);
        } else if self.test_fraction.is_some() || self.split_seed.is_some() {
            settings.test_data = None;
        }
        if self.steps.is_some() {
            settings.epochs = None;
        } else if self.epochs.is_some() {
            settings.steps = None;
        }
        settings
    }

    /// Whether nothing is set.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses whole numbers that a TOML file cannot hold.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        let count = |value: Option<usize>| value.map(|value| value as u64);
        let widest = self.hidden.as_ref().and_then(|hidden| hidden.iter().max().copied());
        let numbers = [
            ("classes", count(self.classes)),
            ("features", count(self.features)),
            ("split_seed", self.split_seed),
            ("hidden", count(widest)),
            ("max_batch_size", self.max_batch_size),
            ("batch_size", self.batch_size),
            ("seed", self.seed),
        ];
        match numbers.into_iter().find(|(_, value)| value.is_some_and(|value| i64::try_from(value).is_err()))
        {
            None => Ok(()),
            Some((name, value)) => Err(Problem::refused(
                format!("{name} must be at most {}, got {}", i64::MAX, value.unwrap_or_default()),
                "choose a smaller number",
            )),
        }
    }

    /// The names of those that are set.
    pub(crate) fn names(&self) -> Vec<String> {
        let table = toml::Table::try_from(self).expect("settings of numbers and strings are TOML");
        table.into_iter().map(|(name, _)| name).collect()
    }

    /// Reads a TOML file, whose paths are relative to it.
    pub(crate) fn read(path: &Path) -> Result<Self, Problem> {
        let mut settings = Self::read_as_is(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        // The data that comes with Sordino is no file.
        let data = [&mut settings.data, &mut settings.test_data].into_iter().flatten();
        let files = data.filter(|data| *data != Path::new("mushroom"));
        for path in files.chain(&mut settings.schema) {
            *path = folder.join(&*path);
        }
        if let Some(model) = settings.model.as_mut().filter(|model| model.ends_with(".toml")) {
            *model = folder.join(&*model).display().to_string();
        }
        Ok(settings)
    }

    /// Reads a TOML file. Names may be written with `-` or with `_`.
    pub(crate) fn read_as_is(path: &Path) -> Result<Self, Problem> {
        let hint = "keys are the flags of `sordino train`, such as batch_size = 256; `sordino train --help` lists them";
        let text = fs::read_to_string(path).map_err(|error| {
            Problem::refused(
                format!("cannot read {}: {error}", path.display()),
                "give the path of a TOML file",
            )
        })?;
        Self::parse(&text).map_err(|problem| Problem::refused(format!("{}: {problem}", path.display()), hint))
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        // With dashes replaced in keys alone; a message then shows the line as it will be read.
        let line = |line: &str| match line.split_once('=') {
            Some((key, value)) if !key.trim_start().starts_with('#') => {
                format!("{}={value}\n", key.replace('-', "_"))
            }
            _ => format!("{line}\n"),
        };
        let text: String = text.lines().map(line).collect();
        let settings: Self =
            toml::from_str(&text).map_err(|error| error.to_string().trim_end().to_owned())?;
        if settings.epochs.is_some() && settings.steps.is_some() {
            return Err("epochs and steps exclude each other".to_owned());
        }
        Ok(settings)
    }

    /// As the text of a TOML file.
    pub(crate) fn to_toml(&self) -> String {
        toml::to_string(self).expect("settings of numbers and strings are TOML")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_a_file_and_flags_go_first() {
        let file =
            Settings::parse("batch-size = 64\nepochs = 3\ndata = \"a-b.csv\"\nhidden = [3, 4]").unwrap();
        assert_eq!(file.batch_size, Some(64));
        assert_eq!(file.data, Some("a-b.csv".into()));
        assert_eq!(Settings::parse(&file.to_toml()).unwrap(), file);
        let flags =
            Settings { batch_size: Some(32), steps: Some(Steps::new(7).unwrap()), ..Settings::default() };
        let both = flags.or(file);
        assert_eq!((both.batch_size, both.epochs, both.steps.map(Steps::get)), (Some(32), None, Some(7)));
    }

    #[test]
    fn wrong_files_say_where() {
        for (text, part) in [
            ("batchsize = 64", "unknown field `batchsize`"),
            ("epsilon = -1.0", "epsilon must be"),
            ("epochs = 1\nsteps = 2", "exclude each other"),
            ("model = ", "line 1"),
        ] {
            let message = Settings::parse(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
