//! The arguments that describe a plan, for the commands that price one.

use std::{fs, path::PathBuf};

use clap::Args;
use sordino_accounting::{NoiseMultiplier, Plan, SamplingRate, Steps};

use crate::cli::problem::Problem;

/// A plan: DP-SGD from three numbers, or any plan from a file.
#[derive(Args)]
pub(crate) struct PlanArguments {
    /// Standard deviation of the noise on each sum, divided by the clipping norm
    #[arg(long, value_name = "Z", allow_hyphen_values = true)]
    noise_multiplier: Option<NoiseMultiplier>,
    /// Probability with which each record joins a batch
    #[arg(long, value_name = "Q", allow_hyphen_values = true)]
    sample_rate: Option<SamplingRate>,
    /// Number of steps
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    steps: Option<Steps>,
    /// JSON file with a list of {"noise_multiplier", "sample_rate", "steps"} objects
    #[arg(long, value_name = "FILE", conflicts_with_all = ["noise_multiplier", "sample_rate", "steps"])]
    plan: Option<PathBuf>,
}

impl PlanArguments {
    pub(crate) fn plan(&self) -> Result<Plan, Problem> {
        if let Some(path) = &self.plan {
            let text = fs::read_to_string(path).map_err(|error| Problem::unreadable_plan(path, &error))?;
            return serde_json::from_str(&text).map_err(|error| Problem::malformed_plan(path, &error));
        }
        let (Some(noise_multiplier), Some(rate), Some(steps)) =
            (self.noise_multiplier, self.sample_rate, self.steps)
        else {
            return Err(Problem::incomplete_plan(&self.missing()));
        };
        Ok(Plan::dp_sgd(noise_multiplier, rate, steps))
    }

    fn missing(&self) -> String {
        let given = [
            ("--noise-multiplier", self.noise_multiplier.is_some()),
            ("--sample-rate", self.sample_rate.is_some()),
            ("--steps", self.steps.is_some()),
        ];
        given.into_iter().filter(|(_, given)| !given).map(|(flag, _)| flag).collect::<Vec<_>>().join(", ")
    }
}
