//! Models by name, for the shape of the data.

use std::{fs, path::Path, sync::Arc};

use sordino_data::{Dataset, FeatureConfig, Features, ScatteringOptions};
use sordino_nn::{
    Description, Loss, Network, NetworkError, Params, Shape,
    models::{Mlp, ModelConfig, Reads, Widths},
    pretrained::{Pooling, TrainedPart},
};

use crate::{
    DataFacts, LossName, PublicModel, Settings, TrainError, features::parse_features, loss::outputs_and_loss,
    settings::named,
};

/// A network for the data of a run, and its loss. The network can be built several times.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedModel {
    architecture: Architecture,
    input: Shape,
    outputs: usize,
    /// The loss that is minimised.
    pub loss: Loss,
    /// The public model that it builds on.
    public: Option<PublicModel>,
    /// The fixed transform whose outputs the network reads.
    features: Option<Arc<Features>>,
    /// The public weights from which training starts, if they are given.
    initial: Option<Arc<Params>>,
}

#[derive(Debug, Clone, PartialEq)]
enum Architecture {
    Named(ModelConfig),
    Described(Description),
}

impl Architecture {
    fn named(text: &str, hidden: Option<&[usize]>) -> Result<Self, TrainError> {
        if text.ends_with(".toml") && hidden.is_none() {
            return Ok(Self::Described(described(Path::new(text))?));
        }
        let name = text.split(',').next().unwrap_or_default().trim();
        if name != "mlp" && hidden.is_some() {
            return Err(TrainError::refused(
                format!("hidden belongs to the model mlp, but the model is {name}"),
                "leave out {hidden}, use {model=mlp}, or describe the network in a TOML file",
            ));
        }
        match hidden {
            None => parse_model(text).map(Self::Named),
            Some(hidden) if text == "mlp" => Ok(Self::Named(Mlp { hidden: Widths(hidden.to_vec()) }.into())),
            Some(_) => Err(TrainError::refused(
                format!("hidden is given twice, alone and in {text}"),
                "leave out {hidden}",
            )),
        }
    }

    /// The facts with vectors in place of the map of a fixed transform, if it reads vectors.
    fn flattened(&self, facts: DataFacts, is_transformed: bool) -> DataFacts {
        let vector = Shape::Features(facts.input.len());
        let reads_vectors = match self {
            Self::Named(model) => matches!(model.reads(), Reads::Values),
            Self::Described(description) => description.input == vector,
        };
        DataFacts { input: if is_transformed && reads_vectors { vector } else { facts.input }, ..facts }
    }

    /// Whether it is a linear model, which has one output for two classes.
    fn is_linear(&self) -> bool {
        matches!(
            self,
            Self::Named(ModelConfig::Logistic(_) | ModelConfig::Linear(_) | ModelConfig::BagOfWords(_))
        )
    }
}

/// Parses a model with its options, such as `vit-tiny,patch=4`, and checks them.
///
/// # Errors
/// A name that does not exist, or options that the model does not have or that are out of range.
pub fn parse_model(text: &str) -> Result<ModelConfig, TrainError> {
    let model: ModelConfig = named(text).map_err(|problem| {
        let name = text.split(',').next().unwrap_or_default().trim();
        match ModelConfig::all().iter().find(|model| model.name() == name) {
            None => TrainError::refused(
                format!(
                    "model must be one of {}, or a TOML file that describes a network, got {name}",
                    ModelConfig::names().join(", ")
                ),
                "try {model=mlp}",
            ),
            Some(model) => {
                let options = model.options().iter().map(|option| option.name).collect::<Vec<_>>().join(", ");
                TrainError::refused(
                    format!("model {text:?}: {problem}"),
                    match options.is_empty() {
                        true => format!("{name} has no options; docs/models.md lists the models"),
                        false => format!("{name} has the options {options}; docs/models.md explains them"),
                    },
                )
            }
        }
    })?;
    model.check()?;
    Ok(model)
}

/// A vocabulary of at most this many tokens is one of characters or bytes, not of words.
const CHARACTERS: usize = 512;

