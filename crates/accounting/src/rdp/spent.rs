//! The epsilon that is spent after each step, by Renyi divergences.
//!
//! A schedule may have thousands of different multipliers, and each order needs an integral for each of them. Two upper bounds make this
//! fast. After a hundred steps the result is less than two per cent above [`epsilon`](super::epsilon). After the first steps,
//! where the best order is large, it can be a few per cent above.
//!
//! - *Orders*: a fixed list, from which each step takes the best. Every order gives a valid bound.
//! - *Multipliers*: only those of a ladder are integrated. `A(alpha) = E_Q[(P/Q)^alpha]` is an f-divergence up to constants, that is,
//!   `integral f''(y) (h(y) - max(1 - y, 0)) dy` with `f(y) = y^alpha` and the hockey-stick curve `h` of the pair. At every `y`, `h` is a
//!   convex function of `u(mu) = 2 Phi(mu/2) - 1` (the lemma in `docs/accounting.md`), and `f''` is positive. So `A` is convex in `u`,
//!   and the chord between two rungs is above it.

use std::f64::consts::FRAC_1_SQRT_2;

use super::{NAME, Order, sampled_gaussian, to_epsilon};
use crate::{AccountingError, Delta, Epsilon, Plan, Sampling};

/// The distance of two neighbouring rungs, as a ratio.
const RUNG: f64 = 1.01;
/// The orders minus 1: the smallest, the limit, and the ratio of two neighbours.
const EXCESS: (f64, f64, f64) = (0.25, 4e2, 1.05);
/// Above this `ln A`, 1 is negligible compared with `A`.
const LARGE: f64 = 40.0;

/// The epsilon of the first step, of the first two steps, and so on, of a plan with Poisson batches without a cap.
///
/// # Errors
/// The plan has other batches; an epsilon is not a finite number.
pub fn spent(plan: &Plan, delta: Delta) -> Result<Vec<Epsilon>, AccountingError> {
    let orders: Vec<f64> = std::iter::successors(Some(EXCESS.0), |excess| Some(excess * EXCESS.2))
        .take_while(|excess| *excess <= EXCESS.1)
        .map(|excess| 1.0 + excess)
        .collect();
    let mut ladders: Vec<Ladder> = Vec::new();
    let mut total = vec![0.0; orders.len()];
    let mut epsilons = Vec::new();
    for entry in plan.entries() {
        let Sampling::Poisson { rate, cap: None } = entry.sampling() else {
            return Err(AccountingError::Unsupported {
                accountant: NAME,
                entry: entry.to_string(),
                reason: "the epsilon after each step is computed for Poisson batches without a cap"
                    .to_owned(),
                instead: "price the plan as a whole",
            });
        };
        let (rate, mu) = (rate.get(), 1.0 / entry.effective_noise_multiplier());
        let ladder = match ladders.iter().position(|ladder| ladder.rate.total_cmp(&rate).is_eq()) {
            Some(known) => &mut ladders[known],
            None => {
                ladders.push(Ladder { rate, rungs: Vec::new() });
                ladders.last_mut().expect("just pushed")
            }
        };
        let costs = ladder.divergences(mu, &orders);
        for _ in 0..entry.steps().get() {
            total.iter_mut().zip(&costs).for_each(|(total, cost)| *total += cost);
            let bound = |(order, divergence): (&f64, &f64)| to_epsilon(Order(*order), *divergence, delta);
            // A NaN is not smaller than infinity and is left out.
            let best = orders
                .iter()
                .zip(&total)
                .map(bound)
                .fold(f64::INFINITY, |best, bound| if bound < best { bound } else { best });
            epsilons.push(Epsilon::new(best)?);
        }
    }
    Ok(epsilons)
}

/// `ln A` at all orders, for the multipliers of a ladder.
struct Ladder {
    rate: f64,
    /// Sorted by the number of the rung.
    rungs: Vec<(i64, Vec<f64>)>,
}

impl Ladder {
    /// Upper bounds on the divergences of a step with this `mu`.
    fn divergences(&mut self, mu: f64, orders: &[f64]) -> Vec<f64> {
        #[expect(clippy::cast_possible_truncation, reason = "the logarithm of a multiplier is small")]
        let below = (mu.ln() / RUNG.ln()).floor() as i64;
        let [left, right] = [below, below + 1].map(place);
        let share = share(left, mu, right);
        self.integrate(below, orders);
        self.integrate(below + 1, orders);
        let at =
            |rung: i64| self.rungs.binary_search_by_key(&rung, |(number, _)| *number).expect("integrated");
        let (left, right) = (&self.rungs[at(below)].1, &self.rungs[at(below + 1)].1);
        let chord =
            |(index, order): (usize, &f64)| ln_chord(left[index], right[index], share) / (order - 1.0);
        orders.iter().enumerate().map(chord).collect()
    }

    fn integrate(&mut self, rung: i64, orders: &[f64]) {
        if let Err(index) = self.rungs.binary_search_by_key(&rung, |(number, _)| *number) {
            let ln_moment =
                |order: &f64| (order - 1.0) * sampled_gaussian::divergence(self.rate, place(rung), *order);
            self.rungs.insert(index, (rung, orders.iter().map(ln_moment).collect()));
        }
    }
}

