//! How often the estimators raise false alarms.

use crate::simulation::{
    Estimator, FALSE_ALARMS, REPETITIONS, canaries, gaussian_estimators, gaussian_mechanism,
    randomised_response, seeded, without_assumption,
};
use sordino_audit::Scored;

/// How often each estimator gives more than `epsilon`.
fn alarms(
    estimators: &[(&'static str, Estimator)],
    epsilon: f64,
    mut scores: impl FnMut() -> Vec<Scored>,
) -> Vec<(&'static str, usize)> {
    let mut counts: Vec<_> = estimators.iter().map(|(name, _)| (*name, 0)).collect();
    for _ in 0..REPETITIONS {
        let scores = scores();
        for ((_, estimator), (_, count)) in estimators.iter().zip(&mut counts) {
            *count += usize::from(estimator(&scores).epsilon > epsilon);
        }
    }
    counts
}

fn assert_few(counts: &[(&str, usize)]) {
    for (name, count) in counts {
        assert!(*count <= FALSE_ALARMS, "{name}: {count} of {REPETITIONS}");
    }
}

fn of(counts: &[(&str, usize)], name: &str) -> usize {
    counts.iter().find(|(other, _)| *other == name).unwrap().1
}

#[test]
fn scores_that_are_independent_of_membership_give_0() {
    let mut rng = seeded(11);
    let mut estimators = without_assumption(200, 2.0, 0.5);
    estimators.extend(gaussian_estimators(200, 2.0, 0.5));
    // The mechanism without members: every score is N(0, 1).
    let score = gaussian_mechanism(2.0);
    let counts = alarms(&estimators, 0.0, || canaries(200, &mut rng, |_, rng| score(false, rng)));
    assert_few(&counts);
    // The test of means has exactly the stated rate, but for the smallest mu, whose epsilon is 0.
    assert!(of(&counts, "difference of means") > 25);
}

#[test]
fn randomised_response_is_rarely_above_its_epsilon() {
    for epsilon in [0.5, 2.0] {
        let mut rng = seeded(12);
        let estimators = without_assumption(200, epsilon, 0.75);
        let score = randomised_response(epsilon);
        let counts = alarms(&estimators, epsilon, || canaries(200, &mut rng, &score));
        assert_few(&counts);
        // Randomised response is the worst case of the theorem, so the rate is nearly the stated one.
        assert!(of(&counts, "one run, best guesses") > 15);
    }
}

#[test]
fn the_gaussian_mechanism_is_rarely_above_its_epsilon() {
    for epsilon in [1.0, 4.0] {
        let mut rng = seeded(13);
        let mut estimators = without_assumption(200, epsilon, 1.0);
        estimators.extend(gaussian_estimators(200, epsilon, 1.0));
        let score = gaussian_mechanism(epsilon);
        let counts = alarms(&estimators, epsilon, || canaries(200, &mut rng, &score));
        assert_few(&counts);
        for name in ["difference of means", "difference of means, spread estimated"] {
            assert!(of(&counts, name) > 25, "{name}");
        }
    }
}

#[test]
fn the_order_of_the_canaries_gives_nothing_away() {
    // Members first, and all scores equal or NaN.
    let mut estimators = without_assumption(100, 4.0, 0.0);
    estimators.extend(gaussian_estimators(100, 4.0, 0.0));
    for score in [0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut scores: Vec<_> = (0..100).map(|i| Scored { score, member: i < 50 }).collect();
        for _ in 0..2 {
            for (name, estimator) in &estimators {
                assert_eq!(estimator(&scores).epsilon, 0.0, "{name} {score}");
            }
            scores.reverse();
        }
    }
}
