//! RMSprop.

use crate::{OptimError, State, blocks, transform::Transform};

/// `v_t = a v_(t-1) + (1 - a) g_t^2`, update `g_t / (sqrt(v_t) + eps)`, from `v_0 = 0`; without centring and without bias
/// correction, as in `torch.optim.RMSprop`.
///
/// # References
/// Hinton, Srivastava and Swersky, "Neural Networks for Machine Learning", lecture 6e (2012).
#[derive(Debug)]
pub(crate) struct RmsProp {
    decay: f64,
    epsilon: f32,
    second_moment: Vec<f32>,
}

impl RmsProp {
    pub(crate) fn new(decay: f64, epsilon: f64, len: usize) -> Self {
        Self { decay, epsilon: epsilon as f32, second_moment: vec![0.0; len] }
    }
}

impl Transform for RmsProp {
    fn apply(&mut self, update: &mut [f32], _noise_std: f64) {
        let (old, new, epsilon) = (self.decay as f32, (1.0 - self.decay) as f32, self.epsilon);
        blocks::pairs(update, &mut self.second_moment, |update, v| {
            *v = old * *v + new * *update * *update;
            *update /= v.sqrt() + epsilon;
        });
    }

    fn save(&self, state: &mut State) {
        state.put_vector("rmsprop.second_moment", &self.second_moment);
    }

    fn load(&mut self, state: &mut State) -> Result<(), OptimError> {
        self.second_moment = state.take_squares("rmsprop.second_moment", self.second_moment.len())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{LEN, assert_equals};

    #[test]
    fn rmsprop_equals_its_naive_reference() {
        let mut v = vec![0.0; LEN];
        assert_equals(&mut RmsProp::new(0.99, 1e-8, LEN), 0.0, |i, g: f64| {
            v[i] = 0.99 * v[i] + 0.01 * g * g;
            g / (v[i].sqrt() + 1e-8)
        });
    }
}
