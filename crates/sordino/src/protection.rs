//! Settings of the protection: the algorithm, its threshold, its sampling, and the price of its plan.

use sordino_accounting::{
    Accountant, AccountingError, Cap, ClipNorm, Delta, Epsilon, Plan, Sampling, calibrate::Budget,
};
use sordino_algorithms::{AlgorithmError, Choice, Noise, Setting, registry};
use sordino_privacy::{ClipRule, PrivacyError, Terms};

use crate::{
    pace::Pace,
    problem::Problem,
    settings::{Clipping, SamplingName, Settings},
    tagged::tagged,
};

/// The algorithm that was chosen.
pub(crate) fn algorithm(settings: &mut Settings) -> Result<Choice, Problem> {
    let text = settings.algorithm.take().unwrap_or_else(|| "dp-sgd".to_owned());
    let text = settings.algorithm.insert(text.trim().to_owned());
    let choice: Choice = tagged(text).map_err(|problem| {
        let name = text.split(',').next().unwrap_or_default();
        let keys = text
            .split(',')
            .skip(1)
            .filter_map(|part| part.split_once('='))
            .map(|(key, _)| key.trim().replace('-', "_"));
        let known = registry::ALGORITHMS.iter().find(|algorithm| algorithm.name == name);
        let foreign = keys
            .map(|key| (registry::owners(&key), key))
            .find(|(owners, _)| !owners.is_empty() && !owners.contains(&name));
        match (known, foreign) {
            (None, _) => Problem::refused(
                format!("algorithm must be one of {}, got {name}", names().join(", ")),
                "`sordino algorithms` describes them",
            ),
            (Some(_), Some((owners, key))) => Problem::refused(
                format!("{key} belongs to {}, not to {name}", owners.join(" and ")),
                "`sordino algorithms` lists the options of each",
            ),
            _ => Problem::refused(
                format!("algorithm {text:?}: {problem}"),
                "`sordino algorithms` lists the options of each",
            ),
        }
    })?;
    choice.check()?;
    Ok(choice)
}

fn names() -> Vec<&'static str> {
    registry::ALGORITHMS.iter().map(|algorithm| algorithm.name).collect()
}

/// The threshold, or where it begins: small and fixed, or 1 and on its way.
pub(crate) fn clip(settings: &mut Settings, algorithm: &Choice) -> Result<ClipNorm, Problem> {
    let default = if algorithm.adapts_threshold() { 1.0 } else { 0.1 };
    let clip = match settings.max_grad_norm {
        Some(clip) => clip,
        None => ClipNorm::new(default)?,
    };
    ClipRule::flat(clip)?;
    if algorithm.is_private() {
        settings.max_grad_norm = Some(clip);
        settings.clipping.get_or_insert(Clipping::Flat);
    }
    Ok(clip)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a batch size is a whole number")]
pub(crate) fn sampling(
    settings: &mut Settings,
    pace: &Pace,
    records: usize,
    algorithm: &Choice,
) -> Result<Sampling, Problem> {
    let population = records as u64;
    let kind = settings.sampling.unwrap_or(SamplingName::Poisson);
    if algorithm.is_private() {
        settings.sampling = Some(kind);
    }
    Ok(match (kind, settings.max_batch_size) {
        (SamplingName::Poisson, None) => Sampling::Poisson { rate: pace.rate(records)?, cap: None },
        (SamplingName::Poisson, Some(max_batch_size)) => {
            let cap = Some(Cap { max_batch_size, population });
            Sampling::Poisson { rate: pace.rate(records)?, cap }
        }
        (SamplingName::FixedSize, None) => {
            Sampling::FixedSize { batch_size: pace.batch_size as u64, population }
        }
        (SamplingName::FullBatch, None) => Sampling::Everybody,
        (_, Some(_)) => {
            return Err(Problem::refused(
                "max_batch_size belongs to Poisson sampling",
                "other batches have a size that is known; leave it out",
            ));
        }
    })
}

/// The plan and its price, with the least noise that the budget allows or the noise that was asked for; none for plain training.
pub(crate) fn priced(
    settings: &mut Settings,
    algorithm: &Choice,
    setting: &Setting,
    known: Option<&Plan>,
    records: u64,
) -> Result<Option<Terms>, Problem> {
    if !algorithm.is_private() {
        return Ok(None);
    }
    let default = match algorithm {
        Choice::NoiseDecayZcdp { .. } => Accountant::Zcdp,
        Choice::NoiseDecayTcdp { .. } => Accountant::Tcdp,
        _ if matches!(setting.sampling, Sampling::FixedSize { .. }) => Accountant::Rdp,
        _ => Accountant::Pld,
    };
    let accountant = *settings.accountant.get_or_insert(default);
    if !accountant.proves() {
        return Err(PrivacyError::NoBound(accountant.name()).into());
    }
    let delta = match settings.delta {
        Some(delta) => delta,
        None => Delta::new(1e-5)?,
    };
    settings.delta = Some(delta);
    let noise = match settings.noise_multiplier {
        Some(noise) => Noise::Multiplier(noise),
        None => {
            let epsilon = match settings.epsilon {
                Some(epsilon) => epsilon,
                None => Epsilon::new(1.0)?,
            };
            settings.epsilon = Some(epsilon);
            Noise::Budget(Budget { epsilon, delta }, accountant)
        }
    };
    let plan = match known {
        Some(plan) => Some(plan.clone()),
        None => algorithm.plan(setting, noise).map_err(|error| too_tight(error, settings.max_batch_size))?,
    };
    let price = |plan| Terms::price(plan, records, delta, settings.epsilon, accountant);
    Ok(plan.map(price).transpose()?)
}

/// Where no noise is enough and batches are cut, the cap is the likely reason.
fn too_tight(error: AlgorithmError, cap: Option<u64>) -> Problem {
    match (error, cap) {
        (error @ AlgorithmError::Accounting(AccountingError::NoSolution { .. }), Some(cap)) => {
            Problem::refused(
                error.to_string(),
                format!(
                    "a cap of {cap} is felt too often, and that alone costs more than delta; raise max_batch_size"
                ),
            )
        }
        (error, _) => error.into(),
    }
}

/// Refuses settings that plain training has no use for: whoever gives them expects them to count.
pub(crate) fn refuse_idle(settings: &Settings, algorithm: &Choice) -> Result<(), Problem> {
    if algorithm.is_private() {
        return Ok(());
    }
    let given = [
        ("epsilon", settings.epsilon.is_some()),
        ("delta", settings.delta.is_some()),
        ("noise_multiplier", settings.noise_multiplier.is_some()),
        ("max_grad_norm", settings.max_grad_norm.is_some()),
        ("clipping", settings.clipping.is_some()),
        ("accountant", settings.accountant.is_some()),
        ("max_batch_size", settings.max_batch_size.is_some()),
        ("sampling", settings.sampling.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((name, _)) => Err(Problem::refused(
            format!(
                "{name} belongs to private algorithms; plain training (--algorithm none) has no use for it"
            ),
            "leave it out, or train privately with --algorithm dp-sgd",
        )),
    }
}
