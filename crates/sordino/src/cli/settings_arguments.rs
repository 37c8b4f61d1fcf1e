//! The settings of a run as flags, made from their definitions.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use sordino_train::{SettingInfo, Settings};

use crate::problem::Problem;

/// The settings that were given, as text.
pub(crate) struct SettingsArguments(Vec<(&'static str, String)>);

impl SettingsArguments {
    pub(crate) fn settings(&self) -> Result<Settings, Problem> {
        let mut settings = Settings::default();
        for (name, text) in &self.0 {
            settings.set(name, text)?;
        }
        Ok(settings)
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

impl Args for SettingsArguments {
    fn augment_args(command: Command) -> Command {
        command.args(Settings::ALL.iter().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingsArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given =
            |setting: &SettingInfo| Some((setting.name, matches.get_one::<String>(setting.name)?.clone()));
        Ok(Self(Settings::ALL.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
