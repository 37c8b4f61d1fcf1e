//! The moving average of the parameters over the steps.

use crate::{OptimError, State, blocks, error::require};

/// An exponential moving average of the parameters: `a_t = sum_s d^(t-s) p_s / sum_s d^(t-s)`, over `s = 1..t`.
///
/// The noise makes the last iterate fluctuate. The average fluctuates less and often predicts better.
///
/// # Guarantees
/// The average is computed from released parameters only, so it costs no privacy. The weights sum to 1 at every step, so there
/// is no bias towards 0: after one update the average equals the parameters.
///
/// # Edge cases
/// Before the first update the average is empty. With a decay of 0 it is the last iterate.
///
/// # Example
/// ```
/// let mut average = sordino_optim::Average::new(0.5).unwrap();
/// average.update(&[3.0]);
/// assert_eq!(average.values(), [3.0]);
/// average.update(&[6.0]);
/// assert_eq!(average.values(), [5.0]);
/// ```
///
/// # References
/// Polyak and Juditsky, "Acceleration of stochastic approximation by averaging" (1992). De, Berrada, Hayes, Smith and Balle,
/// "Unlocking high-accuracy differentially private image classification through scale" (2022).
#[derive(Debug, Clone)]
pub struct Average {
    decay: f64,
    updates: u64,
    values: Vec<f32>,
}

impl Average {
    /// An empty average with this decay.
    ///
    /// # Errors
    /// A decay outside [0, 1), NaN included.
    pub fn new(decay: f64) -> Result<Self, OptimError> {
        require(
            (0.0..1.0).contains(&decay),
            "decay of the average",
            "in [0, 1)",
            decay,
            "0.9999 averages about 10,000 steps; 0 keeps the last iterate only",
        )?;
        Ok(Self { decay, updates: 0, values: Vec::new() })
    }

    /// Adds the parameters after a step to the average.
    ///
    /// # Panics
    /// The number of parameters differs from that of the first update.
    pub fn update(&mut self, params: &[f32]) {
        if self.updates == 0 {
            self.values = vec![0.0; params.len()];
        }
        assert_eq!(params.len(), self.values.len(), "parameters of the average's dimension");
        self.updates += 1;
        // The average is stored bias-corrected: a_t = a_(t-1) + w_t (p_t - a_(t-1)), where w_1 is exactly 1.
        let weight = ((1.0 - self.decay) / (1.0 - self.decay.powf(self.updates as f64))) as f32;
        blocks::read(&mut self.values, params, |value, param| *value += weight * (param - *value));
    }

    /// The average so far.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The state, for a checkpoint.
    pub fn state(&self) -> State {
        let mut state = State::default();
        state.put_vector("average.values", &self.values);
        state.put_count("average.updates", self.updates);
        state
    }

    /// Continues from a saved state.
    ///
    /// # Errors
    /// A vector or number that is missing, unknown or out of range. The average is then unchanged.
    pub fn restore(&mut self, mut state: State) -> Result<(), OptimError> {
        let values = state.take_any_vector("average.values")?;
        let updates = state.take_count("average.updates")?;
        state.finish()?;
        (self.values, self.updates) = (values, updates);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::gaussians;

    #[test]
    fn the_first_average_is_the_parameters() {
        for decay in [0.0, 0.3, 0.9, 0.9999, 1.0 - f64::EPSILON] {
            let mut average = Average::new(decay).unwrap();
            assert!(average.values().is_empty());
            let params = gaussians(3, 50);
            average.update(&params);
            assert_eq!(average.values(), params);
        }
    }

    #[test]
    fn average_equals_its_weighted_sum() {
        let (decay, steps, len) = (0.9, 30, 11);
        let mut average = Average::new(decay).unwrap();
        let (mut sum, mut weights) = (vec![0.0; len], 0.0);
        for step in 0..steps {
            let params = gaussians(step, len);
            average.update(&params);
            weights = decay * weights + 1.0;
            for (sum, param) in sum.iter_mut().zip(params) {
                *sum = decay * *sum + f64::from(param);
            }
        }
        for (&value, sum) in average.values().iter().zip(sum) {
            assert!((f64::from(value) - sum / weights).abs() < 1e-6);
        }
    }

    #[test]
    fn restored_averages_continue_bit_by_bit() {
        let (mut straight, mut stopped) = (Average::new(0.99).unwrap(), Average::new(0.99).unwrap());
        (0..10).for_each(|step| straight.update(&gaussians(step, 9)));
        (0..4).for_each(|step| stopped.update(&gaussians(step, 9)));
        let mut resumed = Average::new(0.99).unwrap();
        resumed.restore(stopped.state()).unwrap();
        (4..10).for_each(|step| resumed.update(&gaussians(step, 9)));
        assert_eq!(resumed.state(), straight.state());

        let mut foreign = straight.state();
        foreign.numbers.insert("steps".to_owned(), 1.0);
        assert!(resumed.restore(foreign).is_err() && resumed.restore(State::default()).is_err());
        assert_eq!(resumed.state(), straight.state());
    }

    #[test]
    fn edge_values_are_refused() {
        for bad in [-0.1, 1.0, f64::NAN, f64::INFINITY] {
            assert!(Average::new(bad).is_err());
        }
        let message = Average::new(1.0).unwrap_err().to_string();
        assert_eq!(message, "decay of the average must be in [0, 1), got 1");
    }

    #[test]
    #[should_panic(expected = "parameters of the average's dimension")]
    fn another_number_of_parameters_is_refused() {
        let mut average = Average::new(0.5).unwrap();
        average.update(&[1.0, 2.0]);
        average.update(&[1.0]);
    }
}
