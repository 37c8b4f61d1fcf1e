//! Privacy settings: the algorithm, its clipping norm and its budget; which settings an algorithm does not use.

use sordino_accounting::{ClipNorm, Delta, Epsilon, calibrate::Budget};
use sordino_algorithms::{Choice, registry};
use sordino_privacy::ClipRule;

use crate::{Origin, Settings, TrainError, Value, settings::named};

/// The algorithm that is used unless the user names another.
const DEFAULT: &str = "dp-sgd";

/// The text of the algorithm setting.
pub(crate) fn algorithm_text(settings: &Settings) -> Value<String> {
    let given = settings.algorithm.as_ref().map(|text| text.trim().to_owned());
    Value::given_or(given, DEFAULT.to_owned(), Origin::Default)
}

/// Parses an algorithm with its options and checks them.
///
/// # Errors
/// A name that is not in the registry, or options that the algorithm does not have or that are out of range.
pub fn parse_algorithm(text: &str) -> Result<Choice, TrainError> {
    let choice: Choice = named(text).map_err(|problem| {
        let name = text.split(',').next().unwrap_or_default();
        let keys = text
            .split(',')
            .skip(1)
            .filter_map(|part| part.split_once('='))
            .map(|(key, _)| key.trim().replace('-', "_"));
        let known = registry::ALGORITHMS.iter().any(|algorithm| algorithm.name == name);
        let foreign = keys
            .map(|key| (registry::owners(&key), key))
            .find(|(owners, _)| !owners.is_empty() && !owners.contains(&name));
        let problem = match foreign {
            _ if !known => format!("algorithm must be one of {}, got {name}", names().join(", ")),
            Some((owners, key)) => format!("{key} belongs to {}, not to {name}", owners.join(", ")),
            None => format!("algorithm {text:?}: {problem}"),
        };
        TrainError::refused(problem, "docs/algorithms.md lists the algorithms and their options")
    })?;
    choice.check()?;
    Ok(choice)
}

fn names() -> Vec<&'static str> {
    registry::ALGORITHMS.iter().map(|algorithm| algorithm.name).collect()
}

/// The clipping norm, or the initial one if the algorithm adapts it: 0.1 if fixed, 1 if adaptive.
pub(crate) fn clip_norm(settings: &Settings, algorithm: &Choice) -> Result<Value<ClipNorm>, TrainError> {
    let default = if algorithm.adapts_threshold() { 1.0 } else { 0.1 };
    let clip = Value::given_or(settings.max_grad_norm, ClipNorm::new(default)?, Origin::Default);
    ClipRule::flat(clip.value)?;
    Ok(clip)
}

/// The privacy budget. For an algorithm as published, this is the guarantee that its paper claims.
#[derive(Clone)]
pub(crate) struct BudgetSettings {
    /// None for algorithms without noise, and if the user gives the noise multiplier in place of a budget.
    pub(crate) epsilon: Option<Value<Epsilon>>,
    /// None for algorithms without noise.
    pub(crate) delta: Option<Value<Delta>>,
}

impl BudgetSettings {
    pub(crate) fn new(settings: &Settings, algorithm: &Choice) -> Result<Self, TrainError> {
        if algorithm.is_plain() {
            return Ok(Self { epsilon: None, delta: None });
        }
        let delta = Value::given_or(settings.delta, Delta::new(1e-5)?, Origin::Default);
        let epsilon = match (settings.noise_multiplier, settings.epsilon) {
            (Some(_), None) => None,
            (_, epsilon) => Some(Value::given_or(epsilon, Epsilon::new(1.0)?, Origin::Default)),
        };
        Ok(Self { epsilon, delta: Some(delta) })
    }

    pub(crate) fn budget(&self) -> Option<Budget> {
        Some(Budget { epsilon: self.epsilon.as_ref()?.value, delta: self.delta.as_ref()?.value })
    }
}

/// These settings without those that the algorithm does not use.
pub fn without_unused(mut settings: Settings, algorithm: &Choice) -> Settings {
    if algorithm.is_plain() {
        settings.epsilon = None;
        settings.delta = None;
        settings.max_grad_norm = None;
        settings.clipping = None;
        settings.max_batch_size = None;
        settings.sampling = None;
    }
    if algorithm.is_plain() || algorithm.sound_form().is_some() {
        settings.noise_multiplier = None;
    }
    if algorithm.unprotected().is_some() {
        settings.accountant = None;
    }
    settings
}

/// Rejects settings that the algorithm does not use, because they would have no effect.
pub(crate) fn reject_unused(settings: &Settings, algorithm: &Choice) -> Result<(), TrainError> {
    let used = without_unused(settings.clone(), algorithm).names();
    let Some(unused) = settings.names().into_iter().find(|name| !used.contains(name)) else { return Ok(()) };
    let (reason, instead) = match algorithm.sound_form() {
        None => ("training without privacy (algorithm none) does not use it", "dp-sgd"),
        Some(sound) if algorithm.unprotected().is_some() => (
            "the noise of this algorithm follows from the epsilon that its paper claims, and no accountant prices it",
            sound,
        ),
        Some(sound) => ("the noise of this algorithm follows from the epsilon that its paper claims", sound),
    };
    Err(TrainError::refused(
        format!("{unused} belongs to other algorithms; {reason}"),
        format!("leave out {{{unused}}}, or use {{algorithm={instead}}}"),
    ))
}
