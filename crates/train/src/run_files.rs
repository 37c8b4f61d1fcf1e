//! The public files that a run stores next to its settings, so that its folder is complete.

use std::{fs, io::ErrorKind};

use sha2::{Digest, Sha256};
use sordino_privacy::Account;

use crate::{RunFolder, Settings, TrainError, data::last_changed, write_whole};

/// Public files that the settings refer to, by their text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFiles {
    /// The schema of a table.
    pub schema: Option<String>,
    /// The description of a network.
    pub network: Option<String>,
    /// The tokenizer of texts.
    pub tokenizer: Option<String>,
}

impl RunFiles {
    /// The name of the schema's file.
    pub const SCHEMA: &str = "schema.toml";
    /// The name of the network's file.
    pub const NETWORK: &str = "network.toml";

    /// The name of the tokenizer's file.
    pub const TOKENIZER: &str = "tokenizer.json";

    fn named(&self) -> [(&'static str, Option<&String>); 3] {
        [
            (Self::SCHEMA, self.schema.as_ref()),
            (Self::NETWORK, self.network.as_ref()),
            (Self::TOKENIZER, self.tokenizer.as_ref()),
        ]
    }

    /// Writes them into the folder of a run.
    pub(crate) fn write(&self, folder: &RunFolder) -> Result<(), TrainError> {
        for (name, text) in self.named() {
            if let Some(text) = text {
                write_whole(&folder.path().join(name), text.as_bytes())?;
            }
        }
        Ok(())
    }

    /// Reads them from the folder of a run.
    ///
    /// # Errors
    /// A file that exists and cannot be read.
    pub fn read(folder: &RunFolder) -> Result<Self, TrainError> {
        let text = |name: &str| match fs::read_to_string(folder.path().join(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => {
                Err(TrainError::refused(format!("cannot read {name}: {error}"), "check the run's folder"))
            }
        };
        Ok(Self {
            schema: text(Self::SCHEMA)?,
            network: text(Self::NETWORK)?,
            tokenizer: text(Self::TOKENIZER)?,
        })
    }

    /// What the ledger stores about the settings of a run. A tokenizer is large, so the ledger has its hash.
    pub(crate) fn about(&self, settings: &Settings) -> String {
        let mut about = settings.to_toml();
        for (name, text) in self.named() {
            match text {
                Some(text) if name == Self::TOKENIZER => {
                    let hash =
                        Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
                    about += &format!("# {name}, SHA-256 {hash}\n");
                }
                Some(text) => about += &format!("# {name}\n{text}"),
                None => {}
            }
        }
        about
    }
}

/// Reads the settings of a run without changing them, and checks that its files agree with its ledger.
///
/// # Errors
/// Files that were changed after the run began.
pub fn verified_settings(folder: &RunFolder, account: &Account) -> Result<Settings, TrainError> {
    let settings = Settings::read_as_written(&folder.config())?;
    let expected = RunFiles::read(folder)?.about(&settings);
    let rest = account.about().strip_prefix(&expected);
    match rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("# data last changed")) {
        true => Ok(settings),
        false => Err(TrainError::refused(
            format!("the settings in {} differ from those in the ledger", folder.path().display()),
            "config.toml, schema.toml, network.toml or tokenizer.json was changed after the run began; the first line of the ledger has \
             their text, and the SHA-256 of tokenizer.json",
        )),
    }
}

/// Rejects data that was changed after the run began. Records would move from training to testing, and the guarantee is for the records
/// that the run began with.
///
/// # Errors
/// A file with another time of modification.
pub fn check_unchanged_data(settings: &Settings, account: &Account) -> Result<(), TrainError> {
    let (now, then) = (last_changed(settings.data.as_ref()), account.about());
    if then.ends_with(&now) {
        return Ok(());
    }
    let when = then.rsplit(' ').next().unwrap_or_default().trim();
    Err(TrainError::refused(
        format!("{} was changed after the run began", settings.data.clone().unwrap_or_default().display()),
        format!("start a new run; if the content is the same, restore the time with `touch -d @{when}`"),
    ))
}
