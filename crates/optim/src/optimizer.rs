//! The optimizer: turns a noisy mean gradient into new parameters.

use std::ops::Range;

use sordino_privacy::Release;

use crate::{
    OptimError, OptimizerConfig, State, adagrad::Adagrad, descent::descend, error::require,
    momentum::Momentum, nesterov::Nesterov, rmsprop::RmsProp, transform::Transform,
};

/// Turns each released gradient into an update by a chain of transforms, and moves the parameters against it.
///
/// # Guarantees
/// Only trainable parameters change, and only they have optimizer state; weight decay does not change frozen parameters either. A step
/// uses releases and public values only, so it costs no privacy. Its result does not depend on the number of threads, and it
/// allocates no memory.
///
/// # Edge cases
/// Without trainable parameters a step does nothing. A gradient of 0 is not special: momentum continues.
#[derive(Debug)]
pub struct Optimizer {
    config: OptimizerConfig,
    chain: Vec<Box<dyn Transform>>,
    /// In ascending order, without empty or adjacent ranges.
    trainable: Vec<Range<usize>>,
    dimension: usize,
}

impl Optimizer {
    /// An optimizer at its first step, for the `trainable` ranges of `dimension` parameters.
    ///
    /// # Errors
    /// A setting that is out of range; ranges that overlap, are not in ascending order, or exceed `0..dimension`.
    pub fn new(
        config: &OptimizerConfig,
        trainable: Vec<Range<usize>>,
        dimension: usize,
    ) -> Result<Self, OptimError> {
        config.check()?;
        let trainable = joined(trainable, dimension)?;
        let chain = chain(config, trainable.iter().map(Range::len).sum());
        Ok(Self { config: *config, chain, trainable, dimension })
    }

    /// Checks that [`step`](Self::step) accepts a learning rate.
    ///
    /// # Errors
    /// Anything but a number from 0 to 1e6. NaN is refused.
    pub fn check_learning_rate(learning_rate: f64) -> Result<(), OptimError> {
        require(
            (0.0..=1e6).contains(&learning_rate),
            "learning rate",
            "between 0 and 1e6",
            learning_rate,
            "typical learning rates are between 0.1 and 100 for sgd, and between 1e-4 and 1e-2 for adam",
        )
    }

    /// Moves the trainable `params` against a mean gradient, which is a released sum [scaled](Release::scaled) by one over the
    /// expected batch size. Returns the gradient's buffer, for [`Vault::reuse`](sordino_privacy::Vault::reuse).
    ///
    /// A sum without noise is not accepted:
    ///
    /// ```compile_fail,E0308
    /// use sordino_optim::Optimizer;
    /// fn step(optimizer: &mut Optimizer, sum: sordino_privacy::Bounded<'_, Vec<f32>>, params: &mut [f32]) {
    ///     optimizer.step(sum, 0.1, params);
    /// }
    /// ```
    ///
    /// Numbers of unknown origin are not accepted either:
    ///
    /// ```compile_fail,E0308
    /// use sordino_optim::Optimizer;
    /// fn step(optimizer: &mut Optimizer, sum: Vec<f32>, params: &mut [f32]) {
    ///     optimizer.step(sum, 0.1, params);
    /// }
    /// ```
    ///
    /// # Panics
    /// The gradient or `params` does not have the optimizer's dimension, or
    /// [`check_learning_rate`](Self::check_learning_rate) refuses the learning rate.
    pub fn step(&mut self, gradient: Release<Vec<f32>>, learning_rate: f64, params: &mut [f32]) -> Vec<f32> {
        let noise_std = gradient.noise_std();
        let mut gradient = gradient.into_inner();
        self.advance(&mut gradient, noise_std, learning_rate, params);
        gradient
    }

    /// A step on a plain gradient, which is overwritten.
    pub(crate) fn advance(
        &mut self,
        gradient: &mut [f32],
        noise_std: f64,
        learning_rate: f64,
        params: &mut [f32],
    ) {
        assert_eq!(gradient.len(), self.dimension, "a gradient of the optimizer's dimension");
        assert_eq!(params.len(), self.dimension, "parameters of the optimizer's dimension");
        if let Err(error) = Self::check_learning_rate(learning_rate) {
            panic!("{error}");
        }
        let mut len = 0;
        for range in &self.trainable {
            gradient.copy_within(range.clone(), len);
            len += range.len();
        }
        let mut update = &mut gradient[..len];
        for transform in &mut self.chain {
            transform.apply(update, noise_std);
        }
        for range in &self.trainable {
            let (head, tail) = update.split_at_mut(range.len());
            descend(&mut params[range.clone()], head, learning_rate, self.config.weight_decay());
            update = tail;
        }
    }

    /// The state, for a checkpoint.
    pub fn state(&self) -> State {
        let mut state = State::default();
        for transform in &self.chain {
            transform.save(&mut state);
        }
        state
    }

