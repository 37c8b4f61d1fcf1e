//! The vault follows its plan.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use sordino_accounting::{
    Accountant, ClipNorm, Delta, Entry, NoiseMultiplier, Plan, Sampling, SamplingRate, Steps,
};
use sordino_privacy::{
    ClipRule, Gradients, NormStatistic, PrivacyError, PrivacyStatus, Randomness, Release, Round, Terms, Vault,
};
use sordino_testing::{Folder, Rows, rows, same_rows, terms};

fn rule(bound: f64) -> ClipRule {
    ClipRule::flat(ClipNorm::new(bound).unwrap()).unwrap()
}

fn step<G: Gradients<Point = [f32; 0]>>(round: &mut Round<'_, G>) -> Result<Release<Vec<f32>>, PrivacyError> {
    let sum = round.gradients(&[]).clipped_sum(&rule(1.0))?;
    round.release(sum)
}

fn epsilon(standing: &PrivacyStatus) -> f64 {
    match standing {
        PrivacyStatus::Private(guarantee) => guarantee.epsilon.get(),
        PrivacyStatus::NotPrivate(why) => panic!("{why}"),
    }
}

#[test]
fn a_vault_runs_as_many_rounds_as_its_plan_has_steps_and_charges_each() {
    let folder = Folder::new("plan");
    let terms = terms(10, &[1.0], 0.5, 7);
    let mut vault =
        Vault::seal(same_rows(10, &[1.0, 2.0]), &terms, Randomness::from_os().unwrap(), &folder.file("l"))
            .unwrap();
    vault.charge_by(3);
    for number in 1..=7_u64 {
        let release = vault.round(step).unwrap().unwrap().unwrap();
        assert!(release.len() == 2 && (release.noise_std() - 1.0).abs() < 1e-5);
        assert_eq!(
            (vault.position(), vault.account().charged()),
            (number, number.next_multiple_of(3).min(7))
        );
    }
    assert!(vault.round(step).unwrap().is_none());
    let account = vault.close().unwrap();
    assert!(account.is_closed());
    assert_eq!(epsilon(&account.privacy_status().unwrap()), terms.guarantee().unwrap().epsilon.get());
}

#[test]
fn a_step_is_on_the_disk_before_it_is_drawn() {
    let folder = Folder::new("ahead");
    let path = folder.file("l");
    let mut vault =
        Vault::seal(same_rows(10, &[1.0]), &terms(10, &[1.0], 0.5, 4), Randomness::seeded(1), &path).unwrap();
    for number in 1..=4 {
        let charged = vault.round(|_| sordino_privacy::Account::read(&path).unwrap().charged()).unwrap();
        assert_eq!(charged, Some(number));
    }
}

#[test]
fn a_round_releases_no_more_than_its_plan_permits() {
    let folder = Folder::new("twice");
    let mut vault = Vault::seal(
        same_rows(10, &[1.0]),
        &terms(10, &[1.0, 3.0], 0.5, 4),
        Randomness::seeded(1),
        &folder.file("l"),
    )
    .unwrap();
    vault
        .round(|round| {
            let stds: Vec<f64> = [(); 2].map(|()| step(round).unwrap().noise_std()).to_vec();
            assert!((stds[0] - 1.0).abs() < 1e-5 && (stds[1] - 3.0).abs() < 1e-5);
            assert!(matches!(step(round), Err(PrivacyError::OffPlan { planned: 2 })));
        })
        .unwrap();
}

/// The rounding that an engine reports is covered by the noise. Impossible values are refused, because they would leave sums without noise.
#[test]
fn reported_rounding_is_covered_by_noise_or_refused() {
    let folder = Folder::new("rounding");
    for (number, rounding) in [0.0, 0.25, f64::NAN, -1.0, -2.0, 1.5, f64::INFINITY].into_iter().enumerate() {
        let rows = Rows { rounding, ..same_rows(10, &[1.0]) };
        let (terms, ledger) = (terms(10, &[2.0], 1.0, 1), folder.file(&number.to_string()));
        let mut vault = Vault::seal(rows, &terms, Randomness::seeded(1), &ledger).unwrap();
        let released = vault.round(step).unwrap().unwrap();
        match number {
            0 | 1 => assert!((released.unwrap().noise_std() / (2.0 * (1.0 + rounding)) - 1.0).abs() < 1e-5),
            _ => assert!(matches!(released, Err(PrivacyError::Rule(_))), "{rounding}"),
        }
    }
}

