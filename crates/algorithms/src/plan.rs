//! How an algorithm spreads its noise: over steps, and over the releases of a step.

use sordino_accounting::{
    Accountant, AccountingError, ClipNorm, Entry, NoiseMultiplier, Plan, Sampling, SamplingRate, Steps,
    calibrate::{self, Budget, Phase},
};

use crate::{AlgorithmError, Choice, anchored::Anchoring, dp_c4_published, dynamic::part};

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
    /// The public number of records.
    pub records: u64,
    /// The guarantee that a paper claims, where noise follows from it.
    pub claim: Option<Budget>,
}

impl Setting {
    /// The claim from which the noise of an algorithm as published follows.
    pub(crate) fn claimed(&self) -> Result<Budget, AlgorithmError> {
        self.claim.ok_or(AlgorithmError::Plan {
            problem: "the noise of an algorithm as published follows from its claimed epsilon".to_owned(),
            hint: "give --epsilon, the paper's claim",
        })
    }
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
    /// Who prices it, unless told otherwise.
    pub fn accountant(&self, setting: &Setting) -> Accountant {
        match self {
            Self::NoiseDecayZcdp { .. } => Accountant::Zcdp,
            Self::NoiseDecayTcdp { .. } => Accountant::Tcdp,
            Self::DicePublished(_) => Accountant::FirstParticipation,
            _ if matches!(setting.sampling, Sampling::FixedSize { .. }) => Accountant::Rdp,
            _ => Accountant::Pld,
        }
    }

    /// The plan of the run. For algorithms that are [unprotected](Self::unprotected) it says how batches are drawn, and nobody
    /// prices it.
    ///
    /// # Errors
    /// No noise meets the budget; options that leave none for the gradients; sampling that the algorithm is not made for.
    pub fn plan(&self, setting: &Setting, noise: Noise) -> Result<Plan, AlgorithmError> {
        self.check()?;
        self.check_thresholds(setting)?;
        match *self {
            Self::None {} => Ok(Plan::new(vec![Entry::new(
                setting.sampling,
                vec![NoiseMultiplier::new(1.0)?],
                setting.steps,
            )?])),
            Self::Dice { window, .. } => self.banded(setting, window, noise),
            Self::DicePublished(options) => options.plan(setting, setting.claimed()?),
            _ => match self.anchoring(setting)? {
                Some(anchoring) if self.unprotected().is_some() => {
                    dp_c4_published::plan(setting, &anchoring, setting.claimed()?)
                }
                Some(anchoring) => self.anchored(setting, &anchoring, noise),
                None => self.stepwise(setting, noise),
            },
        }
    }

    /// Banded error feedback: groups take turns, one more than the window has steps.
    fn banded(&self, setting: &Setting, window: Option<u64>, noise: Noise) -> Result<Plan, AlgorithmError> {
        let rate = poisson_rate(setting, "dice")?;
        // What is fed back waits in memory.
        let most = (MOST_HELD / setting.dimension.max(1) as u64).max(1);
        if let Some(window) = window.filter(|window| *window > most) {
            return Err(AlgorithmError::Plan {
                problem: format!(
                    "window must be at most {most}, got {window}: residuals wait in a gibibyte of memory"
                ),
                hint: "leave it out for the window with the least noise",
            });
        }
        let (window, z, group_rate) = match noise {
            Noise::Budget(budget, accountant) => {
                let permitted = window.map_or(1..=most, |window| window..=window);
                let residual = self.residual_clip(setting)?;
                let found = calibrate::dice_c(
                    rate,
                    setting.steps,
                    setting.clip,
                    residual,
                    permitted,
                    budget,
                    accountant,
                )?;
                (found.value.window, found.value.noise_multiplier.shortened(), found.value.group_rate)
            }
            Noise::Multiplier(z) => {
                let window = window.ok_or(AlgorithmError::Plan {
                    problem: "the window of dice is chosen for a budget".to_owned(),
                    hint: "give --epsilon in place of --noise-multiplier, or a window as in --algorithm dice,window=8",
                })?;
                #[expect(clippy::cast_precision_loss, reason = "a small count")]
                let group_rate = SamplingRate::new(rate.get() * (window as f64 + 1.0))?;
                (window, z, group_rate)
            }
        };
        let sampling = Sampling::Rotating { rate: group_rate, groups: window + 1 };
        Ok(Plan::new(vec![Entry::new(sampling, vec![z], setting.steps)?]))
    }

