//! The first stage: what the user set about a run, from flags, a TOML file or code.

mod definition;
mod named;

use std::{
    fs,
    path::{Path, PathBuf},
};

use definition::{permitted_values, settings};
use serde::{Deserialize, Serialize};
use sordino_accounting::{Accountant, ClipNorm, Delta, Epsilon, NoiseMultiplier, Steps};
use sordino_data::{ImageSize, Truncation};
use sordino_nn::{Loss, pretrained::Pooling};
use toml::de::DeTable;

pub(crate) use definition::given;
pub use definition::{Origin, SettingInfo, SettingValue, Value};
pub(crate) use named::named;

use crate::{TrainError, clients::CLIENT, format::grouped, schedule_files};

settings! {
    "Data" {
        /// Training records: `mushroom` (included), a CSV, JSON Lines, Parquet, NPZ, SVMLight or .sordino file, or a folder of texts, or of
        /// IDX, CIFAR, NPY, Parquet or image files [default: mushroom]
        data: PathBuf = "FILE";
        /// Public schema of a table: columns, categories, scales, texts
        schema: PathBuf = "FILE";
        /// Column to predict, by name or by number from 1
        target: String = "COLUMN";
        /// Unit of privacy: the column or array that identifies it, such as a person with several records. All records of a unit are
        /// used and protected together [default: every record is a unit]
        unit: String = "COLUMN";
        /// Public maximum number of records of a unit: its first ones are used [default: 20, if there is a unit]
        records_per_unit: usize = "N";
        /// Public number of classes
        classes: usize = "N";
        /// Public number of features of a table or an SVMLight file
        feature_count: usize = "N";
        /// Public size to which PNG and JPEG images are resized: 64, or 64x48 for height 64 and width 48
        image_size: ImageSize = "SIZE";
        /// Public channels of PNG and JPEG images: 1 is grey, 3 is colour
        channels: usize = "N";
        /// Public number that is subtracted from all pixels, or one for each channel; bytes are divided by 255 before [default: 0]
        mean: Vec<f64> = "X,..";
        /// Public number by which pixels are divided after that, or one for each channel [default: 1]
        std: Vec<f64> = "X,..";
        /// Public tokenizer of texts: bytes, characters[,alphabet=ABC], hashed[,size=N], or a file tokenizer.json; without a schema,
        /// it makes the columns texts [default: hashed,size=16384, or what docs/data.md states for a folder]
        tokenizer: String = "NAME[,K=V]";
        /// Public number of tokens at which texts are cut [default: 1024 if each text is a file of its own, otherwise 256]
        max_length: usize = "N";
        /// Where longer texts are truncated: at the end, or in the middle, which keeps the first and the last tokens [default: end]
        truncation: TruncationName = "PLACE";
        /// Test records in the same format, other than the training records; no records are then held back
        test_data: PathBuf = "FILE";
        /// Fraction of the records that is held back for testing; 0 holds back none [default: 0.2, if the data has no test set]
        test_fraction: f64 = "F";
        /// Public seed that selects the records held back [default: 0]
        split_seed: u64 = "N";
        /// Whether test records are protected: they are then measured with noise, within the privacy budget of the run.
        /// What is measured on public test records is exact [default: protected; public for Mushroom and for data with a test set in IDX, CIFAR, NPZ or NPY files]
        test_set: TestSetName = "KIND";
    }
    "Model" {
        /// Model with its options, such as vit-tiny,patch=4, a TOML file that describes a network, or a folder with a public pre-trained model
        /// (bert, roberta, distilbert, gpt2, vit). Names: logistic, linear, mlp, mnist-cnn, lenet5, resnet20, resnet18, resnet34, vgg11,
        /// vit-tiny, vit-small, bag-of-words, embedding-mlp, lstm, gru, transformer, gpt [default: depends on the shape of the data]
        model: String = "NAME[,K=V]";
        /// Widths of the hidden layers of an mlp [default: 128]
        hidden: Vec<usize> = "N,..";
        /// Loss for two classes that share one output; a linear model with the hinge loss is a support vector machine [default: logistic for
        /// linear models of two classes, cross-entropy for other classes, squared error for numbers]
        loss: LossName = "NAME";
        /// Part of a pre-trained model that is trained: head, `last,layers=2`, `lora,rank=8` or all [default: head]
        train: String = "PART";
        /// Folder with a public pre-trained model that is not trained: the model is trained on its outputs
        encoder: PathBuf = "FOLDER";
        /// Fixed public transform of records, computed once: `scattering` turns images into maps of 81 wavelet features for each channel; `none` is no
        /// transform. Options such as scattering,mirror=true,whiten=0.25: colours, mirror, whiten, smooth, normalise [default: scattering for grey
        /// and colour images of 16 to 64 pixels a side if no model is chosen, otherwise none]
        features: String = "NAME[,K=V]";
        /// How the outputs of a pre-trained model are pooled into one vector for each record [default: that of the folder's
        /// 1_Pooling/config.json; without this file, mean for an encoder of texts, otherwise that of the model's own head]
        pooling: PoolingName = "NAME";
        /// Public safetensors file with the weights from which training starts, by the names of the model's parameters [default:
        /// random weights]
        initial_weights: PathBuf = "FILE";
    }
    "Privacy" {
        /// Algorithm with its options, such as dynamic,mu_growth=3; `none` is plain SGD, NOT PRIVATE [default: dp-sgd]
        algorithm: String = "NAME[,K=V]";
        /// Privacy budget; for `*-published`, the paper's claimed epsilon [default: 1, unless a noise multiplier is given]
        epsilon: Epsilon = "E";
        /// Delta of the privacy budget [default: 1e-5]
        delta: Delta = "D";
        /// Standard deviation of a step's noise divided by its sensitivity, for all releases of the step together [default: the smallest
        /// that the budget allows]
        noise_multiplier: NoiseMultiplier = "Z";
        /// Norm to which each record's gradient is clipped, at the start if the algorithm adapts it [default: 0.1 if fixed, 1 if adaptive]
        max_grad_norm: ClipNorm = "C", alias "clip";
        /// Clip the whole gradient, or each layer to its share of the norm [default: flat]
        clipping: Clipping = "RULE";
        /// How batches are drawn [default: poisson]
        sampling: SamplingName = "KIND";
        /// Truncate Poisson batches to this size, which adds to delta
        max_batch_size: u64 = "N";
        /// Number of measurements on protected test records, evenly spaced over the run; each spends an equal part of epsilon [default: 1, at the end]
        measurements: u64 = "N";
        /// Accountant that prices the plan: pld, rdp, zcdp or tcdp. gdp-clt sets the noise by an approximation; the report then also
        /// states the proved epsilon [default: pld; rdp for fixed-size batches; some algorithms have their own]
        accountant: Accountant = "NAME";
    }
    "Learning" {
        /// Expected number of passes over the data [default: 40]
        epochs: f64 = "N";
        /// Number of steps, instead of epochs
        steps: Steps = "T";
        /// Expected batch size [default: a 32nd of the records, rounded up to a power of two, at least 256]
        batch_size: u64 = "B";
        /// How the gradients of a unit's records are combined before they are clipped [default: mean]
        unit_gradient: UnitGradient = "RULE";
        /// Random views of images, such as flip,crop=4,copies=4, whose gradients are averaged before the image is clipped: mirrored, shifted by
        /// up to 4 pixels, 4 views [default: none]
        augment: String = "VIEWS";
        /// Learning rate, for gradients divided by the expected batch size [default: follows from the privacy budget, the number of records, steps and
        /// parameters, and the clipping norm; 0.01 for adam and similar optimizers]
        learning_rate: f64 = "R";
        /// Public weights of the classes, in their order, for rare classes: the loss of each record is multiplied by the weight of its class, relative
        /// to the largest, before its gradient is clipped [default: none]
        class_weights: Vec<f64> = "X,..";
        /// sgd, momentum, nesterov, adam, adamw, rmsprop or adagrad, with options such as adam,beta2=0.99 [default: momentum]
        optimizer: String = "NAME[,K=V]";
        /// constant, step, cosine, linear or cyclic, with options such as step,at=0.5/0.75,factor=0.1 [default: constant; linear, down to 0, if numbers are predicted]
        schedule: String = "NAME[,K=V]";
        /// Decay of an exponential moving average of the parameters, such as 0.99; the average is the model; 0 is no average [default: averages
        /// over about the last twentieth of the run]
        average: f64 = "DECAY";
    }
    "Federated" {
        /// What is protected: all records of a client together, or each record within its client [default: clients]
        protect: ProtectedUnit = "UNIT";
        /// Clients: a number K splits the records over K clients by their public index, so that record i belongs to client i modulo K;
        /// `files` if the data is a folder with a file for each client
        clients: ClientSource = "K";
        /// Number of the client whose records are trained on, if records are protected within their clients; set for each of them
        client: u64 = "N";
        /// Number of steps that a client takes in a round, on its own records [default: 1]
        local_steps: u64 = "N";
        /// Public maximum number of records in a local step [default: 32]; the expected number if records are protected [default: 256]
        local_batch_size: usize = "N";
        /// Learning rate of local steps, for the mean gradient of a batch [default: 1; 4 / max_grad_norm if records are protected]
        local_learning_rate: f64 = "R";
    }
    "Run" {
        /// Make the run reproducible and NOT PRIVATE
        seed: u64 = "N";
        /// Seconds between checkpoints [default: 10]
        checkpoint_seconds: f64 = "S";
    }
}

