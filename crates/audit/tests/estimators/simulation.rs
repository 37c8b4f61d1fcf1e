//! Simulated mechanisms with a known epsilon, and every estimator with its name.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use sordino_accounting::{Delta, Epsilon, gaussian};
use sordino_audit::estimators::{
    Confidence, Family, Guesses, LowerBound, Scored, Spread, many_runs, one_run, one_run_ceiling,
    one_run_fdp, one_run_fdp_ceiling, one_run_gaussian,
};

pub(crate) const REPETITIONS: usize = 1000;

pub(crate) fn delta() -> Delta {
    Delta::new(1e-5).unwrap()
}

pub(crate) fn confidence() -> Confidence {
    Confidence::new(0.95).unwrap()
}

pub(crate) fn claim(epsilon: f64) -> Epsilon {
    Epsilon::new(epsilon).unwrap()
}

pub(crate) fn seeded(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

fn normal(rng: &mut impl Rng) -> f64 {
    StandardNormal.sample(rng)
}

/// Scores of canaries that are members with probability 1/2.
pub(crate) fn canaries(
    count: usize,
    rng: &mut ChaCha8Rng,
    score: impl Fn(bool, &mut ChaCha8Rng) -> f64,
) -> Vec<Scored> {
    let one = |_| {
        let member = rng.random();
        Scored { score: score(member, rng), member }
    };
    (0..count).map(one).collect()
}

/// The ideal attack on the Gaussian mechanism with this epsilon at [`delta`].
pub(crate) fn gaussian_mechanism(epsilon: f64) -> impl Fn(bool, &mut ChaCha8Rng) -> f64 {
    let mu = gaussian::mu(claim(epsilon), delta()).get();
    move |member, rng| mu * f64::from(u8::from(member)) + normal(rng)
}

/// Randomised response: the attacker sees the true membership with probability `e^epsilon / (1 + e^epsilon)`. Uniform numbers break ties.
pub(crate) fn randomised_response(epsilon: f64) -> impl Fn(bool, &mut ChaCha8Rng) -> f64 {
    let truth = 1.0 / (1.0 + (-epsilon).exp());
    move |member, rng| {
        let seen = member == rng.random_bool(truth);
        f64::from(u8::from(seen)) + 0.5 * rng.random::<f64>()
    }
}

/// An estimator as a function of scores.
pub(crate) type Estimator = Box<dyn Fn(&[Scored]) -> LowerBound>;

/// All estimators that assume nothing, for a number of canaries, set up for an attack of this strength.
pub(crate) fn without_assumption(
    count: usize,
    epsilon: f64,
    threshold: f64,
) -> Vec<(&'static str, Estimator)> {
    let count = count as u64;
    let best = one_run_ceiling(count, claim(epsilon), delta(), confidence()).guesses;
    let all = Guesses::both(count / 2);
    let steinke = |list: Vec<Guesses>| -> Estimator {
        Box::new(move |scores| one_run(scores, &list, delta(), confidence()))
    };
    let curve = || Family::approximate(delta());
    vec![
        ("one run, best guesses", steinke(vec![best])),
        ("one run, guesses of all", steinke(vec![all])),
        ("one run, list of guesses", steinke(Guesses::list(count))),
        (
            "one run, f-DP without assumption",
            Box::new(move |scores| one_run_fdp(scores, &[all], &curve(), confidence())),
        ),
        (
            "many runs, Clopper-Pearson",
            Box::new(move |scores| many_runs(scores, &[threshold], &curve(), confidence())),
        ),
        (
            "many runs, three thresholds",
            Box::new(move |scores| {
                many_runs(scores, &[threshold - 1.0, threshold, threshold + 1.0], &curve(), confidence())
            }),
        ),
    ]
}

/// All estimators that assume a Gaussian trade-off curve.
pub(crate) fn gaussian_estimators(
    count: usize,
    epsilon: f64,
    threshold: f64,
) -> Vec<(&'static str, Estimator)> {
    let best = one_run_fdp_ceiling(count as u64, claim(epsilon), delta(), confidence()).guesses;
    let curve = || Family::gaussian(delta());
    let means = |spread| -> Estimator {
        Box::new(move |scores| one_run_gaussian(scores, spread, delta(), confidence()))
    };
    vec![
        (
            "one run, f-DP",
            Box::new(move |scores: &[Scored]| one_run_fdp(scores, &[best], &curve(), confidence()))
                as Estimator,
        ),
        ("difference of means", means(Spread::Known(1.0))),
        ("difference of means, spread estimated", means(Spread::Estimated)),
        (
            "many runs, Gaussian curve",
            Box::new(move |scores| many_runs(scores, &[threshold], &curve(), confidence())),
        ),
    ]
}

/// The largest number of false alarms in [`REPETITIONS`] that is accepted at a rate of 5 %: a rate of exactly 5 % has more with
/// probability 1e-3 (`scipy.stats.binom.isf(1e-3, 1000, 0.05)` is 73).
pub(crate) const FALSE_ALARMS: usize = 73;
