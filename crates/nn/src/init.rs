//! Parameters of layers and their initial values.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::Rng;
use rand_distr::{Distribution, StandardNormal};

/// A parameter of a layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// The last part of its name: `weight` in `conv1.weight`.
    pub name: String,
    /// Its shape, in PyTorch's order.
    pub shape: Vec<usize>,
    /// Its initial values.
    pub init: Init,
}

impl Parameter {
    /// A parameter with this name, shape and initial values.
    pub fn new(name: &str, shape: &[usize], init: Init) -> Parameter {
        Parameter { name: name.to_owned(), shape: shape.to_vec(), init }
    }
}

/// The initial values of a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    /// The same value everywhere.
    Constant(f32),
    /// Uniform in `(-bound, bound)`.
    Uniform(f32),
    /// Normal with mean 0 and this standard deviation.
    Normal(f32),
}

impl Init {
    /// Uniform in `(-1, 1) / sqrt(fan_in)`: PyTorch's default for linear layers, convolutions and (with the hidden size as
    /// `fan_in`) recurrent layers.
    pub fn uniform_fan_in(fan_in: usize) -> Init {
        Init::Uniform(1.0 / (fan_in as f32).sqrt())
    }

    /// Xavier's uniform rule: `sqrt(6 / (fan_in + fan_out))`.
    pub fn xavier(fan_in: usize, fan_out: usize) -> Init {
        Init::Uniform((6.0 / (fan_in + fan_out) as f32).sqrt())
    }

    /// Fills a parameter. The randomness is public: it protects nothing and is reproducible.
    pub(crate) fn fill(self, values: &mut [f32], random: &mut ChaCha12Rng) {
        for value in values {
            *value = match self {
                Init::Constant(constant) => constant,
                Init::Uniform(bound) => (2.0 * uniform(random) - 1.0) * bound,
                Init::Normal(deviation) => {
                    let normal: f32 = StandardNormal.sample(random);
                    normal * deviation
                }
            };
        }
    }
}

/// Uniform in (0, 1).
fn uniform(random: &mut ChaCha12Rng) -> f32 {
    ((random.next_u32() >> 8) as f32 + 0.5) / (1u32 << 24) as f32
}
