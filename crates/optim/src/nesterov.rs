//! Nesterov's momentum.

use crate::{OptimError, State, blocks, transform::Transform};

/// `b_t = mu b_(t-1) + g_t`, update `g_t + mu b_t`, from `b_0 = 0`, as in `torch.optim.SGD(nesterov=True)`.
///
/// # References
/// Nesterov, "A method for solving the convex programming problem with convergence rate O(1/k^2)" (1983), in the form of
/// Sutskever, Martens, Dahl and Hinton, "On the importance of initialization and momentum in deep learning" (2013).
#[derive(Debug)]
pub(crate) struct Nesterov {
    momentum: f32,
    velocity: Vec<f32>,
}

impl Nesterov {
    pub(crate) fn new(momentum: f64, len: usize) -> Self {
        Self { momentum: momentum as f32, velocity: vec![0.0; len] }
    }
}

impl Transform for Nesterov {
    fn apply(&mut self, update: &mut [f32], _noise_std: f64) {
        let momentum = self.momentum;
        blocks::pairs(update, &mut self.velocity, |update, velocity| {
            *velocity = momentum * *velocity + *update;
            *update += momentum * *velocity;
        });
    }

    fn save(&self, state: &mut State) {
        state.put_vector("nesterov.velocity", &self.velocity);
    }

    fn load(&mut self, state: &mut State) -> Result<(), OptimError> {
        self.velocity = state.take_vector("nesterov.velocity", self.velocity.len())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{LEN, assert_equals};

    #[test]
    fn nesterov_equals_its_naive_reference() {
        let mut velocity = vec![0.0; LEN];
        assert_equals(&mut Nesterov::new(0.9, LEN), 0.0, |i, gradient| {
            velocity[i] = 0.9 * velocity[i] + gradient;
            gradient + 0.9 * velocity[i]
        });
    }
}
