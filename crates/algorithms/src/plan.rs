//! How an algorithm spreads its noise: over steps, and over the releases of a step.

use sordino_accounting::{
    Accountant, AccountingError, ClipNorm, Entry, NoiseMultiplier, Plan, Sampling, Steps,
    calibrate::{self, Budget},
};

use crate::{AlgorithmError, Choice};

/// What an algorithm is told about a run, all of it public.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// How batches are drawn.
    pub sampling: Sampling,
    /// The number of steps.
    pub steps: Steps,
    /// The expected size of a batch.
    pub expected_batch_size: f64,
    /// The threshold, or where it begins.
    pub clip: ClipNorm,
    /// Whether each of so many layers is clipped to its share.
    pub layers: Option<usize>,
    /// The number of trained parameters.
    pub dimension: usize,
    /// The multiplier of gradients at the first step, once the plan is known.
    pub noise_multiplier: Option<NoiseMultiplier>,
}

/// Where noise comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Noise {
    /// The least that a budget allows, by this accountant.
    Budget(Budget, Accountant),
    /// This multiplier for a whole step; where it changes along a run, `1 / mu_0`, from which the first step departs.
    Multiplier(NoiseMultiplier),
}

impl Choice {
    /// The plan of the run, or none for plain training.
    ///
    /// # Errors
    /// No noise meets the budget; options that leave none for the gradients.
    pub fn plan(&self, setting: &Setting, noise: Noise) -> Result<Option<Plan>, AlgorithmError> {
        self.check()?;
        if !self.is_private() {
            return Ok(None);
        }
        self.check_thresholds(setting)?;
        let unit = self.whole_steps(setting, NoiseMultiplier::new(1.0)?)?;
        let whole = match noise {
            Noise::Multiplier(z) => unit.scaled(z.get())?,
            Noise::Budget(budget, accountant) => {
                let least = match calibrate::noise_scale(&unit, budget, accountant) {
                    Ok(least) => least.value,
                    // The budget allows less noise than its theorem: then as little as the theorem does.
                    Err(AccountingError::Unsupported { .. })
                        if accountant == Accountant::Tcdp && rarely_sampled(setting.sampling) =>
                    {
                        TCDP_LEAST / smallest(&unit)
                    }
                    Err(error) => return Err(error.into()),
                };
                unit.scaled(NoiseMultiplier::new(least)?.shortened().get())?
            }
        };
        let split = whole.entries().iter().map(|entry| {
            let releases = self.split(entry.releases()[0], setting)?;
            Ok(Entry::new(entry.sampling(), releases, entry.steps())?)
        });
        split.collect::<Result<Plan, AlgorithmError>>().map(Some)
    }

    /// The plan with one release for all that a step reveals, the first with this multiplier.
    fn whole_steps(&self, setting: &Setting, first: NoiseMultiplier) -> Result<Plan, AlgorithmError> {
        let growth = match *self {
            Self::Dynamic { mu_growth, .. } => mu_growth,
            Self::NoiseDecayZcdp { noise_decay } | Self::NoiseDecayTcdp { noise_decay } => noise_decay,
            _ => 1.0,
        };
        #[expect(clippy::float_cmp, reason = "exactly 1 means that nothing changes")]
        if growth == 1.0 {
            return Ok(Plan::new(vec![Entry::new(setting.sampling, vec![first], setting.steps)?]));
        }
        let steps = setting.steps.get();
        if steps > MOST_DIFFERENT_STEPS {
            return Err(AlgorithmError::Plan {
                problem: format!("a plan has at most {MOST_DIFFERENT_STEPS} different steps, got {steps}"),
                hint: "use fewer steps, or an algorithm whose steps are alike, such as dp-sgd",
            });
        }
        let one = Steps::new(1)?;
        let entry = |number: u64| -> Result<Entry, AlgorithmError> {
            #[expect(clippy::cast_precision_loss, reason = "counts of steps")]
            let part = (number + 1) as f64 / steps as f64;
            // mu_t = mu_0 rho^(t / T) for t = 1 .. T, and z_t = 1 / mu_t.
            let z = NoiseMultiplier::new(first.get() * growth.powf(-part))?;
            Ok(Entry::new(setting.sampling, vec![z], one)?)
        };
        (0..steps).map(entry).collect()
    }

    /// The multipliers of a step's releases, which together reveal as much as one with multiplier `z`.
    fn split(&self, z: NoiseMultiplier, setting: &Setting) -> Result<Vec<NoiseMultiplier>, AlgorithmError> {
        let beside = match *self {
            Self::DcSgdP { histogram_noise, .. } | Self::DcSgdE { histogram_noise, .. } => {
                // 5 unless that would cost the gradients more than it does at a multiplier of 1.2.
                if histogram_noise > 0.0 { histogram_noise } else { (5.0 / 1.2 * z.get()).max(5.0) }
            }
            // The count moves by 1/2, so its multiplier is twice its deviation.
            Self::Quantile { count_noise, .. } => {
                let deviation =
                    if count_noise > 0.0 { count_noise } else { setting.expected_batch_size / 20.0 };
                (2.0 * deviation).max(if count_noise > 0.0 { 0.0 } else { 4.0 * z.get() })
            }
            _ => return Ok(vec![z]),
        };
        let beside = NoiseMultiplier::new(beside)?;
        let gradients = calibrate::remaining_noise_multiplier(z, beside).map_err(|_| {
            let (option, given, least) = match *self {
                Self::Quantile { count_noise, .. } => ("count_noise", count_noise, 0.5 * z.get()),
                _ => ("histogram_noise", beside.get(), z.get()),
            };
            AlgorithmError::Plan {
                problem: format!(
                    "{option} must be above {least} to leave noise for the gradients, got {given}"
                ),
                hint: "leave it out for a value that suits the budget",
            }
        })?;
        Ok(vec![gradients, beside])
    }
}

/// Each different step is an entry of its own.
const MOST_DIFFERENT_STEPS: u64 = 1_000_000;

/// The least multiplier that truncated concentrated differential privacy speaks of: the root of 5, and a little.
const TCDP_LEAST: f64 = 2.2361;

/// Whether the theorem of truncated concentrated differential privacy speaks of this sampling at all.
fn rarely_sampled(sampling: Sampling) -> bool {
    matches!(sampling, Sampling::Poisson { rate, .. } if rate.get() <= 0.1)
}

fn smallest(plan: &Plan) -> f64 {
    plan.entries().iter().map(Entry::effective_noise_multiplier).fold(f64::INFINITY, f64::min)
}
