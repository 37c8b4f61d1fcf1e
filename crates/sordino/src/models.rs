//! Models by name, for the shape of the data.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};
use sordino_data::{Dataset, Scale};
use sordino_nn::{Description, Loss, Network, NetworkError, Shape, models};

use crate::problem::Problem;

/// What a model must know about its data, all of it public.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) input: Shape,
    /// The names of the classes; none if numbers are predicted.
    pub(crate) classes: Vec<String>,
    /// How the numbers were scaled; none if a class is predicted.
    pub(crate) numbers: Vec<Scale>,
}

impl Facts {
    pub(crate) fn of(data: &Dataset) -> Self {
        Self { input: data.shape(), classes: data.classes().to_vec(), numbers: data.scales().to_vec() }
    }
}

/// A network that has been chosen; it can be built as often as it is needed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Model {
    kind: Kind,
    input: Shape,
    outputs: usize,
    pub(crate) loss: Loss,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Linear,
    Mlp(Vec<usize>),
    MnistCnn,
    LeNet5,
    ResNet20,
    Described(Description),
}

const NAMES: &str =
    "logistic, linear, mlp, mnist-cnn, lenet5, resnet20, or a TOML file that describes a network";

impl Model {
    /// The model's name for this data, if none was chosen.
    pub(crate) fn default_name(facts: &Facts) -> Result<&'static str, Problem> {
        let shape = facts.input;
        match shape {
            Shape::Features(_) if facts.classes.is_empty() => Ok("linear"),
            Shape::Features(_) => Ok("logistic"),
            Shape::Image { channels: 1, height: 28, width: 28 } => Ok("mnist-cnn"),
            Shape::Image { channels: 3, height: 32, width: 32 } => Ok("resnet20"),
            _ => Err(Problem::refused(
                format!("no model is known for records of {shape}"),
                format!("choose one with --model: {NAMES}"),
            )),
        }
    }

    /// Chooses a model by name.
    pub(crate) fn choose(name: &str, hidden: Option<&[usize]>, facts: &Facts) -> Result<Self, Problem> {
        let classes = facts.classes.len();
        let kind = match name {
            "logistic" | "linear" => Kind::Linear,
            "mlp" => Kind::Mlp(hidden.unwrap_or(&[128]).to_vec()),
            "mnist-cnn" => Kind::MnistCnn,
            "lenet5" => Kind::LeNet5,
            "resnet20" => Kind::ResNet20,
            file if file.ends_with(".toml") => Kind::Described(described(Path::new(file))?),
            _ => {
                return Err(Problem::refused(
                    format!("model must be one of {NAMES}, got {name}"),
                    "try --model mlp",
                ));
            }
        };
        if hidden.is_some() && !matches!(kind, Kind::Mlp(_)) {
            return Err(Problem::refused(
                format!("--hidden belongs to --model mlp, the model is {name}"),
                "leave it out, or describe the network in a TOML file",
            ));
        }
        let (outputs, loss) = match classes {
            0 => (facts.numbers.len(), Loss::SquaredError),
            2 if kind == Kind::Linear => (1, Loss::Logistic),
            _ => (classes, Loss::cross_entropy()),
        };
        let model = Self { kind, input: facts.input, outputs, loss };
        let network = model.network()?;
        let wrong = |problem: String, hint: &str| Err(Problem::refused(problem, hint));
        if network.input() != facts.input {
            let problem =
                format!("{name} reads records of {}, the data has {}", network.input(), facts.input);
            return wrong(problem, "choose a model for this shape, or describe one in a TOML file");
        }
        if network.outputs() == 1 && classes == 2 {
            return Ok(Self { loss: Loss::Logistic, ..model });
        }
        if network.outputs() != outputs {
            let problem = format!("{name} has {} outputs, the data needs {outputs}", network.outputs());
            return wrong(problem, "a class needs an output each; two classes may share one");
        }
        Ok(model)
    }

    /// Builds the network.
    pub(crate) fn network(&self) -> Result<Network, NetworkError> {
        let features = self.input.len();
        match &self.kind {
            // Pixels are features like any other.
            Kind::Linear | Kind::Mlp(_) if matches!(self.input, Shape::Image { .. }) => {
                let mut description = Description::new(self.input).then(sordino_nn::Layer::Flatten);
                let hidden = if let Kind::Mlp(hidden) = &self.kind { &hidden[..] } else { &[] };
                for (index, &width) in hidden.iter().enumerate() {
                    description = description
                        .named(&format!("fc{}", index + 1), sordino_nn::Layer::linear(width))
                        .then(sordino_nn::Layer::Relu);
                }
                let last =
                    if hidden.is_empty() { "linear".to_owned() } else { format!("fc{}", hidden.len() + 1) };
                Network::new(&description.named(&last, sordino_nn::Layer::linear(self.outputs)))
            }
            Kind::Linear => models::softmax_regression(features, self.outputs),
            Kind::Mlp(hidden) => models::mlp(features, hidden, self.outputs),
            Kind::MnistCnn => models::mnist_cnn(),
            Kind::LeNet5 => models::lenet5(self.outputs),
            Kind::ResNet20 => models::resnet20(self.outputs),
            Kind::Described(description) => Network::new(description),
        }
    }
}

/// Reads the description of a network.
fn described(path: &Path) -> Result<Description, Problem> {
    let hint = "a network is described by `input` and `layers`; docs/engine.md has an example";
    let text = fs::read_to_string(path)
        .map_err(|error| Problem::refused(format!("cannot read {}: {error}", path.display()), hint))?;
    toml::from_str(&text).map_err(|error| {
        Problem::refused(format!("{}: {}", path.display(), error.to_string().trim_end()), hint)
    })
}
