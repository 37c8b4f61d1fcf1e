//! The noise of a schedule, by each way to calibrate it, and its exact price.

use crate::report::{GuaranteeRecord, status};
use clap::ValueEnum;
use serde::Serialize;
use sordino_accounting::{
    Accountant, Entry, Mu, NoiseMultiplier, Plan, Sampling, calibrate::Budget, gdp, pld::GroupSize,
};
use sordino_algorithms::{Algorithm, Dynamic, NoiseSource, RunFacts};

use sordino_train::TrainError;

use crate::cli::problem::Problem;

/// A way to calibrate the noise of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NoiseFrom {
    /// The exact price of all steps
    Pld,
    /// The central limit theorem (equation 10 of the paper): an approximation, not a bound. At sampling rate 1, mu^2 is the sum of mu_t^2, which is exact
    GdpClt,
    /// The closed form of the paper's Corollary 2, for mu_t <= 1: an approximation with more noise, not a bound
    #[value(name = "corollary-2")]
    #[serde(rename = "corollary-2")]
    Corollary2,
}

impl NoiseFrom {
    pub(super) const ALL: [Self; 3] = [Self::Pld, Self::GdpClt, Self::Corollary2];

    /// The title of its column.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Pld => "exact (pld)",
            Self::GdpClt => "by the CLT",
            Self::Corollary2 => "by Corollary 2",
        }
    }
}

/// The noise of a schedule, and its price.
#[derive(Serialize)]
pub(super) struct Calibration {
    pub(super) noise_from: NoiseFrom,
    pub(super) mu_0: f64,
    /// The largest `mu_t`, which Corollary 2 requires to be at most 1.
    pub(super) largest_mu: f64,
    /// `mu` of all steps by the central limit theorem, equation 7 of the paper.
    pub(super) mu_spent: f64,
    /// Of the first and the last step.
    pub(super) clip_norm: [f64; 2],
    pub(super) noise_multiplier: [f64; 2],
    pub(super) noise_std: [f64; 2],
    /// The proved price of the plan.
    #[serde(flatten)]
    guarantee: GuaranteeRecord,
    #[serde(skip)]
    pub(super) epsilon: f64,
    #[serde(skip)]
    pub(super) status: String,
    #[serde(skip)]
    pub(super) relation: String,
}

impl Calibration {
    /// Calibrates the schedule, and prices the plan exactly.
    pub(super) fn new(
        noise_from: NoiseFrom,
        dynamic: &Dynamic,
        facts: &RunFacts,
        budget: Budget,
        total: Mu,
    ) -> Result<(Self, Plan), Problem> {
        let noise = match noise_from {
            NoiseFrom::Pld => NoiseSource::Budget(budget, Accountant::Pld),
            NoiseFrom::GdpClt => NoiseSource::Budget(budget, Accountant::GdpClt),
            NoiseFrom::Corollary2 => {
                let Sampling::Poisson { rate, .. } = facts.sampling else { unreachable!("Poisson sampling") };
                let mu_0 =
                    gdp::closed_form_mu(total, rate, parts(facts).map(|part| dynamic.mu_factor(part)))?;
                NoiseSource::Multiplier(NoiseMultiplier::new(1.0 / mu_0.get())?)
            }
        };
        let plan = dynamic.plan(facts, noise).map_err(TrainError::from)?;
        let ends = [1.0 / facts.steps.get() as f64, 1.0];
        let clip_norm = ends.map(|part| facts.max_grad_norm.get() * dynamic.clip_factor(part));
        let noise_multiplier = [plan.entries().first(), plan.entries().last()]
            .map(|entry| entry.map_or(f64::NAN, Entry::effective_noise_multiplier));
        let multipliers = plan.entries().iter().map(Entry::effective_noise_multiplier);
        let guarantee = Accountant::Pld.price(&plan, budget.delta)?;
        let calibration = Self {
            noise_from,
            mu_0: 1.0 / (noise_multiplier[0] * dynamic.mu_factor(ends[0])),
            largest_mu: 1.0 / multipliers.fold(f64::INFINITY, f64::min),
            mu_spent: gdp::mu(&plan)?.get(),
            clip_norm,
            noise_multiplier,
            noise_std: [0, 1].map(|i| clip_norm[i] * noise_multiplier[i]),
            epsilon: guarantee.epsilon.get(),
            status: status(&guarantee),
            relation: guarantee.relation.to_string(),
            guarantee: GuaranteeRecord::new(guarantee, GroupSize::ONE),
        };
        Ok((calibration, plan))
    }
}

/// `t / T` for all steps.
pub(super) fn parts(facts: &RunFacts) -> impl Iterator<Item = f64> {
    let steps = facts.steps.get();
    (1..=steps).map(move |step| step as f64 / steps as f64)
}
