//! Adagrad.

use crate::{OptimError, State, blocks, transform::Transform};

/// `s_t = s_(t-1) + g_t^2`, update `g_t / (sqrt(s_t) + eps)`, from `s_0 = 0`, as in `torch.optim.Adagrad` without
/// learning-rate decay.
///
/// # References
/// Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic optimization" (2011).
#[derive(Debug)]
pub(crate) struct Adagrad {
    epsilon: f32,
    sum_of_squares: Vec<f32>,
}

impl Adagrad {
    pub(crate) fn new(epsilon: f64, len: usize) -> Self {
        Self { epsilon: epsilon as f32, sum_of_squares: vec![0.0; len] }
    }
}

impl Transform for Adagrad {
    fn apply(&mut self, update: &mut [f32], _noise_std: f64) {
        let epsilon = self.epsilon;
        blocks::pairs(update, &mut self.sum_of_squares, |update, sum| {
            *sum += *update * *update;
            *update /= sum.sqrt() + epsilon;
        });
    }

    fn save(&self, state: &mut State) {
        state.put_vector("adagrad.sum_of_squares", &self.sum_of_squares);
    }

    fn load(&mut self, state: &mut State) -> Result<(), OptimError> {
        self.sum_of_squares = state.take_squares("adagrad.sum_of_squares", self.sum_of_squares.len())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{LEN, assert_equals};

    #[test]
    fn adagrad_equals_its_naive_reference() {
        let mut sum = vec![0.0; LEN];
        assert_equals(&mut Adagrad::new(1e-10, LEN), 0.0, |i, g: f64| {
            sum[i] += g * g;
            g / (sum[i].sqrt() + 1e-10)
        });
    }
}