impl ResolvedModel {
    /// The name of the default model for this data. There is one for every shape that can be read.
    pub fn default_name(facts: &DataFacts) -> &'static str {
        let fits = |model: ModelConfig| model.network(facts.input, 1).is_ok();
        match facts.input {
            // With tanh, activations and gradients stay bounded, which suits clipping and noise.
            Shape::Image { .. } if fits(sordino_nn::models::MnistCnn::default().into()) => {
                "mnist-cnn,tanh=true"
            }
            // An image that is too small for convolutions.
            Shape::Image { .. } => "mlp",
            Shape::Tokens { .. } if facts.classes.is_empty() && facts.numbers.is_empty() => "gpt",
            // The order of characters or bytes matters more than which of them occur.
            Shape::Tokens { vocabulary, .. } if vocabulary <= CHARACTERS => "lstm",
            Shape::Tokens { .. } => "bag-of-words",
            _ if facts.classes.is_empty() => "linear",
            _ => "logistic",
        }
    }

    /// The model that settings choose, and its name.
    ///
    /// # Errors
    /// As for [`choose`](Self::choose); a public model that cannot be read or does not fit the data.
    pub fn from_settings(settings: &Settings, facts: &DataFacts) -> Result<(String, Self), TrainError> {
        let (name, hidden) = (settings.model.as_deref(), settings.hidden.as_deref());
        let features = settings.features.as_deref().map(parse_features).transpose()?;
        let pretrained = name.map(Path::new).filter(|path| path.is_dir());
        if pretrained.is_none() {
            check_not_pretrained(settings)?;
        }
        if let Some(folder) = pretrained {
            if settings.encoder.is_some() || features.flatten().is_some() || hidden.is_some() {
                return Err(TrainError::refused(
                    "encoder, features and hidden are not for a pre-trained model",
                    "leave them out; {train} selects the part that is trained",
                ));
            }
            if settings.loss.is_some() {
                return Err(TrainError::refused(
                    "loss cannot be set for a pre-trained model, whose head has one output for each class",
                    "leave out {loss}, or train a model with {loss} on the outputs of an {encoder}",
                ));
            }
            let part = settings.train.as_deref().unwrap_or("head").parse()?;
            let pooling = settings.pooling.map(Pooling::from);
            return Ok((folder.display().to_string(), Self::pretrained(folder, part, pooling, facts)?));
        }
        let features = match features {
            None if name.is_none() && hidden.is_none() => default_features(settings, facts.input),
            features => features.flatten(),
        };
        let (public, features, facts) = encoded(settings, features, facts)?;
        let name = name.unwrap_or_else(|| {
            let default = match &features {
                Some(_) if facts.classes.is_empty() => "linear",
                Some(_) => "logistic",
                None => Self::default_name(&facts),
            };
            match (default, settings.loss) {
                // With another loss it is not logistic regression.
                ("logistic", Some(LossName::Hinge)) => "linear",
                (name, _) => name,
            }
        });
        let architecture = Architecture::named(name, hidden)?;
        let facts = architecture.flattened(facts, features.is_some());
        let model = Self::fitting(architecture, name, &facts, settings.loss)?;
        Ok((name.to_owned(), Self { public, features, ..model }))
    }

    /// A network that is described layer by layer, in place of the setting `model`. If the settings name an encoder or a fixed transform,
    /// the network reads its outputs.
    ///
    /// # Errors
    /// A network that does not fit the data; an encoder that cannot be read; settings for a pre-trained model.
    pub fn described_with(
        description: Description,
        settings: &Settings,
        facts: &DataFacts,
    ) -> Result<Self, TrainError> {
        check_not_pretrained(settings)?;
        let features = settings.features.as_deref().map(parse_features).transpose()?.flatten();
        let (public, features, facts) = encoded(settings, features, facts)?;
        let architecture = Architecture::Described(description);
        let facts = architecture.flattened(facts, features.is_some());
        Ok(Self { public, features, ..Self::fitting(architecture, "the network", &facts, settings.loss)? })
    }

    /// A pre-trained model that is trained in part.
    fn pretrained(
        folder: &Path,
        part: TrainedPart,
        pooling: Option<Pooling>,
        facts: &DataFacts,
    ) -> Result<Self, TrainError> {
        let outputs = Some(facts.classes.len().max(facts.numbers.len())).filter(|outputs| *outputs > 0);
        let public = PublicModel::model(folder, part, pooling, facts.input, outputs)?;
        let facts = DataFacts { input: public.output(facts.input), ..facts.clone() };
        let trained = public.trained().expect("a pre-trained model has a trained part").clone();
        Ok(Self { public: Some(public), ..Self::described(trained, &facts)? })
    }

    /// The public model that it builds on.
    pub fn public(&self) -> Option<&PublicModel> {
        self.public.as_ref()
    }

    /// The fixed public transform whose outputs the network reads.
    pub fn features(&self) -> Option<&Features> {
        self.features.as_deref()
    }

    /// Whether frozen layers of a public model or a fixed transform are applied to these records before the network reads them.
    pub fn encodes(&self, data: &Dataset) -> bool {
        (self.public.is_some() || self.features.is_some()) && data.shape() != self.input
    }

    /// Whether another model has the same frozen layers and the same fixed transform, so that both networks receive the same inputs.
    pub(crate) fn reads_as(&self, other: &Self) -> bool {
        (self.input, &self.public, &self.features) == (other.input, &other.public, &other.features)
    }

    /// The data that the network reads instead of the records; none if it reads the records themselves.
    ///
    /// # Errors
    /// Records of another shape.
    pub fn encode(&self, data: &Dataset) -> Result<Option<Dataset>, TrainError> {
        match (&self.public, &self.features) {
            (_, Some(features)) if self.encodes(data) => Ok(Some(match self.input {
                Shape::Features(_) => features.apply_flat(data)?,
                _ => features.apply(data)?,
            })),
            (Some(public), None) if self.encodes(data) => public.encode(data),
            _ => Ok(None),
        }
    }

    /// The same model with these initial weights, which are the bytes of a safetensors file. They must be public.
    ///
    /// # Errors
    /// Weights that do not fit the network or are not finite, and pre-trained models, whose folders have the initial weights.
    pub fn beginning_with(self, weights: &[u8]) -> Result<Self, TrainError> {
        let refuse = |problem: String| {
            let hint = "give finite 32-bit floats for all parameters of the model; model.safetensors of a run shows the names and shapes";
            TrainError::refused(format!("initial_weights: {problem}"), hint)
        };
        if self.public.as_ref().is_some_and(|public| public.trained().is_some()) {
            return Err(TrainError::refused(
                "initial_weights cannot be given for a pre-trained model, which has its own weights",
                "leave out {initial_weights}, or replace the weights in the folder of the model",
            ));
        }
        let layout = self.network()?.layout().clone();
        let params = Params::from_safetensors(layout, weights).map_err(|error| refuse(error.to_string()))?;
        match params.values().iter().all(|value| value.is_finite()) {
            true => Ok(Self { initial: Some(Arc::new(params)), ..self }),
            false => Err(refuse("a weight is not finite".to_owned())),
        }
    }

    /// The parameters before training.
    ///
    /// # Errors
    /// A network of another model.
    pub fn initial(&self, network: &Network, seed: u64) -> Result<Params, TrainError> {
        match (&self.initial, &self.public) {
            (Some(initial), _) => Ok(Params::clone(initial)),
            (None, Some(public)) => public.initial(network, seed),
            (None, None) => Ok(network.init(seed)),
        }
    }

    /// Chooses a model by its name, with options, or by the path of a TOML file.
    ///
    /// # Errors
    /// A name that is not in the list, options that the model does not have, a file that cannot be read, or a model that does not fit the data.
    pub fn choose(name: &str, hidden: Option<&[usize]>, facts: &DataFacts) -> Result<Self, TrainError> {
        Self::fitting(Architecture::named(name, hidden)?, name, facts, None)
    }

    /// A network that is described layer by layer.
    ///
    /// # Errors
    /// A network that does not fit the data.
    pub fn described(description: Description, facts: &DataFacts) -> Result<Self, TrainError> {
        Self::fitting(Architecture::Described(description), "the network", facts, None)
    }

    /// The network for this data, with the loss that the user chose for two classes, if any.
    fn fitting(
        architecture: Architecture,
        name: &str,
        facts: &DataFacts,
        chosen: Option<LossName>,
    ) -> Result<Self, TrainError> {
        let (outputs, loss) = outputs_and_loss(facts, architecture.is_linear(), chosen)?;
        let model = Self {
            architecture,
            input: facts.input,
            outputs,
            loss,
            public: None,
            features: None,
            initial: None,
        };
        let network = model.network().map_err(|error| model.unfit(name, error))?;
        if network.input() != facts.input {
            let problem =
                format!("{name} reads records of {}, but the data has {}", network.input(), facts.input);
            return Err(TrainError::refused(
                problem,
                "set the input of the described network to that of the data",
            ));
        }
        let needed = match (loss, facts.input) {
            (Loss::NextToken, Shape::Tokens { steps, vocabulary }) => {
                Shape::Sequence { steps, width: vocabulary }
            }
            _ => Shape::Features(outputs),
        };
        if network.output() == Shape::Features(1) && facts.classes.len() == 2 && chosen.is_none() {
            return Ok(Self { loss: Loss::Logistic, ..model });
        }
        if network.output() != needed && chosen.is_some() {
            return Err(TrainError::refused(
                format!("this loss needs a network with 1 output, but {name} has {}", network.output()),
                "end the network with one output, or leave out {loss}",
            ));
        }
        if network.output() != needed {
            let problem = format!("{name} has {} outputs, but the data needs {needed}", network.output());
            return Err(TrainError::refused(
                problem,
                "a network needs one output for each class; two classes may share one; the next token needs one for each \
                 token at each step",
            ));
        }
        Ok(model)
    }

    /// Why a network of this kind cannot be built for this data, and which one can.
    fn unfit(&self, name: &str, error: NetworkError) -> TrainError {
        let Architecture::Named(model) = &self.architecture else { return error.into() };
        match (model.reads(), self.input) {
            (Reads::Images, Shape::Image { .. }) => TrainError::refused(
                format!("{name} does not fit images of {} (channels x height x width): {error}", self.input),
                "{model=mlp} reads images of any size",
            ),
            (Reads::Images, Shape::Features(_)) => TrainError::refused(
                format!("{name} reads images, but the data has records of {} features", self.input),
                "{model=mlp} reads any records; images are arrays of the shape [n, height, width] or \
                 [n, channels, height, width], or IDX files",
            ),
            (Reads::Values | Reads::Images, Shape::Tokens { .. }) => TrainError::refused(
                error.to_string(),
                "{model=embedding-mlp} reads tokens; docs/models.md lists others",
            ),
            (Reads::Tokens, Shape::Features(_) | Shape::Image { .. }) => {
                TrainError::refused(error.to_string(), "{model=mlp} reads any numbers")
            }
            _ => error.into(),
        }
    }

    /// Builds the network.
    ///
    /// # Errors
    /// Layers that do not fit each other.
    pub fn network(&self) -> Result<Network, NetworkError> {
        match &self.architecture {
            Architecture::Named(model) => model.network(self.input, self.outputs),
            Architecture::Described(description) => Network::new(description),
        }
    }
}

