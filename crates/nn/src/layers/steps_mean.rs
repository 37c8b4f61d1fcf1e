//! The mean over some steps of each record's sequence: the computation of the layers that turn a sequence into a vector.

use std::ops::Range;

use super::{Context, Flow, LayerBuffers, Operation, ParameterGradients, PlannedOperation, Site};
use crate::graph_builder::Source;
use crate::init::Parameter;
use crate::kernels::vector;
use crate::shape::{Shape, Storage};

/// The mean over the steps that this function selects for a record of a given length; at least one step.
#[derive(Debug)]
pub(super) struct StepsMean(pub(super) fn(usize) -> Range<usize>);

/// The shape rule: a sequence becomes a vector.
pub(super) fn vector_of_sequence(input: &Source) -> Result<Shape, String> {
    match input.shape() {
        Shape::Sequence { width, .. } => Ok(Shape::Features(width)),
        _ => Err(input.unsuitable("a sequence", "; for images use global_average_pool")),
    }
}

impl PlannedOperation for StepsMean {
    fn parameters(&self, _: Shape) -> Vec<Parameter> {
        Vec::new()
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        Box::new(StepsMeanOperation { steps: self.0, width: site.input.width() })
    }
}

struct StepsMeanOperation {
    steps: fn(usize) -> Range<usize>,
    width: usize,
}

impl Operation for StepsMeanOperation {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        None
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut LayerBuffers) {
        let stride = Storage::stride(self.width);
        for (record, &length) in context.lengths.iter().enumerate() {
            let chosen = (self.steps)(length);
            let weight = 1.0 / chosen.len() as f32;
            let y = &mut y[record * stride..][..self.width];
            y.fill(0.0);
            for step in chosen {
                vector::add_scaled(y, weight, &x[(record * context.steps + step) * stride..][..self.width]);
            }
        }
    }

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, _: &mut LayerBuffers) {
        let Flow { dy, dx, .. } = flow;
        let Some(dx) = dx else { return };
        let stride = Storage::stride(self.width);
        for (record, &length) in context.lengths.iter().enumerate() {
            let chosen = (self.steps)(length);
            let weight = 1.0 / chosen.len() as f32;
            let dy = &dy[record * stride..][..self.width];
            for step in 0..context.steps {
                let dx = &mut dx[(record * context.steps + step) * stride..][..self.width];
                match chosen.contains(&step) {
                    true => vector::scaled(dx, weight, dy),
                    false => dx.fill(0.0),
                }
            }
        }
    }
}
