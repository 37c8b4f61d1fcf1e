//! The vault keeps to its plan.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod rows;

use rows::{Folder, Rows, terms};
use sordino_accounting::{ClipNorm, Entry, NoiseMultiplier, Plan, Sampling, SamplingRate, Steps};
use sordino_privacy::{
    ClipRule, Gradients, NormStatistic, PrivacyError, Randomness, Release, Round, Standing, Terms, Vault,
};

fn rule(bound: f64) -> ClipRule {
    ClipRule::flat(ClipNorm::new(bound).unwrap()).unwrap()
}

fn step<G: Gradients<Point = [f32; 0]>>(round: &mut Round<'_, G>) -> Result<Release<Vec<f32>>, PrivacyError> {
    let sum = round.gradients(&[]).clipped_sum(&rule(1.0))?;
    round.release(sum)
}

fn epsilon(standing: &Standing) -> f64 {
    match standing {
        Standing::Private(guarantee) => guarantee.epsilon.get(),
        Standing::NotPrivate(why) => panic!("{why}"),
    }
}

#[test]
fn a_vault_opens_as_often_as_its_plan_says_and_charges_each_time() {
    let folder = Folder::new("plan");
    let terms = terms(10, &[1.0], 0.5, 7);
    let mut vault =
        Vault::seal(Rows::same(10, &[1.0, 2.0]), &terms, Randomness::from_os().unwrap(), &folder.file("l"))
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
    assert_eq!(epsilon(&account.standing().unwrap()), terms.guarantee().unwrap().epsilon.get());
}

#[test]
fn a_step_is_on_the_disk_before_it_is_drawn() {
    let folder = Folder::new("ahead");
    let path = folder.file("l");
    let mut vault =
        Vault::seal(Rows::same(10, &[1.0]), &terms(10, &[1.0], 0.5, 4), Randomness::seeded(1), &path)
            .unwrap();
    for number in 1..=4 {
        let charged = vault.round(|_| sordino_privacy::Account::read(&path).unwrap().charged()).unwrap();
        assert_eq!(charged, Some(number));
    }
}