permitted_values! {
    /// Where long texts are truncated.
    pub enum TruncationName {
        /// At the end: the first `max_length` tokens are kept.
        End = "end",
        /// In the middle: the first and the last tokens are kept.
        Middle = "middle",
    }
}

impl From<TruncationName> for Truncation {
    fn from(name: TruncationName) -> Truncation {
        match name {
            TruncationName::End => Truncation::End,
            TruncationName::Middle => Truncation::Middle,
        }
    }
}

permitted_values! {
    /// Whether test records are protected.
    pub enum TestSetName {
        /// They are measured with noise, within the privacy budget of the run.
        Protected = "protected",
        /// They are public, and what is measured on them is exact.
        Public = "public",
    }
}

permitted_values! {
    /// The loss for two classes that share one output.
    pub enum LossName {
        /// `log(1 + e^z) - y z` for a class `y` of 0 or 1: logistic regression.
        Logistic = "logistic",
        /// `max(0, 1 - y z)` for a class `y` of -1 or 1: a support vector machine.
        Hinge = "hinge",
    }
}

impl From<LossName> for Loss {
    fn from(name: LossName) -> Loss {
        match name {
            LossName::Logistic => Loss::Logistic,
            LossName::Hinge => Loss::Hinge,
        }
    }
}

permitted_values! {
    /// How the outputs of a pre-trained model are pooled into one vector for each record.
    pub enum PoolingName {
        /// The first step: the class token.
        First = "first",
        /// The last step.
        Last = "last",
        /// The mean over the steps.
        Mean = "mean",
        /// The mean over the steps, normalised to mean 0 and variance 1.
        StandardisedMean = "standardised-mean",
        /// The standardised means of the embeddings and of each transformer layer, concatenated.
        AllLayers = "all-layers",
    }
}

