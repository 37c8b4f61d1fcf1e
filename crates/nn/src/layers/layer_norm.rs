//! Normalises each step of a sequence, or a vector.

use serde::{Deserialize, Serialize};

use super::{
    BufferSizes, Context, Flow, Form, LayerBuffers, LayerType, Operation, ParameterGradients,
    PlannedOperation, Site, Term, Workspace, yes,
};
use crate::gradients::direct;
use crate::graph_builder::Source;
use crate::init::{Init, Parameter};
use crate::kernels::norm;
use crate::shape::{Shape, Storage};

/// Normalises each step of a sequence, or a vector, to mean 0 and variance 1, then scales and shifts:
/// `y = gamma (x - mean) / sqrt(variance + epsilon) + beta`. Without `affine` there are no parameters: `gamma` is 1 and `beta` is 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerNorm {
    /// Keeps the denominator positive.
    #[serde(default = "usual_epsilon", skip_serializing_if = "is_usual_epsilon")]
    pub epsilon: f32,
    /// Whether it scales and shifts by learned parameters.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub affine: bool,
}

impl Default for LayerNorm {
    /// With PyTorch's epsilon, 1e-5.
    fn default() -> LayerNorm {
        LayerNorm { epsilon: usual_epsilon(), affine: true }
    }
}

fn is_yes(affine: &bool) -> bool {
    *affine
}

fn usual_epsilon() -> f32 {
    1e-5
}

fn is_usual_epsilon(epsilon: &f32) -> bool {
    *epsilon == usual_epsilon()
}

impl LayerType for LayerNorm {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        if !(self.epsilon > 0.0 && self.epsilon <= 1.0) {
            return Err(format!("epsilon must be in (0, 1], got {}", self.epsilon));
        }
        match input.shape() {
            Shape::Sequence { .. } | Shape::Features(_) => Ok(input.shape()),
            _ => Err(input.unsuitable("a vector or a sequence", "; for images use group_norm")),
        }
    }

    fn form(&self) -> Form<'_> {
        Form::Operation(Box::new(*self))
    }
}

impl PlannedOperation for LayerNorm {
    fn parameters(&self, input: Shape) -> Vec<Parameter> {
        if !self.affine {
            return Vec::new();
        }
        let shape = [input.width()];
        vec![
            Parameter::new("weight", &shape, Init::Constant(1.0)),
            Parameter::new("bias", &shape, Init::Constant(0.0)),
        ]
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        let sequence = matches!(site.input.shape, Shape::Sequence { .. });
        let width = site.input.width();
        let fixed = (!self.affine).then(|| [vec![1.0; width], vec![0.0; width]]);
        Box::new(LayerNormOperation { width, epsilon: self.epsilon, sequence, fixed })
    }
}

struct LayerNormOperation {
    width: usize,
    epsilon: f32,
    sequence: bool,
    /// Gamma and beta, if they are not parameters.
    fixed: Option<[Vec<f32>; 2]>,
}

impl LayerNormOperation {
    /// Gamma and beta.
    fn scales<'a>(&'a self, context: &Context<'a>) -> (&'a [f32], &'a [f32]) {
        match &self.fixed {
            Some([gamma, beta]) => (gamma, beta),
            None => context.params.split_at(self.width),
        }
    }

    fn rows(&self, steps: usize) -> usize {
        if self.sequence { steps } else { 1 }
    }

    /// Floats from one record's gradient to the next.
    fn gradient(&self) -> usize {
        (2 * self.width).next_multiple_of(16)
    }
}

impl Operation for LayerNormOperation {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        self.fixed.is_none().then_some(self as _)
    }

    fn buffer_sizes(&self, steps: usize) -> BufferSizes {
        BufferSizes { gradients: self.gradient(), scratch: 2 * self.rows(steps), ..BufferSizes::default() }
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], buffers: &mut LayerBuffers) {
        let (gamma, beta) = self.scales(context);
        let stride = Storage::stride(self.width);
        for row in 0..context.records * self.rows(context.steps) {
            let (x, y) = (&x[row * stride..][..self.width], &mut y[row * stride..][..self.width]);
            let (mean, inverse) = norm::layer_norm(x, y, gamma, beta, self.epsilon);
            buffers.scratch[2 * row..][..2].copy_from_slice(&[mean, inverse]);
        }
    }

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, buffers: &mut LayerBuffers) {
        let Flow { x, dy, mut dx, .. } = flow;
        let (gamma, _) = self.scales(context);
        let (stride, rows) = (Storage::stride(self.width), self.rows(context.steps));
        for (record, gradient) in
            buffers.gradients.chunks_mut(self.gradient()).take(context.records).enumerate()
        {
            gradient.fill(0.0);
            let (dgamma, dbeta) = gradient.split_at_mut(self.width);
            for row in record * rows..(record + 1) * rows {
                let range = row * stride..row * stride + self.width;
                let moments = (buffers.scratch[2 * row], buffers.scratch[2 * row + 1]);
                let dx = match &mut dx {
                    Some(dx) => &mut dx[range.clone()],
                    None => &mut [],
                };
                norm::layer_norm_gradient(&x[range.clone()], &dy[range], gamma, moments, dgamma, dbeta, dx);
            }
        }
    }
}

impl ParameterGradients for LayerNormOperation {
    fn squared_norms(&self, terms: &[Term<'_>], _: &mut Workspace<'_>, out: &mut [f64]) {
        let last = terms[terms.len() - 1];
        direct::squared_norms_of_bags(
            &last.buffers.gradients,
            2 * self.width,
            self.gradient(),
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
            self.gradient(),
            last.context.bags,
            weights,
            sum,
        );
    }

    fn sums_in_groups(&self, _: usize) -> bool {
        true
    }
}
