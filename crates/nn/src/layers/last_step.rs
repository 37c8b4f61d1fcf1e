//! The last step of each record's sequence.

use serde::{Deserialize, Serialize};

use super::{
    Context, Flow, Form, LayerBuffers, LayerType, Operation, ParameterGradients, PlannedOperation, Site,
};
use crate::graph_builder::Source;
use crate::init::Parameter;
use crate::shape::{Shape, Storage};

/// The last step of each record's sequence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LastStep;

impl LayerType for LastStep {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        match input.shape() {
            Shape::Sequence { width, .. } => Ok(Shape::Features(width)),
            _ => Err(input.unsuitable("a sequence", "; for images use global_average_pool")),
        }
    }

    fn form(&self) -> Form<'_> {
        Form::Operation(Box::new(*self))
    }
}

impl PlannedOperation for LastStep {
    fn parameters(&self, _: Shape) -> Vec<Parameter> {
        Vec::new()
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        Box::new(LastStepOperation { width: site.input.width() })
    }
}

struct LastStepOperation {
    width: usize,
}

impl Operation for LastStepOperation {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        None
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut LayerBuffers) {
        let stride = Storage::stride(self.width);
        for (record, &length) in context.lengths.iter().enumerate() {
            let last = record * context.steps + length - 1;
            y[record * stride..][..self.width].copy_from_slice(&x[last * stride..][..self.width]);
        }
    }

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, _: &mut LayerBuffers) {
        let Flow { dy, dx, .. } = flow;
        let Some(dx) = dx else { return };
        let stride = Storage::stride(self.width);
        dx[..context.records * context.steps * stride].fill(0.0);
        for (record, &length) in context.lengths.iter().enumerate() {
            let last = record * context.steps + length - 1;
            dx[last * stride..][..self.width].copy_from_slice(&dy[record * stride..][..self.width]);
        }
    }
}
