//! A plan's guarantee beyond a single (epsilon, delta): its privacy profile, its trade-off curve, its `mu`.

use crate::{AccountingError, Delta, Epsilon, Mu, Plan, gaussian, pld};

/// The proved privacy profile of a plan: delta as a function of epsilon, from 0 to where delta is negligible.
///
/// The values are upper bounds; [`pld::profile`] has both ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    points: Vec<(Epsilon, f64)>,
}

impl Profile {
    /// The profile at `points` epsilons, evenly spaced from 0 to the epsilon at delta `floor`.
    ///
    /// # Errors
    /// As [`pld::epsilon`].
    pub fn of(plan: &Plan, floor: Delta, points: u32) -> Result<Self, AccountingError> {
        let last = pld::epsilon(plan, floor)?.upper.get();
        let parts = points.max(2) - 1;
        let epsilons = (0..=parts)
            .map(|i| Epsilon::new(last * f64::from(i) / f64::from(parts)))
            .collect::<Result<Vec<_>, _>>()?;
        let deltas = pld::profile(plan, &epsilons)?;
        Ok(Self {
            points: epsilons.into_iter().zip(deltas.into_iter().map(|bracket| bracket.upper)).collect(),
        })
    }

    /// `(epsilon, delta)`, epsilon ascending.
    pub fn points(&self) -> &[(Epsilon, f64)] {
        &self.points
    }

    /// The trade-off curve: the least type II error of any test of whether a record took part, at this type I error.
    ///
    /// `f(alpha) = max over epsilon of max(0, 1 - delta - e^epsilon alpha, e^-epsilon (1 - delta - alpha))`, a lower bound
    /// because it uses finitely many epsilons.
    ///
    /// Edge cases: 1 at a type I error of 0 or below (up to delta), 0 at 1 and above.
    pub fn type_two_error(&self, type_one_error: f64) -> f64 {
        let alpha = type_one_error.clamp(0.0, 1.0);
        let tests = self.points.iter().map(|(epsilon, delta)| {
            let e = epsilon.get().exp();
            (1.0 - delta - e * alpha).max((1.0 - delta - alpha) / e)
        });
        tests.fold(0.0, f64::max)
    }

    /// A `mu` such that the plan is at least as private as telling N(0, 1) from N(mu, 1) at every epsilon of this profile,
    /// that is, down to its floor.
    ///
    /// Below every floor sampled plans have heavier tails than any useful Gaussian (the strict `mu` is that of the plan
    /// without sampling), so a `mu` without a floor would say little.
    ///
    /// Between two epsilons, delta is at most its value at the lower one.
    ///
    /// # Errors
    /// A delta of 1, which no Gaussian reaches.
    pub fn mu(&self) -> Result<Mu, AccountingError> {
        let mut largest = 0.0_f64;
        for pair in self.points.windows(2) {
            let ((_, delta), (next, _)) = (pair[0], pair[1]);
            if delta > 0.0 {
                // The largest mu whose delta stays below: one that reaches it is a hair larger.
                largest = largest.max(gaussian::mu(next, Delta::new(delta)?).get() * (1.0 + 1e-9));
            }
        }
        Mu::new(largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, NoiseMultiplier, SamplingRate, Steps};

    fn gaussian_plan(z: f64, steps: u64) -> Plan {
        Plan::new(vec![Entry::full_batch(NoiseMultiplier::new(z).unwrap(), Steps::new(steps).unwrap())])
    }

    fn floor() -> Delta {
        Delta::new(1e-9).unwrap()
    }

    #[test]
    fn trade_off_matches_the_gaussian_closed_form() {
        // dp_accounting 0.6.0, pld_privacy_accountant_test.py: power 0.38914 at level 0.1, mu = 1.
        let profile = Profile::of(&gaussian_plan(3.0_f64.sqrt(), 3), floor(), 400).unwrap();
        assert!((1.0 - profile.type_two_error(0.1) - 0.38914).abs() < 1e-3);
        assert!(profile.type_two_error(0.0) > 0.999 && profile.type_two_error(1.0) == 0.0);
    }

    #[test]
    fn mu_of_a_gaussian_is_its_own() {
        let profile = Profile::of(&gaussian_plan(2.0, 4), floor(), 400).unwrap();
        let mu = profile.mu().unwrap().get();
        assert!((1.0..1.03).contains(&mu), "{mu}");
    }

    #[test]
    fn mu_of_a_sampled_plan_covers_its_profile() {
        let z = NoiseMultiplier::new(1.0).unwrap();
        let plan = Plan::dp_sgd(z, SamplingRate::new(0.01).unwrap(), Steps::new(500).unwrap());
        let profile = Profile::of(&plan, floor(), 60).unwrap();
        let mu = profile.mu().unwrap();
        for (epsilon, delta) in profile.points() {
            assert!(*delta <= gaussian::delta(*epsilon, mu) * (1.0 + 1e-6));
        }
        assert!(mu.get() < 0.5 * 500_f64.sqrt(), "sampling must help: {mu}");
    }
}
