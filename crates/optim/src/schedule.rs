//! Learning-rate schedules.

use serde::{Deserialize, Deserializer, Serialize};

use crate::{OptimError, error::require};

/// The fraction of the learning rate at each step.
///
/// Steps are counted from 0, and a run of `T` steps ends *after* step `T - 1`. A schedule that decays to 0 reaches 0 at step `T`,
/// so that no step of the run, which costs privacy, has a learning rate of 0.
///
/// # Guarantees
/// A factor is always in [0, 1], is never NaN, and does not depend on any record.
///
/// # Example
/// ```
/// use sordino_optim::Schedule;
///
/// let schedule: Schedule = toml::from_str("type = 'cosine'\nlast = 0.2").unwrap();
/// assert_eq!(schedule.factor(0, 100), 1.0);
/// assert!((schedule.factor(50, 100) - 0.6).abs() < 1e-12);
/// assert!((schedule.factor(100, 100) - 0.2).abs() < 1e-12);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Schedule {
    /// Always 1.
    // A struct variant, because serde ignores unknown fields of a unit variant.
    Constant {},
    /// `factor^n` after `n` drops: at multiples of `every` steps, or at milestones, the fractions `at` of the run.
    ///
    /// A milestone `a` takes effect from the first step with `t / T >= a`: `at = [0.5, 0.75]` drops after half of the run and after three
    /// quarters of it.
    Step {
        /// The number of steps between drops, at least 1. Either this or `at` is given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        every: Option<u64>,
        /// The milestones, increasing fractions of the run in (0, 1). Either this or `every` is given.
        #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_several")]
        at: Vec<f64>,
        /// The factor of each drop, in [0, 1].
        factor: f64,
    },
    /// `last + (1 - last) (1 + cos(pi t / T)) / 2`.
    ///
    /// # References
    /// Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts" (2017), equation 5, without restarts.
    Cosine {
        /// The fraction at the end, in [0, 1]. Default 0.
        #[serde(default)]
        last: f64,
    },
    /// `(t + 1) / (warmup + 1)` during the warm-up, then linear from 1 at `t = warmup` to `last` at `t = T`.
    ///
    /// If the warm-up is longer than the run, the full rate is never reached.
    Linear {
        /// The number of steps before the full rate. Default 0.
        #[serde(default)]
        warmup: u64,
        /// The fraction at the end, in [0, 1]. Default 0.
        #[serde(default)]
        last: f64,
    },
    /// A triangle wave: `lowest` at the start of each period, 1 at its middle, linear in between.
    ///
    /// If `lowest` is 0, the first step of each period has no effect.
    ///
    /// # References
    /// Smith, "Cyclical learning rates for training neural networks" (2017), the triangular policy.
    Cyclic {
        /// The number of steps of a period, at least 2.
        period: u64,
        /// The lowest fraction, in [0, 1].
        lowest: f64,
    },
}

impl Default for Schedule {
    fn default() -> Self {
        Self::Constant {}
    }
}

impl Schedule {
    /// Checks every setting.
    ///
    /// # Errors
    /// The first setting that is out of range. NaN is out of range.
    pub fn check(&self) -> Result<(), OptimError> {
        match *self {
            Self::Constant {} => Ok(()),
            Self::Step { every, ref at, factor } => {
                check_drops(every, at)?;
                check_fraction("factor", factor)
            }
            Self::Cosine { last } | Self::Linear { last, .. } => check_fraction("last", last),
            Self::Cyclic { period, lowest } => {
                require(
                    period >= 2,
                    "period",
                    "at least 2",
                    period,
                    "this is the number of steps of a period",
                )?;
                check_fraction("lowest", lowest)
            }
        }
    }

    /// The fraction of the learning rate at `step`, counted from 0, of `total` steps.
    ///
    /// # Edge cases
    /// After the end, and if `total` is 0, a decay stays at its last value. A schedule that [`check`](Self::check) refuses gives
    /// an arbitrary number in [0, 1].
    pub fn factor(&self, step: u64, total: u64) -> f64 {
        let factor = match *self {
            Self::Constant {} => 1.0,
            Self::Step { every, ref at, factor } => {
                let milestones =
                    at.iter().filter(|&&milestone| progress(step, total) >= milestone).count() as u64;
                factor.powf(every.map_or(milestones, |every| step / every.max(1)) as f64)
            }
            Self::Cosine { last } => {
                let wave = (std::f64::consts::PI * progress(step, total)).cos();
                last + (1.0 - last) * 0.5 * (1.0 + wave)
            }
            Self::Linear { warmup, .. } if step < warmup => (step as f64 + 1.0) / (warmup as f64 + 1.0),
            Self::Linear { warmup, last } => {
                1.0 - (1.0 - last) * progress(step - warmup, total.saturating_sub(warmup))
            }
            Self::Cyclic { period, lowest } => {
                let phase = (step % period.max(1)) as f64 / period.max(1) as f64;
                lowest + (1.0 - lowest) * (1.0 - (2.0 * phase - 1.0).abs())
            }
        };
        // `clamp` would keep a NaN.
        if factor >= 1.0 {
            1.0
        } else if factor >= 0.0 {
            factor
        } else {
            0.0
        }
    }
}

