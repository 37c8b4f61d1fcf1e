//! Adam and AdamW, with an optional correction for the noise.

use serde::{Deserialize, Serialize};

use crate::{
    OptimError, State, blocks,
    config::{check_decay, check_epsilon},
    error::require,
    transform::Transform,
};

/// The settings of Adam and of AdamW (`ADAMW = true`). The two differ only in the default of `weight_decay`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdamSettings<const ADAMW: bool> {
    /// Decay of the first moment `m_t`, in [0, 1). Default 0.9.
    #[serde(default = "beta1")]
    pub beta1: f64,
    /// Decay of the second moment `v_t`, in [0, 1). Default 0.999.
    #[serde(default = "beta2")]
    pub beta2: f64,
    /// Added to the denominator, from 1e-20 to 1. Default 1e-8.
    #[serde(default = "epsilon")]
    pub epsilon: f64,
    /// Whether the variance of the noise is subtracted from `v^_t`. Default false.
    #[serde(default)]
    pub noise_correction: bool,
    /// The smallest corrected root of `v^_t`, from 1e-15 to 1, in the unit of a gradient. Default 1e-4. The gamma' of the
    /// DP-AdamBC paper is its square, and is tuned there.
    ///
    /// Where the gradient is nothing but noise, a step moves a parameter by about `0.2 noise_std / correction_floor` learning
    /// rates. A floor far below `noise_std` therefore needs a smaller learning rate.
    #[serde(default = "correction_floor")]
    pub correction_floor: f64,
    /// Decoupled weight decay, from 0 to 1000. Default 0 for Adam and 0.01 for AdamW.
    #[serde(default = "weight_decay::<ADAMW>")]
    pub weight_decay: f64,
}

fn beta1() -> f64 {
    0.9
}

fn beta2() -> f64 {
    0.999
}

fn epsilon() -> f64 {
    1e-8
}

fn correction_floor() -> f64 {
    1e-4
}

fn weight_decay<const ADAMW: bool>() -> f64 {
    if ADAMW { 0.01 } else { 0.0 }
}

impl<const ADAMW: bool> AdamSettings<ADAMW> {
    /// Checks every setting except the weight decay, which all optimizers share.
    pub(crate) fn check(&self) -> Result<(), OptimError> {
        check_decay("beta1", self.beta1)?;
        check_decay("beta2", self.beta2)?;
        check_epsilon(self.epsilon)?;
        require(
            (1e-15..=1.0).contains(&self.correction_floor),
            "correction floor",
            "between 1e-15 and 1",
            self.correction_floor,
            "the floor has the unit of a mean gradient; the default is 1e-4",
        )
    }

    /// Adam with these settings at its first step.
    pub(crate) fn transform(&self, len: usize) -> Adam {
        let floor = self.noise_correction.then_some(self.correction_floor);
        Adam::new(self.beta1, self.beta2, self.epsilon, floor, len)
    }
}

/// `m_t = b1 m_(t-1) + (1 - b1) g_t`, `v_t = b2 v_(t-1) + (1 - b2) g_t^2`, both from 0;
/// update `m^_t / (sqrt(v^_t) + eps)` with `m^_t = m_t / (1 - b1^t)` and `v^_t = v_t / (1 - b2^t)`, as in
/// `torch.optim.Adam`.
///
/// With a floor `f`, the denominator is `sqrt(max(v^_t - n^_t, f^2)) + eps`. Independent noise adds its variance to the
/// expectation of `g_t^2`. It therefore adds `n^_t`, the same moving average of the noise variances, to the expectation of `v^_t`.
/// Without the correction this constant exceeds the gradients' own second moments wherever these are small, and Adam behaves
/// like SGD with momentum.
///
/// # Guarantees
/// The variance of the noise is part of the public plan, so the correction is post-processing.
///
/// # References
/// Kingma and Ba, "Adam: a method for stochastic optimization" (2015), algorithm 1. Tang, Shpilevskiy and Lecuyer,
/// "DP-AdamBC: your DP-Adam is actually DP-SGD (unless you apply bias correction)" (2024), algorithm 1, whose gamma' is
/// `f^2`.
#[derive(Debug)]
pub(crate) struct Adam {
    beta1: f64,
    beta2: f64,
    epsilon: f32,
    floor: Option<f64>,
    steps: u64,
    noise_variance: f64,
    first_moment: Vec<f32>,
    second_moment: Vec<f32>,
}

impl Adam {
    /// Corrects for the noise if a `floor` is given.
    pub(crate) fn new(beta1: f64, beta2: f64, epsilon: f64, floor: Option<f64>, len: usize) -> Self {
        Self {
            beta1,
            beta2,
            epsilon: epsilon as f32,
            floor,
            steps: 0,
            noise_variance: 0.0,
            first_moment: vec![0.0; len],
            second_moment: vec![0.0; len],
        }
    }

    /// The noise variance to subtract from `v^_t`, and the lower bound of the difference.
    fn correction(&self, second_bias: f64) -> (f32, f32) {
        match self.floor {
            // Departs from algorithm 1 of DP-AdamBC, which assumes the same noise at every step: a plan may change it.
            Some(floor) => ((self.noise_variance / second_bias) as f32, (floor * floor) as f32),
            None => (0.0, 0.0),
        }
    }
}

