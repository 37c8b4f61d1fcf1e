//! Table 2 of the DP-C4 paper: which algorithms stay at a solution where gradients are not 0 but add up to 0.

#[path = "../../examples/at_the_solution.rs"]
#[expect(dead_code, reason = "the example's table is not printed here")]
mod at_the_solution;

use at_the_solution::{ALGORITHMS, Outcome, Randomly, facts, run};
use sordino_algorithms::Algorithm;

use crate::toy_quadratic::{config, terms};

fn algorithm(name: &str) -> &'static str {
    ALGORITHMS.iter().find(|(other, _)| *other == name).unwrap().1
}

/// As run, without sampling, without noise, and without both.
fn outcomes(name: &str) -> [Outcome; 4] {
    [Randomly::Run, Randomly::Noisy, Randomly::Sampled, Randomly::Neither]
        .map(|randomly| run(algorithm(name), randomly).unwrap())
}

#[test]
fn dp_c4_as_published_stays_at_the_solution_because_it_has_no_noise_there() {
    for name in ["DP-C4", "DP-C4+"] {
        for outcome in outcomes(name) {
            assert_eq!((outcome.farthest, outcome.end), (0.0, 0.0), "{name}");
            // The first step of DP-C4+ has a public clipping norm.
            assert!(outcome.noise[1..].iter().all(|noise| *noise == 0.0), "{name}");
        }
    }
}

/// Descent by gradients clipped to 1 ends where `2 (x + 1) = 1`. As the clipping norm decays, the end tends to the median, -1.
#[test]
fn fixed_and_decaying_clipping_norms_leave_the_solution() {
    for name in ["DP-SGD", "DP-SVRG"] {
        for outcome in outcomes(name) {
            assert!((outcome.end - 0.5).abs() < 0.03, "{name}: {}", outcome.end);
        }
    }
    for name in ["DP-SGD^TD", "DP-SVRG^TD"] {
        for outcome in outcomes(name) {
            assert!((outcome.end - 1.0).abs() < 0.01, "{name}: {}", outcome.end);
        }
        let [Outcome { noise, .. }, ..] = outcomes(name);
        let decay = noise[0] / noise[noise.len() - 1];
        assert!(decay > 300.0, "{name}: noise decays by {decay}");
    }
}

#[test]
fn error_feedback_stays_at_the_solution_only_without_noise_and_sampling() {
    let [full, noisy, sampled, neither] = outcomes("DiceSGD");
    assert!(neither.farthest < 1e-6, "{}", neither.farthest);
    assert!(full.end > 0.01 && sampled.end > 0.01, "{} {}", full.end, sampled.end);
    assert!(noisy.farthest > 0.01, "{}", noisy.farthest);
}

/// Its clipping norms fall to a thousandth of `C` and no further, so its noise never vanishes.
#[test]
fn sound_dp_c4_keeps_its_noise_at_the_floor() {
    let facts = facts(Randomly::Run).unwrap();
    let config = config(algorithm("dp-c4"));
    assert!(config.about().verdict.is_sound());
    let plan = terms(&config, &facts).plan;
    let multiplier = |entry: usize| plan.entries()[entry].releases()[0].get();
    // The first entry is the first anchor. A sum over the 3,000 records of an anchor is scaled to the 100 of a batch.
    let (anchor, difference) = (multiplier(0) * 100.0 / 3000.0, multiplier(1));
    let floor = 1e-3 * f64::hypot(anchor, difference) / 100.0;
    let [Outcome { noise, .. }, ..] = outcomes("dp-c4");
    assert!(noise[0] > 100.0 * 1e-3 * anchor / 100.0, "{}", noise[0]);
    let late = &noise[noise.len() / 2..];
    let in_steps_with_differences = late.iter().filter(|noise| (**noise / floor - 1.0).abs() < 1e-6).count();
    assert!(in_steps_with_differences > 120, "{in_steps_with_differences} of {}", late.len());
    assert!(late.iter().all(|noise| *noise >= 0.999 * 1e-3 * anchor / 100.0 && *noise <= 1.001 * floor));
}
