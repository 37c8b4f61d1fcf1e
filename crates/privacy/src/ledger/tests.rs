//! Truncated, edited and torn ledgers are detected, and complete ones can be read and resumed.

use std::fs;

use sordino_accounting::{Accountant, Delta, NoiseMultiplier, Plan, SamplingRate, Steps};
use sordino_testing::Folder;

use super::*;
use crate::PrivacyStatus;

fn terms() -> Terms {
    let plan = Plan::dp_sgd(
        NoiseMultiplier::new(1.0).unwrap(),
        SamplingRate::new(0.1).unwrap(),
        Steps::new(100).unwrap(),
    );
    Terms::price(plan, 50, Delta::new(1e-5).unwrap(), None, Accountant::Rdp).unwrap().about("a test")
}

fn epsilon(account: &Account) -> f64 {
    match account.privacy_status().unwrap() {
        PrivacyStatus::Private(guarantee) => guarantee.epsilon.get(),
        PrivacyStatus::NotPrivate(why) => panic!("{why}"),
    }
}

/// A ledger of four lines: terms, 10 steps, 20 steps, 5 steps.
fn written(folder: &Folder) -> String {
    let mut ledger = Ledger::create(&folder.file("ledger"), &terms(), false).unwrap();
    for steps in [10, 20, 5] {
        ledger.charge(steps).unwrap();
    }
    fs::read_to_string(folder.file("ledger")).unwrap()
}

fn broken_line(path: &Path) -> usize {
    match Account::read(path).unwrap_err() {
        PrivacyError::LedgerBroken { line, .. } => line,
        other => panic!("{other}"),
    }
}

#[test]
fn charges_are_read_back_and_priced() {
    let folder = Folder::new("ledger-read");
    written(&folder);
    let account = Account::read(&folder.file("ledger")).unwrap();
    assert_eq!((account.charged(), account.steps(), account.is_closed()), (35, 100, false));
    let price = |steps| match account.privacy_status_after(steps).unwrap() {
        PrivacyStatus::Private(guarantee) => guarantee.epsilon.get(),
        PrivacyStatus::NotPrivate(why) => panic!("{why}"),
    };
    assert!(price(34) < price(35) && price(35) < price(100));
    // An unfinished run has the price of its whole plan.
    assert_eq!(epsilon(&account), price(100));
}

/// The chain of hashes, computed anew for these lines of JSON.
fn chained(lines: &[String]) -> String {
    use sha2::{Digest, Sha256};
    let (mut text, mut previous) = (String::new(), [0; 32]);
    for json in lines {
        previous = Sha256::new().chain_update(previous).chain_update(json).finalize().into();
        let hash: String = previous.iter().map(|byte| format!("{byte:02x}")).collect();
        text += &format!("{hash} {json}\n");
    }
    text
}

#[test]
fn ledgers_with_the_old_names_of_sampling_are_read_and_resumed() {
    let folder = Folder::new("ledger-old-names");
    let sampling =
        sordino_accounting::Sampling::Rotating { rate: SamplingRate::new(0.1).unwrap(), groups: 4 };
    let multipliers = vec![NoiseMultiplier::new(1.0).unwrap()];
    let entry = sordino_accounting::Entry::new(sampling, multipliers, Steps::new(100).unwrap()).unwrap();
    let delta = Delta::new(1e-5).unwrap();
    let terms = Terms::price(Plan::new(vec![entry]), 50, delta, None, Accountant::Rdp).unwrap();
    let path = folder.file("ledger");
    let mut ledger = Ledger::create(&path, &terms, false).unwrap();
    ledger.charge(10).unwrap();
    drop(ledger);
    let json = |line: &str| line.split_once(' ').unwrap().1.to_owned();
    let lines: Vec<String> = fs::read_to_string(&path).unwrap().lines().map(json).collect();
    assert_eq!(chained(&lines), fs::read_to_string(&path).unwrap());
    let old = [lines[0].replace("rotating", "grouped"), lines[1].clone()];
    assert_ne!(old[0], lines[0]);
    fs::write(&path, chained(&old)).unwrap();
    assert_eq!(Account::read(&path).unwrap().charged(), 10);
    // New lines follow from the old ones.
    Ledger::resume(&path, &terms, false).unwrap().charge(5).unwrap();
    assert_eq!(Account::read(&path).unwrap().charged(), 15);
}

