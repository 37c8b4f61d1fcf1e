//! Error feedback over a window of steps (Dice-C): a sound form of DiceSGD.
//!
//! `y_t = sum_i clip(g_i, C_1) + (1/W) sum_{l=1..W} R_{t-l} + noise`, where `R_s` is the hidden sum of what clipping removed in step `s`,
//! itself clipped to `C_r` for each record. Departs from DiceSGD, whose hidden error has no bound on the influence of one record, in three
//! points: residuals are clipped for each record, they are discarded after `W` steps, and a record can be sampled only in every `W + 1`-th
//! step. So the `W + 1` steps that a record influences are one release with sensitivity `kappa = sqrt(C_1^2 + C_r^2 / W)`.

use std::ops::RangeInclusive;

use sordino_accounting::{
    Accountant, AccountingError, ClipNorm, Entry, NoiseMultiplier, Plan, Sampling, SamplingRate,
    Steps as StepCount,
    calibrate::{self, Budget},
};
use sordino_optim::State;
use sordino_privacy::{ClipRule, Gradients, PrivacyError, Release, Round};

use crate::{
    About, Algorithm, AlgorithmError, Defaults, NoiseSource, RunFacts, Steps, Verdict,
    clipping::rule,
    options,
    plans::{MOST_KEPT_BYTES, poisson_rate, tightest_accountant},
};

options! {
    /// Error feedback: what clipping removes from each gradient, up to residual_clip, is fed back over the next W steps. Groups of records
    /// take turns, so that a record is sampled once in W + 1 steps.
    pub struct Dice {
        /// The largest norm of a residual that is fed back.
        residual_clip: Option<f64> = None, as "9 times max_grad_norm", in 1e-9..=1e9;
        /// W, the number of steps over which it is fed back.
        window: Option<u64> = None, as "the one with the least noise", in 1..=1_000_000;
    }
}

impl Dice {
    fn residual_clip(&self, clip: ClipNorm) -> Result<ClipNorm, AccountingError> {
        ClipNorm::new(self.residual_clip.unwrap_or(9.0 * clip.get()))
    }

    /// The window, the multiplier and the rate at which a group is sampled.
    fn band(&self, facts: &RunFacts, noise: NoiseSource) -> Result<Band, AlgorithmError> {
        let rate = poisson_rate(facts, "dice")?;
        // A residual sum consists of 8-byte integers.
        let most = (MOST_KEPT_BYTES / (8 * facts.dimension.max(1) as u64)).max(1);
        if let Some(window) = self.window.filter(|window| *window > most) {
            return Err(AlgorithmError::Plan {
                problem: format!(
                    "window must be at most {most}, got {window}: residuals are kept in a gibibyte of memory"
                ),
                hint: "leave it out for the window with the least noise",
            });
        }
        match noise {
            NoiseSource::Budget(budget, accountant) => {
                let permitted = self.window.map_or(1..=most, |window| window..=window);
                let norms = [facts.max_grad_norm, self.residual_clip(facts.max_grad_norm)?];
                let found = least_noise(rate, facts.steps, norms, permitted, budget, accountant)?;
                Ok(Band { multiplier: found.multiplier.shortened(), ..found })
            }
            NoiseSource::Multiplier(multiplier) => {
                let window = self.window.ok_or(AlgorithmError::Plan {
                    problem: "the window of dice is chosen for a budget".to_owned(),
                    hint: "set {epsilon} in place of {noise_multiplier}, or a window, as in {algorithm=dice,window=8}",
                })?;
                let rate = SamplingRate::new(rate.get() * (window as f64 + 1.0))?;
                Ok(Band { window, multiplier, rate })
            }
        }
    }
}

impl Algorithm for Dice {
    fn about(&self) -> About {
        About {
            name: "dice",
            reference: "after Zhang et al. 2023, Algorithm 2",
            verdict: Verdict::Sound(
                "Sordino's form of DiceSGD, whose published claim is false; gradients up to max_grad_norm + residual_clip are not biased",
            ),
        }
    }

    fn defaults(&self, max_grad_norm: Option<ClipNorm>) -> Result<Defaults, AlgorithmError> {
        let defaults = Defaults::clipped(max_grad_norm, 0.1)?;
        let clip = defaults.max_grad_norm;
        Ok(Defaults { contribution: Some(clip.get() + self.residual_clip(clip)?.get()), ..defaults })
    }

    fn accountant(&self, sampling: Sampling) -> Accountant {
        tightest_accountant(sampling)
    }

    fn kept_vectors(&self) -> u64 {
        1
    }

    fn plan(&self, facts: &RunFacts, noise: NoiseSource) -> Result<Plan, AlgorithmError> {
        rule(facts, facts.max_grad_norm)?;
        rule(facts, self.residual_clip(facts.max_grad_norm)?)?;
        let Band { window, multiplier, rate } = self.band(facts, noise)?;
        let sampling = Sampling::Rotating { rate, groups: window + 1 };
        Ok(Plan::new(vec![Entry::new(sampling, vec![multiplier], facts.steps)?]))
    }

    fn start<G: Gradients>(&self, facts: &RunFacts, _: &Plan) -> Result<Box<dyn Steps<G>>, AlgorithmError>
    where
        G::Point: 'static,
    {
        Ok(Box::new(DiceSteps {
            rule: rule(facts, facts.max_grad_norm)?,
            residual: rule(facts, self.residual_clip(facts.max_grad_norm)?)?,
        }))
    }
}

struct DiceSteps {
    rule: ClipRule,
    residual: ClipRule,
}