/// The engine adds to the sums it is given, so an earlier sum must not be in them.
#[test]
fn sums_are_zero_before_a_pass() {
    let folder = Folder::new("lazy");
    let quiet = || vec![NoiseMultiplier::new(1e-6).unwrap()];
    let rare = Sampling::Poisson { rate: SamplingRate::new(1e-9).unwrap(), cap: None };
    let entry = |sampling| Entry::new(sampling, quiet(), Steps::new(1).unwrap()).unwrap();
    let plan = Plan::new(vec![entry(Sampling::FullBatch), entry(rare)]);
    let terms = Terms::unprotected(plan, 10, "a test without noise");
    let mut vault =
        Vault::seal(same_rows(10, &[1.0]), &terms, Randomness::seeded(1), &folder.file("l")).unwrap();
    let mut sum = || vault.round(step).unwrap().unwrap().unwrap()[0];
    assert!((sum() - 10.0).abs() < 0.1);
    assert!(sum().abs() < 0.1);
}

/// A faulty engine adds a record that is not finite. Its weight is 0, but 0 times NaN is NaN.
#[test]
fn a_sum_that_is_not_finite_is_refused_and_its_step_is_charged() {
    let rare = Sampling::Poisson { rate: SamplingRate::new(1e-9).unwrap(), cap: None };
    let entry = |sampling| {
        Entry::new(sampling, vec![NoiseMultiplier::new(1.0).unwrap()], Steps::new(1).unwrap()).unwrap()
    };
    let plan = || Plan::new(vec![entry(Sampling::FullBatch), entry(rare)]);
    let terms = Terms::price(plan(), 3, Delta::new(1e-5).unwrap(), None, Accountant::Rdp).unwrap();
    let folder = Folder::new("not-finite");
    for (number, bad) in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].into_iter().enumerate() {
        let honest = rows(vec![vec![0.5, 1.0], vec![bad, 1.0], vec![0.5, 1.0]]);
        let faulty = Rows { adds_not_finite: true, ..honest.clone() };
        let ledger = folder.file(&number.to_string());
        let mut vault = Vault::seal(faulty, &terms, Randomness::from_os().unwrap(), &ledger).unwrap();
        vault
            .round(|round| {
                assert!(matches!(step(round), Err(PrivacyError::NotFinite)), "{bad}");
                // Whether a plain sum is finite must not be known before it is disclosed.
                assert!(round.gradients(&[]).plain_sum().is_ok(), "{bad}");
                let both = round.gradients(&[]).clipped_and_residual_sums(&rule(1.0), &rule(1.0));
                assert!(matches!(both, Err(PrivacyError::NotFinite)), "{bad}");
            })
            .unwrap();
        assert_eq!((vault.position(), vault.account().charged()), (1, 1));
        // The next round draws no record and works.
        assert!(vault.round(step).unwrap().unwrap().unwrap().iter().all(|value| value.is_finite()));
        assert!(vault.close().unwrap().is_closed());
        // An engine that leaves such a record out is not refused.
        let mut vault = Vault::seal_in_memory(honest, &terms, Randomness::seeded(1)).unwrap();
        assert!(vault.round(step).unwrap().unwrap().is_ok());
    }
}

