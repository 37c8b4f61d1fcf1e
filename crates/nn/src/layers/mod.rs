//! The layers, one file each. A file holds the layer's description, its shape rule, its parameters, and its computations: forward,
//! backward to the input, norms and weighted sums of per-record gradients.
//!
//! A new layer needs its file and its name in the list below. All computations work on a chunk of records. A layer never sees a loss
//! or a batch.

mod lora;
mod operation;
mod steps_mean;

pub(crate) use dropout::Masks;
pub use lora::Lora;
pub(crate) use operation::{
    BufferSizes, Context, Flow, LayerBuffers, Operation, ParameterGradients, PlannedOperation, Pointwise,
    Scratch, Site, Term, Workspace,
};
pub use own::RecordLayer;

use serde::{Deserialize, Serialize};

use crate::description::LayerDescription;
use crate::error::NetworkError;
use crate::graph_builder::{GraphBuilder, Position, Source, Value};
use crate::shape::Shape;

/// Makes the modules, the enum [`Layer`] and its dispatch from one list. The name of a module is the layer's `type` in files and
/// messages.
macro_rules! layers {
    ($($module:ident::$Type:ident),* $(,)?) => {
        $(mod $module;)*
        $(pub use $module::$Type;)*

        /// A layer of a network.
        ///
        /// No layer mixes records: a normalisation over the batch would make a record's gradient depend on the others, and the
        /// guarantee would be lost. [`GroupNorm`] for images and [`LayerNorm`] for sequences normalise within a record instead.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
        pub enum Layer {
            $(#[doc = concat!("See [`", stringify!($Type), "`].")] $Type($Type),)*
        }

        impl Layer {
            /// The names of all types of layers.
            pub const KINDS: &[&str] = &[$(stringify!($module)),*];

            /// The name of the layer's type in files and messages.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Layer::$Type(_) => stringify!($module),)*
                }
            }

            pub(crate) fn layer_type(&self) -> &dyn LayerType {
                match self {
                    $(Layer::$Type(layer) => layer,)*
                }
            }
        }

        $(impl From<$Type> for Layer {
            fn from(layer: $Type) -> Layer {
                Layer::$Type(layer)
            }
        })*

        $(impl From<$Type> for LayerDescription {
            fn from(layer: $Type) -> LayerDescription {
                Layer::from(layer).into()
            }
        })*
    };
}

layers!(
    linear::Linear,
    conv2d::Conv2d,
    embedding::Embedding,
    bag_of_words::BagOfWords,
    positions::Positions,
    segments::Segments,
    layer_norm::LayerNorm,
    group_norm::GroupNorm,
    lstm::Lstm,
    gru::Gru,
    attention::Attention,
    relu::Relu,
    gelu::Gelu,
    gelu_tanh::GeluTanh,
    tanh::Tanh,
    tempered_sigmoid::TemperedSigmoid,
    max_pool::MaxPool,
    average_pool::AveragePool,
    global_average_pool::GlobalAveragePool,
    flatten::Flatten,
    dropout::Dropout,
    residual::Residual,
    pooled_stages::PooledStages,
    image_to_sequence::ImageToSequence,
    class_token::ClassToken,
    first_step::FirstStep,
    last_step::LastStep,
    mean_over_steps::MeanOverSteps,
    tied_output::TiedOutput,
    own::Own,
);

/// A type of layer: how its description becomes part of a network.
pub(crate) trait LayerType {
    /// The shape of the output, or the reason why the layer cannot read this input.
    fn output_shape(&self, input: &Source) -> Result<Shape, String>;

    /// The layer's form in a graph.
    fn form(&self) -> Form<'_>;

    /// Whether the layer reads the tokens of the network's input besides the value before it.
    fn reads_tokens(&self) -> bool {
        false
    }

    /// The layer in messages about the next one; `kind` is the name of its type.
    fn label(&self, kind: &str, input: Shape) -> String {
        let _ = input;
        kind.to_owned()
    }
}

/// What a layer is in a graph.
pub(crate) enum Form<'a> {
    /// `y = f(x)`.
    Operation(Box<dyn PlannedOperation>),
    /// `x = f(x)`, in place.
    Pointwise(Box<dyn Pointwise>),
    /// Several nodes.
    Composite(&'a dyn Composite),
}

/// A layer that adds nodes of its choice to a graph.
pub(crate) trait Composite {
    /// Adds the nodes; `output` is the result of the layer's shape rule. Returns the value that the next layer reads.
    fn add_to(
        &self,
        graph: &mut GraphBuilder,
        at: &Position,
        input: &Source,
        output: Shape,
    ) -> Result<Value, NetworkError>;
}

/// Default of `bias` in files.
fn yes() -> bool {
    true
}

/// Default of `stride` and `groups` in files.
fn one() -> usize {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_the_same_names_in_files_and_messages() {
        let error = serde_json::from_str::<Layer>(r#"{"type": "?"}"#).unwrap_err().to_string();
        let expected: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
        assert_eq!(expected, Layer::KINDS);
    }
}
