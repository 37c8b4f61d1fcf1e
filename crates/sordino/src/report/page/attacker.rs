//! What an attacker who decides whether a record was used can achieve at most.

use serde::Serialize;
use sordino_accounting::{Delta, Guarantee, Plan, profile::Profile};

/// The false positive rates at which reports state the largest true positive rate.
const RATES: [f64; 3] = [0.001, 0.01, 0.1];

/// The number of epsilons of a privacy profile. For a Gaussian mechanism, the bounds at [`RATES`] are then at most 0.4 % above the best test.
const EPSILONS: u32 = 65;

/// The best attacker that a guarantee permits. All values are upper bounds.
///
/// An attacker sees all releases of the run, knows every other record, and decides whether one record was used. A test with false positive
/// rate `a` has a true positive rate of at most `1 - f(a)`, for the trade-off curve `f`
/// (Dong, Roth and Su 2022, Proposition 6; Kairouz, Oh and Viswanath 2015).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Attacker {
    /// The largest true positive rate at some false positive rates.
    pub rates: Vec<Rates>,
    /// The whole curve.
    pub curve: Vec<Rates>,
    /// The largest share of right guesses if both answers are equally likely.
    pub right_guesses: f64,
    /// Whether the curve comes from the whole privacy profile of the plan, and not from epsilon and delta alone.
    pub whole_profile: bool,
}

/// The rates of a test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rates {
    /// How often a record that was not used is taken for one that was.
    pub false_positive_rate: f64,
    /// How often a record that was used is recognised.
    pub true_positive_rate: f64,
}

impl Attacker {
    /// The best attacker against a plan: by its privacy profile if that can be computed, otherwise by its epsilon and delta.
    pub fn against(plan: &Plan, guarantee: &Guarantee) -> Self {
        let by_pair = Self::permitted_by(guarantee.epsilon.get(), guarantee.delta.get());
        let floor = Delta::new(1e-9);
        match floor.and_then(|floor| Profile::of(plan, floor, EPSILONS)) {
            Ok(profile) => {
                // Delta at epsilon 0 is the total variation distance.
                let distance = profile.points().first().map_or(1.0, |(_, delta)| *delta);
                let power = |rate| 1.0 - profile.type_two_error(rate);
                Self::new(power, ((1.0 + distance) / 2.0).min(1.0), true)
            }
            Err(_) => by_pair,
        }
    }

    /// The best attacker that epsilon and delta alone permit.
    pub fn permitted_by(epsilon: f64, delta: f64) -> Self {
        // A larger epsilon permits everything as well, and its exponential would be infinite.
        let e = epsilon.min(700.0).exp();
        let power = |rate: f64| (e * rate + delta).min(1.0 - (1.0 - delta - rate) / e).clamp(0.0, 1.0);
        // (e^epsilon - 1 + 2 delta) / (e^epsilon + 1), without overflow.
        let distance = 1.0 - 2.0 * (1.0 - delta) / (e + 1.0);
        Self::new(power, ((1.0 + distance) / 2.0).clamp(0.5, 1.0), false)
    }

    fn new(power: impl Fn(f64) -> f64, right_guesses: f64, whole_profile: bool) -> Self {
        let at =
            |rate: f64| Rates { false_positive_rate: rate, true_positive_rate: power(rate).clamp(rate, 1.0) };
        Self {
            rates: RATES.map(at).to_vec(),
            curve: curve_rates().map(at).collect(),
            right_guesses,
            whole_profile,
        }
    }
}

/// False positive rates from 0 to 1, closer to each other near 0, where curves are steep. As percentages they have two decimals.
fn curve_rates() -> impl Iterator<Item = f64> {
    (0..=50).map(|i| f64::from(i * i) / 2500.0)
}

#[cfg(test)]
mod tests {
    use sordino_accounting::{Accountant, Entry, NoiseMultiplier, Steps, gaussian};