/// Checks that the drops of [`Schedule::Step`] are given in exactly one way.
fn check_drops(every: Option<u64>, at: &[f64]) -> Result<(), OptimError> {
    const EITHER: &str = "give step,every=N,factor=F or step,at=0.5/0.75,factor=F";
    let listed = || at.iter().map(f64::to_string).collect::<Vec<_>>().join("/");
    match every {
        Some(every) => {
            require(at.is_empty(), "at", "left out when every is given", listed(), EITHER)?;
            require(every >= 1, "every", "at least 1", every, "this is the number of steps between drops")
        }
        None => {
            require(!at.is_empty(), "every", "given when at is not", "neither", EITHER)?;
            let inside = at.iter().all(|milestone| 0.0 < *milestone && *milestone < 1.0);
            let rising = at.windows(2).all(|pair| pair[0] < pair[1]);
            let hint = "these are fractions of the run: 0.5/0.75 drops after half of the run and after three quarters";
            require(inside && rising, "at", "a list of increasing fractions in (0, 1)", listed(), hint)
        }
    }
}

/// Reads a list of numbers, or a single number as a list of one.
fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a fraction of the run or a list of them")]
    enum Numbers {
        One(f64),
        Several(Vec<f64>),
    }
    Ok(match Numbers::deserialize(deserializer)? {
        Numbers::One(number) => vec![number],
        Numbers::Several(numbers) => numbers,
    })
}

fn check_fraction(what: &'static str, value: f64) -> Result<(), OptimError> {
    require(
        (0.0..=1.0).contains(&value),
        what,
        "in [0, 1]",
        value,
        "this is a fraction of the learning rate, not a learning rate",
    )
}

