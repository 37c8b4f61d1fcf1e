//! Dynamic DP-SGD: thresholds and multipliers that follow a schedule along the run.

use serde::{Deserialize, Serialize};
use sordino_accounting::{ClipNorm, Steps};
use sordino_privacy::{Gradients, PrivacyError, Release, Round};

use crate::{Algorithm, AlgorithmError, Setting, dp_sgd::rule, error::require};

/// The options of `dynamic`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DynamicOptions {
    /// `rho_mu`: how much larger `1 / z` is at the end than at the beginning; 2 unless the noise is scheduled otherwise.
    #[serde(default)]
    pub mu_growth: Option<f64>,
    /// `rho_c`: how much smaller the threshold is at the end; 2 unless there is a `clip_schedule`.
    #[serde(default)]
    pub clip_decay: Option<f64>,
    /// Any schedule of `mu_t / mu_0`, in place of `mu_growth`.
    #[serde(default)]
    pub mu_schedule: Option<Curve>,
    /// Any schedule of `C_t / C_0`, in place of `clip_decay`.
    #[serde(default)]
    pub clip_schedule: Option<Curve>,
    /// How noise goes with thresholds.
    #[serde(default)]
    pub allocation: Allocation,
}

/// How the noise of a step goes with its threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Allocation {
    /// As `mu_growth` or `mu_schedule` say.
    #[default]
    Scheduled,
    /// `sigma_t` proportional to `sqrt(C_t)`, which makes the sum of the noise variances least: `mu_t` is as well.
    Optimal,
}

impl DynamicOptions {
    pub(crate) fn check(&self) -> Result<(), AlgorithmError> {
        let both = |problem: &str| {
            Err(AlgorithmError::Plan { problem: problem.to_owned(), hint: "leave one of them out" })
        };
        if self.mu_growth.is_some() && self.mu_schedule.is_some() {
            return both("mu_growth and mu_schedule both say how the noise changes");
        }
        if self.clip_decay.is_some() && self.clip_schedule.is_some() {
            return both("clip_decay and clip_schedule both say how the threshold changes");
        }
        if self.allocation == Allocation::Optimal && (self.mu_growth.is_some() || self.mu_schedule.is_some())
        {
            return both("allocation=optimal and mu_growth or mu_schedule both say how the noise changes");
        }
        for (what, value) in [("mu_growth", self.mu_growth), ("clip_decay", self.clip_decay)] {
            let value = value.unwrap_or(1.0);
            require((1e-3..=1e3).contains(&value), what, "between 0.001 and 1000", value)?;
        }
        Ok(())
    }

    /// `C_t / C_0` when this part of the run is done.
    pub(crate) fn clip_factor(&self, part: f64) -> f64 {
        match &self.clip_schedule {
            Some(curve) => curve.at(part),
            None => self.clip_decay.unwrap_or(2.0).powf(-part),
        }
    }

    /// `mu_t / mu_0` when this part of the run is done.
    pub(crate) fn mu_factor(&self, part: f64) -> f64 {
        match (&self.mu_schedule, self.allocation) {
            (_, Allocation::Optimal) => self.clip_factor(part).sqrt(),
            (Some(curve), _) => curve.at(part),
            (None, _) => self.mu_growth.unwrap_or(2.0).powf(part),
        }
    }

    /// Whether all steps have the same multiplier.
    #[expect(clippy::float_cmp, reason = "exactly 1 means that nothing changes")]
    pub(crate) fn mu_is_constant(&self) -> bool {
        match (&self.mu_schedule, self.allocation) {
            (_, Allocation::Optimal) => self.clip_range() == [1.0, 1.0],
            (Some(curve), _) => curve.0.iter().all(|(_, factor)| *factor == 1.0),
            (None, _) => self.mu_growth == Some(1.0),
        }
    }

    /// The smallest and the largest factor of thresholds.
    pub(crate) fn clip_range(&self) -> [f64; 2] {
        let ends = [self.clip_factor(0.0), self.clip_factor(1.0)];
        let all =
            self.clip_schedule.iter().flat_map(|curve| curve.0.iter().map(|(_, factor)| *factor)).chain(ends);
        all.fold([f64::INFINITY, 0.0], |[low, high], factor| [low.min(factor), high.max(factor)])
    }
}

/// A schedule of factors, written `0:1/0.5:2/1:4`: parts of the run and the factors there. Between two points the factor grows or
/// decays exponentially; before the first and after the last it stays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Curve(Vec<(f64, f64)>);

impl Curve {
    /// The factor when this part of the run is done.
    pub fn at(&self, part: f64) -> f64 {
        let after = self.0.partition_point(|(place, _)| *place <= part);
        match (self.0.get(after.wrapping_sub(1)), self.0.get(after)) {
            (Some((left, from)), Some((right, to))) => {
                from * (to / from).powf((part - left) / (right - left))
            }
            (Some((_, factor)), None) | (None, Some((_, factor))) => *factor,
            (None, None) => 1.0,
        }
    }
}

