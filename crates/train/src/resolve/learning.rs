//! Learning settings: optimizer, schedule, learning rate, average.

use sordino_optim::{Average, Optimizer, OptimizerConfig, Schedule};

use crate::{Learning, Origin, Settings, TrainError, Value, settings::named};

/// The learning settings, each with where it comes from, and what they mean.
pub(crate) struct LearningSettings {
    pub(crate) optimizer: Value<String>,
    pub(crate) schedule: Value<String>,
    pub(crate) learning_rate: Value<f64>,
    pub(crate) average: Value<f64>,
    pub(crate) learning: Learning,
}

/// The public facts that the default learning rate depends on.
pub(crate) struct LearningFacts {
    /// The largest norm of a record's contribution to a step; none without clipping.
    pub(crate) contribution: Option<f64>,
    /// The parameter mu of Gaussian differential privacy that corresponds to the noise of the whole run; none without noise.
    pub(crate) mu: Option<f64>,
    pub(crate) steps: u64,
    pub(crate) records: u64,
    /// The number of trained parameters.
    pub(crate) dimension: usize,
    /// The number of outputs of the network.
    pub(crate) outputs: usize,
    /// Whether numbers are predicted, rather than classes.
    pub(crate) regression: bool,
}

/// The distance by which the noise of a whole run moves the weights of one output, with the default learning rate.
const NOISE_DISTANCE: f64 = 10.0;
/// The longest step that the default learning rate allows, if all gradients are clipped and point in the same direction.
const LONGEST_STEP: f64 = 4.0;
/// The longest step if the network has a single output, for two classes.
const LONGEST_STEP_OF_ONE_OUTPUT: f64 = 10.0;
/// The average of the parameters is taken over about this fraction of the run, at its end.
const AVERAGED: f64 = 0.05;

/// Checks the learning settings that are given.
///
/// # Errors
/// The first setting that is out of range.
pub(crate) fn check(settings: &Settings) -> Result<(), TrainError> {
    settings.optimizer.as_deref().map(parse_optimizer).transpose()?;
    settings.schedule.as_deref().map(parse_schedule).transpose()?;
    settings.learning_rate.map(Optimizer::check_learning_rate).transpose()?;
    if settings.learning_rate == Some(0.0) {
        return Err(TrainError::refused(
            "learning_rate must be above 0, got 0: the run would spend its privacy budget without learning anything",
            "leave out {learning_rate} to use the default for this privacy budget",
        ));
    }
    settings.average.map(Average::new).transpose()?;
    Ok(())
}

