//! Searches: the price, the charge before the first trial, and what a search refuses.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use sordino_accounting::{
    Accountant, Delta, Epsilon, NoiseMultiplier, Plan, SamplingRate, Steps,
    calibrate::Budget,
    tuning::{Runs, Trial},
};
use sordino_privacy::{
    Account, MeasurementBudget, PrivacyError, PrivacyStatus, Randomness, Search, SearchPlan, Terms, Tried,
    Vault,
};
use sordino_testing::{Folder, rows};

fn plan(z: f64) -> Plan {
    let (z, rate) = (NoiseMultiplier::new(z).unwrap(), SamplingRate::new(0.5).unwrap());
    Plan::dp_sgd(z, rate, Steps::new(1).unwrap())
}

fn budget(epsilon: f64) -> Budget {
    Budget { epsilon: Epsilon::new(epsilon).unwrap(), delta: Delta::new(1e-5).unwrap() }
}

fn search(measuring: Option<f64>) -> SearchPlan {
    SearchPlan {
        candidates: vec![plan(5.0), plan(6.0)],
        runs: Runs::negative_binomial(0.0, 3.0).unwrap(),
        measuring: measuring.map(measuring_budget),
    }
}

fn measuring_budget(epsilon: f64) -> MeasurementBudget {
    MeasurementBudget { slots: 5, measurements: 1, epsilon: Epsilon::new(epsilon).unwrap() }
}

fn terms() -> Terms {
    Terms::search(search(Some(0.3)), 4, budget(2.0)).unwrap()
}

/// The account of a run with this plan, which is measured as the terms of the search permit.
fn run(plan: Plan, randomness: Randomness) -> Account {
    measured_run(plan, randomness, Some(0.3))
}

fn measured_run(plan: Plan, randomness: Randomness, measuring: Option<f64>) -> Account {
    let mut terms = Terms::price(plan, 4, budget(1.0).delta, None, Accountant::Pld).unwrap();
    if let Some(epsilon) = measuring {
        terms = terms.measuring(measuring_budget(epsilon)).unwrap();
    }
    let vault = Vault::seal_in_memory(rows(vec![vec![1.0]; 4]), &terms, randomness).unwrap();
    vault.account().clone()
}

#[test]
fn the_price_is_the_larger_of_training_and_measuring() {
    let price = |measuring| search(measuring).price(budget(8.0)).unwrap().epsilon;
    assert_eq!(price(None), price(Some(0.01)));
    assert!(price(Some(3.0)) > price(None));
    assert!(matches!(search(Some(3.0)).price(budget(1.0)), Err(PrivacyError::OverBudget { .. })));
    // The guarantee is at the whole delta, and the price at a little less.
    let direct = Trial::of(&search(None).candidates).unwrap();
    let direct = direct.price(search(None).runs, budget(8.0).delta).unwrap().epsilon();
    assert!(price(None) >= direct && price(None).get() < 1.01 * direct.get());
    // The draw of the number of trials is accurate enough for these shapes and means only.
    let shape = |eta, mean| SearchPlan { runs: Runs::negative_binomial(eta, mean).unwrap(), ..search(None) };
    assert!(shape(-0.5, 3.0).price(budget(8.0)).is_ok() && shape(-0.51, 3.0).price(budget(8.0)).is_err());
    assert!(shape(0.0, 99.0).price(budget(8.0)).is_ok() && shape(0.0, 101.0).price(budget(8.0)).is_err());
    let many = SearchPlan { runs: Runs::negative_binomial(0.0, 2000.0).unwrap(), ..search(None) };
    assert!(many.price(budget(8.0)).is_err());
    assert!(SearchPlan { candidates: Vec::new(), ..search(None) }.price(budget(8.0)).is_err());
}

#[test]
fn the_largest_measuring_epsilon_fills_the_budget() {
    let budget = budget(1.0);
    let largest = SearchPlan::largest_measuring(search(None).runs, budget).unwrap().get();
    let price = |epsilon: f64| {
        let plans = vec![plan(100.0)];
        SearchPlan { candidates: plans, ..search(Some(epsilon)) }.price(budget)
    };
    assert!(price(largest).unwrap().epsilon.get() > 0.99);
    assert!(price(1.01 * largest).is_err());
}