    /// Variance reduction: steps that look at anchors, and steps that look at differences.
    fn anchored(
        &self,
        setting: &Setting,
        anchoring: &Anchoring,
        noise: Noise,
    ) -> Result<Plan, AlgorithmError> {
        let batch = setting.expected_batch_size;
        // Two releases with multiplier z each reveal as much as one with z / sqrt(2), and their noises add up.
        let releases: u8 = if matches!(self, Self::DpSvrg { .. }) { 2 } else { 1 };
        let apart = f64::from(releases).sqrt();
        let (coupled, anchor) = match noise {
            Noise::Multiplier(z) => (z, NoiseMultiplier::new(z.get() * anchoring.batch / batch)?),
            Noise::Budget(budget, accountant) => {
                let (anchor_rate, anchors, differences) = anchoring.phases(setting)?;
                if differences == 0 {
                    let unit = NoiseMultiplier::new(1.0)?;
                    let anchors = anchoring.plan(setting, &[unit], unit)?;
                    let least = calibrate::noise_scale(&anchors, budget, accountant)?.value;
                    return Ok(anchors.scaled(NoiseMultiplier::new(least)?.shortened().get())?);
                }
                let anchors = Phase {
                    rate: anchor_rate,
                    steps: Steps::new(anchors)?,
                    expected_batch_size: anchoring.batch,
                };
                let differences = Phase {
                    rate: poisson_rate(setting, "variance reduction")?,
                    steps: Steps::new(differences)?,
                    expected_batch_size: batch / f64::from(releases),
                };
                let found = calibrate::dp_c4(differences, anchors, budget, accountant)?.value;
                (NoiseMultiplier::new(found.coupled.get() * apart)?.shortened(), found.anchor.shortened())
            }
        };
        anchoring.plan(setting, &vec![coupled; usize::from(releases)], anchor)
    }

    /// The same number of steps, each with its own noise, and one sampling.
    fn stepwise(&self, setting: &Setting, noise: Noise) -> Result<Plan, AlgorithmError> {
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
        split.collect()
    }

    /// The plan with one release for all that a step reveals, the first with this multiplier.
    fn whole_steps(&self, setting: &Setting, first: NoiseMultiplier) -> Result<Plan, AlgorithmError> {
        // mu_t / mu_0 after a part of the run, if it changes.
        let growth: Option<Box<dyn Fn(f64) -> f64>> = match self {
            Self::Dynamic(options) if !options.mu_is_constant() => {
                Some(Box::new(|part| options.mu_factor(part)))
            }
            Self::NoiseDecayZcdp { noise_decay } | Self::NoiseDecayTcdp { noise_decay } => {
                Some(Box::new(|part| noise_decay.powf(part)))
            }
            _ => None,
        };
        let Some(growth) = growth else {
            return Ok(Plan::new(vec![Entry::new(setting.sampling, vec![first], setting.steps)?]));
        };
        let steps = setting.steps.get();
        check_steps(steps)?;
        let one = Steps::new(1)?;
        let entry = |number: u64| -> Result<Entry, AlgorithmError> {
            // z_t = 1 / mu_t.
            let z = NoiseMultiplier::new(first.get() / growth(part(number, setting.steps)))?;
            Ok(Entry::new(setting.sampling, vec![z], one)?)
        };
        (0..steps).map(entry).collect()
    }

