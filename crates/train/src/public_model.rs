//! Public pre-trained models: a frozen encoder, or a model that is trained in part.

use std::{
    fmt,
    path::Path,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use sordino_data::Dataset;
use sordino_nn::{
    Description, Network, Params, Shape,
    pretrained::{Export, ModelFile, Pooling, Pretrained, TrainedPart},
};

use crate::{
    Encoder, TrainError,
    run_files::{PublicFile, PublicFiles},
};

/// A public model that a run builds on. Its leading frozen layers may be applied to all records once; the rest is trained.
///
/// Equal models that are in use share their memory: the runs of a comparison may all build on the same model.
#[derive(Clone, PartialEq)]
pub struct PublicModel(Arc<Parts>);

struct Parts {
    pretrained: Pretrained,
    encoder: Option<Encoder>,
    /// The whole network, if a part of it is trained.
    whole: Option<Description>,
    trained: Option<Description>,
}

/// The frozen layers before the trained ones are applied to all records once if they are at least this fraction of the work of a forward
/// pass.
const WORTH_STORING: f64 = 0.1;

impl PublicModel {
    /// A frozen encoder: another model is trained on its pooled outputs. The default pooling is that of the encoder's folder.
    ///
    /// # Errors
    /// A folder without a model that can be read; records of another shape.
    pub fn encoder(folder: &Path, pooling: Option<Pooling>, input: Shape) -> Result<Self, TrainError> {
        let pretrained = open(folder, pooling)?;
        let description = pretrained.encoder(input.steps())?;
        check_input(folder, &description, input)?;
        let encoder = encoder(&pretrained, description)?;
        Ok(Self::shared(Parts { pretrained, encoder: Some(encoder), whole: None, trained: None }))
    }

    /// A model with a new head for this many outputs, trained in part; a language model if there is no number of outputs.
    ///
    /// # Errors
    /// A folder without a model that can be read; records of another shape; a part that the model does not have.
    pub fn model(
        folder: &Path,
        part: TrainedPart,
        pooling: Option<Pooling>,
        input: Shape,
        outputs: Option<usize>,
    ) -> Result<Self, TrainError> {
        let pretrained = open(folder, pooling)?;
        let whole = match outputs {
            Some(outputs) => pretrained.classifier(input.steps(), outputs, part)?,
            None => pretrained.language_model(input.steps(), part)?,
        };
        check_input(folder, &whole, input)?;
        let (encoder, trained) = match worthwhile_split(&whole)? {
            // The targets of a language model are its tokens, so its network reads tokens.
            Some((frozen, trained)) if outputs.is_some() => (Some(encoder(&pretrained, frozen)?), trained),
            _ => (None, whole.clone()),
        };
        Ok(Self::shared(Parts { pretrained, encoder, whole: Some(whole), trained: Some(trained) }))
    }

    /// An equal model that is in use, or a new one.
    fn shared(parts: Parts) -> Self {
        static IN_USE: Mutex<Vec<Weak<Parts>>> = Mutex::new(Vec::new());
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        in_use.retain(|known| known.strong_count() > 0);
        if let Some(known) = in_use.iter().filter_map(Weak::upgrade).find(|known| **known == parts) {
            return Self(known);
        }
        let new = Arc::new(parts);
        in_use.push(Arc::downgrade(&new));
        Self(new)
    }

    /// The network that is trained, if it is part of the public model.
    pub fn trained(&self) -> Option<&Description> {
        self.0.trained.as_ref()
    }

    /// The shape that the trained network reads, for records of this shape.
    pub fn output(&self, input: Shape) -> Shape {
        match (&self.0.encoder, &self.0.trained) {
            (Some(encoder), _) => encoder.output(),
            (None, Some(trained)) => trained.input,
            (None, None) => input,
        }
    }

    /// The data that the trained network reads instead of the records; none if it reads the records themselves.
    ///
    /// # Errors
    /// Records of another shape.
    pub fn encode(&self, data: &Dataset) -> Result<Option<Dataset>, TrainError> {
        self.0.encoder.as_ref().map(|encoder| encoder.encode(data)).transpose()
    }

    /// The parameters of the trained network before training: public weights, and new layers from this seed.
    ///
    /// # Errors
    /// A network of another model.
    pub fn initial(&self, network: &Network, seed: u64) -> Result<Params, TrainError> {
        match self.0.trained {
            Some(_) => Ok(self.0.pretrained.params(network, seed)?),
            None => Ok(network.init(seed)),
        }
    }

    /// Writes the whole model, with these trained parameters, into a new folder, as Hugging Face stores models.
    ///
    /// # Errors
    /// An encoder, which is not trained; a folder that exists or cannot be written; adapters, if there are none.
    pub fn export(&self, trained: &Params, folder: &Path, how: Export) -> Result<(), TrainError> {
        let Some(whole) = &self.0.whole else {
            return Err(TrainError::refused(
                "the public model is an encoder, which was not trained",
                "use the encoder's own folder; the run has the weights of the trained model",
            ));
        };
        let network = Network::new(whole)?;
        let mut params = self.0.pretrained.params(&network, 0)?;
        for slice in trained.layout().slices() {
            let values = params.slice_mut(&slice.name).ok_or_else(|| {
                TrainError::refused(
                    format!("{} is not a parameter of the model", slice.name),
                    "give weights of this model",
                )
            })?;
            values.copy_from_slice(&trained.values()[slice.range.clone()]);
        }
        Ok(self.0.pretrained.export(&network, &params, folder, how)?)
    }

    /// The files of the model, with their hashes.
    pub fn files(&self) -> &[ModelFile] {
        self.0.pretrained.files()
    }

    /// The files and their hashes, as a run stores them.
    pub fn listing(&self) -> String {
        let file = |file: &ModelFile| PublicFile {
            path: file.path.display().to_string(),
            sha256: file.sha256.clone(),
        };
        let files = PublicFiles { files: self.files().iter().map(file).collect() };
        toml::to_string(&files).expect("paths and hashes are TOML")
    }

    /// The kind of the model, such as bert.
    pub fn kind(&self) -> &'static str {
        self.0.pretrained.kind().name()
    }
}

