//! The guarantee of a plan beyond a single (epsilon, delta): the privacy profile, the trade-off curve and `mu`.

use crate::{AccountingError, Delta, Epsilon, Mu, Plan, gaussian, pld};

/// The privacy profile of a plan: delta as a function of epsilon, from epsilon 0 to where delta is negligible.
///
/// The values are proved upper bounds. [`pld::profile`] also computes lower bounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    points: Vec<(Epsilon, f64)>,
}

impl Profile {
    /// The number of points of the curves that the command and the Python package compute.
    pub const POINTS: u32 = 97;

    /// The profile at `points` epsilons, evenly spaced from 0 to the epsilon at which delta is `floor`.
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

    /// Pairs of epsilon and delta, with epsilon ascending.
    pub fn points(&self) -> &[(Epsilon, f64)] {
        &self.points
    }

    /// The trade-off curve: a lower bound on the type II error of every test of whether a record took part, at this type I error.
    ///
    /// `f(alpha) = max over epsilon of max(0, 1 - delta - e^epsilon alpha, e^-epsilon (1 - delta - alpha))`, over the
    /// epsilons of this profile. More epsilons would give a larger bound.
    ///
    /// Edge cases: 1 minus the smallest delta at a type I error of 0 and below; 0 at 1 and above.
    pub fn type_two_error(&self, type_one_error: f64) -> f64 {
        let alpha = type_one_error.clamp(0.0, 1.0);
        let tests = self.points.iter().map(|(epsilon, delta)| {
            let e = epsilon.get().exp();
            (1.0 - delta - e * alpha).max((1.0 - delta - alpha) / e)
        });
        tests.fold(0.0, f64::max)
    }

    /// A `mu` such that telling whether a record took part is at least as hard as telling N(0, 1) from N(mu, 1), at every epsilon
    /// of this profile, that is, for deltas down to its floor.
    ///
    /// For smaller deltas, plans with sampling have heavier tails than any useful Gaussian: the `mu` that holds for every delta is
    /// that of the plan without sampling.
    ///
    /// Between two epsilons, delta is at most its value at the lower one.
    ///
    /// # Errors
    /// The profile has a delta of 1, which no Gaussian has.
    pub fn mu(&self) -> Result<Mu, AccountingError> {
        let mut largest = 0.0_f64;
        for pair in self.points.windows(2) {
            let ((_, delta), (next, _)) = (pair[0], pair[1]);
            if delta > 0.0 {
                // `gaussian::mu` is rounded down, but this must be an upper bound.
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
