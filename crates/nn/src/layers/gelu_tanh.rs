//! The Gaussian error linear unit, by its approximation with the hyperbolic tangent.

use serde::{Deserialize, Serialize};

use super::gelu::WithSlopes;
use super::{Form, LayerType};
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
        Form::Pointwise(Box::new(WithSlopes(math::gelu_tanh_all)))
    }
}
