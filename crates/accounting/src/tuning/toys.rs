//! Searches whose exact output probabilities are enumerated: no bound may be below them.
//!
//! A toy run has a few outputs, in the order of their scores. The best of `K` runs is output `y` with probability
//! `f(Q(<= y)) - f(Q(< y))`, where `f` is the generating function of `K`.

use super::{
    Runs, Trial,
    curve::{Curve, pure_divergence},
    renyi,
    selection::Selection,
};
use crate::{Delta, Epsilon};

/// The probabilities of the outputs of one run on two neighbouring data sets, from the worst score to the best.
type Toy = (Vec<f64>, Vec<f64>);

fn distributions() -> Vec<Runs> {
    let binomial = |eta, mean| Runs::negative_binomial(eta, mean).unwrap();
    vec![
        binomial(-0.5, 4.0),
        binomial(0.0, 20.0),
        binomial(1.0, 3.0),
        binomial(1.0, 50.0),
        binomial(4.0, 8.0),
        Runs::poisson(0.7).unwrap(),
        Runs::poisson(10.0).unwrap(),
    ]
}

/// `f(x) = E[x^K]`, from the closed forms of the papers.
fn generating_function(runs: Runs, x: f64) -> f64 {
    match runs {
        Runs::TruncatedNegativeBinomial { eta: 0.0, gamma } => (1.0 - (1.0 - gamma) * x).ln() / gamma.ln(),
        Runs::TruncatedNegativeBinomial { eta, gamma } => {
            ((1.0 - (1.0 - gamma) * x).powf(-eta) - 1.0) / (gamma.powf(-eta) - 1.0)
        }
        Runs::Poisson { mean } => (mean * (x - 1.0)).exp(),
    }
}

/// The exact probabilities of the released output; the last one is "nothing".
fn search(run: &[f64], runs: Runs) -> Vec<f64> {
    let nothing = generating_function(runs, 0.0);
    let (mut below, mut at_most) = (nothing, 0.0);
    let mut released = Vec::new();
    for probability in run {
        at_most += probability;
        let next = generating_function(runs, at_most);
        released.push(next - below);
        below = next;
    }
    released.push(nothing);
    released
}

/// `sup_S P(S) - e^epsilon Q(S)` in the worse direction.
fn delta(p: &[f64], q: &[f64], epsilon: f64) -> f64 {
    let one = |p: &[f64], q: &[f64]| -> f64 {
        p.iter().zip(q).map(|(p, q)| (p - epsilon.exp() * q).max(0.0)).sum()
    };
    one(p, q).max(one(q, p))
}

/// The exact profile of a toy, which has corners at its likelihood ratios.
fn profile((p, q): &Toy) -> Curve {
    let mut corners: Vec<f64> = p.iter().zip(q).map(|(p, q)| (p / q).ln().abs()).chain([0.0]).collect();
    corners.sort_by(f64::total_cmp);
    corners.dedup();
    Curve::through(corners.into_iter().map(|e| (e, delta(p, q, e))).collect())
}

fn normalised(weights: Vec<f64>) -> Vec<f64> {
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// Pseudo-random toys with two settings of three outputs each. A setting is drawn by a coin, and the outputs of both are interleaved.
fn random_toys(count: u64) -> Vec<Toy> {
    let mut state = 1_u64;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        crate::number::real(state >> 11) / 2_f64.powi(53)
    };
    (0..count)
        .map(|i| {
            // Half of the toys have rare outputs with large privacy losses.
            let rare = if i % 2 == 0 { 1.0 } else { 6.0 };
            let p = normalised((0..6).map(|_| uniform().powf(rare) + 1e-9).collect());
            let q = normalised(p.iter().map(|p| p * (2.0 * (uniform() - 0.5) * rare).exp()).collect());
            (p, q)
        })
        .collect()
}

/// A rare output with a large loss has the best score, and a likely one with a small loss is next.
fn top_heavy() -> Toy {
    let p = vec![0.890, 0.1, 0.01];
    let q = vec![0.9496, 0.05, 0.0004];
    (p, q)
}

