//! Sound algorithms pass the step audit, and the lower bound is close to the guarantee.
//!
//! Seeds are fixed. A sound mechanism fails one of the tests of an audit with a probability of at most 0.001.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use rand_chacha::{
    ChaCha20Rng,
    rand_core::{Rng, SeedableRng},
};
use sordino_accounting::{
    Accountant, ClipNorm, Delta, Epsilon, Plan, Sampling, SamplingRate, Steps, calibrate::Budget,
    factorization::Workload,
};
use sordino_algorithms::{Algorithm, AlgorithmConfig, BandMf, NoiseSource, RunFacts};
use sordino_audit::{
    Canaries, Confidence, Kind, NoRecords, Observations, Scored, StepEvidence, Subject, VaultMechanism,
    copies, counted_kinds,
    estimators::{
        Family, Spread, one_run, one_run_ceiling, one_run_fdp, one_run_fdp_ceiling, one_run_gaussian,
        one_run_gaussian_ceiling,
    },
    kinds, whole_run_scores,
};
use sordino_optim::{OptimizerConfig, Schedule};
use sordino_privacy::Randomness;
use sordino_train::Learning;

struct Case {
    algorithm: AlgorithmConfig,
    facts: RunFacts,
    plan: Plan,
    epsilon: f64,
    delta: Delta,
}

impl Case {
    fn subject<'a>(&'a self, learning: &'a Learning) -> Subject<'a> {
        Subject { algorithm: &self.algorithm, facts: &self.facts, plan: &self.plan, learning }
    }
}

fn case(algorithm: AlgorithmConfig, steps: u64) -> Case {
    case_at(0.04, algorithm, steps)
}

fn case_at(rate: f64, algorithm: AlgorithmConfig, steps: u64) -> Case {
    let delta = Delta::new(1e-5).unwrap();
    let sampling = Sampling::Poisson { rate: SamplingRate::new(rate).unwrap(), cap: None };
    let budget = Budget { epsilon: Epsilon::new(4.0).unwrap(), delta };
    let clip = algorithm.defaults(Some(ClipNorm::new(0.5).unwrap())).unwrap().max_grad_norm;
    let facts = RunFacts {
        sampling,
        steps: Steps::new(steps).unwrap(),
        expected_batch_size: 5000.0 * rate,
        max_grad_norm: clip,
        layers: None,
        dimension: 1000,
        records: 5000,
        momentum: 0.0,
        claim: Some(budget),
    };
    let accountant = algorithm.accountant(sampling);
    let plan = algorithm.plan(&facts, NoiseSource::Budget(budget, accountant)).unwrap();
    let epsilon = accountant.price(&plan, delta).map_or(4.0, |guarantee| guarantee.epsilon.get());
    let epsilon = if accountant == Accountant::Pld {
        epsilon
    } else {
        Accountant::Pld.price(&plan, delta).unwrap().epsilon.get()
    };
    Case { algorithm, facts, plan, epsilon, delta }
}

fn learning() -> Learning {
    Learning {
        optimizer: OptimizerConfig::named("sgd").unwrap(),
        learning_rate: 0.1,
        schedule: Schedule::Constant {},
        average: None,
    }
}

fn audit(case: &Case, seed: u64, count: u64) -> StepEvidence {
    let all = kinds(100);
    let counted = counted_kinds(100);
    let evidence = audit_with(case, seed, count, &all);
    evidence.and(audit_with(case, seed + 1, count, &counted))
}

fn audit_with(case: &Case, seed: u64, count: u64, kinds: &[Kind]) -> StepEvidence {
    let norm = |kind: &Kind| vec![kind.norm * case.facts.max_grad_norm.get(); kind.coordinates];
    let canaries = Canaries::with_norms(kinds.iter().flat_map(norm).collect(), copies(&case.plan), 100);
    let learning = learning();
    let copies = canaries.copies;
    let mut mechanism = VaultMechanism::new(
        case.subject(&learning),
        NoRecords::new(1),
        true,
        canaries,
        vec![0.0],
        Randomness::seeded(seed),
        false,
    )
    .unwrap();
    let observed =
        Observations::gather(&mut mechanism, &case.plan, kinds, copies, 0, count, &mut || true).unwrap();
    observed.evidence(0.001, 0.001)
}

#[test]
fn every_sound_algorithm_passes_and_its_bound_is_close_to_its_guarantee() {
    for algorithm in AlgorithmConfig::all() {
        if !algorithm.about().verdict.is_sound() {
            continue;
        }
        let name = algorithm.about().name;
        let case = case(algorithm, 1000);
        let evidence = audit(&case, 1, 1000);
        let failed: Vec<_> = evidence.checks.iter().filter(|check| !check.passed()).collect();
        assert!(failed.is_empty(), "{name}: {failed:?}");
        let bound = evidence.lower_bound(&case.plan, case.delta).unwrap();
        assert!(bound >= 0.9 * case.epsilon && bound <= case.epsilon, "{name}: {bound} of {}", case.epsilon);
    }
}