#[test]
fn every_changed_character_is_detected_with_its_line() {
    let folder = Folder::new("ledger-edit");
    let text = written(&folder);
    let mut line = 1;
    for (place, byte) in text.bytes().enumerate() {
        let mut edited = text.clone().into_bytes();
        edited[place] = if byte == b'7' { b'8' } else { b'7' };
        fs::write(folder.file("ledger"), &edited).unwrap();
        match byte {
            // Without its line end, a line runs into the next one; the last one is torn.
            b'\n' if line == 4 => assert!(Account::read(&folder.file("ledger")).unwrap().is_torn()),
            _ => assert_eq!(broken_line(&folder.file("ledger")), line, "byte {place}"),
        }
        line += usize::from(byte == b'\n');
    }
}

#[test]
fn lines_that_are_removed_swapped_or_repeated_are_detected() {
    let folder = Folder::new("ledger-swap");
    let text = written(&folder);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    for (order, first_wrong) in [
        (vec![1, 2, 3], 1),
        (vec![0, 2, 3], 2),
        (vec![0, 1, 3], 3),
        (vec![0, 2, 1, 3], 2),
        (vec![0, 1, 1], 3),
    ] {
        let edited: String = order.iter().map(|&line| lines[line]).collect();
        fs::write(folder.file("ledger"), edited).unwrap();
        assert_eq!(broken_line(&folder.file("ledger")), first_wrong, "{order:?}");
    }
}

#[test]
fn a_ledger_without_its_last_lines_does_not_have_the_seal_of_a_checkpoint() {
    let folder = Folder::new("ledger-cut");
    let text = written(&folder);
    let (lines, hash) = Account::read(&folder.file("ledger")).unwrap().seal();
    assert_eq!(lines, 4);
    assert!(Account::read(&folder.file("ledger")).unwrap().has_seal(lines, &hash));
    let cut = text.trim_end().rfind('\n').unwrap() + 1;
    fs::write(folder.file("ledger"), &text[..cut]).unwrap();
    let account = Account::read(&folder.file("ledger")).unwrap();
    assert!(!account.has_seal(lines, &hash));
    assert!(!account.has_seal(0, &hash) && !account.has_seal(u64::MAX, &hash));
}

#[test]
fn a_torn_line_counts_as_the_largest_charge() {
    let folder = Folder::new("ledger-torn");
    let text = written(&folder);
    for cut in text.trim_end().rfind('\n').unwrap() + 2..text.len() {
        fs::write(folder.file("ledger"), &text[..cut]).unwrap();
        let account = Account::read(&folder.file("ledger")).unwrap();
        assert!(account.is_torn() && account.charged() == 100);
        let ledger = Ledger::resume(&folder.file("ledger"), &terms(), false).unwrap();
        assert_eq!(ledger.account().charged(), 100);
        drop(ledger);
        assert!(!Account::read(&folder.file("ledger")).unwrap().is_torn());
    }
}

#[test]
fn steps_that_were_not_taken_are_given_back_only_by_the_process_that_charged_them() {
    let folder = Folder::new("ledger-settle");
    let mut ledger = Ledger::create(&folder.file("ledger"), &terms(), false).unwrap();
    ledger.charge(10).unwrap();
    ledger.write(Event::Settled { drawn: 4 }).unwrap();
    assert_eq!(ledger.account().charged(), 4);
    ledger.charge(10).unwrap();
    drop(ledger);
    let mut ledger = Ledger::resume(&folder.file("ledger"), &terms(), false).unwrap();
    assert_eq!(ledger.account().charged(), 14);
    assert!(ledger.write(Event::Settled { drawn: 10 }).is_err(), "another process may have taken them");
}

