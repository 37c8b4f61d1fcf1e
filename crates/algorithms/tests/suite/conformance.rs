//! Tests that every algorithm of the registry must pass.

use std::collections::BTreeMap;

use crate::toy_quadratic::{
    Point, Priced, QUIET, Scratch, Toy, Training, budget, config, crowd, cubic, facts, facts_for,
    least_multiplier, quiet, spring, terms, toy,
};
use sordino_accounting::{ClipNorm, NoiseMultiplier, Plan};
use sordino_algorithms::{Algorithm, AlgorithmConfig, NoiseSource, RunFacts, Verdict};
use sordino_optim::State;
use sordino_privacy::{Account, Randomness, Vault};

fn train(name: &str, records: Vec<[f32; 2]>, seed: u64) -> (Point, State) {
    let (config, facts) = (config(name), facts());
    // With fewer records than the facts state, batches are also smaller.
    let facts = sordino_algorithms::RunFacts { records: records.len() as u64, ..facts };
    let small = records.len() < 100;
    let facts = if small { facts_for(records.len(), 0.05, 30) } else { facts };
    let ledger = Scratch::new(&format!("{name}-{seed}-{}", records.len()));
    let terms = terms(&config, &facts);
    let mut training =
        Training::new(&config, &facts, &terms, toy(records, spring), Randomness::seeded(seed), &ledger);
    while training.step() {}
    let Training { vault, algorithm, point, .. } = training;
    let account = vault.close().unwrap();
    assert!(account.is_closed(), "{name} leaves steps of its plan");
    assert_eq!(account.charged(), terms.steps(), "{name}: the ledger is the plan");
    (point, algorithm.state())
}

#[test]
fn every_algorithm_runs_its_plan_within_the_budget_and_moves_towards_the_records() {
    for algorithm in AlgorithmConfig::all() {
        let name = algorithm.about().name;
        let (point, _) = train(name, crowd(), 5);
        assert!(point.iter().all(|x| x.is_finite()), "{name}: {point:?}");
        // Some have too much noise to learn at this budget.
        let loud =
            ["noise-decay-zcdp", "noise-decay-tcdp", "dp-svrg", "dp-c4-published", "dp-c4-plus-published"];
        if !loud.contains(&name) {
            assert!(point[0] > 0.3 && point[1] < -0.2, "{name}: {point:?}");
        }
        let terms = terms(&config(name), &facts());
        match (algorithm.about().verdict, terms.guarantee()) {
            (Verdict::Sound(_), Some(guarantee)) => assert!(guarantee.epsilon <= budget().epsilon, "{name}"),
            (Verdict::AsPublished { .. } | Verdict::NotPrivate(_), None) => {}
            (verdict, guarantee) => panic!("{name}: {verdict:?} {guarantee:?}"),
        }
    }
}

#[test]
fn every_algorithm_survives_strange_records_and_repeats_under_a_seed() {
    for algorithm in AlgorithmConfig::all() {
        let name = algorithm.about().name;
        let strange = vec![[f32::NAN, 0.0], [f32::INFINITY, 1.0], [1e30, -1e30], [0.0, 0.0]];
        for records in [strange, vec![[1.0, 1.0]]] {
            let first = train(name, records.clone(), 6);
            // Without clipping a gradient of 1e30 has no bound.
            let plain = name == "none" || name == "dice-published";
            assert!(plain || first.0.iter().all(|x| x.is_finite()), "{name}: {:?}", first.0);
            let again = train(name, records, 6);
            assert!(plain || first == again, "{name}");
        }
    }
}

