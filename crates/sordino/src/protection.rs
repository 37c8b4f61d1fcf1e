//! Settings of the protection: the algorithm, its threshold, its sampling, and the price of its plan.

use sordino_accounting::{
    Accountant, AccountingError, Cap, ClipNorm, Delta, Epsilon, NoiseMultiplier, Plan, Sampling,
    calibrate::Budget,
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
                format!("{key} belongs to {}, not to {name}", owners.join(", ")),
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
    if !algorithm.is_plain() {
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
    if !algorithm.is_plain() {
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
        (SamplingName::FullBatch, None) => Sampling::FullBatch,
        (_, Some(_)) => {
            return Err(Problem::refused(
                "max_batch_size belongs to Poisson sampling",
                "other batches have a size that is known; leave it out",
            ));
        }
    })
}

/// The guarantee that was asked for. Where a paper's claim sets the noise it is the claim, otherwise the budget.
pub(crate) fn asked(settings: &mut Settings, algorithm: &Choice) -> Result<Option<Budget>, Problem> {
    if algorithm.is_plain() {
        return Ok(None);
    }
    let delta = match settings.delta {
        Some(delta) => delta,
        None => Delta::new(1e-5)?,
    };
    settings.delta = Some(delta);
    if settings.noise_multiplier.is_some() && settings.epsilon.is_none() {
        return Ok(None);
    }
    let epsilon = match settings.epsilon {
        Some(epsilon) => epsilon,
        None => Epsilon::new(1.0)?,
    };
    settings.epsilon = Some(epsilon);
    Ok(Some(Budget { epsilon, delta }))
}

/// The plan and its price, with the least noise that the budget allows, the noise that was asked for, or the noise that a paper claims
/// to be enough.
pub(crate) fn terms(
    settings: &mut Settings,
    algorithm: &Choice,
    setting: &Setting,
    asked: Option<Budget>,
    known: Option<&Plan>,
) -> Result<Terms, Problem> {
    let accountant = match settings.accountant {
        Some(accountant) => accountant,
        None => algorithm.accountant(setting),
    };
    let noise = match (settings.noise_multiplier, asked) {
        (Some(z), _) => Noise::Multiplier(z),
        (None, Some(budget)) => Noise::Budget(budget, accountant),
        // Plain training has none.
        (None, None) => Noise::Multiplier(NoiseMultiplier::new(1.0)?),
    };
    let plan = match known {
        Some(plan) => plan.clone(),
        None => algorithm.plan(setting, noise).map_err(|error| too_tight(error, settings.max_batch_size))?,
    };
    if let Some(why) = algorithm.unprotected() {
        return Ok(Terms::unprotected(plan, setting.records, why));
    }
    settings.accountant = Some(accountant);
    let delta = match settings.delta {
        Some(delta) => delta,
        None => Delta::new(1e-5)?,
    };
    // What is claimed is no budget for what is proved; it is shown beside it.
    let (budget, prover) = match accountant {
        Accountant::GdpClt => {
            let claimed = Accountant::GdpClt.price(&plan, delta)?.epsilon;
            match settings.epsilon {
                Some(budget) if !(claimed <= budget) => {
                    return Err(PrivacyError::OverBudget { cost: claimed, budget, delta }.into());
                }
                _ => (None, Accountant::Pld),
            }
        }
        _ if algorithm.sound_form().is_some() => (None, accountant),
        _ => (settings.epsilon, accountant),
    };
    Ok(Terms::price(plan, setting.records, delta, budget, prover)?)
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

/// Forgets settings that the algorithm has no use for.
pub(crate) fn drop_idle(settings: &mut Settings, algorithm: &Choice) {
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
}

/// Refuses settings that the algorithm has no use for: whoever gives them expects them to count.
pub(crate) fn refuse_idle(settings: &Settings, algorithm: &Choice) -> Result<(), Problem> {
    let mut used = settings.clone();
    drop_idle(&mut used, algorithm);
    let (used, given) = (used.names(), settings.names());
    let Some(idle) = given.into_iter().find(|name| !used.contains(name)) else { return Ok(()) };
    let (who, instead) = match algorithm.sound_form() {
        None => ("plain training (--algorithm none) has no use for it", "dp-sgd"),
        Some(sound) if algorithm.unprotected().is_some() => (
            "this algorithm's noise follows from the epsilon that its paper claims, and nobody prices it",
            sound,
        ),
        Some(sound) => ("this algorithm's noise follows from the epsilon that its paper claims", sound),
    };
    let hint = format!("leave it out, or use --algorithm {instead}");
    Err(Problem::refused(format!("{idle} belongs to other algorithms; {who}"), hint))
}
