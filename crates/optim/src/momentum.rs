//! Heavy-ball momentum.

use crate::{OptimError, State, blocks, transform::Transform};

/// `b_t = mu b_(t-1) + g_t`, update `b_t`, from `b_0 = 0`. No dampening, as in `torch.optim.SGD`.
///
/// # References
/// Polyak, "Some methods of speeding up the convergence of iteration methods" (1964).
#[derive(Debug)]
pub(crate) struct Momentum {
    momentum: f32,
    velocity: Vec<f32>,
}

impl Momentum {
    pub(crate) fn new(momentum: f64, len: usize) -> Self {
        Self { momentum: momentum as f32, velocity: vec![0.0; len] }
    }
}

impl Transform for Momentum {
    fn apply(&mut self, update: &mut [f32], _noise_std: f64) {
        let momentum = self.momentum;
        blocks::pairs(update, &mut self.velocity, |update, velocity| {
            *velocity = momentum * *velocity + *update;
            *update = *velocity;
        });
    }

    fn save(&self, state: &mut State) {
        state.put_vector("momentum.velocity", &self.velocity);
    }

    fn load(&mut self, state: &mut State) -> Result<(), OptimError> {
        self.velocity = state.take_vector("momentum.velocity", self.velocity.len())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{LEN, assert_equals};

    #[test]
    fn momentum_equals_its_naive_reference() {
        let mut velocity = vec![0.0; LEN];
        assert_equals(&mut Momentum::new(0.9, LEN), 0.0, |i, gradient| {
            velocity[i] = 0.9 * velocity[i] + gradient;
            velocity[i]
        });
    }

    #[test]
    fn zero_momentum_changes_nothing() {
        assert_equals(&mut Momentum::new(0.0, LEN), 0.0, |_, gradient| gradient);
    }
}
