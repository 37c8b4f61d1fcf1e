//! The Gaussian error linear unit, by its approximation with the hyperbolic tangent.

use serde::{Deserialize, Serialize};

use super::{Context, Form, LayerType, Pointwise};
use crate::graph_builder::Source;
use crate::kernels::math;
use crate::shape::Shape;
use crate::shapes::real_values;

/// `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`, which GPT-2 uses in place of [`Gelu`](super::Gelu).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GeluTanh;

impl LayerType for GeluTanh {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        real_values(input)
    }

    fn form(&self) -> Form<'_> {
        Form::Pointwise(Box::new(*self))
    }
}

impl Pointwise for GeluTanh {
    fn scratch_size(&self, len: usize) -> usize {
        len
    }

    fn keeps_zero(&self) -> bool {
        true
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn forward(&self, _: &Context<'_>, y: &mut [f32], slope: &mut [f32]) {
        math::gelu_tanh_all(y, slope);
    }

    fn backward(&self, _: &Context<'_>, _: &[f32], dy: &mut [f32], slope: &mut [f32]) {
        math::times(dy, slope);
    }
}