impl TryFrom<String> for Curve {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let point = |point: &str| -> Option<(f64, f64)> {
            let (part, factor) = point.split_once(':')?;
            let (part, factor) = (part.trim().parse().ok()?, factor.trim().parse().ok()?);
            ((0.0..=1.0).contains(&part) && (1e-3..=1e3).contains(&factor)).then_some((part, factor))
        };
        let points: Option<Vec<_>> = text.split('/').map(point).collect();
        match points {
            Some(points) if points.windows(2).all(|pair| pair[0].0 < pair[1].0) => Ok(Self(points)),
            _ => Err(format!(
                "a schedule is written PART:FACTOR/PART:FACTOR/..., with rising parts from 0 to 1 and factors from 0.001 to \
                 1000, such as 0:1/0.5:2/1:4; got {text}"
            )),
        }
    }
}

impl From<Curve> for String {
    fn from(curve: Curve) -> Self {
        curve.0.iter().map(|(part, factor)| format!("{part}:{factor}")).collect::<Vec<_>>().join("/")
    }
}

/// The part of a run that is done after the step with this number: `t / T` for `t = 1 .. T`.
#[expect(clippy::cast_precision_loss, reason = "counts of steps")]
pub(crate) fn part(number: u64, steps: Steps) -> f64 {
    (number + 1) as f64 / steps.get() as f64
}

/// `C_t = C_0 rho_c^(-t / T)` for `t = 1 .. T`, or any other schedule; the plan has `z_t = 1 / mu_t`, `mu_t = mu_0 rho_mu^(t / T)`.
///
/// Departs from Alg. 2: sums are divided by the expected batch size, and `mu_0` comes from the accountant's exact price unless the
/// central limit theorem is asked for.
///
/// **References.** Du et al. 2021, Algorithm 2, and appendix A.7 for the optimal allocation.
pub(crate) struct Dynamic {
    setting: Setting,
    options: DynamicOptions,
}

impl Dynamic {
    pub(crate) fn new(setting: &Setting, options: DynamicOptions) -> Self {
        Self { setting: *setting, options }
    }
}

impl<G: Gradients> Algorithm<G> for Dynamic {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        number: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        let factor = self.options.clip_factor(part(number, self.setting.steps));
        let clip = ClipNorm::new(self.setting.clip.get() * factor)?;
        let sum = round.gradients(at).clipped_sum(&rule(&self.setting, clip)?)?;
        round.release(sum).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(json: &str) -> DynamicOptions {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn curves_pass_through_their_points_exponentially() {
        let curve = Curve::try_from("0.2:1/0.6:4/1:2".to_owned()).unwrap();
        for (part, factor) in
            [(0.0, 1.0), (0.2, 1.0), (0.4, 2.0), (0.6, 4.0), (0.8, 8.0_f64.sqrt()), (1.0, 2.0)]
        {
            assert!((curve.at(part) - factor).abs() < 1e-12, "{part}: {}", curve.at(part));
        }
        for bad in ["", "0.5", "0:1/0:2", "1:1/0:2", "0:0", "-1:1", "0:NaN", "0:1/"] {
            assert!(Curve::try_from(bad.to_owned()).is_err(), "{bad}");
        }
        assert_eq!(String::from(curve), "0.2:1/0.6:4/1:2");
    }

    #[test]
    fn growth_is_a_curve_and_the_optimal_allocation_follows_thresholds() {
        let (growing, curved) = (
            options(r#"{"mu_growth":3,"clip_decay":5}"#),
            options(r#"{"mu_schedule":"0:1/1:3","clip_schedule":"0:1/1:0.2"}"#),
        );
        let optimal = options(r#"{"clip_decay":5,"allocation":"optimal"}"#);
        for part in [0.1, 0.5, 1.0] {
            assert!((growing.mu_factor(part) - curved.mu_factor(part)).abs() < 1e-12);
            assert!((growing.clip_factor(part) - curved.clip_factor(part)).abs() < 1e-12);
            // sigma_t = C_t / mu_t.
            let (sigma, clip) =
                (optimal.clip_factor(part) / optimal.mu_factor(part), optimal.clip_factor(part));
            assert!((sigma - clip.sqrt()).abs() < 1e-12);
        }
        assert_eq!(options(r#"{"clip_schedule":"0:1/0.5:7/1:0.2"}"#).clip_range(), [0.2, 7.0]);
        assert!(options(r#"{"mu_growth":1}"#).mu_is_constant());
        assert!(!options(r#"{"mu_schedule":"0:1/0.501:1/0.502:5/0.503:1"}"#).mu_is_constant());
    }

    #[test]
    fn two_ways_of_saying_the_same_are_refused() {
        for json in [
            r#"{"mu_growth":3,"mu_schedule":"0:1/1:3"}"#,
            r#"{"clip_decay":3,"clip_schedule":"0:1/1:3"}"#,
            r#"{"mu_growth":3,"allocation":"optimal"}"#,
            r#"{"mu_growth":1e9}"#,
        ] {
            assert!(options(json).check().is_err(), "{json}");
        }
    }
}