/// Held-back slots are protected by the guarantee of the search, which is larger than that of one measurement.
#[test]
fn the_ledger_states_the_guarantee_of_held_back_slots() {
    let stated = terms().measurement_budget().unwrap();
    assert_eq!((stated.slots, Some(stated.epsilon)), (5, terms().guarantee().map(|g| g.epsilon)));
    let public = Terms::search(search(None), 4, budget(2.0)).unwrap();
    assert!(public.measurement_budget().is_none());
}

#[test]
fn a_search_is_charged_before_its_first_trial() {
    let folder = Folder::new("search-charged");
    let path = folder.file("ledger");
    let search = Search::begin(&terms(), Randomness::from_os().unwrap(), &path).unwrap();
    let before = Account::read(&path).unwrap();
    assert_eq!((before.charged(), before.steps(), before.is_closed()), (1, 1, false));
    let PrivacyStatus::Private(guarantee) = before.privacy_status().unwrap() else { panic!() };
    assert_eq!(Some(&guarantee), terms().guarantee());
    drop(search);
    // It cannot be resumed or begun again with the same ledger.
    assert!(Search::begin(&terms(), Randomness::from_os().unwrap(), &path).is_err());
    let gradients = rows(vec![vec![1.0]; 4]);
    assert!(Vault::resume(gradients, &terms(), Randomness::from_os().unwrap(), &path).is_err());
}

#[test]
fn the_best_trial_is_selected_and_the_ledger_does_not_depend_on_the_number_of_trials() {
    let mut ledgers = std::collections::BTreeSet::new();
    let mut counts = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let folder = Folder::new("search-select");
        let path = folder.file("ledger");
        let mut search = Search::begin(&terms(), Randomness::seeded(seed), &path).unwrap();
        let mut scores = Vec::new();
        let best = search.select(|candidate| {
            let score = [0.3, f64::NAN, 0.9, 0.1][scores.len() % 4];
            scores.push(score);
            let account = run(plan(5.0 + candidate as f64), Randomness::seeded(1));
            Ok::<_, PrivacyError>(Tried { account, score, output: scores.len() })
        });
        let best = best.unwrap().unwrap();
        assert_eq!(best, if scores.len() > 2 { 3 } else { 1 });
        counts.insert(scores.len());
        assert!(search.select(|_| -> Result<Tried<()>, PrivacyError> { unreachable!() }).is_err());
        search.choose("settings").unwrap();
        search.enter_model("hash").unwrap();
        assert!(search.close().unwrap().is_closed());
        assert!(Account::read(&path).unwrap().is_closed());
        ledgers.insert(std::fs::read(&path).unwrap());
    }
    assert!(counts.len() > 3 && ledgers.len() == 1, "{counts:?}");
}

#[test]
fn trials_under_other_terms_are_refused() {
    let folder = Folder::new("search-terms");
    let mut attempt = 0;
    let mut refused = |account: &dyn Fn(usize) -> Account| {
        attempt += 1;
        let path = folder.file(&attempt.to_string());
        let mut search = Search::begin(&terms(), Randomness::from_os().unwrap(), &path).unwrap();
        search
            .select(|candidate| {
                Ok::<_, PrivacyError>(Tried { account: account(candidate), score: 0.0, output: () })
            })
            .is_err()
    };
    assert!(!refused(&|candidate| run(plan(5.0 + candidate as f64), Randomness::from_os().unwrap())));
    // Less noise than the candidate has.
    assert!(refused(&|_| run(plan(4.0), Randomness::from_os().unwrap())));
    // Measured with less noise than the search permits, and without any.
    let sound = |candidate| plan(5.0 + candidate as f64);
    for measuring in [Some(0.31), None] {
        assert!(refused(&|candidate| {
            measured_run(sound(candidate), Randomness::from_os().unwrap(), measuring)
        }));
    }
    assert!(!refused(&|candidate| {
        measured_run(sound(candidate), Randomness::from_os().unwrap(), Some(0.2))
    }));
    // Noise that can be reproduced.
    assert!(refused(&|candidate| run(plan(5.0 + candidate as f64), Randomness::seeded(1))));
}
