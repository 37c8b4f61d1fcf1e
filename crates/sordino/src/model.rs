//! The models that a [`Trainer`](crate::Trainer) can train.

use sordino_nn::Description;

/// A model before it is fitted to data. The data determine its inputs and outputs.
///
/// ```
/// use sordino::Model;
///
/// let small = Model::mlp(&[64, 32]);
/// let described = Model::from_toml("input = { features = 20 }\n[[layers]]\ntype = 'linear'\noutputs = 2")?;
/// # Ok::<(), sordino::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    pub(crate) name: Option<String>,
    pub(crate) hidden: Option<Vec<usize>>,
    pub(crate) network: Option<Description>,
}

impl Model {
    fn known(name: &str) -> Self {
        Self { name: Some(name.to_owned()), hidden: None, network: None }
    }

    /// A model by name, with options, as on the command line; `docs/models.md` lists the models.
    ///
    /// ```
    /// use sordino::Model;
    ///
    /// let model = Model::named("vit-tiny,patch=4,depth=6")?;
    /// assert!(Model::named("vit-tiny,colour=blue").is_err());
    /// # Ok::<(), sordino::Error>(())
    /// ```
    ///
    /// # Errors
    /// A name that does not exist, or options that the model does not have or that are out of range.
    pub fn named(text: &str) -> Result<Self, crate::Error> {
        sordino_train::parse_model(text)?;
        Ok(Self::known(text))
    }

    /// A public pre-trained model in a folder with `config.json` and `model.safetensors`, as Hugging Face stores it: `bert`, `roberta`,
    /// `distilbert`, `gpt2` or `vit`. [`Trainer::trained_part`](crate::Trainer::trained_part) selects the part that is trained.
    pub fn pretrained(folder: impl AsRef<std::path::Path>) -> Self {
        Self::known(&folder.as_ref().display().to_string())
    }

    /// The default model for the shape of the data. For features it is logistic or linear regression. For images whose sides are multiples
    /// of 4 from 16 to 64 pixels it is the same on their scattering features; for other images it is `mnist-cnn` with tanh if they are at
    /// least 14x14, otherwise `mlp`. For tokens it is `bag-of-words`, or `lstm` for characters and bytes.
    pub fn for_data() -> Self {
        Self { name: None, hidden: None, network: None }
    }

    /// Logistic regression, or softmax regression for more than two classes.
    pub fn logistic() -> Self {
        Self::known("logistic")
    }

    /// A linear model: linear regression for numeric targets, logistic regression for two classes, or a support vector machine with
    /// the hinge [loss](crate::Trainer::loss).
    pub fn linear() -> Self {
        Self::known("linear")
    }

    /// A multilayer perceptron with hidden layers of these widths.
    pub fn mlp(hidden: &[usize]) -> Self {
        Self { hidden: Some(hidden.to_vec()), ..Self::known("mlp") }
    }

    /// The network with two convolutions that DP papers use for MNIST, for images of at least 14x14.
    pub fn mnist_cnn() -> Self {
        Self::known("mnist-cnn")
    }

    /// LeNet-5, for images of at least 12x12.
    pub fn lenet5() -> Self {
        Self::known("lenet5")
    }

    /// ResNet-20 with group normalisation, for images of at least 12x12.
    pub fn resnet20() -> Self {
        Self::known("resnet20")
    }

    /// A network that is described layer by layer.
    pub fn from_description(network: Description) -> Self {
        Self { name: None, hidden: None, network: Some(network) }
    }

    /// A network from its description in JSON, with `input` and `layers`.
    ///
    /// # Errors
    /// Text that does not describe a network.
    pub fn from_json(text: &str) -> Result<Self, crate::Error> {
        serde_json::from_str(text).map(Self::from_description).map_err(|error| {
            crate::Error::refused(
                format!("the network: {error}"),
                "a network is described by `input` and `layers`; docs/engine.md has an example",
            )
        })
    }

    /// A network that is described in TOML, by `input` and `layers`; `docs/engine.md` has an example.
    ///
    /// # Errors
    /// Text that does not describe a network.
    pub fn from_toml(text: &str) -> Result<Self, crate::Error> {
        toml::from_str(text).map(Self::from_description).map_err(|error| {
            crate::Error::refused(
                error.to_string().trim_end(),
                "a network is described by `input` and `layers`; docs/engine.md has an example",
            )
        })
    }
}