/// The norms 0.5, 1.5 and 9 of three records, one that is absent and one that is not finite: their histogram and their balance.
#[test]
fn norms_are_counted_in_the_same_pass_and_get_noise_of_their_own() {
    let folder = Folder::new("counted");
    let norms = vec![vec![0.5], vec![-1.5], vec![9.0], vec![], vec![f32::NAN]];
    let norm = |value| ClipNorm::new(value).unwrap();
    let histogram = NormStatistic::histogram(norm(2.0), 4).unwrap();
    for (number, (statistic, expected)) in
        [(histogram, vec![0.0, 1.0, 0.0, 2.0]), (NormStatistic::balance(norm(1.0)), vec![-0.5])]
            .into_iter()
            .enumerate()
    {
        // First with hardly any noise, then with noise.
        for multipliers in [[1e-6, 1e-6], [1.0, 3.0]] {
            let terms = terms(5, &multipliers, 1.0, 1);
            let ledger = folder.file(&format!("{number}-{}", multipliers[1]));
            let mut vault = Vault::seal(rows(norms.clone()), &terms, Randomness::seeded(3), &ledger).unwrap();
            let (sum, counted) = vault
                .round(|round| {
                    let (sum, counted) =
                        round.gradients(&[]).clipped_sum_and(&rule(1.0), &statistic).unwrap();
                    (round.release(sum).unwrap(), round.release(counted).unwrap())
                })
                .unwrap()
                .unwrap();
            assert!((counted.noise_std() / (multipliers[1] * statistic.sensitivity()) - 1.0).abs() < 1e-5);
            let far = |a: &[f32], b: &[f32]| a.iter().zip(b).any(|(a, b)| (a - b).abs() > 5e-3);
            assert_eq!(far(&sum, &[0.5]), multipliers[0] > 1e-3, "{:?}", *sum);
            assert_eq!(far(&counted, &expected), multipliers[1] > 1e-3, "{:?}", *counted);
        }
    }
}

#[test]
fn a_round_that_panics_is_charged() {
    let folder = Folder::new("panic");
    let mut vault = Vault::seal(
        same_rows(10, &[1.0]),
        &terms(10, &[1.0], 0.5, 4),
        Randomness::seeded(1),
        &folder.file("l"),
    )
    .unwrap();
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = vault.round(|_| panic!("on purpose"));
    }));
    assert!(failed.is_err());
    assert_eq!((vault.position(), vault.account().charged()), (1, 1));
}

#[test]
fn a_resumed_vault_continues_after_all_charged_steps_with_fresh_noise() {
    let folder = Folder::new("resume");
    let terms = terms(10, &[1.0], 1.0, 20);
    let rows = || same_rows(10, &[1.0, 2.0]);
    let os = || Randomness::from_os().unwrap();
    let mut vault = Vault::seal(rows(), &terms, os(), &folder.file("l")).unwrap();
    vault.charge_by(8);
    let first = vault.round(step).unwrap().unwrap().unwrap();
    // As if the process had been killed.
    drop(vault);
    let mut vault = Vault::resume(rows(), &terms, os(), &folder.file("l")).unwrap();
    assert_eq!(vault.position(), 8);
    let second = vault.round(step).unwrap().unwrap().unwrap();
    assert_ne!(*first, *second);
    // A vault that is closed gives back the steps it did not take.
    vault.charge_by(5);
    vault.round(step).unwrap();
    let account = vault.close().unwrap();
    assert_eq!((account.charged(), account.is_closed()), (10, false));
    let vault = Vault::resume(rows(), &terms, os(), &folder.file("l")).unwrap();
    assert_eq!(vault.position(), 10);
}

#[test]
fn a_seeded_run_can_be_repeated_and_is_not_private() {
    let folder = Folder::new("seed");
    let run = |name: &str, seed| {
        let mut vault = Vault::seal(
            rows((0..40).map(|i| vec![i as f32 / 20.0 - 1.0, 0.5]).collect()),
            &terms(40, &[1.0], 0.3, 5),
            Randomness::seeded(seed),
            &folder.file(name),
        )
        .unwrap();
        let released: Vec<Vec<f32>> =
            (0..5).map(|_| vault.round(step).unwrap().unwrap().unwrap().into_inner()).collect();
        (released, vault.close().unwrap().privacy_status().unwrap())
    };
    let (first, standing) = run("a", 1);
    assert_eq!(first, run("b", 1).0);
    assert_ne!(first, run("c", 2).0);
    assert!(matches!(standing, PrivacyStatus::NotPrivate(why) if why.contains("seed")));
}

