//! Calibration of algorithms that release more than one sum, or choose their own structure.

use std::ops::RangeInclusive;

use super::{Budget, Calibrated, noise_scale};
use crate::{
    Accountant, AccountingError, ClipNorm, Entry, NoiseMultiplier, Plan, SamplingRate, Steps, search::valley,
};

/// The multiplier that is left for one release when another release of the same batch has `spent` and both together must
/// amount to `total`: `(total^-2 - spent^-2)^(-1/2)`.
///
/// DC-SGD's gradient next to its histogram (`sigma_T` from `sigma` and `sigma_H`), or, with `spent = 2 sigma_b`, adaptive
/// quantile clipping's gradient next to its count.
///
/// # Errors
/// `spent` is not larger than `total`: the other release alone reveals too much.
///
/// ```
/// use sordino_accounting::{NoiseMultiplier, calibrate};
///
/// let (total, histogram) = (NoiseMultiplier::new(1.0)?, NoiseMultiplier::new(6.0)?);
/// let gradient = calibrate::remaining_noise_multiplier(total, histogram)?;
/// assert!((gradient.get() - 1.014_185_105_674_22).abs() < 1e-12);
/// # Ok::<(), sordino_accounting::AccountingError>(())
/// ```
pub fn remaining_noise_multiplier(
    total: NoiseMultiplier,
    spent: NoiseMultiplier,
) -> Result<NoiseMultiplier, AccountingError> {
    let rest = total.get().powi(-2) - spent.get().powi(-2);
    NoiseMultiplier::new(rest.powf(-0.5)).map_err(|_| AccountingError::NoSolution {
        what: "noise multiplier",
        reason: format!("the other release's multiplier of {spent} must be larger than the total of {total}"),
    })
}

/// A phase of identical sampled steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phase {
    /// The sampling rate.
    pub rate: SamplingRate,
    /// The number of steps.
    pub steps: Steps,
    /// The public divisor of its sums.
    pub expected_batch_size: f64,
}

/// The two multipliers of DP-C4.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coupled {
    /// `z_1`, of the coupled differences.
    pub coupled: NoiseMultiplier,
    /// `z_2`, of the anchors.
    pub anchor: NoiseMultiplier,
}

/// The multipliers of DP-C4's coupled steps and anchors that spend a budget with the least noise per step,
/// `(z_1/B)^2 + (z_2/B_a)^2`.
///
/// The ratio of the two is chosen by Renyi's bound, which is fast; the budget is met by `accountant`. The optimum is
/// flat, so the ratio's small error costs nothing.
///
/// # Errors
/// As [`noise_scale`].
pub fn dp_c4(
    coupled: Phase,
    anchors: Phase,
    budget: Budget,
    accountant: Accountant,
) -> Result<Calibrated<Coupled>, AccountingError> {
    let plan = |ratio: f64| -> Result<Plan, AccountingError> {
        Ok(Plan::new(vec![
            Entry::poisson(NoiseMultiplier::new(1.0)?, coupled.rate, coupled.steps),
            Entry::poisson(NoiseMultiplier::new(ratio)?, anchors.rate, anchors.steps),
        ]))
    };
    let noise = |ratio: f64| -> f64 {
        let scale = plan(ratio).and_then(|plan| noise_scale(&plan, budget, Accountant::Rdp));
        let per_step = coupled.expected_batch_size.powi(-2) + (ratio / anchors.expected_batch_size).powi(2);
        scale.map_or(f64::INFINITY, |scale| scale.value.powi(2) * per_step)
    };
    let (ratio, _) = valley(noise, anchors.rate.get() / coupled.rate.get(), 0.02);
    let Calibrated { value, guarantee } = noise_scale(&plan(ratio)?, budget, accountant)?;
    let value =
        Coupled { coupled: NoiseMultiplier::new(value)?, anchor: NoiseMultiplier::new(value * ratio)? };
    Ok(Calibrated { value, guarantee })
}

/// Banded error feedback: how many steps the residual is spread over, and the noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DiceC {
    /// `W`; records are partitioned into `W + 1` groups.
    pub window: u64,
    /// `z`, relative to `kappa`.
    pub noise_multiplier: NoiseMultiplier,
    /// `kappa = sqrt(C_1^2 + C_r^2 / W)`, the sensitivity of a block.
    pub sensitivity: f64,
    /// `q (W + 1)`, at which each step samples its group.
    pub group_rate: SamplingRate,
}

impl DiceC {
    /// The standard deviation of the noise on each released sum.
    pub fn noise_std(&self) -> f64 {
        self.noise_multiplier.get() * self.sensitivity
    }
}