/// Refuses settings that a model has only if it is a pre-trained one.
fn check_not_pretrained(settings: &Settings) -> Result<(), TrainError> {
    if let Some(part) = &settings.train {
        return Err(TrainError::refused(
            format!("train is {part}, but the model is not a pre-trained one"),
            "leave out {train}, or set {model} to the folder of a pre-trained model",
        ));
    }
    if settings.pooling.is_some() && settings.encoder.is_none() {
        return Err(TrainError::refused(
            "pooling is set, but there is no pre-trained model",
            "leave out {pooling}, or set {encoder} or {model} to the folder of a pre-trained model",
        ));
    }
    Ok(())
}

/// The public encoder or the fixed transform that is applied to all records before training, and the facts about its outputs.
type Encoded = (Option<PublicModel>, Option<Arc<Features>>, DataFacts);

/// The default transform of images, if neither a model nor a transform is chosen. Larger images would become too many features for a linear model,
/// and smaller ones have too few pixels for the wavelets.
fn default_features(settings: &Settings, input: Shape) -> Option<FeatureConfig> {
    let fits = |side: usize| (16..=64).contains(&side) && side.is_multiple_of(4);
    let applies = settings.encoder.is_none() && settings.augment.is_none();
    match input {
        Shape::Image { channels: 1 | 3, height, width } if applies && fits(height) && fits(width) => {
            Some(FeatureConfig::Scattering(ScatteringOptions::default()))
        }
        _ => None,
    }
}

