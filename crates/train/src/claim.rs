//! An epsilon that a paper or an approximation claims, next to what is proved.

use sordino_accounting::{Accountant, Plan};
use sordino_algorithms::{About, Verdict};

use crate::{Settings, parse_algorithm, schedule_files::without_files};

/// An epsilon that a paper or an approximation claims. The proved epsilon may be larger or smaller.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// The claimed epsilon.
    pub epsilon: f64,
    /// Its delta.
    pub delta: f64,
    /// The paper or the theorem that claims it.
    pub by: String,
    /// Why it does not hold.
    pub why: String,
    /// What to use instead, as the text of a [`Hint`](crate::Hint).
    pub instead: String,
}

impl Claim {
    /// The claim about a run with these settings: of an algorithm as published, of the formula that sets its noise, or of the central limit
    /// theorem.
    pub fn new(settings: &Settings, plan: Option<&Plan>) -> Option<Self> {
        let delta = settings.delta?;
        // A claim does not depend on schedules in files, which are stored with the run.
        let algorithm = parse_algorithm(&without_files(settings.algorithm.as_deref()?)).ok();
        let about = algorithm.as_ref().map(|algorithm| algorithm.about());
        let formula = algorithm.as_ref().and_then(|algorithm| algorithm.noise_formula());
        match (about, formula) {
            (Some(About { reference, verdict: Verdict::AsPublished { problem, instead }, .. }), _) => {
                return Some(Self {
                    epsilon: settings.epsilon?.get(),
                    delta: delta.get(),
                    by: formula.unwrap_or(reference).to_owned(),
                    why: problem.to_owned(),
                    instead: format!("{{algorithm={instead}}}, whose epsilon is proved"),
                });
            }
            (Some(About { name, .. }), Some(formula)) => {
                return Some(Self {
                    epsilon: settings.epsilon?.get(),
                    delta: delta.get(),
                    by: formula.to_owned(),
                    why: "the formula does not cover all releases of this plan".to_owned(),
                    instead: format!("{{algorithm={name}}}, which uses the least noise for the budget"),
                });
            }
            _ => {}
        }
        if settings.accountant? != Accountant::GdpClt {
            return None;
        }
        let claimed = Accountant::GdpClt.price(plan?, delta).ok()?;
        Some(Self {
            epsilon: claimed.epsilon.get(),
            delta: delta.get(),
            by: "the central limit theorem of Gaussian differential privacy".to_owned(),
            why: "it holds in the limit of infinitely many steps; for fewer steps it is an approximation, usually too small"
                .to_owned(),
            instead: "{accountant=pld}, whose epsilon is proved".to_owned(),
        })
    }
}