impl From<PoolingName> for Pooling {
    fn from(name: PoolingName) -> Pooling {
        match name {
            PoolingName::First => Pooling::First,
            PoolingName::Last => Pooling::Last,
            PoolingName::Mean => Pooling::Mean,
            PoolingName::StandardisedMean => Pooling::StandardisedMean,
            PoolingName::AllLayers => Pooling::AllLayers,
        }
    }
}

permitted_values! {
    /// What is clipped.
    pub enum Clipping {
        /// The whole gradient.
        Flat = "flat",
        /// Each of L layers to `max_grad_norm / sqrt(L)`.
        PerLayer = "per-layer",
    }
}

permitted_values! {
    /// How batches are drawn.
    pub enum SamplingName {
        /// Every record joins with the same probability, independently.
        Poisson = "poisson",
        /// A fixed number of records without replacement; the guarantee is for replacing one record.
        FixedSize = "fixed-size",
        /// Every record at every step.
        FullBatch = "full-batch",
    }
}

permitted_values! {
    /// How the gradients of a unit's records are combined before they are clipped.
    pub enum UnitGradient {
        /// Their mean: every unit has the same influence, however many records it has.
        Mean = "mean",
        /// Their sum.
        Sum = "sum",
    }
}

permitted_values! {
    /// What federated training protects.
    pub enum ProtectedUnit {
        /// All records of one client together: its whole update is clipped.
        Clients = "clients",
        /// One record: clients train with differential privacy themselves.
        Records = "records",
    }
}