    use super::*;

    /// The inverse of the normal distribution function, by bisection of its complementary error function.
    fn quantile(share: f64) -> f64 {
        let (mut low, mut high) = (-40.0_f64, 40.0_f64);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if normal(middle) < share { low = middle } else { high = middle }
        }
        low
    }

    /// The normal distribution function: Simpson's rule from -40.
    fn normal(x: f64) -> f64 {
        let (steps, from) = (20_000, -40.0);
        let width = (x - from) / f64::from(steps);
        let density = |t: f64| (-0.5 * t * t).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let inside: f64 = (1..steps)
            .map(|i| f64::from(if i % 2 == 1 { 4 } else { 2 }) * density(from + width * f64::from(i)))
            .sum();
        (density(from) + inside + density(x)) * width / 3.0
    }

    #[test]
    fn the_bounds_of_a_gaussian_mechanism_are_those_of_the_best_test() {
        // Dong, Roth and Su 2022: the best test of N(0, 1) against N(mu, 1) has power Phi(Phi^-1(a) + mu).
        for (noise, steps) in [(1.0, 1), (4.0, 4), (0.5, 1)] {
            let plan = Plan::new(vec![Entry::full_batch(
                NoiseMultiplier::new(noise).unwrap(),
                Steps::new(steps).unwrap(),
            )]);
            let mu = (steps as f64).sqrt() / noise;
            let guarantee = Accountant::Pld.price(&plan, Delta::new(1e-5).unwrap()).unwrap();
            let attacker = Attacker::against(&plan, &guarantee);
            assert!(attacker.whole_profile);
            for Rates { false_positive_rate, true_positive_rate } in &attacker.rates {
                let best = normal(quantile(*false_positive_rate) + mu);
                assert!(*true_positive_rate >= best - 1e-9, "mu {mu}: {true_positive_rate} is below {best}");
                assert!(
                    *true_positive_rate <= 1.01 * best + 1e-4,
                    "mu {mu}: {true_positive_rate} is far above {best}"
                );
            }
            let right = normal(mu / 2.0);
            assert!((right - 1e-9..1.001 * right).contains(&attacker.right_guesses), "{right}: {attacker:?}");
        }
    }

    #[test]
    fn epsilon_and_delta_alone_permit_at_least_as_much() {
        let plan =
            Plan::new(vec![Entry::full_batch(NoiseMultiplier::new(2.0).unwrap(), Steps::new(3).unwrap())]);
        let guarantee = Accountant::Pld.price(&plan, Delta::new(1e-5).unwrap()).unwrap();
        let [whole, pair] = [
            Attacker::against(&plan, &guarantee),
            Attacker::permitted_by(guarantee.epsilon.get(), guarantee.delta.get()),
        ];
        for (whole, pair) in whole.curve.iter().zip(&pair.curve) {
            assert!(whole.true_positive_rate <= pair.true_positive_rate + 1e-9, "{whole:?} {pair:?}");
        }
        assert!(whole.right_guesses < pair.right_guesses);
        // The pair itself comes from a Gaussian, whose delta at this epsilon it is.
        let mu = gaussian::mu(guarantee.epsilon, guarantee.delta).get();
        assert!((mu - 3_f64.sqrt() / 2.0).abs() < 1e-2);
    }

    #[test]
    fn no_budget_and_an_endless_one_are_the_two_extremes() {
        let nothing = Attacker::permitted_by(0.0, 0.0);
        assert!(
            nothing
                .curve
                .iter()
                .all(|rates| (rates.true_positive_rate - rates.false_positive_rate).abs() < 1e-12)
        );
        assert_eq!(nothing.right_guesses, 0.5);
        let everything = Attacker::permitted_by(1e4, 0.0);
        assert!(everything.rates.iter().all(|rates| rates.true_positive_rate == 1.0));
        assert_eq!(everything.right_guesses, 1.0);
    }
}
