//! What somebody else claims of a run, beside what is proved.

use sordino_accounting::{Accountant, Plan};
use sordino_algorithms::{Choice, registry::ALGORITHMS};

use crate::{settings::Settings, tagged::tagged};

/// An epsilon that is claimed and not proved.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Claim {
    pub(crate) epsilon: f64,
    pub(crate) delta: f64,
    /// Who claims it.
    pub(crate) by: String,
    /// Why it does not hold.
    pub(crate) why: String,
    /// What to use instead.
    pub(crate) instead: String,
}

impl Claim {
    /// The claim that goes with a run: of an algorithm as published, or of the central limit theorem.
    pub(crate) fn of(settings: &Settings, plan: Option<&Plan>) -> Option<Self> {
        let delta = settings.delta?;
        let choice: Choice = tagged(settings.algorithm.as_deref()?).ok()?;
        if let Some(sound) = choice.sound_form() {
            let name = settings.algorithm.as_deref()?.split(',').next()?;
            let algorithm = ALGORITHMS.iter().find(|algorithm| algorithm.name == name)?;
            return Some(Self {
                epsilon: settings.epsilon?.get(),
                delta: delta.get(),
                by: algorithm.reference.to_owned(),
                why: algorithm.verdict.to_owned(),
                instead: format!("--algorithm {sound}, whose epsilon is proved"),
            });
        }
        if settings.accountant? != Accountant::GdpClt {
            return None;
        }
        let claimed = Accountant::GdpClt.price(plan?, delta).ok()?;
        Some(Self {
            epsilon: claimed.epsilon.get(),
            delta: delta.get(),
            by: "the central limit theorem of Gaussian differential privacy".to_owned(),
            why: "it holds in the limit of infinitely many steps; before that it is off, usually by reporting too little"
                .to_owned(),
            instead: "--accountant pld, whose epsilon is proved".to_owned(),
        })
    }
}

/// A claimed epsilon to four decimals. It is no bound, so it is rounded to the nearest.
pub(crate) fn shown(epsilon: f64) -> String {
    format!("{}", (1e4 * epsilon).round() / 1e4)
}