/// Who the clients of a federated run are, unless a column names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "toml::Value", into = "toml::Value")]
pub enum ClientSource {
    /// This many: record `i` belongs to client `i` modulo their number.
    Split(usize),
    /// The files of a folder.
    Files,
}

impl std::fmt::Display for ClientSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Split(count) => write!(f, "{count}"),
            Self::Files => f.write_str("files"),
        }
    }
}

impl SettingValue for ClientSource {
    fn parse(name: &'static str, text: &str) -> Result<Self, TrainError> {
        match (text.trim(), text.trim().parse()) {
            ("files", _) => Ok(Self::Files),
            (_, Ok(count)) => Ok(Self::Split(count)),
            (_, Err(_)) => Err(TrainError::refused(
                format!("{name} must be a whole number or files, got {text}"),
                "try {clients=100}",
            )),
        }
    }
}

impl TryFrom<toml::Value> for ClientSource {
    type Error = TrainError;

    fn try_from(value: toml::Value) -> Result<Self, TrainError> {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Self::parse("clients", &text)
    }
}

impl From<ClientSource> for toml::Value {
    fn from(clients: ClientSource) -> toml::Value {
        match clients {
            ClientSource::Split(count) => i64::try_from(count).unwrap_or(i64::MAX).into(),
            ClientSource::Files => "files".into(),
        }
    }
}

/// Whether a model is a file or a folder, and not a name.
pub(crate) fn is_path(model: &str) -> bool {
    model.ends_with(".toml") || model.contains(['/', '\\'])
}

/// A client, with the name of its column.
fn client(unit: &str) -> String {
    if unit == CLIENT { unit.to_owned() } else { format!("client ({unit})") }
}

fn unknown(name: &str) -> TrainError {
    let names: Vec<&str> = Settings::ALL.iter().map(|setting| setting.name).collect();
    TrainError::refused(
        format!("there is no setting {name}"),
        format!("the settings are {}", names.join(", ")),
    )
}

