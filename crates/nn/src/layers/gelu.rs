//! The Gaussian error linear unit.

use serde::{Deserialize, Serialize};

use super::{Context, Form, LayerType, Pointwise};
use crate::graph_builder::Source;
use crate::kernels::math;
use crate::shape::Shape;
use crate::shapes::real_values;

/// `x Phi(x)` with the normal distribution function `Phi`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gelu;

impl LayerType for Gelu {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        real_values(input)
    }

    fn form(&self) -> Form<'_> {
        Form::Pointwise(Box::new(WithSlopes(math::gelu_all)))
    }
}

/// An activation with `f(0) = 0`. The function replaces the values by the results and writes the derivatives.
pub(super) struct WithSlopes(pub(super) fn(&mut [f32], &mut [f32]));

impl Pointwise for WithSlopes {
    fn scratch_size(&self, len: usize) -> usize {
        len
    }

    fn keeps_zero(&self) -> bool {
        true
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn forward(&self, _: &Context<'_>, y: &mut [f32], slopes: &mut [f32]) {
        (self.0)(y, slopes);
    }

    fn backward(&self, _: &Context<'_>, _: &[f32], dy: &mut [f32], slopes: &mut [f32]) {
        math::times(dy, slopes);
    }
}