    /// The multipliers of a step's releases, which together reveal as much as one with multiplier `z`.
    fn split(&self, z: NoiseMultiplier, setting: &Setting) -> Result<Vec<NoiseMultiplier>, AlgorithmError> {
        let beside = match *self {
            Self::DiceTwoRelease { .. } => {
                // The split that makes z_a^2 C_1^2 + z_r^2 C_r^2 least.
                let (clip, residual) = (setting.clip.get(), self.residual_clip(setting)?.get());
                let share = |part: f64| NoiseMultiplier::new(z.get() * ((clip + residual) / part).sqrt());
                return Ok(vec![share(clip)?, share(residual)?]);
            }
            Self::DcSgdP { histogram_noise, .. } | Self::DcSgdE { histogram_noise, .. } => {
                histogram_noise.unwrap_or_else(|| histogram_noise_beside(z.get()))
            }
            // The count moves by 1/2, so its multiplier is twice its deviation.
            Self::Quantile { count_noise, .. } => match count_noise {
                Some(deviation) => 2.0 * deviation,
                None => (setting.expected_batch_size / 10.0).max(4.0 * z.get()),
            },
            _ => return Ok(vec![z]),
        };
        let beside = NoiseMultiplier::new(beside)?;
        let gradients = calibrate::remaining_noise_multiplier(z, beside).map_err(|_| {
            let (option, given, least) = match *self {
                Self::Quantile { .. } => ("count_noise", 0.5 * beside.get(), 0.5 * z.get()),
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

/// The paper's rule for a histogram beside gradients, 5, then 8 from a multiplier of 2 on and 12 above 3; and, beyond what it speaks of,
/// what costs the gradients an eighth more noise at most.
fn histogram_noise_beside(z: f64) -> f64 {
    let published = match z {
        z if z < 2.0 => 5.0,
        z if z <= 3.0 => 8.0,
        _ => 12.0,
    };
    (2.25 * z).max(published)
}

/// The rate of plain Poisson sampling, for algorithms that need it.
pub(crate) fn poisson_rate(setting: &Setting, who: &str) -> Result<SamplingRate, AlgorithmError> {
    match setting.sampling {
        Sampling::Poisson { rate, cap: None } => Ok(rate),
        other => Err(AlgorithmError::Plan {
            problem: format!("{who} is made for plain Poisson sampling, got {other}"),
            hint: "leave out --sampling and --max-batch-size, or use dp-sgd",
        }),
    }
}

/// Refuses more different steps than a plan can list.
pub(crate) fn check_steps(steps: u64) -> Result<(), AlgorithmError> {
    match steps <= MOST_DIFFERENT_STEPS {
        true => Ok(()),
        false => Err(AlgorithmError::Plan {
            problem: format!("a plan has at most {MOST_DIFFERENT_STEPS} different steps, got {steps}"),
            hint: "use fewer steps, or an algorithm whose steps are alike, such as dp-sgd",
        }),
    }
}

/// Numbers that may wait to be fed back: a gibibyte.
const MOST_HELD: u64 = 1 << 28;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::tests::setting;

    #[test]
    fn a_histogram_has_the_noise_of_its_paper_and_leaves_enough_to_the_gradients() {
        for (z, noise) in
            [(0.5, 5.0), (1.99, 5.0), (2.0, 8.0), (3.0, 8.0), (3.01, 12.0), (5.0, 12.0), (40.0, 90.0)]
        {
            assert_eq!(histogram_noise_beside(z), noise);
            let gradients = calibrate::remaining_noise_multiplier(
                NoiseMultiplier::new(z).unwrap(),
                NoiseMultiplier::new(noise).unwrap(),
            );
            assert!(gradients.unwrap().get() <= 1.125 * z);
        }
    }

    #[test]
    fn a_window_that_does_not_fit_in_memory_is_refused_with_the_largest_that_does() {
        let large = Setting { dimension: 1 << 26, ..setting() };
        let choice = Choice::Dice { residual_clip: None, window: Some(5) };
        let refused = choice.plan(&large, Noise::Multiplier(NoiseMultiplier::new(1.0).unwrap())).unwrap_err();
        assert!(refused.to_string().contains("window must be at most 4, got 5"), "{refused}");
    }
}