/// The window `W` and multiplier of banded error feedback (Dice-C) that spend a budget with the least noise.
///
/// Step `t` samples only group `t mod (W+1)`, at rate `q (W+1) <= 1`, and is priced as `ceil(T / (W+1))` sampled
/// releases with multiplier `z` relative to `kappa`. All permitted windows are scanned with Renyi's bound; the best few are
/// priced by `accountant`.
///
/// # Errors
/// No permitted window with `q (W+1) <= 1`; as [`noise_scale`] otherwise.
pub fn dice_c(
    rate: SamplingRate,
    steps: Steps,
    clip: ClipNorm,
    residual_clip: ClipNorm,
    permitted: RangeInclusive<u64>,
    budget: Budget,
    accountant: Accountant,
) -> Result<Calibrated<DiceC>, AccountingError> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rounded down to whole groups"
    )]
    let largest =
        ((1.0 / rate.get() + 1e-9).floor() as u64).saturating_sub(1).min(steps.get()).min(*permitted.end());
    let least = (*permitted.start()).max(1);
    if largest < least {
        return Err(AccountingError::NoSolution {
            what: "window",
            reason: format!(
                "a sampling rate of {rate} leaves no room for {} groups",
                least.saturating_add(1)
            ),
        });
    }
    let attempt = |window: u64, accountant: Accountant| -> Result<Calibrated<DiceC>, AccountingError> {
        let groups = window + 1;
        #[expect(clippy::cast_precision_loss, reason = "a number of groups")]
        let (group_rate, spread) = (SamplingRate::new((rate.get() * groups as f64).min(1.0))?, window as f64);
        let blocks = Steps::new(steps.get().div_ceil(groups))?;
        let sensitivity = (clip.get().powi(2) + residual_clip.get().powi(2) / spread).sqrt();
        let plan = Plan::dp_sgd(NoiseMultiplier::new(1.0)?, group_rate, blocks);
        let Calibrated { value, guarantee } = noise_scale(&plan, budget, accountant)?;
        let value = DiceC { window, noise_multiplier: NoiseMultiplier::new(value)?, sensitivity, group_rate };
        Ok(Calibrated { value, guarantee })
    };
    // Every small window, then steps of a few per cent: the noise changes slowly there.
    let windows = std::iter::successors(Some(least), |w| Some(w + 1 + w / 16)).take_while(|w| *w <= largest);
    let noise = |window: u64| attempt(window, Accountant::Rdp).map_or(f64::INFINITY, |c| c.value.noise_std());
    let mut noises: Vec<(f64, u64)> = windows.map(|window| (noise(window), window)).collect();
    noises.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let mut best: Option<Calibrated<DiceC>> = None;
    for (_, window) in noises.into_iter().take(3) {
        let found = attempt(window, accountant)?;
        if best.is_none_or(|b| found.value.noise_std() < b.value.noise_std()) {
            best = Some(found);
        }
    }
    best.ok_or_else(|| unreachable!("a window of one is always tried"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Delta, Epsilon};

    fn budget(epsilon: f64) -> Budget {
        Budget { epsilon: Epsilon::new(epsilon).unwrap(), delta: Delta::new(1e-5).unwrap() }
    }

    fn phase(batch: f64, n: f64, steps: u64) -> Phase {
        Phase {
            rate: SamplingRate::new(batch / n).unwrap(),
            steps: Steps::new(steps).unwrap(),
            expected_batch_size: batch,
        }
    }

    #[test]
    fn dp_c4_spends_its_budget_on_both_phases() {
        // The soundness notes' example: z_1 = 0.958 and z_2 = 7.06, at an optimum that is flat.
        let n = 50_000.0;
        let found =
            dp_c4(phase(256.0, n, 17_062), phase(4096.0, n, 2438), budget(5.0), Accountant::Pld).unwrap();
        let spent = found.guarantee.epsilon.get();
        assert!((4.995..=5.0).contains(&spent));
        let Coupled { coupled, anchor } = found.value;
        assert!((coupled.get() / 0.958 - 1.0).abs() < 0.02, "{coupled} {anchor}");
        assert!((anchor.get() / 7.06 - 1.0).abs() < 0.1, "{coupled} {anchor}");
    }

    #[test]
    fn dice_c_beats_dp_sgd_at_the_same_total_threshold() {
        // CIFAR at epsilon 2 with batch 1000 and 3 epochs: W = 8 needs 0.68 of DP-SGD's noise, W = 1 more than DP-SGD.
        let (rate, steps) = (SamplingRate::new(0.02).unwrap(), Steps::new(150).unwrap());
        let norm = |c| ClipNorm::new(c).unwrap();
        let plain =
            super::super::noise_multiplier(budget(2.0), rate, steps, Accountant::Pld).unwrap().value.get();
        let relative = |window: u32, blocks: u64| {
            let group_rate = SamplingRate::new(0.02 * f64::from(window + 1)).unwrap();
            let blocks = Steps::new(blocks).unwrap();
            let z = super::super::noise_multiplier(budget(2.0), group_rate, blocks, Accountant::Pld)
                .unwrap()
                .value
                .get();
            z * (0.01 + 0.81 / f64::from(window)).sqrt() / plain
        };
        assert!((relative(8, 17) - 0.68).abs() < 0.005 && relative(1, 75) > 1.0);
        let found =
            dice_c(rate, steps, norm(0.1), norm(0.9), 1..=u64::MAX, budget(2.0), Accountant::Pld).unwrap();
        let ratio = found.value.noise_std() / plain;
        assert!(ratio < 0.64 && found.guarantee.epsilon.get() <= 2.0, "{ratio} {found:?}");
    }

    #[test]
    fn a_histogram_with_too_little_noise_is_refused() {
        let z = |v| NoiseMultiplier::new(v).unwrap();
        assert!(remaining_noise_multiplier(z(1.0), z(1.0)).is_err());
        assert!(remaining_noise_multiplier(z(1.0), z(0.5)).is_err());
    }
}
