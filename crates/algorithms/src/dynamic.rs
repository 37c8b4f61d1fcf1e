//! Dynamic DP-SGD: the clipping norm and the noise multiplier follow a public schedule along the run.
//!
//! `C_t = C_0 rho_c^(-t / T)` and `z_t = 1 / mu_t`, `mu_t = mu_0 rho_mu^(t / T)`, for `t = 1 .. T`, or any other schedule. Departs from
//! Algorithm 2 of Du et al. 2021: sums are divided by the expected batch size, and `mu_0` comes from the accountant's exact price
//! unless the accountant is `gdp-clt`.

use serde::{Deserialize, Serialize};
use sordino_accounting::{Accountant, ClipNorm, Plan, Sampling};
use sordino_optim::State;
use sordino_privacy::{Gradients, PrivacyError, Release, Round};

use crate::{
    About, Algorithm, AlgorithmError, Defaults, NoiseSource, Options, RunFacts, Steps, Verdict,
    clipping::rule,
    options,
    plans::{calibrated, equal_steps, growing_steps, part_done, tightest_accountant},
};

options! {
    /// The clipping norm decays and the noise multiplier falls along the run, by public formulas. The first multiplier comes from the
    /// exact price of all steps.
    pub struct Dynamic {
        /// rho_mu: factor by which the multiplier is smaller at the end; 1 for sensitivity decay alone.
        mu_growth: Option<f64> = None, as "2", in 1e-3..=1e3;
        /// rho_c: factor by which the clipping norm is smaller at the end; 1 for growing mu alone.
        clip_decay: Option<f64> = None, as "2", in 1e-3..=1e3;
        /// Any schedule of mu_t / mu_0, as parts of the run and factors: 0:1/0.5:2/1:4.
        mu_schedule: Option<FactorSchedule> = None;
        /// Any schedule of C_t / C_0, in the same form.
        clip_schedule: Option<FactorSchedule> = None;
        /// optimal: noise proportional to the square root of the clipping norm, in place of mu_growth.
        allocation: Allocation = Allocation::Scheduled;
    }
}

/// How the noise of a step follows from its clipping norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Allocation {
    /// By `mu_growth` or `mu_schedule`.
    #[default]
    Scheduled,
    /// `sigma_t` is proportional to `sqrt(C_t)`, and so is `mu_t`. This minimises the sum of the noise variances (appendix A.7 of
    /// Du et al. 2021).
    Optimal,
}

impl Dynamic {
    /// `C_t / C_0` after this part of the run.
    pub fn clip_factor(&self, part: f64) -> f64 {
        match &self.clip_schedule {
            Some(schedule) => schedule.at(part),
            None => self.clip_decay.unwrap_or(2.0).powf(-part),
        }
    }

    /// `mu_t / mu_0` after this part of the run.
    pub fn mu_factor(&self, part: f64) -> f64 {
        match (&self.mu_schedule, self.allocation) {
            (_, Allocation::Optimal) => self.clip_factor(part).sqrt(),
            (Some(schedule), _) => schedule.at(part),
            (None, _) => self.mu_growth.unwrap_or(2.0).powf(part),
        }
    }

    /// Whether all steps have the same multiplier.
    fn mu_is_constant(&self) -> bool {
        match (&self.mu_schedule, self.allocation) {
            (_, Allocation::Optimal) => self.clip_range() == [1.0, 1.0],
            (Some(schedule), _) => schedule.0.iter().all(|(_, factor)| *factor == 1.0),
            (None, _) => self.mu_growth == Some(1.0),
        }
    }

    /// The smallest and the largest factor of clipping norms.
    fn clip_range(&self) -> [f64; 2] {
        let ends = [self.clip_factor(0.0), self.clip_factor(1.0)];
        let points =
            self.clip_schedule.iter().flat_map(|schedule| schedule.0.iter().map(|(_, factor)| *factor));
        points
            .chain(ends)
            .fold([f64::INFINITY, 0.0], |[low, high], factor| [low.min(factor), high.max(factor)])
    }

