//! The arguments of a privacy budget and its steps, for the commands that calibrate noise.

use clap::Args;
use sordino_accounting::{Delta, Epsilon, SamplingRate, Steps, calibrate::Budget};

/// A privacy budget, and the sampling rate and number of steps that it is for.
#[derive(Args, Clone, Copy)]
pub(crate) struct BudgetArguments {
    /// Privacy budget
    #[arg(long, value_name = "E", allow_hyphen_values = true)]
    epsilon: Epsilon,
    /// Delta of the privacy budget
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    delta: Delta,
    /// Probability with which each record joins a batch
    #[arg(long, value_name = "Q", allow_hyphen_values = true)]
    pub(crate) sample_rate: SamplingRate,
    /// Number of steps
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub(crate) steps: Steps,
}

impl BudgetArguments {
    pub(crate) fn budget(&self) -> Budget {
        Budget { epsilon: self.epsilon, delta: self.delta }
    }
}