impl fmt::Debug for PublicModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicModel").field("files", &self.files()).finish_non_exhaustive()
    }
}

/// Two public models are equal if their files are equal, the same layers are applied first and the same part is trained.
impl PartialEq for Parts {
    fn eq(&self, other: &Self) -> bool {
        let applied = |parts: &'_ Self| parts.encoder.as_ref().map(Encoder::description).cloned();
        self.trained == other.trained
            && applied(self) == applied(other)
            && self.pretrained.files() == other.pretrained.files()
    }
}

fn open(folder: &Path, pooling: Option<Pooling>) -> Result<Pretrained, TrainError> {
    // Absolute, so that a run can be resumed from any folder.
    let pretrained = Pretrained::open(&folder.canonicalize().unwrap_or_else(|_| folder.to_owned()))?;
    Ok(match pooling {
        Some(pooling) => pretrained.with_pooling(pooling),
        None => pretrained,
    })
}

fn encoder(pretrained: &Pretrained, description: Description) -> Result<Encoder, TrainError> {
    let params = pretrained.params(&Network::new(&description)?, 0)?;
    Encoder::new(description, params)
}

/// The frozen layers before the first trained one, and the remaining layers, if computing the former only once saves enough work.
fn worthwhile_split(whole: &Description) -> Result<Option<(Description, Description)>, TrainError> {
    let Some((frozen, trained)) = whole.split_frozen() else { return Ok(None) };
    let work = |description: &Description| Ok::<_, TrainError>(Network::new(description)?.operations());
    let (first, rest) = (work(&frozen)?, work(&trained)?);
    Ok((first >= WORTH_STORING * (first + rest)).then_some((frozen, trained)))
}

fn check_input(folder: &Path, description: &Description, input: Shape) -> Result<(), TrainError> {
    let fits = match (description.input, input) {
        // A tokenizer may have fewer tokens than the table of embeddings has rows.
        (Shape::Tokens { steps, vocabulary }, Shape::Tokens { steps: length, vocabulary: tokens }) => {
            steps == length && tokens <= vocabulary
        }
        (reads, input) => reads == input,
    };
    if fits {
        return Ok(());
    }
    Err(TrainError::refused(
        format!(
            "the model in {} reads records of {}, but the data has {input}",
            folder.display(),
            description.input
        ),
        "leave out {tokenizer} to use the tokenizer of the model; for images set {image_size} and {channels}",
    ))
}