    /// The clipping norm of the step with this number, counted from 0.
    fn clip(&self, facts: &RunFacts, number: u64) -> Result<ClipNorm, PrivacyError> {
        let factor = self.clip_factor(part_done(number, facts.steps));
        Ok(ClipNorm::new(facts.max_grad_norm.get() * factor)?)
    }
}

impl Algorithm for Dynamic {
    fn about(&self) -> About {
        About {
            name: "dynamic",
            reference: "Du et al. 2021, Algorithm 2 and appendix A.7",
            verdict: Verdict::Sound(
                "the paper prices it by the central limit theorem, which reports too small an epsilon; the accountant gdp-clt shows by how much",
            ),
        }
    }

    fn check(&self) -> Result<(), AlgorithmError> {
        let both = |problem: &str| {
            Err(AlgorithmError::Plan { problem: problem.to_owned(), hint: "leave one of them out" })
        };
        if self.mu_growth.is_some() && self.mu_schedule.is_some() {
            return both("mu_growth and mu_schedule both set the change of the noise");
        }
        if self.clip_decay.is_some() && self.clip_schedule.is_some() {
            return both("clip_decay and clip_schedule both set the change of the clipping norm");
        }
        if self.allocation == Allocation::Optimal && (self.mu_growth.is_some() || self.mu_schedule.is_some())
        {
            return both("allocation=optimal and mu_growth or mu_schedule both set the change of the noise");
        }
        self.check_ranges()
    }

    fn defaults(&self, max_grad_norm: Option<ClipNorm>) -> Result<Defaults, AlgorithmError> {
        Defaults::clipped(max_grad_norm, 0.1)
    }

    fn accountant(&self, sampling: Sampling) -> Accountant {
        tightest_accountant(sampling)
    }

    fn plan(&self, facts: &RunFacts, noise: NoiseSource) -> Result<Plan, AlgorithmError> {
        self.check()?;
        for factor in self.clip_range() {
            rule(facts, ClipNorm::new(facts.max_grad_norm.get() * factor)?)?;
        }
        let unit = match self.mu_is_constant() {
            true => equal_steps(facts)?,
            false => growing_steps(facts, |part| self.mu_factor(part))?,
        };
        calibrated(&unit, noise)
    }

    fn start<G: Gradients>(&self, facts: &RunFacts, _: &Plan) -> Result<Box<dyn Steps<G>>, AlgorithmError>
    where
        G::Point: 'static,
    {
        Ok(Box::new(DynamicSteps { facts: *facts, options: self.clone() }))
    }
}

struct DynamicSteps {
    facts: RunFacts,
    options: Dynamic,
}

impl<G: Gradients> Steps<G> for DynamicSteps {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        number: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        let clip = self.options.clip(&self.facts, number)?;
        let sum = round.gradients(at).clipped_sum(&rule(&self.facts, clip)?)?;
        round.release(sum).map(Some)
    }

    fn state(&self) -> State {
        State::default()
    }

    fn restore(&mut self, _: &State) {}
}

/// A schedule of factors, written `0:1/0.5:2/1:4`: parts of the run, and the factor at each of them. Between two parts the factor grows or
/// decays exponentially. Before the first part and after the last it is constant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FactorSchedule(Vec<(f64, f64)>);

impl FactorSchedule {
    /// The factor after this part of the run.
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

    /// The smallest and the largest factor.
    pub(crate) fn range(&self) -> [f64; 2] {
        let factors = self.0.iter().map(|(_, factor)| *factor);
        factors.fold([f64::INFINITY, 0.0], |[low, high], factor| [low.min(factor), high.max(factor)])
    }
}

