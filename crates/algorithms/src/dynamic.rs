//! Dynamic DP-SGD: the clipping norm and the noise multiplier follow a public schedule along the run.
//!
//! `C_t = C_0 rho_c^(-t / T)` and `z_t = 1 / mu_t`, `mu_t = mu_0 rho_mu^(t / T)`, for `t = 1 .. T`, or any other schedule. Departs from
//! Algorithm 2 of Du et al.: sums are divided by the expected batch size, and `mu_0` comes from the accountant's exact price
//! unless the accountant is `gdp-clt`.
//!
//! # Allocation
//!
//! The variance term of the paper's Theorem 2 is proportional to `sum_t Q_t s_t^2 * sum_t C_t^2 / s_t^2` for noise `s_t` and curvatures
//! `Q_t`. By Cauchy and Schwarz it is at least `(sum_t C_t sqrt(Q_t))^2`, with equality exactly if `Q_t s_t^2` is proportional to
//! `C_t^2 / s_t^2`, that is, if `s_t` is proportional to `sqrt(C_t) / Q_t^(1/4)` and `mu_t = C_t / s_t` to `sqrt(C_t) Q_t^(1/4)`. This is
//! equation 61 of the appendix. The main text has `sqrt(C_t) Q_t^(1/4)` for the noise, which is a misprint: a step with a large curvature
//! needs *less* noise. With equal curvatures it is `sqrt(C_t)` (appendix A.7).
//!
//! # References
//! Du, Li, Chen, Chen and Hong, "Dynamic Differential-Privacy Preserving SGD", Algorithms 1 to 4, appendices A.7 and A.8.

use serde::{Deserialize, Serialize};
use sordino_accounting::{Accountant, ClipNorm, Plan, Sampling};
use sordino_optim::State;
use sordino_privacy::{Gradients, PrivacyError, Release, Round};