#[test]
fn no_search_exceeds_the_bound_from_its_profile() {
    let mut closest = 0.0_f64;
    for toy in random_toys(120).into_iter().chain([top_heavy()]) {
        let curve = profile(&toy);
        for runs in distributions() {
            let (p, q) = (search(&toy.0, runs), search(&toy.1, runs));
            assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            let selection = Selection::new(&curve, runs);
            for i in 0..30 {
                let epsilon = 0.15 * f64::from(i);
                let (exact, bound) = (delta(&p, &q, epsilon), selection.delta(epsilon));
                assert!(exact <= bound + 1e-12, "{runs:?} {epsilon}: {exact} {bound} {toy:?}");
                if exact > 1e-6 {
                    closest = closest.max(exact / bound);
                }
            }
        }
    }
    // A bound that lacks a factor, for example E[K], would be below the exact value.
    assert!(closest > 0.9, "{closest}");
}

/// Epsilon at a small delta: the bound is close for a rare output with the best score.
#[test]
fn epsilon_is_close_to_that_of_a_worst_case() {
    let toy = top_heavy();
    let curve = profile(&toy);
    let mut closest = 0.0_f64;
    for runs in distributions() {
        let (p, q) = (search(&toy.0, runs), search(&toy.1, runs));
        let bound = Selection::new(&curve, runs).epsilon(Delta::new(1e-3).unwrap()).unwrap();
        assert!(delta(&p, &q, bound) <= 1e-3, "{runs:?}");
        let mut exact = bound;
        while exact > 0.0 && delta(&p, &q, exact) <= 1e-3 {
            exact -= 1e-3;
        }
        closest = closest.max(exact / bound);
    }
    assert!(closest > 0.9, "{closest}");
}

/// Runs that are pure: the bounds from randomised response, by profile and by Renyi divergence.
#[test]
fn no_search_over_pure_runs_exceeds_its_price() {
    for toy in random_toys(25) {
        let largest = toy.0.iter().zip(&toy.1).map(|(p, q)| (p / q).ln().abs()).fold(0.0, f64::max);
        let epsilon = Epsilon::new(largest).unwrap();
        for runs in distributions() {
            let d = Delta::new(1e-4).unwrap();
            let price = Trial::pure(epsilon).price(runs, d).unwrap();
            let (p, q) = (search(&toy.0, runs), search(&toy.1, runs));
            for bound in [price.profile.unwrap(), price.renyi.unwrap()] {
                assert!(delta(&p, &q, bound.get()) <= d.get(), "{runs:?}: {price:?}");
            }
            if let Runs::TruncatedNegativeBinomial { eta, .. } = runs {
                let most = (2.0 + eta) * largest;
                assert!(price.epsilon().get() <= most + 0.02 * (1.0 + eta), "{runs:?}: {price:?} {most}");
            }
        }
    }
}

/// The Renyi bound, from the exact divergence of the toy.
#[test]
fn no_search_exceeds_the_renyi_bound() {
    for toy in random_toys(25).into_iter().chain([top_heavy()]) {
        let divergence = |order: f64| {
            let one = |p: &[f64], q: &[f64]| {
                p.iter().zip(q).map(|(p, q)| q * (p / q).powf(order)).sum::<f64>().ln() / (order - 1.0)
            };
            one(&toy.0, &toy.1).max(one(&toy.1, &toy.0))
        };
        let curve = profile(&toy);
        for runs in distributions() {
            let d = Delta::new(1e-3).unwrap();
            let bound = renyi::epsilon(divergence, |e| curve.delta(e), runs, d).unwrap();
            let (p, q) = (search(&toy.0, runs), search(&toy.1, runs));
            assert!(delta(&p, &q, bound.get()) <= d.get(), "{runs:?}: {bound}");
        }
    }
    assert!(pure_divergence(Epsilon::new(1.0).unwrap(), 1e6) <= 1.0);
}
