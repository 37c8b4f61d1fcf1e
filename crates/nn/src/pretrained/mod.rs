//! Pre-trained models as Hugging Face stores them: `config.json` and `model.safetensors`.
//!
//! A model becomes a [`Description`] like any other, with names, frozen layers and adapters, and its public weights become the initial
//! parameters. [`Pretrained::export`] writes parameters back in the same format. Each kind of model has one file here and one entry in the
//! list below.

mod architecture;
mod checkpoint;
mod config;
mod export;
mod networks;
mod part;

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

pub use architecture::Pooling;
pub use checkpoint::ModelFile;
pub use export::Export;
pub use part::TrainedPart;

use architecture::{Architecture, Input};
use checkpoint::Checkpoint;
use config::Config;

use crate::description::Description;
use crate::error::NetworkError;
use crate::network::Network;
use crate::params::{Params, Slice};
use crate::shape::Shape;

/// Makes the modules and the enum [`Kind`] from one list. The name of a module is the `model_type` in `config.json`.
macro_rules! kinds {
    ($($module:ident::$Kind:ident $title:literal),* $(,)?) => {
        $(mod $module;)*

        /// A kind of pre-trained model.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Kind {
            $(#[doc = $title] $Kind,)*
        }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Kind] = &[$(Kind::$Kind),*];

            /// The `model_type` in `config.json`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Kind::$Kind => stringify!($module),)*
                }
            }

            fn architecture(self, config: &Config) -> Result<Architecture, NetworkError> {
                match self {
                    $(Kind::$Kind => $module::architecture(config),)*
                }
            }
        }
    };
}

kinds!(bert::Bert "BERT.", roberta::Roberta "RoBERTa.", distilbert::Distilbert "DistilBERT.", gpt2::Gpt2 "GPT-2.", vit::Vit "ViT.");

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name())
    }
}

/// A pre-trained model: its configuration and its public weights.
///
/// ```no_run
/// use sordino_nn::pretrained::{Export, Pretrained, TrainedPart};
/// use sordino_nn::{Engine, Loss, Network};
///
/// let pretrained = Pretrained::open("all-MiniLM-L6-v2".as_ref())?;
/// let description = pretrained.classifier(128, 2, TrainedPart::Lora { rank: 8, alpha: 8.0 })?;
/// let network = Network::new(&description)?;
/// let params = pretrained.params(&network, 1)?;
/// let engine = Engine::new(network, Loss::cross_entropy())?;
/// // ... train ...
/// pretrained.export(engine.network(), &params, "tuned".as_ref(), Export::Merged)?;
/// # Ok::<(), sordino_nn::NetworkError>(())
/// ```
pub struct Pretrained {
    folder: PathBuf,
    kind: Kind,
    config: Config,
    architecture: Architecture,
    checkpoint: Checkpoint,
    files: Vec<ModelFile>,
    pooling: Option<Pooling>,
}

impl Pretrained {
    /// Reads the model in a folder: `config.json`, and `model.safetensors` or the files listed in `model.safetensors.index.json`.
    ///
    /// Weights may be of the types F32, F16 and BF16. Heads for other tasks are ignored.
    ///
    /// # Errors
    /// If a file cannot be read, the kind of model or one of its options is not supported, or the weights do not match `config.json`; the
    /// message names the file and the tensor or key.
    pub fn open(folder: &Path) -> Result<Pretrained, NetworkError> {
        let config = Config::read(&folder.join("config.json"))?;
        let kind = config.keys.get("model_type").and_then(|kind| kind.as_str()).unwrap_or("missing");
        let Some(&kind) = Kind::ALL.iter().find(|known| known.name() == kind) else {
            let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
            return Err(config.error(&format!("model_type must be one of {}, got {kind}", known.join(", "))));
        };
        let architecture = kind.architecture(&config)?;
        let prefix = architecture.names.prefix;
        let checkpoint = Checkpoint::read(folder, |name| {
            let name = name.strip_prefix(prefix).unwrap_or(name);
            // Names from before 2019.
            match name.strip_suffix("LayerNorm.gamma") {
                Some(layer) => format!("{layer}LayerNorm.weight"),
                None => match name.strip_suffix("LayerNorm.beta") {
                    Some(layer) => format!("{layer}LayerNorm.bias"),
                    None => name.to_owned(),
                },
            }
        })?;
        let mut files = vec![config.file()];
        files.extend(checkpoint.files.iter().cloned());
        let pooling = sentence_pooling(folder)?.map(|(pooling, file)| {
            files.push(file);
            pooling
        });
        for name in ["tokenizer.json", "preprocessor_config.json"] {
            files.extend(ModelFile::of(&folder.join(name))?);
        }
        let folder = folder.to_owned();
        let pretrained = Pretrained { folder, kind, config, architecture, checkpoint, files, pooling };
        pretrained.check()?;
        Ok(pretrained)
    }