/// The encoder of the settings or this transform, and the facts about its outputs.
fn encoded(
    settings: &Settings,
    features: Option<FeatureConfig>,
    facts: &DataFacts,
) -> Result<Encoded, TrainError> {
    if let Some(config) = features {
        if settings.encoder.is_some() {
            return Err(TrainError::refused(
                "features and encoder exclude each other: both are applied to the records before training",
                "leave out one of them",
            ));
        }
        let features = Features::shared(&config, facts.input)?;
        let facts = DataFacts { input: features.output(), ..facts.clone() };
        return Ok((None, Some(features), facts));
    }
    let pooling = settings.pooling.map(Pooling::from);
    let public = settings.encoder.as_deref();
    let public = public.map(|folder| PublicModel::encoder(folder, pooling, facts.input)).transpose()?;
    let input = public.as_ref().map_or(facts.input, |public| public.output(facts.input));
    Ok((public, None, DataFacts { input, ..facts.clone() }))
}

/// Reads the description of a network.
fn described(path: &Path) -> Result<Description, TrainError> {
    let hint = "a network is described by `input` and `layers`; docs/engine.md has an example";
    let text = fs::read_to_string(path)
        .map_err(|error| TrainError::refused(format!("cannot read {}: {error}", path.display()), hint))?;
    toml::from_str(&text).map_err(|error| {
        TrainError::refused(format!("{}: {}", path.display(), error.to_string().trim_end()), hint)
    })
}

