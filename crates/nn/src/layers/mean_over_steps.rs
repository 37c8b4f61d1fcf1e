//! The mean over the steps of each record's sequence.

use serde::{Deserialize, Serialize};

use super::{
    Context, Flow, Form, LayerBuffers, LayerType, Operation, ParameterGradients, PlannedOperation, Site,
};
use crate::graph_builder::Source;
use crate::init::Parameter;
use crate::kernels::vector;
use crate::shape::{Shape, Storage};

/// The mean over the steps of each record's sequence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MeanOverSteps;

impl LayerType for MeanOverSteps {
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

impl PlannedOperation for MeanOverSteps {
    fn parameters(&self, _: Shape) -> Vec<Parameter> {
        Vec::new()
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        Box::new(MeanOverStepsOperation { width: site.input.width() })
    }
}

struct MeanOverStepsOperation {
    width: usize,
}

impl Operation for MeanOverStepsOperation {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        None
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut LayerBuffers) {
        let stride = Storage::stride(self.width);
        for (record, &length) in context.lengths.iter().enumerate() {
            let y = &mut y[record * stride..][..self.width];
            y.fill(0.0);
            for step in 0..length {
                vector::add_scaled(
                    y,
                    1.0 / length as f32,
                    &x[(record * context.steps + step) * stride..][..self.width],
                );
            }
        }
    }

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, _: &mut LayerBuffers) {
        let Flow { dy, dx, .. } = flow;
        let Some(dx) = dx else { return };
        let stride = Storage::stride(self.width);
        for (record, &length) in context.lengths.iter().enumerate() {
            let dy = &dy[record * stride..][..self.width];
            for step in 0..context.steps {
                let dx = &mut dx[(record * context.steps + step) * stride..][..self.width];
                match step < length {
                    true => vector::scaled(dx, 1.0 / length as f32, dy),
                    false => dx.fill(0.0),
                }
            }
        }
    }
}
