//! The public files that a run stores next to its settings, so that its folder is complete.

use std::{fmt, fs, io::ErrorKind};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sordino_privacy::Account;

use crate::{
    DataDescription, RunFolder, Settings, TrainError, data::last_changed, schedule_files::stored_names,
    write_whole,
};

/// The contents of the public files that the settings refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFiles {
    /// The schema of a table.
    pub schema: Option<String>,
    /// The description of a network.
    pub network: Option<String>,
    /// The public model that the run builds on: its files and their hashes.
    pub public_model: Option<String>,
    /// The tokenizer of texts.
    pub tokenizer: Option<String>,
    /// The initial weights, as a safetensors file.
    pub initial_weights: Option<Vec<u8>>,
    /// Schedules with a factor for each step, and the names of their files.
    pub schedules: Vec<(&'static str, String)>,
}

impl RunFiles {
    /// The name of the schema's file.
    pub const SCHEMA: &str = "schema.toml";
    /// The name of the network's file.
    pub const NETWORK: &str = "network.toml";
    /// The name of the file that lists the files of a public model.
    pub const PUBLIC_MODEL: &str = "public_model.toml";
    /// The name of the tokenizer's file.
    pub const TOKENIZER: &str = "tokenizer.json";
    /// The name of the file with the initial weights.
    pub const INITIAL_WEIGHTS: &str = "initial.safetensors";

    /// The files of the data alone.
    pub(crate) fn of_data(data: &DataDescription) -> Self {
        let (schema, tokenizer) = (data.schema.clone(), data.tokenizer.clone());
        Self {
            schema,
            network: None,
            public_model: None,
            tokenizer,
            initial_weights: None,
            schedules: Vec::new(),
        }
    }

    /// The files with their names.
    fn named(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        let files = [
            (Self::SCHEMA, &self.schema),
            (Self::NETWORK, &self.network),
            (Self::PUBLIC_MODEL, &self.public_model),
            (Self::TOKENIZER, &self.tokenizer),
        ];
        let texts = files.into_iter().filter_map(|(name, text)| Some((name, text.as_ref()?)));
        let texts = texts.chain(self.schedules.iter().map(|(name, text)| (*name, text)));
        let weights = self.initial_weights.iter().map(|weights| (Self::INITIAL_WEIGHTS, &weights[..]));
        texts.map(|(name, text)| (name, text.as_bytes())).chain(weights)
    }

    /// Writes them into the folder of a run.
    pub(crate) fn write(&self, folder: &RunFolder) -> Result<(), TrainError> {
        self.named().try_for_each(|(name, content)| write_whole(&folder.path().join(name), content))
    }

    /// Reads them from the folder of a run.
    ///
    /// # Errors
    /// A file that exists and cannot be read.
    pub fn read(folder: &RunFolder) -> Result<Self, TrainError> {
        fn found<T>(name: &str, content: std::io::Result<T>) -> Result<Option<T>, TrainError> {
            match content {
                Ok(content) => Ok(Some(content)),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => {
                    Err(TrainError::refused(format!("cannot read {name}: {error}"), "check the run's folder"))
                }
            }
        }
        let text = |name: &str| found(name, fs::read_to_string(folder.path().join(name)));
        let weights = fs::read(folder.path().join(Self::INITIAL_WEIGHTS));
        let schedules = stored_names().map(|name| Ok(text(name)?.map(|text| (name, text))));
        Ok(Self {
            schedules: schedules.filter_map(Result::transpose).collect::<Result<_, TrainError>>()?,
            schema: text(Self::SCHEMA)?,
            network: text(Self::NETWORK)?,
            public_model: text(Self::PUBLIC_MODEL)?,
            tokenizer: text(Self::TOKENIZER)?,
            initial_weights: found(Self::INITIAL_WEIGHTS, weights)?,
        })
    }

