//! What a run keeps beside its settings, so that its folder is all that is needed to understand it.

use std::{fs, io::ErrorKind};

use sordino_privacy::Account;
use sordino_train::{RunFolder, write_whole};

use crate::{problem::Problem, settings::Settings};

/// Public files that the settings refer to, by their text.
pub(crate) struct RunFiles {
    /// The schema of a table.
    pub(crate) schema: Option<String>,
    /// The description of a network.
    pub(crate) network: Option<String>,
}

impl RunFiles {
    pub(crate) const SCHEMA: &str = "schema.toml";
    pub(crate) const NETWORK: &str = "network.toml";

    fn named(&self) -> [(&'static str, Option<&String>); 2] {
        [(Self::SCHEMA, self.schema.as_ref()), (Self::NETWORK, self.network.as_ref())]
    }

    /// Writes them into a run's folder.
    pub(crate) fn write(&self, folder: &RunFolder) -> Result<(), Problem> {
        for (name, text) in self.named() {
            if let Some(text) = text {
                write_whole(&folder.path().join(name), text.as_bytes())?;
            }
        }
        Ok(())
    }

    fn read(folder: &RunFolder) -> Result<Self, Problem> {
        let text = |name: &str| match fs::read_to_string(folder.path().join(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => {
                Err(Problem::refused(format!("cannot read {name}: {error}"), "check the run's folder"))
            }
        };
        Ok(Self { schema: text(Self::SCHEMA)?, network: text(Self::NETWORK)? })
    }

    /// What the ledger keeps of a run's settings.
    pub(crate) fn about(&self, settings: &Settings) -> String {
        let mut about = settings.to_toml();
        for (name, text) in self.named() {
            if let Some(text) = text {
                about += &format!("# {name}\n{text}");
            }
        }
        about
    }
}

/// Checks that the files of a run say what its ledger says, and returns the settings.
pub(crate) fn verified_settings(folder: &RunFolder, account: &Account) -> Result<Settings, Problem> {
    let settings = Settings::read_as_is(&folder.config())?;
    let expected = RunFiles::read(folder)?.about(&settings);
    let rest = account.about().strip_prefix(&expected);
    match rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("# data last changed")) {
        true => Ok(settings),
        false => Err(Problem::refused(
            format!("the settings in {} are not what the ledger says they were", folder.path().display()),
            "config.toml, schema.toml or network.toml was changed after the run began; their text stands in the ledger's \
             first line",
        )),
    }
}