    /// Continues from a saved state.
    ///
    /// # Errors
    /// A vector or number that is missing, unknown, of the wrong length or out of range. The optimizer is then unchanged.
    pub fn restore(&mut self, mut state: State) -> Result<(), OptimError> {
        let mut chain = chain(&self.config, self.trainable.iter().map(Range::len).sum());
        for transform in &mut chain {
            transform.load(&mut state)?;
        }
        state.finish()?;
        self.chain = chain;
        Ok(())
    }
}

fn chain(config: &OptimizerConfig, len: usize) -> Vec<Box<dyn Transform>> {
    match *config {
        OptimizerConfig::Sgd { .. } => Vec::new(),
        OptimizerConfig::Momentum { momentum, .. } => vec![Box::new(Momentum::new(momentum, len))],
        OptimizerConfig::Nesterov { momentum, .. } => vec![Box::new(Nesterov::new(momentum, len))],
        OptimizerConfig::Adam(settings) => vec![Box::new(settings.transform(len))],
        OptimizerConfig::AdamW(settings) => vec![Box::new(settings.transform(len))],
        OptimizerConfig::RmsProp { decay, epsilon, .. } => vec![Box::new(RmsProp::new(decay, epsilon, len))],
        OptimizerConfig::Adagrad { epsilon, .. } => vec![Box::new(Adagrad::new(epsilon, len))],
    }
}