    /// What the ledger stores about the settings of a run. Tokenizers, weights and listed schedules are large, so the ledger has their
    /// hashes.
    pub(crate) fn about(&self, settings: &Settings) -> String {
        let mut about = settings.to_toml();
        for (name, content) in self.named() {
            let hashed = [Self::TOKENIZER, Self::INITIAL_WEIGHTS].contains(&name);
            if hashed || stored_names().any(|stored| stored == name) {
                let hash = Sha256::digest(content);
                let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
                about += &format!("# {name}, SHA-256 {hash}\n");
            } else {
                about += &format!("# {name}\n{}", String::from_utf8_lossy(content));
            }
        }
        about
    }
}

/// The public files with weights that a run builds on, as its ledger lists them: the files of a public model, or the file with the initial weights.
pub fn public_files(account: &Account) -> Vec<PublicFile> {
    let initial = format!("# {}, SHA-256 ", RunFiles::INITIAL_WEIGHTS);
    let initial = account.about().lines().find_map(|line| line.strip_prefix(&initial));
    let initial = initial
        .map(|hash| PublicFile { path: RunFiles::INITIAL_WEIGHTS.to_owned(), sha256: hash.to_owned() });
    model_files(account).into_iter().chain(initial).collect()
}

/// The files of the public model that a run builds on; empty if there is none.
fn model_files(account: &Account) -> Vec<PublicFile> {
    let Some((_, listing)) = account.about().split_once(&format!("# {}\n", RunFiles::PUBLIC_MODEL)) else {
        return Vec::new();
    };
    let listing: String =
        listing.lines().take_while(|line| !line.starts_with('#')).flat_map(|line| [line, "\n"]).collect();
    toml::from_str::<PublicFiles>(&listing).map(|listing| listing.files).unwrap_or_default()
}

/// A file of a public model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicFile {
    /// Its path.
    pub path: String,
    /// The SHA-256 hash of its contents, in hexadecimal digits.
    pub sha256: String,
}

impl fmt::Display for PublicFile {
    /// What a statement says about the file. Weights at which training begins are public because the user says so.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let public =
            if self.path == RunFiles::INITIAL_WEIGHTS { "declared public," } else { "a public file" };
        write!(f, "{}, {public} with SHA-256 {}", self.path, self.sha256)
    }
}

/// The files of a public model, as a run stores them.
#[derive(Serialize, Deserialize)]
pub(crate) struct PublicFiles {
    pub(crate) files: Vec<PublicFile>,
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
        false if account.search().is_some() && !account.is_closed() => begun_settings(account),
        false => Err(TrainError::refused(
            format!("the settings in {} differ from those in the ledger", folder.path().display()),
            "config.toml, schema.toml, network.toml, tokenizer.json, initial.safetensors or a schedule was changed after the run began; the first line of \
             the ledger has their text, and the SHA-256 of tokenizer.json, initial.safetensors and schedules",
        )),
    }
}

/// The settings that a search began with, from its ledger. A search may be killed before it has written all settings of the selected
/// candidate.
fn begun_settings(account: &Account) -> Result<Settings, TrainError> {
    let lines = account.initial_about().lines().take_while(|line| !line.starts_with('#'));
    let settings: String = lines.flat_map(|line| [line, "\n"]).collect();
    Settings::parse(&settings)
        .map_err(|problem| TrainError::refused(problem, "the ledger of the search was changed"))
}

/// Rejects data that was changed after the run began. Otherwise records could move between training and testing, and the guarantee holds
/// only for the records that the run began with.
///
/// # Errors
/// A file with a different modification time.
pub fn check_unchanged_data(settings: &Settings, account: &Account) -> Result<(), TrainError> {
    let (now, then) = (last_changed(settings, settings.data.as_ref()), account.about());
    if then.ends_with(&now) {
        return Ok(());
    }
    let when = then.rsplit(' ').next().unwrap_or_default().trim();
    Err(TrainError::refused(
        format!("{} was changed after the run began", settings.data.clone().unwrap_or_default().display()),
        format!("start a new run; if the content is the same, restore the time with `touch -d @{when}`"),
    ))
}
