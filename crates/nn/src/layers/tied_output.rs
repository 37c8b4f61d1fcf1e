//! An output layer that shares the matrix of the embedding.

use serde::{Deserialize, Serialize};

use super::{Composite, Form, LayerType, Linear, Operation, PlannedOperation, Site};
use crate::error::NetworkError;
use crate::graph_builder::{GraphBuilder, Position, Source, Value};
use crate::init::Parameter;
use crate::shape::Shape;
use crate::shapes::fits;

/// Multiplies each step by the embedding vectors of all tokens: `y = E x`, where `E` is the matrix of the network's embedding.
///
/// It has no parameters of its own. The matrix is one parameter with one gradient, to which both layers contribute.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TiedOutput;

impl LayerType for TiedOutput {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        match input.shape() {
            // The width follows from the embedding.
            Shape::Sequence { .. } => Ok(input.shape()),
            _ => Err(input.unsuitable("a sequence", "")),
        }
    }

    fn form(&self) -> Form<'_> {
        Form::Composite(self)
    }
}

impl Composite for TiedOutput {
    fn add_to(
        &self,
        graph: &mut GraphBuilder,
        at: &Position,
        input: &Source,
        _: Shape,
    ) -> Result<Value, NetworkError> {
        let embedding = graph.embedding().map_err(|problem| at.error(problem.to_owned()))?;
        let (steps, width) = (input.shape().steps(), input.shape().width());
        let [vocabulary, needed] = embedding.shape;
        if width != needed {
            return Err(at.error(format!(
                "needs steps of {needed}, the width of the embedding, gets {} from {}",
                input.shape(),
                input.producer
            )));
        }
        let output = Shape::Sequence { steps, width: vocabulary };
        fits(output, 0).map_err(|problem| at.error(problem))?;
        let product = Product(Linear { outputs: vocabulary, inputs: None, bias: false });
        let value = graph.operation(at, Box::new(product), input.value, output);
        graph.share(embedding.node, at)?;
        Ok(value)
    }
}

/// A linear layer with the parameters of another node.
struct Product(Linear);

impl PlannedOperation for Product {
    fn parameters(&self, _: Shape) -> Vec<Parameter> {
        Vec::new()
    }

    fn backward_reads_output(&self) -> bool {
        self.0.backward_reads_output()
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        self.0.build(site)
    }
}
