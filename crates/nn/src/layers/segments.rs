//! A learned embedding for each of the two texts in a sequence.

use serde::{Deserialize, Serialize};

use super::{
    BufferSizes, Context, Flow, Form, LayerBuffers, LayerType, Operation, ParameterGradients,
    PlannedOperation, Site, Term, Workspace,
};
use crate::gradients::direct;
use crate::graph_builder::Source;
use crate::init::{Init, Parameter};
use crate::kernels::vector;
use crate::shape::{Shape, Storage};

/// Adds a learned vector to each step: one vector up to and including the first separator, another after it. BERT calls them token type
/// embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segments {
    /// The token that ends the first text; if it is not set, there is one vector for all steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separator: Option<u32>,
}

impl Segments {
    /// The number of vectors.
    fn count(self) -> usize {
        1 + usize::from(self.separator.is_some())
    }
}

impl LayerType for Segments {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        match input.shape() {
            Shape::Sequence { .. } => Ok(input.shape()),
            _ => Err(input.unsuitable("a sequence", "")),
        }
    }

    fn reads_tokens(&self) -> bool {
        self.separator.is_some()
    }

    fn form(&self) -> Form<'_> {
        Form::Operation(Box::new(*self))
    }
}

impl PlannedOperation for Segments {
    fn parameters(&self, input: Shape) -> Vec<Parameter> {
        vec![Parameter::new("weight", &[self.count(), input.width()], Init::Normal(0.02))]
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        Box::new(SegmentsOperation { width: site.input.width(), segments: *self })
    }
}

struct SegmentsOperation {
    width: usize,
    segments: Segments,
}

impl SegmentsOperation {
    /// The number of steps of a record that belong to the first segment.
    fn first_segment(&self, context: &Context<'_>, record: usize) -> usize {
        let length = context.lengths[record];
        let Some(separator) = self.segments.separator else { return length };
        let tokens = &context.tokens[record * context.steps..][..length];
        tokens.iter().position(|&token| token == separator).map_or(length, |place| place + 1)
    }

    /// The number of floats in a record's gradient.
    fn len(&self) -> usize {
        self.segments.count() * self.width
    }

    /// The number of floats from one record's gradient to the next.
    fn gradient_size(&self) -> usize {
        self.len().next_multiple_of(16)
    }
}

impl Operation for SegmentsOperation {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        Some(self)
    }

    fn buffer_sizes(&self, _: usize) -> BufferSizes {
        BufferSizes { gradients: self.gradient_size(), ..BufferSizes::default() }
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut LayerBuffers) {
        let stride = Storage::stride(self.width);
        for record in 0..context.records {
            let first = self.first_segment(context, record);
            for step in 0..context.lengths[record] {
                let place = record * context.steps + step;
                let y = &mut y[place * stride..][..self.width];
                y.copy_from_slice(&x[place * stride..][..self.width]);
                vector::add(y, &context.params[usize::from(step >= first) * self.width..][..self.width]);
            }
        }
    }

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, buffers: &mut LayerBuffers) {
        let Flow { dy, dx, .. } = flow;
        let stride = Storage::stride(self.width);
        if let Some(dx) = dx {
            let len = context.records * context.steps * stride;
            dx[..len].copy_from_slice(&dy[..len]);
        }
        for record in 0..context.records {
            let first = self.first_segment(context, record);
            let gradient = &mut buffers.gradients[record * self.gradient_size()..][..self.len()];
            gradient.fill(0.0);
            for step in 0..context.lengths[record] {
                let sum = &mut gradient[usize::from(step >= first) * self.width..][..self.width];
                vector::add(sum, &dy[(record * context.steps + step) * stride..][..self.width]);
            }
        }
    }
}

impl ParameterGradients for SegmentsOperation {
    fn squared_norms(&self, terms: &[Term<'_>], _: &mut Workspace<'_>, out: &mut [f64]) {
        let last = terms[terms.len() - 1];
        direct::squared_norms_of_bags(
            &last.buffers.gradients,
            self.len(),
            self.gradient_size(),
            last.context.bags,
            out,
        );
    }

    fn weighted_sum(
        &self,
        terms: &[Term<'_>],
        weights: Option<&[f32]>,
        _: &mut Workspace<'_>,
        sum: &mut [f32],
    ) {
        let last = terms[terms.len() - 1];
        direct::weighted_sum_of_bags(
            &last.buffers.gradients,
            self.gradient_size(),
            last.context.bags,
            weights,
            sum,
        );
    }

    fn sums_in_groups(&self, _: usize) -> bool {
        true
    }
}