/// Two vaults with the same batches and noise, at the same points and with the same public state. Their releases differ by what the
/// removed record adds, which must be at most the sensitivity that the noise is scaled to.
#[test]
fn removing_a_record_moves_every_release_by_at_most_its_sensitivity() {
    for algorithm in AlgorithmConfig::all().iter().filter(|algorithm| algorithm.about().verdict.is_sound()) {
        let name = algorithm.about().name;
        let facts = facts_for(40, 0.4, 25);
        // Without a budget there is no best window or band.
        let config = match name {
            "dice" => config(r#"{"type":"dice","window":1}"#),
            "band-mf" => config(r#"{"type":"band-mf","band":2}"#),
            _ => config(name),
        };
        let plan = config.plan(&facts, NoiseSource::Multiplier(NoiseMultiplier::new(1.0).unwrap())).unwrap();
        let quiet = quiet(&plan, facts.records);
        let mut most = 0.0_f64;
        for removed in [0, 7, 39] {
            let records = (0..40).map(|i| [0.4 * i as f32 - 9.0, 11.0 - 0.5 * i as f32]).collect();
            let whole = toy(records, cubic);
            let mut lacking = whole.clone();
            lacking.records[removed] = None;
            let ledgers = [
                Scratch::new(&format!("{name}-whole-{removed}")),
                Scratch::new(&format!("{name}-lacking-{removed}")),
            ];
            let mut one = Training::new(&config, &facts, &quiet, whole, Randomness::seeded(3), &ledgers[0]);
            let mut other =
                Training::new(&config, &facts, &quiet, lacking, Randomness::seeded(3), &ledgers[1]);
            let mut before = 0.0;
            loop {
                other.algorithm.restore(&one.algorithm.state());
                other.point = one.point;
                let (Some(a), Some(b)) = (one.release(), other.release()) else { break };
                let (Some(a), Some(b)) = (a, b) else { continue };
                let moved = f64::from(a[0] - b[0]).hypot(f64::from(a[1] - b[1]));
                // From the multiplier of the first release. In the steps of anchors the sum was scaled, so its noise is not used.
                let allowed = match name {
                    // Two sums, each with its own release.
                    "dp-svrg" => 2.0,
                    // At most C = 1 for every clipping norm.
                    "dp-c4" => 1.0,
                    // After undoing the coefficients, a record moves its own step only. `band_mf.rs` tests the releases themselves.
                    "band-mf" => 1.0,
                    "dice" => {
                        let kappa = (1.0_f64 + 81.0).sqrt();
                        let block = f64::hypot(moved, before);
                        before = moved;
                        assert!(block <= kappa * 1.0001, "{name}: a block moved by {block}");
                        kappa
                    }
                    _ => {
                        let number = one.vault.position() - 1;
                        let z = multiplier_of(&plan, number) * QUIET / least_multiplier(&plan);
                        a.noise_std() / z
                    }
                };
                assert!(moved <= allowed * 1.0001 + 1e-5, "{name}: moved by {moved}, allowed are {allowed}");
                most = most.max(moved / allowed);
                one.point = [one.point[0] - 0.01 * a[0], one.point[1] - 0.01 * a[1]];
            }
        }
        // One of the two sums of dp-svrg cancels most of the other.
        let least = if name == "dp-svrg" { 0.1 } else { 0.3 };
        assert!(most > least, "{name}: the record hardly changes the release: {most}");
    }
}

/// The multiplier of the first release of a step.
fn multiplier_of(plan: &Plan, number: u64) -> f64 {
    let mut before = 0;
    for entry in plan.entries() {
        before += entry.steps().get();
        if number < before {
            return entry.releases()[0].get();
        }
    }
    unreachable!("the plan has such a step")
}

#[test]
fn a_state_is_restored_and_unusable_values_are_ignored() {
    for name in ["dc-sgd-p", "dc-sgd-e", "quantile", "dice-two-release", "dp-svrg", "dp-c4"] {
        let (_, state) = train(name, crowd(), 5);
        let (config, facts) = (config(name), facts());
        let terms = terms(&config, &facts);
        let mut algorithm = config.start::<Toy>(&facts, &terms.plan).unwrap();
        assert_ne!(state, algorithm.state(), "{name}");
        algorithm.restore(&state);
        // Points are restored at the first step, which gives their shape.
        let kept = algorithm.state();
        assert_eq!(kept.numbers, state.numbers, "{name}");
        assert!(kept.vectors.iter().all(|(key, vector)| state.vectors[key] == *vector), "{name}");
        let nonsense = State {
            numbers: BTreeMap::from([("clip".to_owned(), f64::NAN), ("range".to_owned(), -1.0)]),
            vectors: BTreeMap::from([
                ("error".to_owned(), vec![f32::NAN; 2]),
                ("anchor".to_owned(), vec![1.0]),
                ("anchor_gradient".to_owned(), vec![f32::INFINITY; 7]),
            ]),
        };
        algorithm.restore(&nonsense);
        let after = algorithm.state();
        assert!(after.numbers.values().all(|value| value.is_finite() && *value >= 0.0), "{name}: {after:?}");
        assert!(after.vectors.values().flatten().all(|value| value.is_finite()), "{name}: {after:?}");
    }
}

/// Killed after some steps and resumed from an older checkpoint: the rest of the plan is taken, no more, and the price is that of the
/// whole plan.
#[test]
fn resumed_runs_continue_their_plan_and_never_cost_less() {
    for algorithm in AlgorithmConfig::all() {
        let name = algorithm.about().name;
        let (config, facts) = (config(name), facts());
        let terms = terms(&config, &facts);
        let records = toy(crowd(), spring);
        for killed_after in [1, 2, 17] {
            let ledger = Scratch::new(&format!("{name}-resumed-{killed_after}"));
            let randomness = Randomness::from_os().unwrap();
            let mut training = Training::new(&config, &facts, &terms, records.clone(), randomness, &ledger);
            let (checkpoint, point) = (training.algorithm.state(), training.point);
            for _ in 0..killed_after {
                assert!(training.step());
            }
            let rate = training.rate;
            // Killed: the vault is not closed.
            drop(training);
            let randomness = Randomness::from_os().unwrap();
            let vault = Vault::resume(records.clone(), &terms, randomness, &ledger.0).unwrap();
            assert_eq!(vault.position(), killed_after, "{name}");
            let mut algorithm = config.start::<Toy>(&facts, &terms.plan).unwrap();
            algorithm.restore(&checkpoint);
            let mut resumed = Training { vault, algorithm, point, rate };
            let mut taken = 0;
            while resumed.step() {
                taken += 1;
            }
            assert_eq!(killed_after + taken, terms.steps(), "{name}");
            assert!(resumed.point.iter().all(|x| x.is_finite()), "{name}: {:?}", resumed.point);
            resumed.vault.close().unwrap();
            let standing = Account::read(&ledger.0).unwrap().privacy_status().unwrap();
            match (standing, terms.guarantee()) {
                (sordino_privacy::PrivacyStatus::Private(now), Some(then)) => {
                    assert_eq!(now, *then, "{name}")
                }
                (sordino_privacy::PrivacyStatus::NotPrivate(_), None) => {}
                (standing, _) => panic!("{name}: {standing:?}"),
            }
        }
    }
}

/// A tenth of the norms are in the right half of the histogram, twice the share at which the range is halved. Without `steady`, noise halves it.
#[test]
fn steady_reaches_the_search_of_dc_sgd_e() {
    let range = |options: &str| {
        let facts = RunFacts { max_grad_norm: ClipNorm::new(2.0).unwrap(), ..facts_for(2000, 0.128, 200) };
        let config = config(&format!(r#"{{"type":"dc-sgd-e"{options}}}"#));
        let plan = config.plan(&facts, NoiseSource::Multiplier(NoiseMultiplier::new(1.0).unwrap())).unwrap();
        let ledger = Scratch::new(&format!("steady-{}", options.len()));
        let records = (0..2000).map(|i| if i % 10 == 0 { [35.0, 0.0] } else { [5.0, 0.0] }).collect();
        let terms = Priced::unprotected(plan, 2000);
        let records = toy(records, |record, _| *record);
        let mut training = Training::new(&config, &facts, &terms, records, Randomness::seeded(1), &ledger);
        while training.step() {}
        training.algorithm.state().numbers["range"]
    };
    assert_eq!(range(r#","steady":true"#), 40.0);
    assert!(range("") < 40.0);
}

/// Whatever the clipping norm, a batch whose gradients are all clipped and equal takes a step of the same length.
#[test]
fn unit_steps_keep_their_length_when_the_clipping_norm_moves() {
    for name in ["quantile", "dc-sgd-p", "dc-sgd-e"] {
        let facts = facts_for(2000, 1.0, 30);
        let config = config(name);
        let plan = config.plan(&facts, NoiseSource::Multiplier(NoiseMultiplier::new(1.0).unwrap())).unwrap();
        let ledger = Scratch::new(&format!("{name}-unit"));
        let far = toy(vec![[3e7, -4e7]; 2000], spring);
        let quiet = quiet(&plan, 2000);
        let mut training = Training::new(&config, &facts, &quiet, far, Randomness::seeded(2), &ledger);
        for _ in 0..30 {
            let release = training.release().unwrap().unwrap();
            let length = f64::from(release[0]).hypot(f64::from(release[1])) / 2000.0;
            assert!((length - 1.0).abs() < 2e-3, "{name}: {length}");
        }
        let clip = training.algorithm.state().numbers["clip"];
        assert!(clip > 2.0, "{name}: the clipping norm has not moved: {clip}");
    }
}
