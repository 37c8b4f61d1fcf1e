//! The pooled outputs of several stages, concatenated.

use serde::{Deserialize, Serialize};

use super::steps_mean::StepsMean;
use super::{
    Composite, Context, Flow, Form, LayerBuffers, LayerNorm, LayerType, Operation, ParameterGradients,
    PlannedOperation, Site,
};
use crate::description::LayerDescription;
use crate::error::NetworkError;
use crate::graph_builder::{GraphBuilder, Position, Source, Value};
use crate::init::Parameter;
use crate::shape::{Shape, Storage};

/// Consecutive stages of layers. The output of each stage is a sequence. It is averaged over the steps and normalised to mean 0 and variance
/// 1, and the vectors of all stages are concatenated.
///
/// With the embeddings and the transformer layers of a pre-trained model as stages, these are the features of all its layers. Named layers
/// keep the names that they would have outside this layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PooledStages {
    /// The layers of each stage.
    pub stages: Vec<Vec<LayerDescription>>,
}

impl LayerType for PooledStages {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        match self.stages.is_empty() || self.stages.iter().any(Vec::is_empty) {
            true => Err("needs at least one stage, and at least one layer in each".to_owned()),
            // The shape follows from the stages.
            false => Ok(input.shape()),
        }
    }

    fn form(&self) -> Form<'_> {
        Form::Composite(self)
    }
}

impl Composite for PooledStages {
    fn add_to(
        &self,
        graph: &mut GraphBuilder,
        at: &Position,
        input: &Source,
        _: Shape,
    ) -> Result<Value, NetworkError> {
        let (mut source, mut parts) = (input.clone(), Vec::new());
        for (index, layers) in self.stages.iter().enumerate() {
            source = graph.stage(layers, at, index, &source)?;
            let Shape::Sequence { width, .. } = source.shape() else {
                return Err(at.error(format!(
                    "the output of stage {index} must be a sequence, got {}",
                    source.shape()
                )));
            };
            let mean = graph.operation(
                at,
                Box::new(StepsMean(|length| 0..length)),
                source.value,
                Shape::Features(width),
            );
            let norm = LayerNorm { affine: false, ..LayerNorm::default() };
            parts.push((width, graph.operation(at, Box::new(norm), mean, Shape::Features(width))));
        }
        let total = Shape::Features(parts.iter().map(|(width, _)| width).sum());
        let (mut first, mut sum) = (0, None);
        for (width, part) in parts {
            // Each vector is 0 outside its own range, so the sum is the concatenation of the parts.
            let placed = graph.operation(at, Box::new(Placed { first }), part, total);
            sum = Some(sum.map_or(placed, |sum| graph.add(sum, placed)));
            first += width;
        }
        sum.ok_or_else(|| at.error("needs at least one stage".to_owned()))
    }
}

/// A vector as a part of a longer one that is 0 elsewhere.
#[derive(Clone, Copy)]
struct Placed {
    /// The index of its first value in the longer vector.
    first: usize,
}

impl PlannedOperation for Placed {
    fn parameters(&self, _: Shape) -> Vec<Parameter> {
        Vec::new()
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        Box::new(PlacedOperation { first: self.first, width: site.input.width(), total: site.output.width() })
    }
}

struct PlacedOperation {
    first: usize,
    width: usize,
    total: usize,
}

impl Operation for PlacedOperation {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        None
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut LayerBuffers) {
        let (short, long) = (Storage::stride(self.width), Storage::stride(self.total));
        for record in 0..context.records {
            let y = &mut y[record * long..][..self.total];
            y.fill(0.0);
            y[self.first..][..self.width].copy_from_slice(&x[record * short..][..self.width]);
        }
    }

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, _: &mut LayerBuffers) {
        let Flow { dy, dx, .. } = flow;
        let Some(dx) = dx else { return };
        let (short, long) = (Storage::stride(self.width), Storage::stride(self.total));
        for record in 0..context.records {
            let dy = &dy[record * long + self.first..][..self.width];
            dx[record * short..][..self.width].copy_from_slice(dy);
        }
    }
}
