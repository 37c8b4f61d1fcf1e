//! The hyperbolic tangent.

use serde::{Deserialize, Serialize};

use super::{Context, Form, LayerType, Pointwise};
use crate::graph_builder::Source;
use crate::kernels::math;
use crate::shape::Shape;
use crate::shapes::real_values;

/// The hyperbolic tangent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tanh;

impl LayerType for Tanh {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        real_values(input)
    }

    fn form(&self) -> Form<'_> {
        Form::Pointwise(Box::new(*self))
    }
}

impl Pointwise for Tanh {
    fn keeps_zero(&self) -> bool {
        true
    }

    fn backward_reads_output(&self) -> bool {
        true
    }

    fn forward(&self, _: &Context<'_>, y: &mut [f32], _: &mut [f32]) {
        math::tanh_all(y);
    }

    fn backward(&self, _: &Context<'_>, y: &[f32], dy: &mut [f32], _: &mut [f32]) {
        math::tanh_gradient(y, dy);
    }
}