/// Merges adjacent ranges, because only long ranges run on all threads.
fn joined(ranges: Vec<Range<usize>>, dimension: usize) -> Result<Vec<Range<usize>>, OptimError> {
    let mut joined: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    let mut after = 0;
    for range in ranges {
        if !(after <= range.start && range.start <= range.end && range.end <= dimension) {
            return Err(OptimError::BadTrainable { range, after, dimension });
        }
        after = range.end;
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ if range.is_empty() => {}
            _ => joined.push(range),
        }
    }
    Ok(joined)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{blocks::BLOCK, reference::gaussians};

    /// Every optimizer with its defaults and weight decay, and Adam with noise correction.
    fn every_config() -> Vec<OptimizerConfig> {
        let mut texts: Vec<String> = OptimizerConfig::NAMES
            .iter()
            .map(|name| format!(r#"{{"type": "{name}", "weight_decay": 0.1}}"#))
            .collect();
        for name in ["adam", "adamw"] {
            texts.push(format!(
                r#"{{"type": "{name}", "weight_decay": 0.1, "noise_correction": true, "correction_floor": 0.2}}"#
            ));
        }
        texts.iter().map(|text| serde_json::from_str(text).unwrap()).collect()
    }

    fn all(dimension: usize) -> Vec<Range<usize>> {
        std::iter::once(0..dimension).collect()
    }

    fn run(optimizer: &mut Optimizer, steps: Range<u64>, params: &mut [f32]) {
        for step in steps {
            let noise_std = 0.3 + 0.1 * step as f64;
            optimizer.advance(&mut gaussians(step, params.len()), noise_std, 0.05, params);
        }
    }

    #[test]
    fn frozen_parameters_never_change_and_the_others_change_as_if_alone() {
        let trainable = [2..5, 5..6, 7..7, 9..12];
        let alone = [2, 3, 4, 5, 9, 10, 11];
        for config in every_config() {
            let mut optimizer = Optimizer::new(&config, trainable.to_vec(), 13).unwrap();
            let mut lone = Optimizer::new(&config, all(alone.len()), alone.len()).unwrap();
            let before = gaussians(99, 13);
            let mut params = before.clone();
            let mut few: Vec<f32> = alone.iter().map(|&i| before[i]).collect();
            for step in 0..10 {
                let mut gradient = gaussians(step, 13);
                let mut few_gradient: Vec<f32> = alone.iter().map(|&i| gradient[i]).collect();
                optimizer.advance(&mut gradient, 0.3, 0.05, &mut params);
                lone.advance(&mut few_gradient, 0.3, 0.05, &mut few);
            }
            for i in 0..13 {
                match alone.iter().position(|&j| j == i) {
                    None => assert_eq!(params[i].to_bits(), before[i].to_bits(), "{} {i}", config.name()),
                    Some(j) => {
                        assert_eq!(params[i].to_bits(), few[j].to_bits(), "{} {i}", config.name());
                        assert_ne!(params[i], before[i], "{} {i}", config.name());
                    }
                }
            }
        }
    }

    #[test]
    fn restored_optimizers_continue_bit_by_bit() {
        for config in every_config() {
            let (mut straight, mut first) = (gaussians(7, 20), gaussians(7, 20));
            let mut optimizer = Optimizer::new(&config, all(20), 20).unwrap();
            run(&mut optimizer, 0..12, &mut straight);

            let mut stopped = Optimizer::new(&config, all(20), 20).unwrap();
            run(&mut stopped, 0..5, &mut first);
            let mut resumed = Optimizer::new(&config, all(20), 20).unwrap();
            resumed.restore(stopped.state()).unwrap();
            assert_eq!(resumed.state(), stopped.state());
            run(&mut resumed, 5..12, &mut first);
            assert_eq!(straight, first, "{}", config.name());
            assert_eq!(resumed.state(), optimizer.state());
        }
    }

    #[test]
    fn foreign_checkpoints_are_refused_and_change_nothing() {
        for config in every_config() {
            let mut optimizer = Optimizer::new(&config, all(4), 4).unwrap();
            run(&mut optimizer, 0..3, &mut [1.0; 4]);
            let good = optimizer.state();
            let mut bad = Vec::new();
            for name in good.vectors.keys() {
                let mut state = good.clone();
                state.vectors.get_mut(name).unwrap().push(0.0);
                bad.push(state);
                let mut state = good.clone();
                state.vectors.remove(name);
                bad.push(state);
            }
            for name in good.numbers.keys() {
                let mut state = good.clone();
                state.numbers.remove(name);
                bad.push(state);
                let mut state = good.clone();
                state.numbers.insert(name.clone(), f64::NAN);
                bad.push(state);
            }
            let mut state = good.clone();
            state.numbers.insert("extra".to_owned(), 1.0);
            bad.push(state);
            for state in bad {
                assert!(matches!(optimizer.restore(state), Err(OptimError::BadState { .. })));
                assert_eq!(optimizer.state(), good, "{}", config.name());
            }
        }
    }

    #[test]
    fn long_vectors_change_like_their_pieces() {
        let len = 2 * BLOCK + 5;
        for config in every_config() {
            let (mut long, start) = (gaussians(1, len), gaussians(1, len));
            let mut optimizer = Optimizer::new(&config, all(len), len).unwrap();
            for step in 0..3 {
                optimizer.advance(&mut gaussians(step, len), 0.1, 0.05, &mut long);
            }
            for piece in [0..7, BLOCK - 3..BLOCK + 3, 2 * BLOCK - 1..len] {
                let mut short = start[piece.clone()].to_vec();
                let mut optimizer = Optimizer::new(&config, all(short.len()), short.len()).unwrap();
                for step in 0..3 {
                    let mut gradient = gaussians(step, len)[piece.clone()].to_vec();
                    optimizer.advance(&mut gradient, 0.1, 0.05, &mut short);
                }
                assert_eq!(short, long[piece], "{}", config.name());
            }
        }
    }

    #[test]
    fn finite_gradients_never_make_a_nan() {
        for config in every_config() {
            let mut optimizer = Optimizer::new(&config, all(6), 6).unwrap();
            let mut params = [0.0, 1.0, -1.0, 1e-30, 1e6, -0.0];
            for noise_std in [0.0, 1e-30, 1.0, 1e12] {
                for gradient in [[0.0; 6], [1e-38; 6], [f32::MIN_POSITIVE / 8.0; 6], [-1e18; 6], [1.0; 6]] {
                    optimizer.advance(&mut gradient.clone(), noise_std, 0.1, &mut params);
                    assert!(params.iter().all(|p| p.is_finite()), "{}: {params:?}", config.name());
                }
            }
        }
    }

    #[test]
    fn ranges_that_overlap_or_exceed_the_dimension_are_refused() {
        let sgd = OptimizerConfig::named("sgd").unwrap();
        #[expect(clippy::reversed_empty_ranges, reason = "such a range must be refused")]
        let bad = [vec![0..3, 2..5], vec![4..5, 0..2], vec![0..2, 5..3], vec![0..2, 4..11]];
        for ranges in bad {
            assert!(matches!(Optimizer::new(&sgd, ranges, 10), Err(OptimError::BadTrainable { .. })));
        }
        let error = Optimizer::new(&sgd, vec![0..2, 4..11], 10).unwrap_err().to_string();
        assert_eq!(error, "trainable ranges must ascend without overlap within 0..10, got 4..11 after 2");
    }

    #[test]
    fn a_step_without_trainable_parameters_does_nothing() {
        for config in every_config() {
            for dimension in [0, 3] {
                let mut optimizer = Optimizer::new(&config, Vec::new(), dimension).unwrap();
                let mut params = vec![1.5; dimension];
                optimizer.advance(&mut vec![1.0; dimension], 1.0, 0.1, &mut params);
                assert!(params.iter().all(|&p| p == 1.5));
            }
        }
    }

    #[test]
    #[should_panic(expected = "learning rate must be between 0 and 1e6, got NaN")]
    fn a_learning_rate_of_nan_is_refused() {
        let sgd = OptimizerConfig::named("sgd").unwrap();
        Optimizer::new(&sgd, all(1), 1).unwrap().advance(&mut [1.0], 0.0, f64::NAN, &mut [0.0]);
    }
}