/// The `mu` of a rung.
fn place(rung: i64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "the logarithm of a multiplier is small")]
    (rung as f64 * RUNG.ln()).exp()
}

/// The place of `u(mu)` between `u(left)` and `u(right)`, with `u(mu) = 2 Phi(mu/2) - 1`. Where they cannot be told apart it is 1: the right
/// rung is always an upper bound.
fn share(left: f64, mu: f64, right: f64) -> f64 {
    let tail = |mu: f64| libm::erfc(0.5 * mu * FRAC_1_SQRT_2);
    match (tail(left) - tail(mu)) / (tail(left) - tail(right)) {
        share if share >= 0.0 => share.min(1.0),
        share if share < 0.0 => 0.0,
        _ => 1.0,
    }
}

/// `ln((1 - s) e^a + s e^b)`, accurate for small and for large `a <= b`.
fn ln_chord(a: f64, b: f64, share: f64) -> f64 {
    if b < LARGE {
        return ((1.0 - share) * a.exp_m1() + share * b.exp_m1()).ln_1p();
    }
    // The larger of the two terms is taken out, so that neither can underflow alone.
    let terms = [a + (1.0 - share).ln(), b + share.ln()];
    let most = terms[0].max(terms[1]);
    most + ((terms[0] - most).exp() + (terms[1] - most).exp()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, NoiseMultiplier, SamplingRate, Steps, rdp};

    /// The reference is the exact divergence at the best order.
    #[test]
    fn spending_is_slightly_above_the_price_of_every_prefix() {
        let delta = Delta::new(1e-6).unwrap();
        for (rate, first, last) in [(0.004, 2.0, 0.9), (0.1, 6.0, 6.0), (0.02, 0.8, 3.0)] {
            let entry = |t: u32| {
                let z = first * f64::powf(last / first, f64::from(t) / 120.0);
                let rate = SamplingRate::new(rate).unwrap();
                Entry::poisson(NoiseMultiplier::new(z).unwrap(), rate, Steps::new(1).unwrap())
            };
            let plan: Plan = (1..=120).map(entry).collect();
            let spent = spent(&plan, delta).unwrap();
            assert_eq!(spent.len(), 120);
            for steps in [1, 2, 30, 119, 120] {
                let exact = rdp::epsilon(&plan.first(steps), delta).unwrap().get();
                let found = spent[usize::try_from(steps).unwrap() - 1].get();
                let excess = if steps < 100 { 1.1 } else { 1.02 };
                assert!(
                    found >= exact * (1.0 - 1e-4) && found <= excess * exact,
                    "{rate} {steps}: {found} {exact}"
                );
            }
        }
    }

    /// Multipliers on a rung, and multipliers so small that distances saturate. Once, the chord of such a step underflowed, and its epsilon
    /// was 0.
    #[test]
    fn a_multiplier_on_a_rung_or_far_out_is_not_free() {
        let delta = Delta::new(1e-5).unwrap();
        for z in [1.0, 1.0 / place(37), 1.0 / place(-80), 0.2, 0.055, 0.02, 0.01] {
            for rate in [0.01, 0.5] {
                let plan = Plan::of_numbers(z, rate, 20);
                let (exact, found) =
                    (rdp::epsilon(&plan, delta).unwrap().get(), spent(&plan, delta).unwrap()[19].get());
                assert!(found >= exact * (1.0 - 1e-4), "{z} {rate}: {found} {exact}");
            }
        }
        assert!(
            (ln_chord(-2.0, 900.0, 0.0) + 2.0).abs() < 1e-12
                && (ln_chord(3.0, 900.0, 1.0) - 900.0).abs() < 1e-9
        );
        assert!((share(100.0, 100.5, 101.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn chords_are_above_the_divergence_of_every_multiplier() {
        let orders = [1.5, 4.0, 20.0];
        let mut ladder = Ladder { rate: 0.01, rungs: Vec::new() };
        for mu in [0.003, 0.0517, 0.4, 1.0, 1.01, 2.333] {
            for (order, bound) in orders.iter().zip(ladder.divergences(mu, &orders)) {
                let exact = sampled_gaussian::divergence(0.01, mu, *order);
                assert!(
                    bound >= exact * (1.0 - 1e-9) && bound < 1.05 * exact,
                    "{mu} {order}: {bound} {exact}"
                );
            }
        }
    }

    #[test]
    fn equal_steps_are_counted_one_by_one_and_other_batches_are_refused() {
        let delta = Delta::new(1e-5).unwrap();
        let spent_on = |plan: &Plan| spent(plan, delta);
        let together = spent_on(&Plan::of_numbers(1.3, 0.01, 40)).unwrap();
        let apart: Plan = (0..40).flat_map(|_| Plan::of_numbers(1.3, 0.01, 1).entries().to_vec()).collect();
        assert_eq!(together, spent_on(&apart).unwrap());
        assert!(together.windows(2).all(|pair| pair[0] <= pair[1]));
        let full =
            Plan::new(vec![Entry::full_batch(NoiseMultiplier::new(2.0).unwrap(), Steps::new(3).unwrap())]);
        assert!(matches!(spent_on(&full), Err(AccountingError::Unsupported { .. })));
    }
}
