//! The first step of each record's sequence.

use serde::{Deserialize, Serialize};

use super::{
    Context, Flow, Form, LayerBuffers, LayerType, Operation, ParameterGradients, PlannedOperation, Site,
};
use crate::graph_builder::Source;
use crate::init::Parameter;
use crate::shape::{Shape, Storage};

/// Selects the first step of each record's sequence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FirstStep;

impl LayerType for FirstStep {
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

impl PlannedOperation for FirstStep {
    fn parameters(&self, _: Shape) -> Vec<Parameter> {
        Vec::new()
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        Box::new(FirstStepOperation { width: site.input.width() })
    }
}

struct FirstStepOperation {
    width: usize,
}

impl Operation for FirstStepOperation {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        None
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut LayerBuffers) {
        let stride = Storage::stride(self.width);
        for record in 0..context.records {
            let first = record * context.steps;
            y[record * stride..][..self.width].copy_from_slice(&x[first * stride..][..self.width]);
        }
    }

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, _: &mut LayerBuffers) {
        let Flow { dy, dx, .. } = flow;
        let Some(dx) = dx else { return };
        let stride = Storage::stride(self.width);
        dx[..context.records * context.steps * stride].fill(0.0);
        for record in 0..context.records {
            let first = record * context.steps;
            dx[first * stride..][..self.width].copy_from_slice(&dy[record * stride..][..self.width]);
        }
    }
}
