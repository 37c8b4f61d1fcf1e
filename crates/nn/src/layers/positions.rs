//! A learned vector for each position in a sequence.

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

impl PositionsOperation {
    /// Calls `f` for each step of a bag and its gradient, summed over the records that have this step.
    fn each_step(
        &self,
        term: &Term<'_>,
        bag: Range<usize>,
        own: &mut [f32],
        mut f: impl FnMut(usize, &[f32]),
    ) {
        let (context, stride) = (term.context, Storage::stride(self.width));
        let longest = context.lengths[bag.clone()].iter().max().copied().unwrap_or(0);
        for step in 0..longest {
            let row = |record: usize| &term.dy[(record * context.steps + step) * stride..][..self.width];
            if bag.len() == 1 {
                f(step, row(bag.start));
                continue;
            }
            own.fill(0.0);
            let records = bag.clone().filter(|&record| step < context.lengths[record]);
            records.for_each(|record| vector::add(own, row(record)));
            f(step, own);
        }
    }
}

impl ParameterGradients for PositionsOperation {
    fn squared_norms(&self, terms: &[Term<'_>], _: &mut Workspace<'_>, out: &mut [f64]) {
        let last = &terms[terms.len() - 1];
        let mut own = vec![0.0; self.width];
        for (out, bag) in out.iter_mut().zip(last.context.bags.iter()) {
            self.each_step(last, bag, &mut own, |_, row| *out += vector::squared_norm(row));
        }
    }

    fn weighted_sum(
        &self,
        terms: &[Term<'_>],
        weights: Option<&[f32]>,
        _: &mut Workspace<'_>,
        sum: &mut [f32],
    ) {
        let last = &terms[terms.len() - 1];
        let mut own = vec![0.0; self.width];
        for (index, bag) in last.context.bags.iter().enumerate() {
            let weight = weights.map_or(1.0, |weights| weights[index]);
            self.each_step(last, bag, &mut own, |step, row| {
                vector::add_scaled(&mut sum[step * self.width..][..self.width], weight, row);
            });
        }
    }

    fn sums_in_groups(&self, _: usize) -> bool {
        false
    }
}
