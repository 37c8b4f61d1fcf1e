//! Privacy settings: the algorithm and its budget; which settings an algorithm does not use.

use sordino_accounting::{Accountant, Delta, Epsilon, calibrate::Budget};

use crate::{NetworkAlgorithm, Origin, Settings, TrainError, Value};

/// The default algorithm.
const DEFAULT: &str = "dp-sgd";

/// The text of the algorithm setting.
pub(crate) fn algorithm_text(settings: &Settings) -> Value<String> {
    let given = settings.algorithm.as_ref().map(|text| text.trim().to_owned());
    Value::given_or(given, DEFAULT.to_owned(), Origin::Default)
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
    pub(crate) fn new(settings: &Settings, algorithm: &dyn NetworkAlgorithm) -> Result<Self, TrainError> {
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
pub fn without_unused(mut settings: Settings, algorithm: &dyn NetworkAlgorithm) -> Settings {
    if algorithm.is_plain() {
        settings.epsilon = None;
        settings.delta = None;
        settings.max_grad_norm = None;
        settings.clipping = None;
        settings.max_batch_size = None;
        settings.sampling = None;
    }
    let published = algorithm.sound_alternative().is_some() || algorithm.noise_formula().is_some();
    if algorithm.is_plain() || published {
        settings.noise_multiplier = None;
    }
    let by_clt = settings.accountant == Some(Accountant::GdpClt);
    if !algorithm.about().verdict.is_sound() || (by_clt && algorithm.noise_formula().is_some()) {
        settings.accountant = None;
    }
    settings
}

/// Rejects settings that the algorithm does not use, because they would have no effect.
pub(crate) fn reject_unused(settings: &Settings, algorithm: &dyn NetworkAlgorithm) -> Result<(), TrainError> {
    let used = without_unused(settings.clone(), algorithm).names();
    let Some(unused) = settings.names().into_iter().find(|name| !used.contains(name)) else { return Ok(()) };
    let (reason, instead) = match (algorithm.sound_alternative(), algorithm.noise_formula()) {
        (Some(sound), _) => (
            "the noise of this algorithm follows from the epsilon that its paper claims, and no accountant prices it",
            sound,
        ),
        (None, Some(_)) => (
            "noise=dp-c4-paper sets the noise from the epsilon that the paper claims",
            algorithm.about().name,
        ),
        (None, None) => ("training without privacy (algorithm none) does not use it", "dp-sgd"),
    };
    Err(TrainError::refused(
        format!("{unused} has no effect here: {reason}"),
        format!("leave out {{{unused}}}, or use {{algorithm={instead}}}"),
    ))
}
