//! Trade-off curves: the smallest rate of false negatives that a mechanism permits at a given rate of false positives.

use sordino_accounting::{
    Accountant, AccountingError, Delta, Epsilon, Plan,
    calibrate::{Budget, noise_scale},
    gaussian, pld,
    profile::Profile,
};

use super::{
    normal::{cdf, quantile},
    search::{FINE, largest_refuted},
};

/// A trade-off curve `f`: an attacker with a rate of false positives `x` has a rate of false negatives of at least `f(x)`.
pub type Curve = Box<dyn Fn(f64) -> f64 + Send + Sync>;

/// Trade-off curves, one for each epsilon. The curve of a larger epsilon is lower or the same.
///
/// A lower bound on epsilon that uses a family refutes the curves of all smaller epsilons. It is a lower bound on the epsilon of the
/// mechanism if the mechanism's own curve belongs to the family, which is the *assumption* of the family. The family
/// [`approximate`](Self::approximate) assumes nothing, because every (epsilon, delta)-private mechanism is above that curve.
///
/// **References.** Dong, Roth and Su, "Gaussian Differential Privacy" (2019), for trade-off curves and their families.
pub struct Family {
    pub(super) name: String,
    pub(super) assumption: Option<String>,
    curve: Box<dyn Fn(Epsilon) -> Curve + Send + Sync>,
    /// The relative error of a bound, by which it is rounded down.
    relative_error: f64,
}

impl Family {
    /// What (epsilon, delta)-differential privacy implies, for any mechanism:
    ///
    /// ```text
    /// f(x) = max(0, 1 - delta - e^epsilon x, e^-epsilon (1 - delta - x)).
    /// ```
    pub fn approximate(delta: Delta) -> Self {
        let delta = delta.get();
        let curve = move |epsilon: Epsilon| -> Curve {
            let growth = epsilon.get().exp();
            Box::new(move |x| {
                let steep = if x == 0.0 { 1.0 - delta } else { 1.0 - delta - growth * x };
                steep.max((1.0 - delta - x) / growth).max(0.0)
            })
        };
        Self {
            name: "(epsilon, delta) curve".to_owned(),
            assumption: None,
            curve: Box::new(curve),
            relative_error: FINE,
        }
    }

    /// The curve of the Gaussian mechanism with exactly this epsilon and delta:
    ///
    /// ```text
    /// f(x) = Phi(Phi^-1(1 - x) - mu),      delta = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2).
    /// ```
    ///
    /// It assumes that the trade-off curve is Gaussian. Full-batch training with Gaussian noise satisfies this. Training with sampled batches
    /// does so approximately, if there are many steps.
    pub fn gaussian(delta: Delta) -> Self {
        let curve = move |epsilon: Epsilon| -> Curve {
            let mu = gaussian::mu(epsilon, delta).get();
            Box::new(move |x| cdf(-quantile(x) - mu))
        };
        Self::of_mechanism("Gaussian curve", GAUSSIAN, curve)
    }

    /// The curve of a known mechanism as a function of epsilon.
    ///
    /// `assumption` states which mechanism it is. The curve of a larger epsilon has to be lower or the same. For
    /// [`one_run_fdp`](super::one_run_fdp) the curves have to be convex and symmetric (each is its own inverse).
    pub fn of_mechanism(
        name: impl Into<String>,
        assumption: impl Into<String>,
        curve: impl Fn(Epsilon) -> Curve + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            assumption: Some(assumption.into()),
            curve: Box::new(curve),
            relative_error: FINE,
        }
    }

    /// The curves of a plan whose noise is multiplied by an unknown factor: at each epsilon, the least noise with which the plan has that
    /// epsilon at delta.
    ///
    /// Unlike a Gaussian curve, this is correct for sampled batches. It assumes that the run differs from its plan only in the amount of noise.
    /// A bound takes some 15 evaluations of a privacy profile, that is, several seconds for a long plan. It is rounded down by 0.5 %,
    /// which covers the error of the calibration.
    ///
    /// **Edge cases.** An epsilon for which the noise cannot be calibrated is never refuted.
    ///
    /// # Errors
    /// The plan has no privacy loss distribution, for example because its batches have a fixed size.
    pub fn of_plan(plan: Plan, delta: Delta) -> Result<Self, AccountingError> {
        pld::epsilon(&plan, delta)?;
        let curve = move |epsilon: Epsilon| -> Curve {
            if epsilon.get() == 0.0 {
                let none = 1.0 - delta.get();
                return Box::new(move |x| (none - x).max(0.0));
            }
            match profile_at(&plan, epsilon, delta) {
                Ok(profile) => Box::new(move |x| profile.type_two_error(x)),
                Err(_) => Box::new(|_| 0.0),
            }
        };
        let assumption = "the run differs from its plan only in the amount of noise";
        Ok(Self { relative_error: 0.005, ..Self::of_mechanism("curve of the plan", assumption, curve) })
    }

    /// The curve at an epsilon.
    pub(super) fn at(&self, epsilon: f64) -> Curve {
        (self.curve)(Epsilon::new(epsilon).expect("the search stays finite and at or above 0"))
    }

    /// The largest epsilon whose curve is refuted. The test has to refute every curve that is above a refuted one.
    pub(super) fn largest_refuted(&self, refutes: impl Fn(&Curve) -> bool) -> f64 {
        largest_refuted(self.relative_error, |epsilon| refutes(&self.at(epsilon)))
    }

    /// The largest epsilon whose curve is above the point, so that no mechanism with that curve permits such an attack.
    pub(super) fn largest_above(&self, false_positive_rate: f64, false_negative_rate: f64) -> f64 {
        self.largest_refuted(|curve| false_negative_rate < curve(false_positive_rate))
    }
}