    /// The kind of model.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The files that determine the model and how records are read for it, with their hashes: `config.json`, the weights, and those that
    /// exist of `1_Pooling/config.json`, `tokenizer.json` and `preprocessor_config.json`.
    pub fn files(&self) -> &[ModelFile] {
        &self.files
    }

    /// The number of transformer layers.
    pub fn layers(&self) -> usize {
        self.architecture.blocks.len()
    }

    /// The number of outputs of the head in the checkpoint, if it has one.
    pub fn head(&self) -> Option<usize> {
        let last = self.architecture.head.last()?.name.as_ref()?;
        self.checkpoint.get(&format!("{last}.weight")).and_then(|stored| stored.shape.first().copied())
    }

    /// The shape of a record; `max_length` is the largest number of tokens, and images have the size that the model requires.
    ///
    /// # Errors
    /// If the model has fewer positions.
    pub fn input(&self, max_length: usize) -> Result<Shape, NetworkError> {
        self.architecture.input.shape(max_length).map_err(|problem| self.config.error(&problem))
    }

    /// The same model with another pooling, for [`classifier`](Self::classifier) and [`encoder`](Self::encoder).
    ///
    /// The default is the pooling in the folder's `1_Pooling/config.json`, which models for sentence embeddings have. Without this file, a
    /// classifier uses the model's own head, and an encoder the mean over all tokens (for images, the class token).
    #[must_use]
    pub fn with_pooling(self, pooling: Pooling) -> Pretrained {
        Pretrained { pooling: Some(pooling), ..self }
    }

    /// The initial parameters of a network of this model: the weights of the checkpoint, and for adapters and the head the values of
    /// [`Network::init`] with this seed. A head in the checkpoint is used if it has the same shape.
    ///
    /// # Errors
    /// If the network is not one of this model.
    pub fn params(&self, network: &Network, seed: u64) -> Result<Params, NetworkError> {
        let mut params = network.init(seed);
        let layout = network.layout().clone();
        let stored_head =
            layout.slices().iter().filter(|slice| self.is_head(&slice.name)).all(|slice| {
                self.checkpoint.get(&slice.name).is_some_and(|stored| stored.shape == slice.shape)
            });
        for slice in layout.slices() {
            let new = self.is_head(&slice.name) && !stored_head;
            if !new && self.architecture.names.adapter(&slice.name).is_none() {
                self.read(slice, &mut params.values_mut()[slice.range.clone()])?;
            }
        }
        Ok(params)
    }

    /// Reads a parameter from the checkpoint.
    fn read(&self, slice: &Slice, values: &mut [f32]) -> Result<(), NetworkError> {
        let foreign =
            || NetworkError::Parameters(format!("{} is not a parameter of this {}", slice.name, self.kind));
        let origin = self.architecture.names.origin(slice);
        let part = values.len() / origin.names.len();
        for (name, values) in origin.names.iter().zip(values.chunks_mut(part)) {
            self.checkpoint.get(name).ok_or_else(foreign)?;
            let stored = self.checkpoint.values(name, &origin.shape)?;
            match origin.transposed {
                true => transpose(&stored, origin.shape[1], values),
                false => {
                    let first = origin.first_row * (stored.len() / origin.shape[0]);
                    let rows = stored.get(first..first + values.len()).ok_or_else(foreign)?;
                    values.copy_from_slice(rows);
                }
            }
        }
        Ok(())
    }

