//! Trade-off curves: the smallest rate of false negatives that a mechanism permits at a given rate of false positives.

use sordino_accounting::{Delta, Epsilon, gaussian};

use super::{
    normal::{cdf, quantile},
    search::largest_refuted,
};

/// A trade-off curve `f`: an attacker with a rate of false positives `x` has a rate of false negatives of at least `f(x)`.
pub type Curve = Box<dyn Fn(f64) -> f64>;

/// Trade-off curves, one for each epsilon. The curve of a larger epsilon is lower or the same.
///
/// A lower bound on epsilon that uses a family refutes the curves of all smaller epsilons. It is a lower bound on the epsilon of the
/// mechanism if the mechanism's own curve belongs to the family, which is the *assumption* of the family. The family
/// [`approximate`](Self::approximate) assumes nothing, because every (epsilon, delta)-private mechanism is above that curve.
///
/// **References.** Dong, Roth and Su, "Gaussian Differential Privacy" (2019), Definitions 2.1 to 2.6; Wasserman and Zhou (2010).
pub struct Family {
    pub(super) name: String,
    pub(super) assumption: Option<String>,
    curve: Box<dyn Fn(Epsilon) -> Curve>,
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
        Self { name: "(epsilon, delta) curve".to_owned(), assumption: None, curve: Box::new(curve) }
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
        Self {
            name: "Gaussian curve".to_owned(),
            assumption: Some(GAUSSIAN.to_owned()),
            curve: Box::new(curve),
        }
    }

    /// The curve of a known mechanism, for example of sampled Gaussian noise, as a function of epsilon.
    ///
    /// `assumption` says which mechanism it is. The curve of a larger epsilon has to be lower or the same. For a use with
    /// [`one_run_fdp`](super::one_run_fdp) curves have to be symmetric (`f` is its own inverse).
    pub fn of_mechanism(
        name: impl Into<String>,
        assumption: impl Into<String>,
        curve: impl Fn(Epsilon) -> Curve + 'static,
    ) -> Self {
        Self { name: name.into(), assumption: Some(assumption.into()), curve: Box::new(curve) }
    }

    /// The curve at an epsilon.
    pub(super) fn at(&self, epsilon: f64) -> Curve {
        (self.curve)(Epsilon::new(epsilon).expect("the search stays finite and at or above 0"))
    }

    /// The largest epsilon whose curve is above the point, so that no mechanism with that curve permits such an attack.
    ///
    /// `refuted` of the search is monotone because curves become lower as epsilon grows.
    pub(super) fn largest_above(&self, false_positive_rate: f64, false_negative_rate: f64) -> f64 {
        largest_refuted(|epsilon| false_negative_rate < self.at(epsilon)(false_positive_rate))
    }
}

/// What bounds that use a Gaussian curve assume.
pub(super) const GAUSSIAN: &str = "the trade-off curve is Gaussian";

#[cfg(test)]
mod tests {
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
}
