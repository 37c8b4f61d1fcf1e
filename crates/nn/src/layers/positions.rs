//! A learned vector for each place in a sequence.

use super::{Flow, Memory, Operation, Parameter, Pass, Room, Term};
use crate::init::Init;
use crate::kernels::vector;
use crate::shape::Place;

/// Adds row `t` of a table to step `t`.
pub(crate) struct Positions {
    pub(crate) steps: usize,
    pub(crate) width: usize,
}

impl Operation for Positions {
    fn parameters(&self) -> Vec<Parameter> {
        vec![Parameter::new("weight", &[self.steps, self.width], Init::Normal(0.02))]
    }

    fn forward(&self, pass: &Pass<'_>, x: &[f32], y: &mut [f32], _: &mut Memory) {
        let stride = Place::stride(self.width);
        for place in 0..pass.records * pass.steps {
            let y = &mut y[place * stride..][..self.width];
            y.copy_from_slice(&x[place * stride..][..self.width]);
            vector::add(y, &pass.params[place % pass.steps * self.width..][..self.width]);
        }
    }

    fn backward(&self, pass: &Pass<'_>, flow: Flow<'_>, _: &mut Memory) {
        let Flow { dy, dx, .. } = flow;
        if let Some(dx) = dx {
            let len = pass.records * pass.steps * Place::stride(self.width);
            dx[..len].copy_from_slice(&dy[..len]);
        }
    }

    fn squared_norms(&self, terms: &[Term<'_>], _: &mut Room<'_>, out: &mut [f64]) {
        let Term { pass, dy, .. } = terms[terms.len() - 1];
        let stride = Place::stride(self.width);
        for (record, (out, &length)) in out.iter_mut().zip(pass.lengths).enumerate() {
            for place in record * pass.steps..record * pass.steps + length {
                *out += vector::squared_norm(&dy[place * stride..][..self.width]);
            }
        }
    }

    fn weighted_sum(&self, terms: &[Term<'_>], weights: Option<&[f32]>, _: &mut Room<'_>, sum: &mut [f32]) {
        let Term { pass, dy, .. } = terms[terms.len() - 1];
        let stride = Place::stride(self.width);
        for (record, &length) in pass.lengths.iter().enumerate() {
            let weight = weights.map_or(1.0, |weights| weights[record]);
            for step in 0..length {
                let dy = &dy[(record * pass.steps + step) * stride..][..self.width];
                vector::add_scaled(&mut sum[step * self.width..][..self.width], weight, dy);
            }
        }
    }
}