    fn foreign(&self, slice: &Slice) -> NetworkError {
        NetworkError::Parameters(format!("{} is not a parameter of this {}", slice.name, self.kind))
    }

    /// Whether the model reads texts.
    fn is_text(&self) -> bool {
        matches!(self.architecture.input, Input::Tokens { .. })
    }

    /// Whether a parameter belongs to the head.
    fn is_head(&self, name: &str) -> bool {
        let pooler = if self.has_pooler() { &[][..] } else { &self.architecture.pooler[..] };
        let mut named = self.architecture.head.iter().chain(pooler).filter_map(|layer| layer.name.as_ref());
        name.starts_with("head.") || named.any(|layer| name.starts_with(&format!("{layer}.")))
    }

    /// Whether the checkpoint has the layers between the pooled vector and the head.
    fn has_pooler(&self) -> bool {
        let mut named = self.architecture.pooler.iter().filter_map(|layer| layer.name.as_ref());
        named.all(|layer| self.checkpoint.get(&format!("{layer}.weight")).is_some())
    }

    /// Checks that the checkpoint has all tensors of the model, in their shapes, and no others.
    fn check(&self) -> Result<(), NetworkError> {
        // The own head, at the smallest sizes: no other shape depends on them.
        let own = Description {
            input: self.input(1)?,
            layers: {
                let model = &self.architecture;
                let pooled = model.pooling.after(model.groups(TrainedPart::All)?);
                pooled.into_iter().chain(model.pooler.clone()).chain(model.head.clone()).collect()
            },
        };
        let network = Network::new(&own).map_err(|error| in_file(&self.config.path, &error))?;
        let mut known = HashSet::new();
        for slice in network.layout().slices() {
            let origin = self.architecture.names.origin(slice);
            for name in &origin.names {
                if !self.is_head(name) {
                    self.checkpoint.expect(name, &origin.shape)?;
                }
            }
            known.extend(origin.names);
        }
        let ignored = |name: &str| self.architecture.names.ignored.iter().any(|part| name.contains(part));
        match self.checkpoint.names().find(|name| !known.contains(*name) && !ignored(name)) {
            Some(name) => {
                let stored = self.checkpoint.get(name);
                let path = stored.map_or(&*self.folder, |stored| self.checkpoint.file(stored));
                let name = stored.map_or(name, |stored| &stored.name);
                Err(in_file(
                    path,
                    &format!("{name} is not a tensor of the {} that config.json describes", self.kind),
                ))
            }
            None => Ok(()),
        }
    }
}

/// The transpose of a matrix with rows of this length.
fn transpose(stored: &[f32], width: usize, values: &mut [f32]) {
    let height = stored.len() / width;
    for (row, stored) in stored.chunks_exact(width).enumerate() {
        for (column, value) in stored.iter().enumerate() {
            values[column * height + row] = *value;
        }
    }
}

/// The pooling of a model for sentence embeddings, and its file.
fn sentence_pooling(folder: &Path) -> Result<Option<(Pooling, ModelFile)>, NetworkError> {
    let path = folder.join("1_Pooling").join("config.json");
    if !path.exists() {
        return Ok(None);
    }
    let config = Config::read(&path)?;
    let modes = config.keys.iter().filter(|(key, value)| key.starts_with("pooling_mode_") && **value == true);
    let modes: Vec<&str> = modes.map(|(key, _)| key.as_str()).collect();
    match modes[..] {
        ["pooling_mode_mean_tokens"] => Ok(Some((Pooling::Mean, config.file()))),
        ["pooling_mode_cls_token"] => Ok(Some((Pooling::First, config.file()))),
        ["pooling_mode_lasttoken"] => Ok(Some((Pooling::Last, config.file()))),
        _ => Err(config.error(
            "one of pooling_mode_mean_tokens, pooling_mode_cls_token and pooling_mode_lasttoken must be true, and no other",
        )),
    }
}

fn in_file(path: &Path, problem: &dyn fmt::Display) -> NetworkError {
    NetworkError::File { path: path.display().to_string(), problem: problem.to_string() }
}