#[test]
fn a_disclosed_sum_ends_the_guarantee() {
    let folder = Folder::new("disclose");
    let mut vault = Vault::seal(
        same_rows(3, &[2.0]),
        &terms(3, &[1.0], 1.0, 2),
        Randomness::from_os().unwrap(),
        &folder.file("l"),
    )
    .unwrap();
    let disclosed = vault
        .round(|round| {
            let sum = round.gradients(&[]).plain_sum().unwrap();
            round.disclose(sum, "a test reads it").unwrap()
        })
        .unwrap()
        .unwrap();
    assert_eq!((&*disclosed, disclosed.noise_std()), (&vec![6.0], 0.0));
    drop(vault);
    let standing = sordino_privacy::Account::read(&folder.file("l")).unwrap().privacy_status().unwrap();
    assert_eq!(standing, PrivacyStatus::NotPrivate("a test reads it".to_owned()));
}

#[test]
fn unprotected_terms_have_no_guarantee_however_much_noise_is_added() {
    let folder = Folder::new("unprotected");
    let (z, rate) = (NoiseMultiplier::new(100.0).unwrap(), SamplingRate::new(1.0).unwrap());
    let terms = Terms::unprotected(Plan::dp_sgd(z, rate, Steps::new(2).unwrap()), 3, "plain training");
    assert!(terms.guarantee().is_none() && terms.plan().is_none());
    let path = folder.file("l");
    let mut vault = Vault::seal(same_rows(3, &[2.0]), &terms, Randomness::from_os().unwrap(), &path).unwrap();
    assert!(vault.round(step).unwrap().unwrap().is_ok());
    assert_eq!(
        vault.account().privacy_status().unwrap(),
        PrivacyStatus::NotPrivate("plain training".to_owned())
    );
}

#[test]
fn terms_for_another_number_of_records_are_refused() {
    let folder = Folder::new("fit");
    let refused = Vault::seal(
        same_rows(4, &[1.0]),
        &terms(5, &[1.0], 0.5, 4),
        Randomness::seeded(1),
        &folder.file("l"),
    );
    assert_eq!(refused.err().unwrap().to_string(), "the terms are for 5 records, but the vault was given 4");
    assert!(!folder.file("l").exists());
}

#[test]
fn a_ledger_in_memory_charges_the_whole_plan_and_gives_nothing_back() {
    let terms = terms(10, &[1.0], 0.5, 7);
    let whole = terms.guarantee().unwrap().epsilon.get();
    let seal = |randomness| Vault::seal_in_memory(same_rows(10, &[1.0, 2.0]), &terms, randomness).unwrap();
    // Stopped before the first step, after some of them, and after the last.
    for taken in [0, 3, 7] {
        let mut vault = seal(Randomness::from_os().unwrap());
        for number in 1..=taken {
            assert!(vault.round(step).unwrap().unwrap().is_ok());
            assert_eq!((vault.position(), vault.account().charged()), (number, 7));
        }
        vault.enter_model("a").unwrap();
        let account = vault.close().unwrap();
        assert!(account.is_in_memory() && account.charged() == 7 && account.is_closed() == (taken == 7));
        assert_eq!(
            (epsilon(&account.privacy_status().unwrap()), account.covers_model("a")),
            (whole, Some(true))
        );
    }
    let mut vault = seal(Randomness::seeded(1));
    assert_eq!(std::iter::from_fn(|| vault.round(step).unwrap()).count(), 7);
    assert!(matches!(vault.close().unwrap().privacy_status().unwrap(), PrivacyStatus::NotPrivate(_)));
}

#[test]
fn a_ledger_in_memory_records_what_is_disclosed() {
    let terms = terms(3, &[1.0], 1.0, 2);
    let mut vault =
        Vault::seal_in_memory(same_rows(3, &[2.0]), &terms, Randomness::from_os().unwrap()).unwrap();
    vault
        .round(|round| {
            let sum = round.gradients(&[]).plain_sum().unwrap();
            round.disclose(sum, "a test reads it").unwrap()
        })
        .unwrap();
    let status = vault.close().unwrap().privacy_status().unwrap();
    assert_eq!(status, PrivacyStatus::NotPrivate("a test reads it".to_owned()));
    assert!(Vault::seal_in_memory(same_rows(4, &[2.0]), &terms, Randomness::seeded(1)).is_err());
}
