//! A bounded activation.

use serde::{Deserialize, Serialize};

use super::{Context, Form, LayerType, Pointwise};
use crate::graph_builder::Source;
use crate::kernels::math;
use crate::shape::Shape;
use crate::shapes::real_values;

/// `scale / (1 + exp(-temperature x)) - offset`, a bounded activation that suits clipped gradients
/// (Papernot et al., 2021).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemperedSigmoid {
    /// The height.
    pub scale: f32,
    /// The inverse temperature.
    pub temperature: f32,
    /// The number that is subtracted.
    pub offset: f32,
}

impl LayerType for TemperedSigmoid {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        let TemperedSigmoid { scale, temperature, offset } = *self;
        let sensible = 1e-3..=1e3;
        if !(sensible.contains(&scale) && sensible.contains(&temperature) && offset.abs() <= 1e3) {
            return Err(format!(
                "needs a scale and a temperature in [0.001, 1000] and an offset in [-1000, 1000], got {scale}, \
                 {temperature} and {offset}"
            ));
        }
        real_values(input)
    }

    fn form(&self) -> Form<'_> {
        Form::Pointwise(Box::new(*self))
    }
}

impl Pointwise for TemperedSigmoid {
    fn keeps_zero(&self) -> bool {
        false
    }

    fn backward_reads_output(&self) -> bool {
        true
    }

    fn forward(&self, _: &Context<'_>, y: &mut [f32], _: &mut [f32]) {
        math::tempered_sigmoid_all(y, self.scale, self.temperature, self.offset);
    }

    fn backward(&self, _: &Context<'_>, y: &[f32], dy: &mut [f32], _: &mut [f32]) {
        for (dy, y) in dy.iter_mut().zip(y) {
            let sigmoid = (y + self.offset) / self.scale;
            *dy *= self.scale * self.temperature * sigmoid * (1.0 - sigmoid);
        }
    }
}
