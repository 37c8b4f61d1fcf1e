//! The settings of a run as flags, made from their definitions.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use sordino_train::{SettingInfo, Settings};

use crate::cli::problem::Problem;

/// The settings that were given, as text.
pub(crate) struct SettingsArguments(Given);

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
    ($arguments:ident, $selected:expr) => {
        impl $arguments {
            pub(crate) fn settings(&self) -> Result<Settings, Problem> {
                parsed(&self.0)
            }
        }

        impl Args for $arguments {
            fn augment_args(command: Command) -> Command {
                command.args(Settings::ALL.iter().filter($selected).map(argument))
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

settings_as_flags!(SettingsArguments, |_: &&SettingInfo| true);
settings_as_flags!(ReadingArguments, |setting: &&SettingInfo| is_reading(setting));