use crate::{
    About, Algorithm, AlgorithmError, Defaults, FactorSchedule, NoiseSource, Options, RunFacts, Steps,
    Verdict,
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
        /// Any schedule of mu_t / mu_0: fractions of the run and factors, such as 0:1/0.5:2/1:4, or @FILE with a factor for each step.
        mu_schedule: Option<FactorSchedule> = None;
        /// Any schedule of C_t / C_0, in the same form.
        clip_schedule: Option<FactorSchedule> = None;
        /// optimal: noise proportional to the square root of the clipping norm, in place of mu_growth; curvature: the same, divided by the
        /// fourth root of the curvature.
        allocation: Allocation = Allocation::Scheduled;
        /// For allocation=curvature, a schedule of curvatures Q_t, in the same form. It must be public knowledge.
        curvature: Option<FactorSchedule> = None;
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
    /// Du et al.).
    Optimal,
    /// `sigma_t` is proportional to `sqrt(C_t) / Q_t^(1/4)` for a schedule of curvatures `Q_t` (appendix A.8, equation 61).
    Curvature,
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
            (_, Allocation::Curvature) => {
                let curvature = self.curvature.as_ref().map_or(1.0, |curvature| curvature.at(part));
                self.clip_factor(part).sqrt() * curvature.sqrt().sqrt()
            }
            (Some(schedule), _) => schedule.at(part),
            (None, _) => self.mu_growth.unwrap_or(2.0).powf(part),
        }
    }

    /// Whether all steps have the same multiplier.
    pub fn mu_is_constant(&self) -> bool {
        let is_one = |schedule: &FactorSchedule| schedule.range() == [1.0, 1.0];
        let clip_is_constant = || self.clip_range() == [1.0, 1.0];
        match (&self.mu_schedule, self.allocation) {
            (_, Allocation::Optimal) => clip_is_constant(),
            (_, Allocation::Curvature) => clip_is_constant() && self.curvature.as_ref().is_none_or(is_one),
            (Some(schedule), _) => is_one(schedule),
            (None, _) => self.mu_growth == Some(1.0),
        }
    }

    /// The smallest and the largest factor of clipping norms.
    fn clip_range(&self) -> [f64; 2] {
        let ends = [self.clip_factor(0.0), self.clip_factor(1.0)];
        match &self.clip_schedule {
            Some(schedule) => schedule.range(),
            None => [ends[0].min(ends[1]), ends[0].max(ends[1])],
        }
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
            reference: "Du, Li, Chen, Chen and Hong, Algorithm 2, appendices A.7 and A.8",
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
        if self.allocation != Allocation::Scheduled
            && (self.mu_growth.is_some() || self.mu_schedule.is_some())
        {
            return both("allocation and mu_growth (or mu_schedule) both set the change of the noise");
        }
        if (self.allocation == Allocation::Curvature) != self.curvature.is_some() {
            return Err(AlgorithmError::Plan {
                problem: "allocation=curvature and the option curvature must be given together".to_owned(),
                hint: "write {algorithm=dynamic,allocation=curvature,curvature=0:1/1:4}, or leave out both",
            });
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
        for (name, schedule) in [
            ("mu_schedule", &self.mu_schedule),
            ("clip_schedule", &self.clip_schedule),
            ("curvature", &self.curvature),
        ] {
            schedule.iter().try_for_each(|schedule| schedule.check_steps(name, facts.steps))?;
        }
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
            r#"{"mu_growth":3,"allocation":"curvature","curvature":"0:1/1:2"}"#,
            r#"{"allocation":"curvature"}"#,
            r#"{"curvature":"0:1/1:2"}"#,
            r#"{"mu_growth":1e9}"#,
        ] {
            assert!(options(json).check().is_err(), "{json}");
        }
    }

    /// Equation 59 of the paper: the product of sums that the allocation minimises. The noise of the main text, with the inverse exponent
    /// of the curvature, is worse than noise that ignores the curvature.
    #[test]
    fn the_allocation_by_curvature_minimises_the_variance() {
        let dynamic = options(r#"{"clip_decay":4,"allocation":"curvature","curvature":"0:1/0.3:40/1:3"}"#);
        let parts: Vec<f64> = (1..=200).map(|t| f64::from(t) / 200.0).collect();
        let curvature = |part: f64| dynamic.curvature.as_ref().unwrap().at(part);
        let objective = |noise: &[f64]| -> f64 {
            let terms = || parts.iter().zip(noise);
            let variance: f64 = terms().map(|(part, noise)| curvature(*part) * noise * noise).sum();
            let cost: f64 = terms().map(|(part, noise)| (dynamic.clip_factor(*part) / noise).powi(2)).sum();
            variance * cost
        };
        let chosen: Vec<f64> =
            parts.iter().map(|part| dynamic.clip_factor(*part) / dynamic.mu_factor(*part)).collect();
        let best = objective(&chosen);
        let least: f64 = parts.iter().map(|part| dynamic.clip_factor(*part) * curvature(*part).sqrt()).sum();
        assert!((best / (least * least) - 1.0).abs() < 1e-12);
        let with_exponent = |exponent: f64| -> f64 {
            let noise = |part: &f64| dynamic.clip_factor(*part).sqrt() * curvature(*part).powf(exponent);
            objective(&parts.iter().map(noise).collect::<Vec<_>>())
        };
        assert!((with_exponent(-0.25) / best - 1.0).abs() < 1e-12);
        assert!(with_exponent(0.25) > with_exponent(0.0) && with_exponent(0.0) > 1.05 * best);
        // A linear congruential generator is random enough for perturbations.
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / f64::from(1_u32 << 31) - 0.5
        };
        for size in [1e-3, 0.1, 1.0] {
            for _ in 0..100 {
                let perturbed: Vec<f64> = chosen.iter().map(|noise| noise * (size * next()).exp()).collect();
                assert!(objective(&perturbed) > best, "{size}");
            }
        }
    }

    #[test]
    fn listed_schedules_need_as_many_factors_as_steps() {
        let noise = NoiseSource::Multiplier(NoiseMultiplier::new(1.5).unwrap());
        let factors: Vec<String> = (1..=30).map(|t| format!("{}", f64::from(t) / 10.0)).collect();
        let listed =
            |count: usize| options(&format!(r#"{{"mu_schedule":"steps:{}"}}"#, factors[..count].join("/")));
        let plan = listed(30).plan(&test_facts(), noise).unwrap();
        for (entry, t) in plan.entries().iter().zip(1..=30) {
            assert!((entry.effective_noise_multiplier() - 15.0 / f64::from(t)).abs() < 1e-12);
        }
        let error = listed(29).plan(&test_facts(), noise).unwrap_err().to_string();
        assert!(error.contains("29 steps, but the run has 30"), "{error}");
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
