//! Sound algorithms pass the step audit, and the lower bound is close to the guarantee.
//!
//! Seeds are fixed. A sound mechanism fails one of the tests of an audit with a probability of at most 0.001.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use sordino_accounting::{Accountant, ClipNorm, Delta, Epsilon, Plan, Sampling, SamplingRate, Steps, calibrate::Budget};
use sordino_algorithms::{Algorithm, AlgorithmConfig, NoiseSource, RunFacts};
use sordino_audit::{
    Canaries, Kind, NoRecords, Observations, StepEvidence, Subject, VaultMechanism, copies, counted_kinds, kinds,
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

fn case(algorithm: AlgorithmConfig, steps: u64) -> Case {
    let delta = Delta::new(1e-5).unwrap();
    let sampling = Sampling::Poisson { rate: SamplingRate::new(0.04).unwrap(), cap: None };
    let budget = Budget { epsilon: Epsilon::new(4.0).unwrap(), delta };
    let clip = algorithm.defaults(Some(ClipNorm::new(0.5).unwrap())).unwrap().max_grad_norm;
    let facts = RunFacts {
        sampling,
        steps: Steps::new(steps).unwrap(),
        expected_batch_size: 200.0,
        max_grad_norm: clip,
        layers: None,
        dimension: 1000,
        records: 5000,
        claim: Some(budget),
    };
    let accountant = algorithm.accountant(sampling);
    let plan = algorithm.plan(&facts, NoiseSource::Budget(budget, accountant)).unwrap();
    let epsilon = accountant.price(&plan, delta).map_or(4.0, |guarantee| guarantee.epsilon.get());
    let epsilon = if accountant == Accountant::Pld { epsilon } else { Accountant::Pld.price(&plan, delta).unwrap().epsilon.get() };
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
    let subject = Subject {
        algorithm: &case.algorithm,
        facts: &case.facts,
        plan: &case.plan,
        learning: &learning(),
    };
    let copies = canaries.copies;
    let mut mechanism = VaultMechanism::new(
        subject,
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
    observed.evidence(0.001)
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
        let bound = evidence.lower_bound(&case.plan, case.delta).unwrap();
        eprintln!("{name}: {bound} of {} response {:?}", case.epsilon, evidence.response.iter().map(|r| r.iter().map(|k| (k*1000.0).round()/1000.0).collect::<Vec<_>>()).collect::<Vec<_>>());
        for check in evidence.checks.iter().filter(|check| !check.passed()) {
            eprintln!("    {} {} [{}, {}]", check.name, check.measured, check.low, check.high);
        }
    }
}