/// The privacy profile of a plan with the least noise that meets this epsilon.
fn profile_at(plan: &Plan, epsilon: Epsilon, delta: Delta) -> Result<Profile, AccountingError> {
    // The profile at much smaller deltas is not relevant for rates that can be measured.
    const POINTS: u32 = 40;
    let scale = noise_scale(plan, Budget { epsilon, delta }, Accountant::Pld)?.value;
    Profile::of(&plan.scaled(scale)?, delta, POINTS)
}

/// What bounds that use a Gaussian curve assume.
pub(super) const GAUSSIAN: &str = "the trade-off curve is Gaussian";

#[cfg(test)]
mod tests {
    use sordino_accounting::{Entry, NoiseMultiplier, Sampling, SamplingRate, Steps};

    use super::*;

    fn delta() -> Delta {
        Delta::new(1e-5).unwrap()
    }

    fn own_inverse(family: &Family) {
        for epsilon in [0.0, 0.3, 2.0, 8.0] {
            let f = family.at(epsilon);
            let mut last = f64::INFINITY;
            for i in 0..=100 {
                let x = f64::from(i) / 100.0;
                assert!(f(x) <= last && (0.0..=1.0).contains(&f(x)), "{epsilon} {x}");
                assert!(f(x) <= 1.0 - x + 1e-12);
                last = f(x);
                if f(x) > 1e-6 {
                    assert!((f(f(x)) - x).abs() < 1e-5 + 1e-3 * x, "{epsilon} {x}: {}", f(f(x)));
                }
            }
        }
    }

    #[test]
    fn curves_are_decreasing_and_their_own_inverse() {
        own_inverse(&Family::approximate(delta()));
        own_inverse(&Family::gaussian(delta()));
    }

    #[test]
    fn curves_become_lower_as_epsilon_grows() {
        for family in [Family::approximate(delta()), Family::gaussian(delta())] {
            for x in [0.0, 1e-4, 0.01, 0.3, 0.9, 1.0] {
                let values = [0.0, 0.5, 1.0, 3.0, 10.0].map(|epsilon| family.at(epsilon)(x));
                assert!(values.is_sorted_by(|a, b| a >= b), "{x}: {values:?}");
            }
        }
    }

    /// The bound of Jagielski et al. in closed form, and with the roles of members and non-members exchanged.
    #[test]
    fn the_search_agrees_with_closed_forms() {
        for (fpr, fnr) in [(0.01_f64, 0.5_f64), (0.3, 0.02), (0.001, 0.001), (0.4, 0.5), (0.9, 0.9)] {
            let d = 1e-5;
            let closed = ((1.0 - fnr - d) / fpr).ln().max(((1.0 - fpr - d) / fnr).ln()).max(0.0);
            let found = Family::approximate(delta()).largest_above(fpr, fnr);
            assert!((found - closed).abs() < 1e-5, "{fpr} {fnr}: {found} against {closed}");
            let mu = (-quantile(fpr) - quantile(fnr)).max(0.0);
            let closed = gaussian::epsilon(sordino_accounting::Mu::new(mu).unwrap(), delta()).get();
            let found = Family::gaussian(delta()).largest_above(fpr, fnr);
            assert!((found - closed).abs() < 1e-5, "{fpr} {fnr}: {found} against {closed}");
        }
    }

    /// A point on the plan's own curve refutes all smaller epsilons, and not the plan's own.
    #[test]
    fn the_curve_of_a_plan_gives_back_its_epsilon() {
        let (rate, steps) = (SamplingRate::new(0.1).unwrap(), Steps::new(20).unwrap());
        let plan = Plan::dp_sgd(NoiseMultiplier::new(1.0).unwrap(), rate, steps);
        let epsilon = pld::epsilon(&plan, delta()).unwrap();
        let profile = Profile::of(&plan, delta(), 100).unwrap();
        let family = Family::of_plan(plan, delta()).unwrap();
        let (x, y) = (0.1, profile.type_two_error(0.1));
        let found = family.largest_above(x, y);
        assert!(found <= epsilon.lower.get() && found > 0.95 * epsilon.lower.get(), "{found} of {epsilon:?}");
        // The tails of a sampled plan are heavier than those of a Gaussian through the same point.
        let by_gaussian = Family::gaussian(delta()).largest_above(x, y);
        assert!(by_gaussian < 0.9 * found, "{by_gaussian} {found}");
        assert_eq!(family.largest_above(0.3, 0.8), 0.0);
    }

    #[test]
    fn a_plan_without_a_privacy_loss_distribution_is_refused() {
        let (size, population) = (10, 100);
        let sampling = Sampling::FixedSize { batch_size: size, population };
        let z = NoiseMultiplier::new(1.0).unwrap();
        let entry = Entry::new(sampling, vec![z], Steps::new(5).unwrap()).unwrap();
        assert!(Family::of_plan(Plan::new(vec![entry]), delta()).is_err());
    }
}