impl TryFrom<String> for FactorSchedule {
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

impl From<FactorSchedule> for String {
    fn from(schedule: FactorSchedule) -> Self {
        schedule.0.iter().map(|(part, factor)| format!("{part}:{factor}")).collect::<Vec<_>>().join("/")
    }
}

#[cfg(test)]
mod tests {
    use sordino_accounting::{
        Delta, Epsilon, NoiseMultiplier, SamplingRate, Steps as StepCount, calibrate::Budget,
    };

    use super::*;
    use crate::test_facts;

    fn options(json: &str) -> Dynamic {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn schedules_pass_through_their_points_exponentially() {
        let curve = FactorSchedule::try_from("0.2:1/0.6:4/1:2".to_owned()).unwrap();
        for (part, factor) in
            [(0.0, 1.0), (0.2, 1.0), (0.4, 2.0), (0.6, 4.0), (0.8, 8.0_f64.sqrt()), (1.0, 2.0)]
        {
            assert!((curve.at(part) - factor).abs() < 1e-12, "{part}: {}", curve.at(part));
        }
        for bad in ["", "0.5", "0:1/0:2", "1:1/0:2", "0:0", "-1:1", "0:NaN", "0:1/"] {
            assert!(FactorSchedule::try_from(bad.to_owned()).is_err(), "{bad}");
        }
        assert_eq!(String::from(curve), "0.2:1/0.6:4/1:2");
    }

    #[test]
    fn growth_is_a_curve_and_the_optimal_allocation_follows_clipping_norms() {
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
    fn options_that_set_the_same_quantity_are_refused() {
        for json in [
            r#"{"mu_growth":3,"mu_schedule":"0:1/1:3"}"#,
            r#"{"clip_decay":3,"clip_schedule":"0:1/1:3"}"#,
            r#"{"mu_growth":3,"allocation":"optimal"}"#,
            r#"{"mu_growth":1e9}"#,
        ] {
            assert!(options(json).check().is_err(), "{json}");
        }
    }

    #[test]
    fn multipliers_follow_the_schedule() {
        let noise = NoiseSource::Multiplier(NoiseMultiplier::new(1.5).unwrap());
        let plan = Dynamic::default().plan(&test_facts(), noise).unwrap();
        assert_eq!(plan.entries().len(), 30);
        let z = |i: usize| plan.entries()[i].effective_noise_multiplier();
        assert!((z(0) / z(29) - 2.0_f64.powf(29.0 / 30.0)).abs() < 1e-9);
        assert!((z(29) - 0.75).abs() < 1e-9);
        let steps = DynamicSteps { facts: test_facts(), options: Dynamic::default() };
        assert!((steps.options.clip(&steps.facts, 29).unwrap().get() - 0.5).abs() < 1e-12);
    }

    /// The exact price of noise that was chosen by the central limit theorem.
    #[test]
    fn schedules_by_the_central_limit_theorem_cost_more_than_they_claim() {
        let delta = Delta::new(1.0 / 600_000.0).unwrap();
        let facts = RunFacts {
            sampling: Sampling::Poisson { rate: SamplingRate::new(250.0 / 60_000.0).unwrap(), cap: None },
            steps: StepCount::new(5000).unwrap(),
            ..test_facts()
        };
        for (growth, claimed, truth, tolerance) in [
            (1.0, 0.4, 0.405, 0.004),
            (1.0, 0.6, 0.610, 0.004),
            (1.0, 1.2, 1.246, 0.004),
            (10.0, 1.2, 2.1, 0.02),
        ] {
            let dynamic = Dynamic { mu_growth: Some(growth), clip_decay: Some(1.0), ..Dynamic::default() };
            let budget = Budget { epsilon: Epsilon::new(claimed).unwrap(), delta };
            let plan = dynamic.plan(&facts, NoiseSource::Budget(budget, Accountant::GdpClt)).unwrap();
            let exact = Accountant::Pld.price(&plan, delta).unwrap().epsilon.get();
            assert!((exact / truth - 1.0).abs() < tolerance, "{growth} {claimed}: {exact}");
        }
    }
}