impl<G: Gradients> Steps<G> for DiceSteps {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        _: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        let sum = round.gradients(at).banded_sum(&self.rule, &self.residual)?;
        round.release(sum).map(Some)
    }

    /// The residuals are private and stay in the vault. A resumed run begins without them.
    fn state(&self) -> State {
        State::default()
    }

    fn restore(&mut self, _: &State) {}
}

/// A window and its noise.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Band {
    /// `W`; records are partitioned into `W + 1` groups.
    window: u64,
    /// `z`, relative to `kappa`.
    multiplier: NoiseMultiplier,
    /// `q (W + 1)`, the rate at which each step samples its group.
    rate: SamplingRate,
}

impl Band {
    /// The standard deviation of the noise on each released sum: `z kappa`, `kappa = sqrt(C_1^2 + C_r^2 / W)`.
    fn noise_std(&self, [clip, residual_clip]: [ClipNorm; 2]) -> f64 {
        self.multiplier.get() * (clip.get().powi(2) + residual_clip.get().powi(2) / self.window as f64).sqrt()
    }
}

/// The window and multiplier that spend a budget with the least noise.
///
/// Step `t` samples only group `t mod (W + 1)`, at rate `q (W + 1) <= 1`, and is priced as `ceil(T / (W + 1))` sampled releases with
/// multiplier `z` relative to `kappa`. All permitted windows are scanned with Renyi's bound; the best few are priced by the accountant.
fn least_noise(
    rate: SamplingRate,
    steps: StepCount,
    norms: [ClipNorm; 2],
    permitted: RangeInclusive<u64>,
    budget: Budget,
    accountant: Accountant,
) -> Result<Band, AccountingError> {
    let groups = (1.0 / rate.get() + 1e-9).floor() as u64;
    let largest = groups.saturating_sub(1).min(steps.get()).min(*permitted.end());
    let least = (*permitted.start()).max(1);
    if largest < least {
        return Err(AccountingError::NoSolution {
            what: "window",
            reason: format!("a sampling rate of {rate} is too large for {} groups", least.saturating_add(1)),
        });
    }
    let attempt = |window: u64, accountant: Accountant| -> Result<Band, AccountingError> {
        let groups = window + 1;
        let rate = SamplingRate::new((rate.get() * groups as f64).min(1.0))?;
        let blocks = StepCount::new(steps.get().div_ceil(groups))?;
        let multiplier = calibrate::noise_multiplier(budget, rate, blocks, accountant)?.value;
        Ok(Band { window, multiplier, rate })
    };
    // Every small window, then windows that grow by a few per cent: the noise changes slowly there.
    let windows = std::iter::successors(Some(least), |w| Some(w + 1 + w / 16)).take_while(|w| *w <= largest);
    let noise =
        |window: u64| attempt(window, Accountant::Rdp).map_or(f64::INFINITY, |band| band.noise_std(norms));
    let mut scanned: Vec<(f64, u64)> = windows.map(|window| (noise(window), window)).collect();
    scanned.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let best = scanned.into_iter().take(3).map(|(_, window)| attempt(window, accountant));
    let best = best.collect::<Result<Vec<_>, _>>()?;
    let best = best.into_iter().min_by(|a, b| a.noise_std(norms).total_cmp(&b.noise_std(norms)));
    best.ok_or_else(|| unreachable!("the least window is always tried"))
}

#[cfg(test)]
mod tests {
    use sordino_accounting::{Delta, Epsilon};

    use super::*;
    use crate::test_facts;

    #[test]
    fn a_window_needs_less_noise_than_dp_sgd_at_the_same_total_clipping_norm() {
        // CIFAR at epsilon 2 with batch 1000 and 3 epochs: W = 8 needs 0.68 of DP-SGD's noise, W = 1 more than DP-SGD.
        let budget = Budget { epsilon: Epsilon::new(2.0).unwrap(), delta: Delta::new(1e-5).unwrap() };
        let (rate, steps) = (SamplingRate::new(0.02).unwrap(), StepCount::new(150).unwrap());
        let norms = [0.1, 0.9].map(|norm| ClipNorm::new(norm).unwrap());
        let plain = calibrate::noise_multiplier(budget, rate, steps, Accountant::Pld).unwrap().value.get();
        let relative = |permitted| {
            let band = least_noise(rate, steps, norms, permitted, budget, Accountant::Pld).unwrap();
            let blocks = StepCount::new(150_u64.div_ceil(band.window + 1)).unwrap();
            let plan = Plan::dp_sgd(band.multiplier, band.rate, blocks);
            let price = Accountant::Pld.price(&plan, budget.delta).unwrap();
            assert!(price.epsilon <= budget.epsilon);
            band.noise_std(norms) / plain
        };
        assert!((relative(8..=8) - 0.68).abs() < 0.005 && relative(1..=1) > 1.0);
        assert!(relative(1..=u64::MAX) < 0.64);
    }

    #[test]
    fn a_window_that_does_not_fit_in_memory_is_refused_with_the_largest_that_does() {
        let facts = RunFacts { dimension: 1 << 26, ..test_facts() };
        let noise = NoiseSource::Multiplier(NoiseMultiplier::new(1.0).unwrap());
        let refused = Dice { window: Some(5), ..Dice::default() }.plan(&facts, noise).unwrap_err();
        assert!(refused.to_string().contains("window must be at most 2, got 5"), "{refused}");
        // Without a budget there is no best window.
        assert!(Dice::default().plan(&facts, noise).is_err());
    }
}
