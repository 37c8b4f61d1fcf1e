//! Normalises each step of a sequence, or a vector.

use super::{Flow, Memory, Operation, Parameter, Pass, Room, Sizes, Term};
use crate::gradients::direct;
use crate::init::Init;
use crate::kernels::norm;
use crate::shape::{Place, Shape};

const EPSILON: f32 = 1e-5;

/// `y = gamma (x - mean) / sqrt(variance + 1e-5) + beta`, each row by itself.
pub(crate) struct LayerNorm {
    width: usize,
    sequence: bool,
}

impl LayerNorm {
    pub(crate) fn new(input: Shape) -> LayerNorm {
        let width = Place { shape: input, border: 0 }.width();
        LayerNorm { width, sequence: matches!(input, Shape::Sequence { .. }) }
    }

    fn rows(&self, steps: usize) -> usize {
        if self.sequence { steps } else { 1 }
    }

    /// Floats from one record's gradient to the next.
    fn gradient(&self) -> usize {
        (2 * self.width).next_multiple_of(16)
    }
}

impl Operation for LayerNorm {
    fn parameters(&self) -> Vec<Parameter> {
        let shape = [self.width];
        vec![
            Parameter::new("weight", &shape, Init::Constant(1.0)),
            Parameter::new("bias", &shape, Init::Constant(0.0)),
        ]
    }

    fn memory(&self, steps: usize) -> Sizes {
        Sizes { gradients: self.gradient(), scratch: 2 * self.rows(steps), ..Sizes::default() }
    }

    fn forward(&self, pass: &Pass<'_>, x: &[f32], y: &mut [f32], memory: &mut Memory) {
        let (gamma, beta) = pass.params.split_at(self.width);
        let stride = Place::stride(self.width);
        for row in 0..pass.records * self.rows(pass.steps) {
            let (x, y) = (&x[row * stride..][..self.width], &mut y[row * stride..][..self.width]);
            let (mean, inverse) = norm::layer_norm(x, y, gamma, beta, EPSILON);
            memory.scratch[2 * row..][..2].copy_from_slice(&[mean, inverse]);
        }
    }

    fn backward(&self, pass: &Pass<'_>, flow: Flow<'_>, memory: &mut Memory) {
        let Flow { x, dy, mut dx, .. } = flow;
        let (gamma, _) = pass.params.split_at(self.width);
        let (stride, rows) = (Place::stride(self.width), self.rows(pass.steps));
        for (record, gradient) in memory.gradients.chunks_mut(self.gradient()).take(pass.records).enumerate()
        {
            gradient.fill(0.0);
            let (dgamma, dbeta) = gradient.split_at_mut(self.width);
            for row in record * rows..(record + 1) * rows {
                let range = row * stride..row * stride + self.width;
                let moments = (memory.scratch[2 * row], memory.scratch[2 * row + 1]);
                let dx = match &mut dx {
                    Some(dx) => &mut dx[range.clone()],
                    None => &mut [],
                };
                norm::layer_norm_gradient(&x[range.clone()], &dy[range], gamma, moments, dgamma, dbeta, dx);
            }
        }
    }

    fn sums_in_groups(&self) -> bool {
        true
    }

    fn squared_norms(&self, terms: &[Term<'_>], _: &mut Room<'_>, out: &mut [f64]) {
        let gradients = &terms[terms.len() - 1].memory.gradients;
        direct::squared_norms(gradients, 2 * self.width, self.gradient(), out);
    }

    fn weighted_sum(&self, terms: &[Term<'_>], weights: Option<&[f32]>, _: &mut Room<'_>, sum: &mut [f32]) {
        let last = terms[terms.len() - 1];
        direct::weighted_sum(&last.memory.gradients, self.gradient(), last.pass.records, weights, sum);
    }
}
