//! Functions of single values.

use super::{Pass, Pointwise};
use crate::kernels::math;

/// `max(y, 0)`; the derivative at 0 is 0.
pub(crate) struct Relu;

impl Pointwise for Relu {
    fn forward(&self, _: &Pass<'_>, y: &mut [f32], _: &mut [f32]) {
        math::relu_all(y);
    }

    fn backward(&self, _: &Pass<'_>, y: &[f32], dy: &mut [f32], _: &mut [f32]) {
        math::relu_gradient(y, dy);
    }
}

/// `y Phi(y)`.
pub(crate) struct Gelu;

impl Pointwise for Gelu {
    fn memory(&self, len: usize) -> usize {
        len
    }

    fn forward(&self, _: &Pass<'_>, y: &mut [f32], slope: &mut [f32]) {
        math::gelu_all(y, slope);
    }

    fn backward(&self, _: &Pass<'_>, _: &[f32], dy: &mut [f32], slope: &mut [f32]) {
        math::times(dy, slope);
    }
}

/// The hyperbolic tangent.
pub(crate) struct Tanh;

impl Pointwise for Tanh {
    fn forward(&self, _: &Pass<'_>, y: &mut [f32], _: &mut [f32]) {
        math::tanh_all(y);
    }

    fn backward(&self, _: &Pass<'_>, y: &[f32], dy: &mut [f32], _: &mut [f32]) {
        math::tanh_gradient(y, dy);
    }
}

/// `scale / (1 + exp(-temperature y)) - offset`.
pub(crate) struct TemperedSigmoid {
    pub(crate) scale: f32,
    pub(crate) temperature: f32,
    pub(crate) offset: f32,
}

impl Pointwise for TemperedSigmoid {
    fn keeps_zero(&self) -> bool {
        false
    }

    fn forward(&self, _: &Pass<'_>, y: &mut [f32], _: &mut [f32]) {
        math::tempered_sigmoid_all(y, self.scale, self.temperature, self.offset);
    }

    fn backward(&self, _: &Pass<'_>, y: &[f32], dy: &mut [f32], _: &mut [f32]) {
        for (dy, y) in dy.iter_mut().zip(y) {
            let sigmoid = (y + self.offset) / self.scale;
            *dy *= self.scale * self.temperature * sigmoid * (1.0 - sigmoid);
        }
    }
}