#[cfg(test)]
mod tests {
    use sordino_data::{Encoding, Scale};
    use sordino_nn::models;

    use super::*;

    fn facts(input: Shape, classes: usize) -> DataFacts {
        let classes: Vec<String> = (0..classes).map(|class| class.to_string()).collect();
        let numbers = if classes.is_empty() { vec![Scale::NONE; 2] } else { Vec::new() };
        DataFacts {
            input,
            classes,
            observed_classes: false,
            numbers,
            encoding: Encoding::Bytes,
            normalisation: Vec::new(),
            test_records: 0,
            unit: None,
            preparation: None,
        }
    }

    const IMAGES: [(usize, usize, usize); 7] =
        [(1, 28, 28), (3, 32, 32), (1, 64, 64), (1, 8, 8), (4, 14, 100), (1, 1, 1), (32, 32, 3)];

    #[test]
    fn the_default_model_fits_whatever_is_read() {
        let images = IMAGES.map(|(channels, height, width)| Shape::Image { channels, height, width });
        for input in images.into_iter().chain([Shape::Features(1), Shape::Features(126)]) {
            for classes in [0, 2, 3, 10, 100] {
                let facts = facts(input, classes);
                let name = ResolvedModel::default_name(&facts);
                let model = ResolvedModel::choose(name, None, &facts);
                let network =
                    model.unwrap_or_else(|problem| panic!("{input}, {classes}: {problem}")).network();
                let outputs = if name == "logistic" && classes == 2 { 1 } else { classes };
                assert_eq!(network.unwrap().outputs(), if classes == 0 { 2 } else { outputs }, "{input}");
            }
        }
        let name = |shape| ResolvedModel::default_name(&facts(shape, 10));
        assert_eq!(name(Shape::Image { channels: 1, height: 28, width: 28 }), "mnist-cnn,tanh=true");
        assert_eq!(name(Shape::Image { channels: 3, height: 32, width: 32 }), "mnist-cnn,tanh=true");
    }

    #[test]
    fn images_are_read_through_features_unless_the_settings_say_otherwise() {
        let facts = facts(Shape::Image { channels: 1, height: 28, width: 28 }, 10);
        let chosen = |settings: Settings| {
            let (name, model) = ResolvedModel::from_settings(&settings, &facts).unwrap();
            (name, model.features().is_some())
        };
        let (default, none) = (Settings::default(), Some("none".to_owned()));
        assert_eq!(chosen(default.clone()), ("logistic".to_owned(), true));
        let without = Settings { features: none, ..default.clone() };
        assert_eq!(chosen(without.clone()), ("mnist-cnn,tanh=true".to_owned(), false));
        let named = Settings { model: Some("mlp".to_owned()), ..default };
        assert_eq!(chosen(named), ("mlp".to_owned(), false));
        let network = Description::new(facts.input).then(sordino_nn::layers::Flatten);
        let network = network.then(sordino_nn::layers::Linear::new(10));
        assert!(ResolvedModel::described_with(network, &without, &facts).unwrap().features().is_none());
    }

