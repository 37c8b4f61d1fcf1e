//! A learned first step for every sequence.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{
    Context, Flow, Form, LayerBuffers, LayerType, Operation, ParameterGradients, PlannedOperation, Site,
    Term, Workspace,
};
use crate::graph_builder::Source;
use crate::init::{Init, Parameter};
use crate::kernels::vector;
use crate::shape::{Shape, Storage};

/// Inserts a learned vector before the first step of every sequence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClassToken;

impl LayerType for ClassToken {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        match input.shape() {
            Shape::Sequence { steps, width } => Ok(Shape::Sequence { steps: steps + 1, width }),
            _ => Err(input.unsuitable("a sequence", "; for images use image_to_sequence")),
        }
    }

    fn form(&self) -> Form<'_> {
        Form::Operation(Box::new(*self))
    }
}

impl PlannedOperation for ClassToken {
    fn parameters(&self, input: Shape) -> Vec<Parameter> {
        vec![Parameter::new("weight", &[input.width()], Init::Normal(0.02))]
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        Box::new(ClassTokenOperation { width: site.input.width() })
    }
}

/// The input has `context.steps` steps for each record, the output one more.
struct ClassTokenOperation {
    width: usize,
}

impl ClassTokenOperation {
    /// The gradient of a record's first step, which is the record's gradient for the class token.
    fn first<'a>(&self, term: &Term<'a>, record: usize) -> &'a [f32] {
        &term.dy[record * (term.context.steps + 1) * Storage::stride(self.width)..][..self.width]
    }

    /// The sum over the records of a bag.
    fn of_bag<'a>(&self, term: &Term<'_>, bag: Range<usize>, own: &'a mut [f32]) -> &'a [f32] {
        own.copy_from_slice(self.first(term, bag.start));
        bag.skip(1).for_each(|record| vector::add(own, self.first(term, record)));
        own
    }
}

impl Operation for ClassTokenOperation {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        Some(self)
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut LayerBuffers) {
        let stride = Storage::stride(self.width);
        let size = context.steps * stride;
        let records = x.chunks_exact(size).zip(y.chunks_exact_mut(size + stride));
        for (x, y) in records.take(context.records) {
            y[..self.width].copy_from_slice(context.params);
            y[stride..].copy_from_slice(x);
        }
    }

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, _: &mut LayerBuffers) {
        let Flow { dy, dx, .. } = flow;
        let Some(dx) = dx else { return };
        let stride = Storage::stride(self.width);
        let size = context.steps * stride;
        let records = dx.chunks_exact_mut(size).zip(dy.chunks_exact(size + stride));
        for (dx, dy) in records.take(context.records) {
            dx.copy_from_slice(&dy[stride..]);
        }
    }
}

impl ParameterGradients for ClassTokenOperation {
    fn squared_norms(&self, terms: &[Term<'_>], _: &mut Workspace<'_>, out: &mut [f64]) {
        let term = &terms[terms.len() - 1];
        let mut own = vec![0.0; self.width];
        for (out, bag) in out.iter_mut().zip(term.context.bags.iter()) {
            *out += vector::squared_norm(self.of_bag(term, bag, &mut own));
        }
    }

    fn weighted_sum(
        &self,
        terms: &[Term<'_>],
        weights: Option<&[f32]>,
        _: &mut Workspace<'_>,
        sum: &mut [f32],
    ) {
        let term = &terms[terms.len() - 1];
        let mut own = vec![0.0; self.width];
        for (index, bag) in term.context.bags.iter().enumerate() {
            let weight = weights.map_or(1.0, |weights| weights[index]);
            vector::add_scaled(&mut sum[..self.width], weight, self.of_bag(term, bag, &mut own));
        }
    }

    fn sums_in_groups(&self, _: usize) -> bool {
        false
    }
}