/// Banded feedback moves the releases of its window, and the audit measures this response.
#[test]
fn the_response_of_banded_feedback_has_the_length_of_its_sensitivity() {
    let dice = AlgorithmConfig::all().into_iter().find(|algorithm| algorithm.about().name == "dice").unwrap();
    let evidence = audit(&case(dice, 1000), 3, 1000);
    let response = &evidence.response[0];
    assert!(response.len() > 4, "{response:?}");
    let length = response.iter().map(|jump| jump * jump).sum::<f64>().sqrt();
    assert!((length - 1.0).abs() < 0.03, "{length}");
}

/// The response of the releases to a record consists of the coefficients of the correlated noise.
#[test]
fn the_response_of_correlated_noise_is_its_coefficients() {
    let band_mf: AlgorithmConfig = BandMf { band: Some(6), ..BandMf::default() }.into();
    let case = case(band_mf, 1000);
    let evidence = audit(&case, 3, 1000);
    let expected = Workload::PREFIX_SUMS.optimal_coefficients(6, 1000);
    assert_eq!(evidence.response[0].len(), 6);
    for (found, expected) in evidence.response[0].iter().zip(expected) {
        assert!((found - expected).abs() < 0.03, "{found} {expected}");
    }
    let bound = evidence.lower_bound(&case.plan, case.delta).unwrap();
    assert!(bound >= 0.9 * case.epsilon && bound <= case.epsilon, "{bound} of {}", case.epsilon);
}

/// The whole run in one attack, at epsilon 4 with 1,000 canaries: the means over 60 runs with fixed seeds are at least 0.9 of what ideal scores on a
/// Gaussian mechanism give. They are 0.96, 1.00 and 0.97. (Five runs are too few: with one set of seeds the first mean was 0.79.) The smaller the sampling
/// rate, the further the trade-off curve is from a Gaussian one. At rate 0.04 the shares are 0.90, 0.92 and 0.88.
#[test]
fn attacks_on_whole_runs_reach_nine_tenths_of_their_ceilings() {
    let case = case_at(0.2, AlgorithmConfig::all().remove(0), 300);
    let (claim, delta) = (Epsilon::new(4.0).unwrap(), case.delta);
    let confidence = Confidence::new(0.95).unwrap();
    let (guesses, fdp) = (
        one_run_ceiling(1000, claim, delta, confidence),
        one_run_fdp_ceiling(1000, claim, delta, confidence),
    );
    let ideal = [guesses.epsilon, fdp.epsilon, one_run_gaussian_ceiling(1000, claim, delta, confidence)];
    let mut means = [0.0; 3];
    const RUNS: u64 = 60;
    for seed in 0..RUNS {
        let scores = whole_run(&case, seed);
        let bounds = [
            one_run(&scores, &[guesses.guesses], delta, confidence),
            one_run_fdp(&scores, &[fdp.guesses], &Family::gaussian(delta), confidence),
            one_run_gaussian(&scores, Spread::Estimated, delta, confidence),
        ];
        for (mean, bound) in means.iter_mut().zip(bounds) {
            *mean += bound.epsilon / RUNS as f64;
        }
    }
    for (mean, ideal) in means.into_iter().zip(ideal) {
        assert!(mean >= 0.9 * ideal, "{mean} of {ideal}");
    }
    assert!((ideal[0] - 1.57).abs() < 0.03 && (ideal[2] - 3.49).abs() < 0.03, "{ideal:?}");
}

/// The scores of 1,000 canaries, of which about half are members.
fn whole_run(case: &Case, seed: u64) -> Vec<Scored> {
    let mut random = ChaCha20Rng::seed_from_u64(1000 + seed);
    let members: Vec<bool> = (0..1000).map(|_| random.next_u64() % 2 == 0).collect();
    let mut canaries = Canaries::with_norms(vec![1e12; 1000], 1, 0);
    canaries.members.clone_from(&members);
    let learning = learning();
    let mut mechanism = VaultMechanism::new(
        case.subject(&learning),
        NoRecords::new(1),
        true,
        canaries,
        vec![0.0],
        Randomness::seeded(seed),
        false,
    )
    .unwrap();
    whole_run_scores(&mut mechanism, &case.plan, 0, &members, &[vec![1.0]], &mut || true).unwrap()
}