impl Settings {
    /// These settings; those that are not set are taken from others. Of two settings that exclude each other, these come first.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let first = self.clone();
        let mut settings = self.filled_from(other);
        if first.test_data.is_some() {
            (settings.test_fraction, settings.split_seed) = (first.test_fraction, first.split_seed);
        } else if first.test_fraction.is_some() || first.split_seed.is_some() {
            settings.test_data = None;
        }
        if first.steps.is_some() {
            settings.epochs = first.epochs;
        } else if first.epochs.is_some() {
            settings.steps = None;
        }
        settings
    }

    /// The unit that a run protects, in words.
    pub fn protected_unit(&self) -> String {
        let most =
            self.records_per_unit.map_or(String::new(), |most| format!(", up to {}", grouped(most as u64)));
        match &self.unit {
            Some(unit) if self.protects_clients() => format!("all records of one {}{most}", client(unit)),
            Some(unit) => format!("all records of one {unit}{most}"),
            None => match self.client {
                // The model depends on the records of all clients.
                Some(client) => format!(
                    "one training record of client {client} (the ledgers of the other clients state what protects their records)"
                ),
                None => "one training record".to_owned(),
            },
        }
    }

    /// What the units of privacy are called: records, clients, or units with their name.
    pub fn unit_noun(&self) -> String {
        match &self.unit {
            Some(unit) if self.protects_clients() => client(unit).replacen("client", "clients", 1),
            Some(unit) => format!("units ({unit})"),
            None => "records".to_owned(),
        }
    }

    /// Whether the slots of the run are clients, which add updates.
    pub fn protects_clients(&self) -> bool {
        self.protect == Some(ProtectedUnit::Clients)
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Rejects settings that exclude each other, and whole numbers that a TOML file cannot hold.
    pub(crate) fn check_values(&self) -> Result<(), TrainError> {
        if self.epochs.is_some() && self.steps.is_some() {
            return Err(TrainError::refused("epochs and steps exclude each other", "leave out one of them"));
        }
        let count = |value: Option<usize>| value.map(|value| value as u64);
        let widest = self.hidden.as_ref().and_then(|hidden| hidden.iter().max().copied());
        let numbers = [
            ("records_per_unit", count(self.records_per_unit)),
            ("classes", count(self.classes)),
            ("feature_count", count(self.feature_count)),
            ("max_length", count(self.max_length)),
            ("split_seed", self.split_seed),
            ("hidden", count(widest)),
            ("max_batch_size", self.max_batch_size),
            ("measurements", self.measurements),
            ("batch_size", self.batch_size),
            ("client", self.client),
            ("local_steps", self.local_steps),
            ("local_batch_size", count(self.local_batch_size)),
            ("seed", self.seed),
        ];
        match numbers.into_iter().find(|(_, value)| value.is_some_and(|value| i64::try_from(value).is_err()))
        {
            None => Ok(()),
            Some((name, value)) => Err(TrainError::refused(
                format!("{name} must be at most {}, got {}", i64::MAX, value.unwrap_or_default()),
                "choose a smaller number",
            )),
        }
    }

    /// Reads a TOML file. Paths in it are relative to its folder.
    ///
    /// # Errors
    /// A file that cannot be read or parsed.
    pub fn read(path: &Path) -> Result<Self, TrainError> {
        let mut settings = Self::read_as_written(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        // The included data is not a file.
        let data = [&mut settings.data, &mut settings.test_data].into_iter().flatten();
        let files = data.filter(|data| *data != Path::new("mushroom"));
        for path in files
            .chain(&mut settings.schema)
            .chain(&mut settings.encoder)
            .chain(&mut settings.initial_weights)
        {
            *path = folder.join(&*path);
        }
        if let Some(model) = settings.model.as_mut().filter(|model| is_path(model)) {
            *model = folder.join(&*model).display().to_string();
        }
        if let Some(tokenizer) = settings.tokenizer.as_mut().filter(|tokenizer| tokenizer.ends_with(".json"))
        {
            *tokenizer = folder.join(&*tokenizer).display().to_string();
        }
        if let Some(algorithm) = settings.algorithm.as_mut() {
            *algorithm = schedule_files::relative_to(algorithm, folder);
        }
        Ok(settings)
    }

    /// Reads a TOML file and does not change its paths.
    ///
    /// # Errors
    /// A file that cannot be read or parsed.
    pub fn read_as_written(path: &Path) -> Result<Self, TrainError> {
        let hint = "keys are the names of settings, such as batch_size = 256; docs/training.md lists them";
        let text = fs::read_to_string(path).map_err(|error| {
            TrainError::refused(
                format!("cannot read {}: {error}", path.display()),
                "give the path of a TOML file",
            )
        })?;
        Self::parse(&text)
            .map_err(|problem| TrainError::refused(format!("{}: {problem}", path.display()), hint))
    }

    /// Parses TOML. Keys may be written with `-` or with `_`.
    ///
    /// # Errors
    /// The first problem, with its line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let message = |error: toml::de::Error| error.to_string().trim_end().to_owned();
        let mut table = DeTable::parse(text).map_err(message)?;
        let mut renamed = DeTable::new();
        for (mut key, value) in std::mem::take(table.get_mut()) {
            *key.get_mut() = key.get_ref().replace('-', "_").into();
            if renamed.keys().any(|other| other == &key) {
                return Err(format!("{} is set twice", key.get_ref()));
            }
            renamed.insert(key, value);
        }
        *table.get_mut() = renamed;
        let settings = Self::deserialize(toml::Deserializer::from(table)).map_err(|mut error| {
            error.set_input(Some(text));
            message(error)
        })?;
        if settings.epochs.is_some() && settings.steps.is_some() {
            return Err("epochs and steps exclude each other".to_owned());
        }
        Ok(settings)
    }

    /// The settings as the text of a TOML file.
    pub fn to_toml(&self) -> String {
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
    fn errors_in_a_file_have_their_line() {
        for (text, part) in [
            ("\nbatchsize = 64", "unknown field `batchsize`"),
            ("\nbatchsize = 64", "line 2"),
            ("\nepsilon = -1.0", "epsilon must be"),
            ("\nepsilon = -1.0", "line 2"),
            ("epochs = 1\nsteps = 2", "exclude each other"),
            ("model = ", "line 1"),
            ("batch-size = 1\nbatch_size = 2", "batch_size is set twice"),
        ] {
            let message = Settings::parse(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn values_are_set_from_text() {
        let mut settings = Settings::default();
        for (name, text) in [
            ("batch-size", "64"),
            ("clip", "0.5"),
            ("hidden", "3, 4"),
            ("sampling", "fixed-size"),
            ("accountant", "rdp"),
            ("data", "a-b.csv"),
        ] {
            settings.set(name, text).unwrap();
        }
        let expected = "data = \"a-b.csv\"\nhidden = [3, 4]\nmax_grad_norm = 0.5\nsampling = \"fixed-size\"\n\
                        accountant = \"rdp\"\nbatch_size = 64\n";
        assert_eq!(settings.to_toml(), expected);
        assert_eq!(
            settings.names(),
            ["data", "hidden", "max_grad_norm", "sampling", "accountant", "batch_size"]
        );
    }

    #[test]
    fn values_that_are_not_permitted_are_refused_with_the_name_and_the_range() {
        for (name, text, part) in [
            ("batch_size", "-1", "batch_size must be a whole number of at least 0, got -1"),
            ("epochs", "many", "epochs must be a number, got many"),
            ("sampling", "urn", "sampling must be one of poisson, fixed-size, full-batch, got urn"),
            ("epsilon", "-1", "at least 0, got -1"),
            ("hidden", "3,x", "got x"),
            ("colour", "blue", "there is no setting colour"),
        ] {
            let message = Settings::default().set(name, text).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn every_setting_has_help_and_can_be_found_by_its_name() {
        for setting in Settings::ALL {
            assert!(setting.help.trim().len() > 10 && !setting.help.contains("--"), "{}", setting.name);
            let text = setting.permitted.first().copied().unwrap_or("1");
            let text = if setting.name == "accountant" { "pld" } else { text };
            let text = if setting.name == "delta" { "0.1" } else { text };
            let mut settings = Settings::default();
            settings.set(setting.name, text).unwrap();
            assert_eq!(settings.names(), [setting.name]);
        }
    }
}
