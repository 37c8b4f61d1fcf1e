//! The rectified linear unit.

use serde::{Deserialize, Serialize};

use super::{Context, Form, LayerType, Pointwise};
use crate::graph_builder::Source;
use crate::kernels::math;
use crate::shape::Shape;
use crate::shapes::real_values;

/// `max(x, 0)`; the derivative at 0 is 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Relu;

impl LayerType for Relu {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        real_values(input)
    }

    fn form(&self) -> Form<'_> {
        Form::Pointwise(Box::new(*self))
    }
}

impl Pointwise for Relu {
    fn keeps_zero(&self) -> bool {
        true
    }

    fn backward_reads_output(&self) -> bool {
        true
    }

    fn forward(&self, _: &Context<'_>, y: &mut [f32], _: &mut [f32]) {
        math::relu_all(y);
    }

    fn backward(&self, _: &Context<'_>, y: &[f32], dy: &mut [f32], _: &mut [f32]) {
        math::relu_gradient(y, dy);
    }
}
