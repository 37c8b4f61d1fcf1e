//! Settings of the learning: optimizer, schedule, learning rate, average.

use sordino_accounting::ClipNorm;
use sordino_algorithms::Choice;
use sordino_optim::{OptimizerConfig, Schedule};
use sordino_train::Learning;

use crate::{problem::Problem, settings::Settings, tagged::tagged};

/// How releases become steps.
pub(crate) fn learning(
    settings: &mut Settings,
    algorithm: &Choice,
    clip: ClipNorm,
) -> Result<Learning, Problem> {
    let optimizer = settings.optimizer.get_or_insert_with(|| "sgd".to_owned());
    let optimizer: OptimizerConfig = tagged(optimizer).map_err(|problem| {
        let names = OptimizerConfig::NAMES.join(", ");
        Problem::refused(
            format!("optimizer {optimizer:?}: {problem}"),
            format!("permitted are {names}; settings follow as in adam,beta2=0.99"),
        )
    })?;
    optimizer.check()?;
    let schedule = settings.schedule.get_or_insert_with(|| "linear".to_owned());
    let schedule: Schedule = tagged(schedule).map_err(|problem| {
        Problem::refused(
            format!("schedule {schedule:?}: {problem}"),
            "permitted are constant, step,every=N,factor=F, cosine, linear,warmup=N and cyclic,period=N,lowest=F",
        )
    })?;
    schedule.check()?;
    let learning_rate = *settings.learning_rate.get_or_insert(default_rate(&optimizer, algorithm, clip));
    sordino_optim::Optimizer::check_learning_rate(learning_rate)?;
    if let Some(decay) = settings.average {
        sordino_optim::Average::new(decay)?;
    }
    Ok(Learning { optimizer, learning_rate, schedule, average: settings.average })
}

/// A step of length 4 if all gradients are clipped and agree; a tenth of that where momentum adds up ten of them. Optimizers that
/// divide by the size of gradients do not care about thresholds.
fn default_rate(optimizer: &OptimizerConfig, algorithm: &Choice, clip: ClipNorm) -> f64 {
    let step = if algorithm.is_plain() { 1.0 } else { 4.0 / algorithm.reach(clip) };
    match optimizer {
        OptimizerConfig::Sgd { .. } => step,
        OptimizerConfig::Momentum { .. } | OptimizerConfig::Nesterov { .. } => step / 10.0,
        _ => 0.01,
    }
}
