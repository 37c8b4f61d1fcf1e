//! A learned vector for each position in a sequence.

use serde::{Deserialize, Serialize};

use super::{
    Context, Flow, Form, LayerBuffers, LayerType, Operation, ParameterGradients, PlannedOperation, Site,
    Term, Workspace,
};
use crate::graph_builder::Source;
use crate::init::{Init, Parameter};
use crate::kernels::vector;
use crate::shape::{Shape, Storage};

/// Adds a learned vector for each position in a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Positions;

impl LayerType for Positions {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        match input.shape() {
            Shape::Sequence { .. } => Ok(input.shape()),
            _ => Err(input.unsuitable("a sequence", "")),
        }
    }

    fn form(&self) -> Form<'_> {
        Form::Operation(Box::new(*self))
    }
}

impl PlannedOperation for Positions {
    fn parameters(&self, input: Shape) -> Vec<Parameter> {
        vec![Parameter::new("weight", &[input.steps(), input.width()], Init::Normal(0.02))]
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        Box::new(PositionsOperation { width: site.input.width() })
    }
}

/// Adds row `t` of a table to step `t`.
struct PositionsOperation {
    width: usize,
}

impl Operation for PositionsOperation {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        Some(self)
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut LayerBuffers) {
        let stride = Storage::stride(self.width);
        for place in 0..context.records * context.steps {
            let y = &mut y[place * stride..][..self.width];
            y.copy_from_slice(&x[place * stride..][..self.width]);
            vector::add(y, &context.params[place % context.steps * self.width..][..self.width]);
        }
    }

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, _: &mut LayerBuffers) {
        let Flow { dy, dx, .. } = flow;
        if let Some(dx) = dx {
            let len = context.records * context.steps * Storage::stride(self.width);
            dx[..len].copy_from_slice(&dy[..len]);
        }
    }
}

impl ParameterGradients for PositionsOperation {
    fn squared_norms(&self, terms: &[Term<'_>], _: &mut Workspace<'_>, out: &mut [f64]) {
        let Term { context, dy, .. } = terms[terms.len() - 1];
        let stride = Storage::stride(self.width);
        for (record, (out, &length)) in out.iter_mut().zip(context.lengths).enumerate() {
            for place in record * context.steps..record * context.steps + length {
                *out += vector::squared_norm(&dy[place * stride..][..self.width]);
            }
        }
    }

    fn weighted_sum(
        &self,
        terms: &[Term<'_>],
        weights: Option<&[f32]>,
        _: &mut Workspace<'_>,
        sum: &mut [f32],
    ) {
        let Term { context, dy, .. } = terms[terms.len() - 1];
        let stride = Storage::stride(self.width);
        for (record, &length) in context.lengths.iter().enumerate() {
            let weight = weights.map_or(1.0, |weights| weights[record]);
            for step in 0..length {
                let dy = &dy[(record * context.steps + step) * stride..][..self.width];
                vector::add_scaled(&mut sum[step * self.width..][..self.width], weight, dy);
            }
        }
    }

    fn sums_in_groups(&self) -> bool {
        false
    }
}
