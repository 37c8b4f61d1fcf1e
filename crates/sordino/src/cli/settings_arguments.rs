//! The settings of a run as flags, made from their definitions.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use sordino_train::{SettingInfo, Settings};

use crate::cli::problem::Problem;

/// The settings that were given, as text.
pub(crate) struct SettingsArguments(Given);

/// The settings of federated training that were given. Some have the names that are usual there.
pub(crate) struct FederatedArguments(Given);

/// The settings that say how records are read; the records and the test records themselves are not among them.
pub(crate) struct ReadingArguments(Given);

type Given = Vec<(&'static str, String)>;

fn parsed(given: &Given) -> Result<Settings, Problem> {
    let mut settings = Settings::default();
    for (name, text) in given {
        settings.set(name, text)?;
    }
    Ok(settings)
}

fn is_reading(setting: &SettingInfo) -> bool {
    setting.heading == "Data"
        && !["data", "test_data", "test_fraction", "split_seed", "records_per_unit"].contains(&setting.name)
}

fn is_federated(setting: &SettingInfo) -> bool {
    setting.heading == "Federated"
}

/// Settings with another flag in federated training: the setting, the flag, its value and what it means there.
const FEDERATED: [(&str, &str, &str, &str); 3] = [
    ("unit", "client-column", "COLUMN", "Column or array that identifies the client of a record"),
    (
        "batch_size",
        "clients-per-round",
        "B",
        "Expected number of clients in a round; each joins with the same probability, independently [default: a 32nd of the clients, rounded up to a power of two, at least 256, or all]",
    ),
    ("steps", "rounds", "T", "Number of rounds, instead of epochs"),
];

/// The flag of a setting in federated training. The name of the setting itself is an alias, because hints use it.
fn federated_argument(setting: &SettingInfo) -> Arg {
    match FEDERATED.iter().find(|(name, ..)| *name == setting.name) {
        None => argument(setting),
        Some((name, flag, value, help)) => argument(setting)
            .long(*flag)
            .alias(name.replace('_', "-"))
            .value_name(*value)
            .help(*help)
            .help_heading("Federated"),
    }
}

fn argument(setting: &SettingInfo) -> Arg {
    let mut help = setting.help.trim().to_owned();
    if !setting.permitted.is_empty() {
        help += &format!(" [possible values: {}]", setting.permitted.join(", "));
    }
    Arg::new(setting.name)
        .long(setting.name.replace('_', "-"))
        .aliases(setting.aliases)
        .value_name(setting.value_name)
        .help(help)
        .help_heading(setting.heading)
        .allow_hyphen_values(setting.is_number)
}

/// The flags of the settings that a filter selects.
macro_rules! settings_as_flags {
    ($arguments:ident, $selected:expr, $argument:ident) => {
        impl $arguments {
            pub(crate) fn settings(&self) -> Result<Settings, Problem> {
                parsed(&self.0)
            }
        }

        impl Args for $arguments {
            fn augment_args(command: Command) -> Command {
                command.args(Settings::ALL.iter().filter($selected).map($argument))
            }

            fn augment_args_for_update(command: Command) -> Command {
                Self::augment_args(command)
            }
        }

        impl FromArgMatches for $arguments {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
                let given = |setting: &SettingInfo| {
                    Some((setting.name, matches.get_one::<String>(setting.name)?.clone()))
                };
                Ok(Self(Settings::ALL.iter().filter($selected).filter_map(given).collect()))
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
                *self = Self::from_arg_matches(matches)?;
                Ok(())
            }
        }
    };
}

settings_as_flags!(SettingsArguments, |setting: &&SettingInfo| !is_federated(setting), argument);
settings_as_flags!(ReadingArguments, |setting: &&SettingInfo| is_reading(setting), argument);
settings_as_flags!(
    FederatedArguments,
    |setting: &&SettingInfo| !["records_per_unit", "unit_gradient", "client"].contains(&setting.name),
    federated_argument
);