#[test]
fn a_round_releases_no_more_than_the_plan_has_for_it() {
    let folder = Folder::new("twice");
    let mut vault = Vault::seal(
        Rows::same(10, &[1.0]),
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
fn rounding_is_paid_for_or_refused() {
    let folder = Folder::new("rounding");
    for (number, rounding) in [0.0, 0.25, f64::NAN, -1.0, -2.0, 1.5, f64::INFINITY].into_iter().enumerate() {
        let rows = Rows { rounding, ..Rows::same(10, &[1.0]) };
        let (terms, ledger) = (terms(10, &[2.0], 1.0, 1), folder.file(&number.to_string()));
        let mut vault = Vault::seal(rows, &terms, Randomness::seeded(1), &ledger).unwrap();
        let released = vault.round(step).unwrap().unwrap();
        match number {
            0 | 1 => assert!((released.unwrap().noise_std() / (2.0 * (1.0 + rounding)) - 1.0).abs() < 1e-5),
            _ => assert!(matches!(released, Err(PrivacyError::Rule(_))), "{rounding}"),
        }
    }
}

/// If an engine does not write to sums when it has nothing to add, an earlier sum must not be released.
#[test]
fn nothing_of_an_earlier_sum_is_left() {
    let folder = Folder::new("lazy");
    let rows = Rows { lazy: true, ..Rows::same(10, &[1.0]) };
    let quiet = || vec![NoiseMultiplier::new(1e-6).unwrap()];
    let rare = Sampling::Poisson { rate: SamplingRate::new(1e-9).unwrap(), cap: None };
    let entry = |sampling| Entry::new(sampling, quiet(), Steps::new(1).unwrap()).unwrap();
    let plan = Plan::new(vec![entry(Sampling::FullBatch), entry(rare)]);
    let terms = Terms::unprotected(plan, 10, "a test without noise");
    let mut vault = Vault::seal(rows, &terms, Randomness::seeded(1), &folder.file("l")).unwrap();
    let mut sum = || vault.round(step).unwrap().unwrap().unwrap()[0];
    assert!((sum() - 10.0).abs() < 0.1);
    assert!(sum().abs() < 0.1);
}

/// The norms 0.5, 1.5 and 9 of three records, one that is absent and one that is not finite: their histogram and their balance.
#[test]
fn norms_are_counted_in_the_same_pass_and_noised_apart() {
    let folder = Folder::new("counted");
    let rows = vec![vec![0.5], vec![-1.5], vec![9.0], vec![], vec![f32::NAN]];
    let norm = |value| ClipNorm::new(value).unwrap();
    let histogram = NormStatistic::histogram(norm(2.0), 4).unwrap();
    for (number, (statistic, expected)) in
        [(histogram, vec![0.0, 1.0, 0.0, 2.0]), (NormStatistic::balance(norm(1.0)), vec![-0.5])]
            .into_iter()
            .enumerate()
    {
        // Hardly any noise on the first day, noise as planned on the second.
        for multipliers in [[1e-6, 1e-6], [1.0, 3.0]] {
            let terms = terms(5, &multipliers, 1.0, 1);
            let ledger = folder.file(&format!("{number}-{}", multipliers[1]));
            let mut vault =
                Vault::seal(Rows::new(rows.clone()), &terms, Randomness::seeded(3), &ledger).unwrap();
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
fn a_round_that_panics_or_fails_is_paid_for() {
    let folder = Folder::new("panic");
    let mut vault = Vault::seal(
        Rows::same(10, &[1.0]),
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
fn a_resumed_vault_goes_on_after_all_that_was_charged_with_fresh_noise() {
    let folder = Folder::new("resume");
    let terms = terms(10, &[1.0], 1.0, 20);
    let rows = || Rows::same(10, &[1.0, 2.0]);
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
    // A vault that is closed in good order gives back what it did not draw.
    vault.charge_by(5);
    vault.round(step).unwrap();
    let account = vault.close().unwrap();
    assert_eq!((account.charged(), account.is_closed()), (10, false));
    let vault = Vault::resume(rows(), &terms, os(), &folder.file("l")).unwrap();
    assert_eq!(vault.position(), 10);
}

#[test]
fn a_seed_repeats_a_run_and_is_never_called_private() {
    let folder = Folder::new("seed");
    let run = |name: &str, seed| {
        let mut vault = Vault::seal(
            Rows::new((0..40).map(|i| vec![i as f32 / 20.0 - 1.0, 0.5]).collect()),
            &terms(40, &[1.0], 0.3, 5),
            Randomness::seeded(seed),
            &folder.file(name),
        )
        .unwrap();
        let released: Vec<Vec<f32>> =
            (0..5).map(|_| vault.round(step).unwrap().unwrap().unwrap().into_inner()).collect();
        (released, vault.close().unwrap().standing().unwrap())
    };
    let (first, standing) = run("a", 1);
    assert_eq!(first, run("b", 1).0);
    assert_ne!(first, run("c", 2).0);
    assert!(matches!(standing, Standing::NotPrivate(why) if why.contains("seed")));
}

#[test]
fn plain_sums_can_only_be_disclosed_and_then_nothing_is_promised() {
    let folder = Folder::new("disclose");
    let mut vault = Vault::seal(
        Rows::same(3, &[2.0]),
        &terms(3, &[1.0], 1.0, 2),
        Randomness::from_os().unwrap(),
        &folder.file("l"),
    )
    .unwrap();
    let disclosed = vault
        .round(|round| {
            let sum = round.gradients(&[]).plain_sum().unwrap();
            round.disclose(sum, "a test wants to see it").unwrap()
        })
        .unwrap()
        .unwrap();
    assert_eq!((&*disclosed, disclosed.noise_std()), (&vec![6.0], 0.0));
    drop(vault);
    let standing = sordino_privacy::Account::read(&folder.file("l")).unwrap().standing().unwrap();
    assert_eq!(standing, Standing::NotPrivate("a test wants to see it".to_owned()));
}

#[test]
fn unprotected_terms_promise_nothing_whatever_noise_they_add() {
    let folder = Folder::new("unprotected");
    let (z, rate) = (NoiseMultiplier::new(100.0).unwrap(), SamplingRate::new(1.0).unwrap());
    let terms = Terms::unprotected(Plan::dp_sgd(z, rate, Steps::new(2).unwrap()), 3, "plain training");
    assert!(terms.guarantee().is_none() && terms.plan().is_none());
    let path = folder.file("l");
    let mut vault =
        Vault::seal(Rows::same(3, &[2.0]), &terms, Randomness::from_os().unwrap(), &path).unwrap();
    assert!(vault.round(step).unwrap().unwrap().is_ok());
    assert_eq!(vault.account().standing().unwrap(), Standing::NotPrivate("plain training".to_owned()));
}

#[test]
fn records_and_terms_must_fit() {
    let folder = Folder::new("fit");
    let refused = Vault::seal(
        Rows::same(4, &[1.0]),
        &terms(5, &[1.0], 0.5, 4),
        Randomness::seeded(1),
        &folder.file("l"),
    );
    assert_eq!(refused.err().unwrap().to_string(), "the terms are for 5 records, the vault is given 4");
    assert!(!folder.file("l").exists());
}

#[test]
fn a_ledger_in_memory_charges_the_whole_plan_and_gives_nothing_back() {
    let terms = terms(10, &[1.0], 0.5, 7);
    let whole = terms.guarantee().unwrap().epsilon.get();
    let seal = |randomness| Vault::seal_in_memory(Rows::same(10, &[1.0, 2.0]), &terms, randomness).unwrap();
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
        assert_eq!((epsilon(&account.standing().unwrap()), account.covers_model("a")), (whole, Some(true)));
    }
    let mut vault = seal(Randomness::seeded(1));
    assert_eq!(std::iter::from_fn(|| vault.round(step).unwrap()).count(), 7);
    assert!(matches!(vault.close().unwrap().standing().unwrap(), Standing::NotPrivate(_)));
}

#[test]
fn a_ledger_in_memory_records_what_is_disclosed() {
    let terms = terms(3, &[1.0], 1.0, 2);
    let mut vault =
        Vault::seal_in_memory(Rows::same(3, &[2.0]), &terms, Randomness::from_os().unwrap()).unwrap();
    vault
        .round(|round| {
            let sum = round.gradients(&[]).plain_sum().unwrap();
            round.disclose(sum, "a test reads it").unwrap()
        })
        .unwrap();
    let status = vault.close().unwrap().standing().unwrap();
    assert_eq!(status, Standing::NotPrivate("a test reads it".to_owned()));
    assert!(Vault::seal_in_memory(Rows::same(4, &[2.0]), &terms, Randomness::seeded(1)).is_err());
}