impl LearningSettings {
    pub(crate) fn new(settings: &Settings, facts: &LearningFacts) -> Result<Self, TrainError> {
        check(settings)?;
        let optimizer = Value::given_or(settings.optimizer.clone(), "momentum".to_owned(), Origin::Default);
        // The classes that a linear model predicts do not depend on the scale of its weights, but numbers do. So the rate must decay to 0.
        let default = if facts.regression { "linear" } else { "constant" };
        let schedule = Value::given_or(settings.schedule.clone(), default.to_owned(), Origin::PublicFact);
        let (config, shape) = (parse_optimizer(&optimizer.value)?, parse_schedule(&schedule.value)?);
        let default = default_learning_rate(&config, &shape, facts);
        let learning_rate = Value::given_or(settings.learning_rate, default, Origin::PublicFact);
        let average = Value::given_or(settings.average, default_average(facts.steps), Origin::PublicFact);
        let learning = Learning {
            optimizer: config,
            learning_rate: learning_rate.value,
            schedule: shape,
            average: Some(average.value).filter(|decay| *decay > 0.0),
        };
        Ok(Self { optimizer, schedule, learning_rate, average, learning })
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

/// The decay of an average over the last part of the run; 0, which is no average, if the run is short.
fn default_average(steps: u64) -> f64 {
    let window = (AVERAGED * steps as f64).max(1.0);
    // Two digits of the new weight, so that settings stay readable.
    let weight: f64 = format!("{:.1e}", 1.0 / window).parse().unwrap_or(1.0);
    1.0 - weight
}

/// The default learning rate, from public facts: the noise of the whole run moves the weights by a fixed distance.
///
/// With `N` records, clipping norm `C`, learning rate `eta` and momentum `m`, a step moves the parameters by at most
/// `eta C / (1 - m)`, so the whole run moves them by at most `S = eta C / (1 - m) * sum_t f_t`, where `f_t` are the factors of the schedule.
/// If the noise of the run corresponds to `mu` in Gaussian differential privacy, it moves each parameter by `S / (mu N)` (one standard
/// deviation), whatever the number of steps. With `d` parameters and `K` outputs, it moves the weights of one output by the distance
/// `S sqrt(d / K) / (mu N)`. The default learning rate makes this distance [`NOISE_DISTANCE`], for any number of records and steps, any model
/// and any privacy budget, unless a step could be longer than [`LONGEST_STEP`] (for networks with one output: [`LONGEST_STEP_OF_ONE_OUTPUT`]).
/// docs/training.md has the experiments.
///
/// If numbers are predicted, the scale of the weights matters and the schedule decays to 0; the first step has the length [`LONGEST_STEP`].
/// Optimizers that divide by the size of gradients have a constant default, because their steps do not depend on the clipping norm.
fn default_learning_rate(optimizer: &OptimizerConfig, schedule: &Schedule, facts: &LearningFacts) -> f64 {
    let momentum = match optimizer {
        OptimizerConfig::Sgd { .. } => 0.0,
        OptimizerConfig::Momentum { momentum, .. } | OptimizerConfig::Nesterov { momentum, .. } => *momentum,
        _ => return 0.01,
    };
    let (Some(contribution), Some(mu)) = (facts.contribution, facts.mu) else { return 1.0 - momentum };
    if facts.regression {
        return longest_step_rate(momentum, contribution);
    }
    let per_output = facts.dimension as f64 / facts.outputs.max(1) as f64;
    let length = NOISE_DISTANCE * mu * facts.records as f64 / per_output.max(1.0).sqrt();
    let longest = if facts.outputs == 1 { LONGEST_STEP_OF_ONE_OUTPUT } else { LONGEST_STEP };
    let step = (length / sum_of_factors(schedule, facts.steps)).min(longest);
    rounded(step * (1.0 - momentum) / contribution)
}

/// The learning rate at which a step has at most the length [`LONGEST_STEP`].
fn longest_step_rate(momentum: f64, contribution: f64) -> f64 {
    rounded(LONGEST_STEP * (1.0 - momentum) / contribution)
}

/// Settings of clients that take private steps, where they are not given. All clients must have the same, whatever the number of their
/// records, because the server averages their parameters.
pub(crate) fn of_every_client(settings: Settings, contribution: Option<f64>) -> Settings {
    // A decaying rate takes the place of the average.
    let is_sgd = settings.optimizer.is_none();
    let rate = contribution.map(|contribution| longest_step_rate(0.0, contribution)).filter(|_| is_sgd);
    Settings {
        optimizer: settings.optimizer.or_else(|| Some("sgd".to_owned())),
        schedule: settings.schedule.or_else(|| Some("linear".to_owned())),
        learning_rate: settings.learning_rate.or(rate),
        average: Some(0.0),
        ..settings
    }
}

/// The sum of a schedule's factors over a run.
fn sum_of_factors(schedule: &Schedule, steps: u64) -> f64 {
    // A long run is approximated by evenly spaced steps.
    let points = steps.clamp(1, 1000);
    let factors = (0..points).map(|point| schedule.factor((point * steps) / points, steps));
    (factors.sum::<f64>() / points as f64 * steps as f64).max(f64::MIN_POSITIVE)
}

/// Three significant digits, so that settings stay readable.
fn rounded(number: f64) -> f64 {
    format!("{number:.2e}").parse().unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: LearningFacts = LearningFacts {
        contribution: Some(0.1),
        mu: Some(0.25),
        steps: 1000,
        records: 60_000,
        dimension: 40_000,
        outputs: 10,
        regression: false,
    };

    fn rate(optimizer: &str, schedule: &str, facts: &LearningFacts) -> f64 {
        default_learning_rate(&parse_optimizer(optimizer).unwrap(), &parse_schedule(schedule).unwrap(), facts)
    }

    #[test]
    fn the_noise_of_a_run_moves_an_output_by_the_same_distance() {
        for (optimizer, momentum) in [("sgd", 0.0), ("momentum", 0.9), ("nesterov,momentum=0.5", 0.5)] {
            for (schedule, factors) in [("constant", 1.0), ("linear", 0.5), ("cosine", 0.5)] {
                for (steps, mu, contribution) in [(1000, 0.1, 0.1), (3000, 0.25, 1.0), (100_000, 1.0, 4.0)] {
                    let facts =
                        LearningFacts { contribution: Some(contribution), mu: Some(mu), steps, ..FACTS };
                    let rate = rate(optimizer, schedule, &facts);
                    let length = rate * contribution / (1.0 - momentum) * factors * steps as f64;
                    let distance = length * (40_000_f64 / 10.0).sqrt() / (mu * 60_000.0);
                    assert!(
                        (distance / NOISE_DISTANCE - 1.0).abs() < 0.01,
                        "{optimizer} {schedule}: {distance}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_step_has_a_longest_length() {
        let facts = LearningFacts { mu: Some(100.0), ..FACTS };
        assert_eq!(rate("sgd", "constant", &facts), 40.0);
        assert_eq!(rate("momentum", "linear", &facts), 4.0);
        let one_output = LearningFacts { outputs: 1, ..facts };
        assert_eq!(rate("momentum", "constant", &one_output), 10.0);
        assert_eq!(rate("sgd", "linear", &LearningFacts { regression: true, ..facts }), 40.0);
    }

    #[test]
    fn other_optimizers_and_plain_training_have_constant_rates() {
        assert_eq!(rate("adam", "linear", &FACTS), 0.01);
        let plain = LearningFacts { contribution: None, mu: None, ..FACTS };
        assert_eq!(rate("sgd", "constant", &plain), 1.0);
        assert!((rate("momentum", "constant", &plain) - 0.1).abs() < 1e-12);
    }

    #[test]
    fn the_average_covers_a_twentieth_of_the_run() {
        assert_eq!(default_average(1000), 0.98);
        assert_eq!(default_average(200), 0.9);
        assert_eq!(default_average(20), 0.0);
        assert_eq!(default_average(1), 0.0);
        for power in 0..=40 {
            assert!(Average::new(default_average(1 << power)).is_ok(), "2^{power} steps");
        }
    }
}
