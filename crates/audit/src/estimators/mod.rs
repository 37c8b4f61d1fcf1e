//! Estimators: from the scores of canaries to a lower bound on epsilon.
//!
//! All of them are pure functions. A lower bound holds with a stated confidence, at a stated delta, and under a stated assumption.
//!
//! | estimator | observes | assumes | at best, epsilon 4, delta 1e-5, 95 % |
//! | --- | --- | --- | --- |
//! | [`one_run`] | one run, many canaries | nothing | 1.57 with 1,000 canaries |
//! | [`one_run_fdp`] | one run, many canaries | the trade-off curve | 2.29 with 1,000 canaries |
//! | [`one_run_gaussian`] | one run, many canaries | a Gaussian curve, normal scores | 3.49 with 1,000 canaries |
//! | [`many_runs`], [`Family::approximate`] | many runs, one canary | nothing | 1.30 with 2,000 runs |
//! | [`many_runs`], [`Family::gaussian`] | many runs, one canary | a Gaussian curve | 3.20 with 2,000 runs |
//!
//! [`Family::of_plan`] replaces the Gaussian curve by that of the run's plan, which is also correct for sampled batches.
//!
//! ```
//! use sordino_accounting::{Delta, Epsilon};
//! use sordino_audit::estimators::{Confidence, Scored, one_run, one_run_ceiling};
//!
//! let (claim, delta, confidence) = (Epsilon::new(1.0)?, Delta::new(1e-5)?, Confidence::new(0.999)?);
//! // Fixed before the scores are known.
//! let guesses = one_run_ceiling(100, claim, delta, confidence).guesses;
//! // An attack without any error.
//! let scores: Vec<_> = (0..100).map(|i| Scored { score: f64::from(i), member: i >= 50 }).collect();
//! let bound = one_run(&scores, &[guesses], delta, confidence);
//! assert!(bound.epsilon > claim.get());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod binomial;
mod clopper_pearson;
mod confidence;
mod guesses;
mod ideal;
mod many_runs;
pub(crate) mod normal;
mod one_run;
mod one_run_fdp;
mod one_run_gaussian;
mod search;
mod trade_off;

use crate::{Attack, Observation, TradeOffPoint};

pub use clopper_pearson::rate_upper_bound;
pub use confidence::{BadConfidence, Confidence};
pub use guesses::{Guesses, Scored};
pub use ideal::{Ceiling, many_runs_ceiling, one_run_ceiling, one_run_fdp_ceiling, one_run_gaussian_ceiling};
pub use many_runs::{best_threshold, many_runs};
pub use one_run::one_run;
pub use one_run_fdp::one_run_fdp;
pub use one_run_gaussian::{Spread, one_run_gaussian};
pub use trade_off::{Curve, Family};

/// A lower bound on epsilon.
#[derive(Debug, Clone, PartialEq)]
pub struct LowerBound {
    /// The estimator, as it is named in reports.
    pub estimator: String,
    /// What the bound assumes in addition to the confidence; none if it assumes nothing.
    pub assumption: Option<String>,
    /// The probability that the bound holds.
    pub confidence: Confidence,
    /// The bound; 0 if there is no evidence.
    pub epsilon: f64,
    /// Points on the attacker's trade-off curve, as measured. They are estimates, not bounds.
    pub points: Vec<TradeOffPoint>,
}

impl LowerBound {
    /// The bound as the result of an attack.
    pub fn attack(self, observation: Observation, canaries: u64, runs: u64) -> Attack {
        Attack {
            observation,
            estimator: self.estimator,
            assumption: self.assumption,
            confidence: self.confidence.get(),
            canaries,
            runs,
            lower_bound: self.epsilon,
            points: self.points,
        }
    }
}