    #[test]
    fn every_model_adapts_to_the_classes_or_names_one_that_does() {
        for (channels, height, width) in IMAGES {
            let facts = facts(Shape::Image { channels, height, width }, 2);
            for name in ["logistic", "linear", "mlp", "mnist-cnn", "lenet5", "resnet20"] {
                match ResolvedModel::choose(name, None, &facts) {
                    Ok(model) => assert_eq!(model.network().unwrap().input(), facts.input),
                    Err(problem) => {
                        assert!(height.min(width) < 14, "{name} for {}", facts.input);
                        assert!(problem.hint().to_string().contains("model = mlp"), "{problem}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_model_is_a_name_with_options() {
        let image = facts(Shape::Image { channels: 3, height: 32, width: 32 }, 10);
        let text = facts(Shape::Tokens { steps: 20, vocabulary: 300 }, 2);
        let parameters = |name, facts: &DataFacts| {
            ResolvedModel::choose(name, None, facts).unwrap().network().unwrap().layout().len()
        };
        assert!(parameters("vit-tiny, patch=8, depth=2", &image) < parameters("vit-tiny,patch=8", &image));
        assert_eq!(
            ResolvedModel::choose("mlp,hidden=64x32", None, &image).unwrap(),
            ResolvedModel::choose("mlp", Some(&[64, 32]), &image).unwrap()
        );
        for (name, hidden, facts, problem, hint) in [
            ("vit-tiny,patch=5", None, &image, "patch must divide", "model = mlp"),
            ("vit-tiny,patch=0", None, &image, "1 to 1024, got 0", ""),
            ("vit-tiny,colour=2", None, &image, "colour", "patch, depth, width, heads, hidden"),
            ("lenet5,width=2", None, &image, "width", "has no options"),
            ("resnet81", None, &image, "one of logistic, linear, mlp", "model = mlp"),
            ("mlp,hidden=3", Some(&[2][..]), &image, "twice", "hidden"),
            ("lstm", Some(&[2][..]), &text, "belongs to the model mlp", "hidden"),
            ("lstm", None, &image, "lstm reads tokens", "model = mlp"),
            ("mlp", None, &text, "mlp reads numbers or images", "model = embedding-mlp"),
            ("resnet18", None, &text, "resnet18 reads images", "model = embedding-mlp"),
        ] {
            let error = ResolvedModel::choose(name, hidden, facts).unwrap_err();
            assert!(error.to_string().contains(problem), "{name}: {error}");
            assert!(error.hint().to_string().contains(hint), "{name}: {}", error.hint());
        }
    }

    #[test]
    fn tokens_have_a_default_model_and_are_their_own_targets() {
        let tokens = Shape::Tokens { steps: 20, vocabulary: 300 };
        let text = facts(tokens, 3);
        assert_eq!(ResolvedModel::default_name(&text), "lstm");
        let words = facts(Shape::Tokens { steps: 20, vocabulary: 16_384 }, 2);
        assert_eq!(ResolvedModel::default_name(&words), "bag-of-words");
        assert_eq!(ResolvedModel::choose("embedding-mlp", None, &text).unwrap().loss, Loss::cross_entropy());
        let alone = DataFacts { classes: Vec::new(), numbers: Vec::new(), ..text };
        assert_eq!(ResolvedModel::default_name(&alone), "gpt");
        let model = ResolvedModel::choose("gpt,depth=1", None, &alone).unwrap();
        assert_eq!(model.loss, Loss::NextToken);
        assert_eq!(model.network().unwrap().output(), Shape::Sequence { steps: 20, width: 300 });
        let error = ResolvedModel::choose("lstm", None, &alone).unwrap_err();
        assert!(error.to_string().contains("gpt predicts the next token"), "{error}");
    }

    #[test]
    fn the_help_names_every_model() {
        let help = crate::Settings::ALL.iter().find(|setting| setting.name == "model").unwrap().help;
        for name in sordino_nn::models::ModelConfig::names() {
            assert!(help.contains(name), "{name}: {help}");
        }
    }

    #[test]
    fn the_networks_of_the_papers_are_as_they_were() {
        let network = |name, channels, size| {
            let facts = facts(Shape::Image { channels, height: size, width: size }, 10);
            ResolvedModel::choose(name, None, &facts).unwrap().network().unwrap()
        };
        for (network, known) in [
            (network("mnist-cnn", 1, 28), models::mnist_cnn()),
            (network("lenet5", 1, 28), models::lenet5(10)),
            (network("resnet20", 3, 32), models::resnet20(10)),
        ] {
            assert_eq!(network.init(7).values(), known.unwrap().init(7).values());
        }
    }
}
