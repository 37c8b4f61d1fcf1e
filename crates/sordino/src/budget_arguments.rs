//! The arguments of a budget and of the steps that it must last for, shared by the commands that calibrate.

use clap::Args;
use sordino_accounting::{Delta, Epsilon, SamplingRate, Steps, calibrate::Budget};

/// A budget, and how many steps at which sampling rate it is for.
#[derive(Args, Clone, Copy)]
pub(crate) struct BudgetArguments {
    /// The epsilon not to exceed
    #[arg(long, value_name = "E", allow_hyphen_values = true)]
    epsilon: Epsilon,
    /// The delta that goes with it
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
