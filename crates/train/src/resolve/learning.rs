//! Learning settings: optimizer, schedule, learning rate, average.

use sordino_optim::{Average, Optimizer, OptimizerConfig, Schedule};

use crate::{Learning, Origin, Settings, TrainError, Value, settings::named};

/// The learning settings, each with where it comes from, and what they mean.
pub(crate) struct LearningSettings {
    pub(crate) optimizer: Value<String>,
    pub(crate) schedule: Value<String>,
    pub(crate) learning_rate: Value<f64>,
    pub(crate) learning: Learning,
}

impl LearningSettings {
    pub(crate) fn new(settings: &Settings, contribution: Option<f64>) -> Result<Self, TrainError> {
        let optimizer = Value::given_or(settings.optimizer.clone(), "sgd".to_owned(), Origin::Default);
        let config = parse_optimizer(&optimizer.value)?;
        let schedule = Value::given_or(settings.schedule.clone(), "linear".to_owned(), Origin::Default);
        let default = default_learning_rate(&config, contribution);
        let learning_rate = Value::given_or(settings.learning_rate, default, Origin::Default);
        Optimizer::check_learning_rate(learning_rate.value)?;
        if let Some(decay) = settings.average {
            Average::new(decay)?;
        }
        let learning = Learning {
            optimizer: config,
            learning_rate: learning_rate.value,
            schedule: parse_schedule(&schedule.value)?,
            average: settings.average,
        };
        Ok(Self { optimizer, schedule, learning_rate, learning })
    }
}

fn parse_optimizer(text: &str) -> Result<OptimizerConfig, TrainError> {
    let optimizer: OptimizerConfig = named(text).map_err(|problem| {
        TrainError::refused(
            format!("optimizer {text:?}: {problem}"),
            format!(
                "the optimizers are {}; options follow the name, as in adam,beta2=0.99",
                OptimizerConfig::NAMES.join(", ")
            ),
        )
    })?;
    optimizer.check()?;
    Ok(optimizer)
}

/// Parses a learning-rate schedule with its options, such as `linear,warmup=10`, and checks them.
///
/// # Errors
/// A name that does not exist; options that the schedule does not have or that are out of range.
pub fn parse_schedule(text: &str) -> Result<Schedule, TrainError> {
    let schedule: Schedule = named(text).map_err(|problem| {
        TrainError::refused(
            format!("schedule {text:?}: {problem}"),
            "the schedules are constant, step,every=N,factor=F, step,at=0.5/0.75,factor=F, cosine, linear,warmup=N and cyclic,period=N,lowest=F",
        )
    })?;
    schedule.check()?;
    Ok(schedule)
}

/// `contribution` is the largest norm of what a record adds to a step; none without clipping. For `sgd`, a step of length 4 if all gradients are clipped and point in the same direction. With momentum 0.9, ten gradients add up,
/// so the rate is a tenth of that. Optimizers that divide by the size of gradients do not depend on the clipping norm.
fn default_learning_rate(optimizer: &OptimizerConfig, contribution: Option<f64>) -> f64 {
    let rate = contribution.map_or(1.0, |contribution| 4.0 / contribution);
    match optimizer {
        OptimizerConfig::Sgd { .. } => rate,
        OptimizerConfig::Momentum { .. } | OptimizerConfig::Nesterov { .. } => rate / 10.0,
        _ => 0.01,
    }
}