impl Transform for Adam {
    fn apply(&mut self, update: &mut [f32], noise_std: f64) {
        self.steps += 1;
        self.noise_variance = self.beta2 * self.noise_variance + (1.0 - self.beta2) * noise_std * noise_std;
        let first_bias = 1.0 - self.beta1.powf(self.steps as f64);
        let second_bias = 1.0 - self.beta2.powf(self.steps as f64);
        let (noise, least) = self.correction(second_bias);
        let (old1, new1) = (self.beta1 as f32, (1.0 - self.beta1) as f32);
        let (old2, new2) = (self.beta2 as f32, (1.0 - self.beta2) as f32);
        let (unbias1, unbias2) = ((1.0 / first_bias) as f32, (1.0 / second_bias) as f32);
        let epsilon = self.epsilon;
        blocks::triples(update, &mut self.first_moment, &mut self.second_moment, |update, m, v| {
            *m = old1 * *m + new1 * *update;
            *v = old2 * *v + new2 * *update * *update;
            let square = *v * unbias2 - noise;
            let square = if square > least { square } else { least };
            // Departs from algorithm 1 of DP-AdamBC, which has no epsilon: with it, this is Adam where there is no noise.
            *update = *m * unbias1 / (square.sqrt() + epsilon);
        });
    }

    fn save(&self, state: &mut State) {
        state.put_vector("adam.first_moment", &self.first_moment);
        state.put_vector("adam.second_moment", &self.second_moment);
        state.put_number("adam.noise_variance", self.noise_variance);
        state.put_count("adam.steps", self.steps);
    }

    fn load(&mut self, state: &mut State) -> Result<(), OptimError> {
        self.first_moment = state.take_vector("adam.first_moment", self.first_moment.len())?;
        self.second_moment = state.take_squares("adam.second_moment", self.second_moment.len())?;
        self.noise_variance = state.take_number("adam.noise_variance")?;
        self.steps = state.take_count("adam.steps")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{LEN, assert_equals, gaussians};

    /// Adam as in its paper, with `noise` subtracted from the second moment and `least` as the lower bound of the difference.
    fn naive(noise: f64, least: f64) -> impl FnMut(usize, f64) -> f64 {
        let mut state = vec![(0.0, 0.0, 0); LEN];
        move |i, g| {
            let (m, v, t) = &mut state[i];
            *t += 1;
            *m = 0.9 * *m + 0.1 * g;
            *v = 0.999 * *v + 0.001 * g * g;
            let v_hat: f64 = *v / (1.0 - 0.999_f64.powi(*t));
            (*m / (1.0 - 0.9_f64.powi(*t))) / ((v_hat - noise).max(least).sqrt() + 1e-8)
        }
    }

    fn adam(floor: Option<f64>, len: usize) -> Adam {
        Adam::new(0.9, 0.999, 1e-8, floor, len)
    }

    #[test]
    fn adam_equals_its_naive_reference() {
        assert_equals(&mut adam(None, LEN), 0.7, naive(0.0, 0.0));
    }

    #[test]
    fn corrected_adam_equals_its_naive_reference() {
        assert_equals(&mut adam(Some(0.5), LEN), 0.7, naive(0.49, 0.25));
    }

    #[test]
    fn correction_without_noise_is_adam_above_the_floor() {
        assert_equals(&mut adam(Some(1e-4), LEN), 0.0, naive(0.0, 0.0));
    }

    #[test]
    fn gradients_as_large_as_the_noise_are_divided_by_the_floor() {
        let (mut plain, mut corrected) = (adam(None, 1), adam(Some(1e-2), 1));
        for _ in 0..50 {
            let (mut update, mut uncorrected) = ([0.5], [0.5]);
            corrected.apply(&mut update, 0.5);
            plain.apply(&mut uncorrected, 0.5);
            assert!((update[0] - 50.0).abs() < 1e-2 && (uncorrected[0] - 1.0).abs() < 1e-5, "{update:?}");
        }
    }

    #[test]
    fn correction_removes_the_second_moment_of_pure_noise() {
        let (len, noise_std) = (200, 0.25);
        let mut corrected = adam(Some(1e-4), len);
        for step in 0..2000 {
            // The noise doubles halfway, and its moving average must follow.
            let noise_std = if step < 1000 { noise_std } else { 2.0 * noise_std };
            let mut update: Vec<f32> = gaussians(step, len).iter().map(|z| z * noise_std as f32).collect();
            corrected.apply(&mut update, noise_std);
            assert!(update.iter().all(|u| u.is_finite()));
        }
        let second_bias = 1.0 - 0.999_f64.powi(2000);
        let (noise, _) = corrected.correction(second_bias);
        let left: Vec<f64> = corrected
            .second_moment
            .iter()
            .map(|&v| f64::from(v) / second_bias / f64::from(noise) - 1.0)
            .collect();
        let mean = left.iter().sum::<f64>() / len as f64;
        let at_the_floor = left.iter().filter(|&&left| left <= 0.0).count();
        // Each v^ averages about 1200 squares, so it deviates by sqrt(2 / 1200) = 4%, and the mean of all by 0.3%.
        assert!(mean.abs() < 0.01, "{mean}");
        assert!((70..=130).contains(&at_the_floor), "{at_the_floor}");
        assert!(left.iter().all(|left| left.abs() < 0.2), "a corrected second moment far from 0");
    }

    #[test]
    fn changing_noise_is_averaged_like_the_second_moment() {
        let mut corrected = Adam::new(0.0, 0.5, 1e-8, Some(1e-3), 1);
        for noise_std in [1.0, 3.0, 2.0] {
            corrected.apply(&mut [noise_std as f32], noise_std);
        }
        let (noise, least) = corrected.correction(1.0 - 0.125);
        assert!((noise - (0.125 + 0.25 * 9.0 + 0.5 * 4.0) / 0.875).abs() < 1e-6);
        assert!((least - 1e-6).abs() < 1e-12);
    }
}