#[test]
fn a_ledger_is_resumed_under_its_own_terms_by_one_process() {
    let folder = Folder::new("ledger-terms");
    written(&folder);
    let refused = |terms: &Terms, seeded| {
        Ledger::resume(&folder.file("ledger"), terms, seeded).err().unwrap().to_string()
    };
    assert!(refused(&terms().about("something else"), false).contains("other terms"));
    assert!(refused(&terms(), true).contains("other terms"));
    let _first = Ledger::resume(&folder.file("ledger"), &terms(), false).unwrap();
    assert!(refused(&terms(), false).contains("in use"));
    assert!(Ledger::create(&folder.file("ledger"), &terms(), false).is_err());
}

#[test]
fn no_more_than_the_plan_is_charged_and_nothing_after_the_end() {
    let folder = Folder::new("ledger-end");
    let mut ledger = Ledger::create(&folder.file("ledger"), &terms(), false).unwrap();
    ledger.charge(100).unwrap();
    assert!(ledger.charge(1).is_err());
    ledger.write(Event::Closed { steps: 100 }).unwrap();
    assert!(ledger.charge(1).is_err() && ledger.account().is_closed());
    assert!(Account::read(&folder.file("ledger")).unwrap().is_closed());
}

#[test]
fn weights_are_covered_by_their_hash() {
    let folder = Folder::new("ledger-model");
    let mut ledger = Ledger::create(&folder.file("ledger"), &terms(), false).unwrap();
    assert_eq!(ledger.account().covers_model("a"), None);
    ledger.write(Event::Model { hash: "a".to_owned() }).unwrap();
    ledger.charge(100).unwrap();
    ledger.write(Event::Model { hash: "b".to_owned() }).unwrap();
    drop(ledger);
    // A run that is killed here may not have written the second weights.
    let covered = |hash: &str| Account::read(&folder.file("ledger")).unwrap().covers_model(hash);
    assert_eq!(["a", "b", "c"].map(covered), [Some(true), Some(true), Some(false)]);
    let mut ledger = Ledger::resume(&folder.file("ledger"), &terms(), false).unwrap();
    ledger.write(Event::Closed { steps: 100 }).unwrap();
    assert!(ledger.write(Event::Model { hash: "c".to_owned() }).is_err());
    // A finished run has written its last weights.
    assert_eq!(["a", "b", "c"].map(covered), [Some(false), Some(true), Some(false)]);
}

#[test]
fn a_run_with_a_disclosure_or_a_seed_has_no_epsilon() {
    let folder = Folder::new("ledger-hole");
    let mut ledger = Ledger::create(&folder.file("ledger"), &terms(), false).unwrap();
    ledger.charge(1).unwrap();
    ledger.disclose("for a test").unwrap();
    ledger.disclose("again").unwrap();
    drop(ledger);
    let account = Account::read(&folder.file("ledger")).unwrap();
    assert_eq!(account.privacy_status().unwrap(), PrivacyStatus::NotPrivate("for a test".to_owned()));
    fs::remove_file(folder.file("ledger")).unwrap();
    let ledger = Ledger::create(&folder.file("ledger"), &terms(), true).unwrap();
    assert!(
        matches!(ledger.account().privacy_status().unwrap(), PrivacyStatus::NotPrivate(why) if why.contains("seed"))
    );
}

#[test]
fn a_ledger_whose_disk_fails_charges_nothing_more() {
    let folder = Folder::new("ledger-full");
    let mut ledger = Ledger::create(&folder.file("ledger"), &terms(), false).unwrap();
    // A file that cannot be written simulates a full disk.
    ledger.file = Some(File::open(folder.file("ledger")).unwrap());
    assert!(ledger.charge(10).is_err());
    assert!(ledger.check().is_err() && ledger.charge(1).is_err());
}