/// The completed fraction of the run, in [0, 1].
fn progress(step: u64, total: u64) -> f64 {
    if step >= total { 1.0 } else { step as f64 / total as f64 }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, test_runner::RngSeed};

    use super::*;

    fn every(every: u64, factor: f64) -> Schedule {
        Schedule::Step { every: Some(every), at: Vec::new(), factor }
    }

    fn at(milestones: &[f64], factor: f64) -> Schedule {
        Schedule::Step { every: None, at: milestones.to_vec(), factor }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn constant_is_one_everywhere() {
        for (step, total) in [(0, 0), (0, 1), (5, 3), (u64::MAX, u64::MAX)] {
            assert_eq!(Schedule::default().factor(step, total), 1.0);
        }
    }

    #[test]
    fn step_drops_at_multiples() {
        let schedule = every(10, 0.5);
        let factors = [0, 9, 10, 19, 20, 30].map(|step| schedule.factor(step, 31));
        assert_eq!(factors, [1.0, 1.0, 0.5, 0.5, 0.25, 0.125]);
        assert_eq!(schedule.factor(u64::MAX, 31), 0.0);
        assert_eq!(every(1, 0.0).factor(0, 1), 1.0);
    }

    /// The schedule of the DP-NSGD paper's section 4.1: 0.1 times the initial rate after 50 of 100 epochs, and 0.01 times it after 75.
    #[test]
    fn milestones_drop_at_fractions_of_the_run() {
        let schedule = at(&[0.5, 0.75], 0.1);
        for (step, factor) in
            [(0, 1.0), (2499, 1.0), (2500, 0.1), (3749, 0.1), (3750, 0.01), (4999, 0.01), (9000, 0.01)]
        {
            assert!(close(schedule.factor(step, 5000), factor), "step {step}");
        }
        // A fraction of a step counts from the next step on.
        let factors = [0, 1, 2, 3, 4, 5, 6].map(|step| at(&[0.5], 0.5).factor(step, 7));
        assert_eq!(factors, [1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5]);
        assert_eq!([2, 3].map(|step| at(&[0.3], 0.5).factor(step, 10)), [1.0, 0.5]);
        assert_eq!(at(&[0.5, 0.75], 0.5).factor(0, 0), 0.25);
    }

    #[test]
    fn drops_are_given_in_exactly_one_way() {
        let read = |text: &str| toml::from_str::<Schedule>(text).unwrap();
        let milestones = read("type = 'step'\nat = [0.5, 0.75]\nfactor = 0.1");
        assert_eq!((&milestones, milestones.check().is_ok()), (&at(&[0.5, 0.75], 0.1), true));
        assert_eq!(read(&toml::to_string(&milestones).unwrap()), milestones);
        assert_eq!(read("type = 'step'\nat = 0.5\nfactor = 0.1"), at(&[0.5], 0.1));
        assert_eq!(toml::to_string(&every(5, 0.5)).unwrap(), "type = \"step\"\nevery = 5\nfactor = 0.5\n");
        let both =
            Schedule::Step { every: Some(5), at: vec![0.5], factor: 0.1 }.check().unwrap_err().to_string();
        assert_eq!(both, "at must be left out when every is given, got 0.5");
        let neither = read("type = 'step'\nfactor = 0.1").check().unwrap_err().to_string();
        assert_eq!(neither, "every must be given when at is not, got neither");
        for wrong in [&[0.75, 0.5][..], &[0.5, 0.5], &[0.0], &[1.0], &[50.0, 75.0]] {
            assert!(at(wrong, 0.1).check().is_err(), "{wrong:?}");
        }
        assert!(toml::from_str::<Schedule>("type = 'step'\nat = 'x'\nfactor = 0.1").is_err());
    }

    #[test]
    fn cosine_starts_at_one_and_ends_at_last() {
        let schedule = Schedule::Cosine { last: 0.1 };
        assert_eq!(schedule.factor(0, 8), 1.0);
        assert!(close(schedule.factor(4, 8), 0.55));
        assert!(close(schedule.factor(8, 8), 0.1) && close(schedule.factor(1000, 8), 0.1));
        assert!(close(schedule.factor(0, 0), 0.1));
        assert_eq!(schedule.factor(0, 1), 1.0);
    }

    #[test]
    fn linear_warms_up_then_decays_without_a_jump() {
        let schedule = Schedule::Linear { warmup: 3, last: 0.2 };
        let factors: Vec<f64> = (0..=11).map(|step| schedule.factor(step, 11)).collect();
        let expected = [0.25, 0.5, 0.75, 1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2];
        assert!(factors.iter().zip(expected).all(|(&a, b)| close(a, b)), "{factors:?}");
        assert!(close(schedule.factor(50, 11), 0.2));
        assert_eq!(Schedule::Linear { warmup: 0, last: 0.0 }.factor(0, 1), 1.0);
        assert_eq!(Schedule::Linear { warmup: 9, last: 0.0 }.factor(0, 1), 0.1);
        assert!(Schedule::Linear { warmup: u64::MAX, last: 0.0 }.factor(0, 10) > 0.0);
    }

    #[test]
    fn cyclic_is_a_triangle() {
        let schedule = Schedule::Cyclic { period: 4, lowest: 0.5 };
        let factors: Vec<f64> = (0..9).map(|step| schedule.factor(step, 9)).collect();
        assert_eq!(factors, [0.5, 0.75, 1.0, 0.75, 0.5, 0.75, 1.0, 0.75, 0.5]);
    }

    #[test]
    fn decays_to_zero_are_positive_at_every_step() {
        for schedule in [Schedule::Cosine { last: 0.0 }, Schedule::Linear { warmup: 5, last: 0.0 }] {
            for total in [1, 2, 100] {
                assert!((0..total).all(|step| schedule.factor(step, total) > 0.0));
            }
        }
    }

    #[test]
    fn names_are_kebab_case_and_unknown_fields_are_refused() {
        let text = r#"{"type": "linear", "warmup": 2, "last": 0.5}"#;
        let linear: Schedule = serde_json::from_str(text).unwrap();
        assert_eq!(linear, Schedule::Linear { warmup: 2, last: 0.5 });
        assert_eq!(toml::from_str::<Schedule>("type = 'constant'").unwrap(), Schedule::default());
        for text in ["type = 'constant'\nlast = 1", "type = 'cosine'\nfirst = 1", "type = 'square'", ""] {
            assert!(toml::from_str::<Schedule>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn edge_values_are_refused() {
        for bad in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert!(every(1, bad).check().is_err());
            assert!(at(&[0.5], bad).check().is_err());
            assert!(at(&[bad], 0.5).check().is_err());
            assert!(Schedule::Cosine { last: bad }.check().is_err());
            assert!(Schedule::Linear { warmup: 0, last: bad }.check().is_err());
            assert!(Schedule::Cyclic { period: 2, lowest: bad }.check().is_err());
        }
        assert!(every(0, 0.5).check().is_err());
        assert!(Schedule::Cyclic { period: 1, lowest: 0.5 }.check().is_err());
        let message = Schedule::Cosine { last: 3.0 }.check().unwrap_err().to_string();
        assert_eq!(message, "last must be in [0, 1], got 3");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(7), ..ProptestConfig::default() })]
        #[test]
        fn factors_are_fractions_even_of_unchecked_schedules(
            number in prop_oneof![0.0..=1.0_f64, any::<f64>(), Just(f64::NAN), Just(f64::INFINITY)],
            count in prop_oneof![0..40_u64, any::<u64>()],
            step in prop_oneof![0..100_u64, any::<u64>()],
            total in prop_oneof![0..100_u64, any::<u64>()],
        ) {
            for schedule in [
                Schedule::Constant {},
                every(count, number),
                at(&[0.5, number], number),
                Schedule::Cosine { last: number },
                Schedule::Linear { warmup: count, last: number },
                Schedule::Cyclic { period: count, lowest: number },
            ] {
                let factor = schedule.factor(step, total);
                prop_assert!((0.0..=1.0).contains(&factor), "{schedule:?}: {factor}");
            }
        }
    }
}
