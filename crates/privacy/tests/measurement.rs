//! Measurements on held-back slots follow the terms, and each rule has a planted bug that its check finds.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::{cell::RefCell, fs, path::Path};

use sordino_accounting::{Accountant, Delta, Entry, Epsilon, NoiseMultiplier, Plan, Sampling, Steps};
use sordino_privacy::{
    Account, MeasurementBudget, Outcomes, PrivacyError, PrivacyStatus, Randomness, Tally, Terms, Vault,
};
use sordino_testing::{Folder, Rows, same_rows, terms};

/// Held-back slots whose cells are given; the point is the cell that every slot adds to instead, if there is one.
struct Cells {
    slots: Vec<Option<usize>>,
    cells: usize,
    /// Called before the table is filled.
    before: Box<dyn Fn() -> Result<(), std::io::Error>>,
}

fn cells(slots: usize, cells: usize) -> Cells {
    Cells { slots: (0..slots).map(|slot| Some(slot % cells)).collect(), cells, before: Box::new(|| Ok(())) }
}

impl Outcomes for Cells {
    type Point = Option<usize>;
    type Error = std::io::Error;

    fn slots(&self) -> usize {
        self.slots.len()
    }

    fn cells(&self) -> usize {
        self.cells
    }

    fn tally(&mut self, at: &Option<usize>, tally: &mut Tally<'_>) -> Result<(), std::io::Error> {
        (self.before)()?;
        for (slot, cell) in self.slots.iter().enumerate() {
            if let Some(cell) = cell {
                tally.add(slot, at.unwrap_or(*cell), 1.0);
            }
        }
        Ok(())
    }
}

fn measuring(slots: u64, measurements: u64, epsilon: f64) -> Terms {
    let epsilon = Epsilon::new(epsilon).unwrap();
    terms(10, &[1.0], 0.5, 4).measuring(MeasurementBudget { slots, measurements, epsilon }).unwrap()
}

fn sealed(terms: &Terms, ledger: &Path) -> Vault<Rows> {
    Vault::seal(same_rows(10, &[1.0]), terms, Randomness::from_os().unwrap(), ledger).unwrap()
}

#[test]
fn as_many_measurements_as_the_terms_permit_are_made_and_each_is_charged_first() {
    let folder = Folder::new("measure-charged");
    let path = folder.file("l");
    let mut vault = sealed(&measuring(30, 2, 1.0), &path);
    let seen = std::rc::Rc::new(RefCell::new(Vec::new()));
    let (watched, read) = (seen.clone(), path.clone());
    let mut held_back = Cells {
        before: Box::new(move || {
            watched.borrow_mut().push(Account::read(&read).unwrap().measured());
            Ok(())
        }),
        ..cells(30, 3)
    };
    for _ in 0..2 {
        let table = vault.measure(&mut held_back, &None).unwrap();
        // Two measurements with half of epsilon each.
        assert!(table.len() == 3 && (table.noise_std() / (2.0 * 2.0_f64.sqrt()) - 1.0).abs() < 1e-5);
        vault.round(|_| ()).unwrap();
    }
    let refused = vault.measure(&mut held_back, &None);
    assert!(matches!(refused, Err(PrivacyError::NoMeasurementLeft { planned: 2 })));
    // The table of the third was not computed, and each of the others was charged on the disk before it was.
    assert_eq!(*seen.borrow(), [1, 2]);
    assert!(vault.account().measurement_budget().is_some_and(|budget| budget.measurements == 2));
}

/// Whatever ends a measurement: the engine fails, or the process is killed.
#[test]
fn a_measurement_that_was_charged_and_not_released_is_spent() {
    let folder = Folder::new("measure-killed");
    let (path, terms) = (folder.file("l"), measuring(30, 1, 1.0));
    let mut vault = sealed(&terms, &path);
    let fails = || Err(std::io::Error::other("on purpose"));
    let mut held_back = Cells { before: Box::new(fails), ..cells(30, 3) };
    assert!(matches!(vault.measure(&mut held_back, &None), Err(PrivacyError::Engine(_))));
    drop(vault);
    let rows = same_rows(10, &[1.0]);
    let mut vault = Vault::resume(rows, &terms, Randomness::from_os().unwrap(), &path).unwrap();
    assert_eq!((vault.account().measured(), vault.account().charged()), (1, 0));
    let refused = vault.measure(&mut cells(30, 3), &None);
    assert!(matches!(refused, Err(PrivacyError::NoMeasurementLeft { planned: 1 })));
    // Training goes on.
    assert!(vault.round(|_| ()).unwrap().is_some());
}

#[test]
fn a_torn_line_may_have_charged_a_measurement() {
    let folder = Folder::new("measure-torn");
    let (path, terms) = (folder.file("l"), measuring(30, 2, 1.0));
    let mut vault = sealed(&terms, &path);
    let _ = vault.measure(&mut cells(30, 3), &None).unwrap();
    drop(vault);
    let text = fs::read_to_string(&path).unwrap();
    let line = text.trim_end().rfind('\n').unwrap() + 1;
    for cut in line + 1..text.len() {
        fs::write(&path, &text[..cut]).unwrap();
        assert_eq!(Account::read(&path).unwrap().measured(), 1);
        let rows = same_rows(10, &[1.0]);
        let vault = Vault::resume(rows, &terms, Randomness::from_os().unwrap(), &path).unwrap();
        assert_eq!((vault.account().measured(), vault.account().charged()), (1, 4));
        drop(vault);
        let account = Account::read(&path).unwrap();
        assert!(!account.is_torn() && account.measured() == 1);
    }
}

#[test]
fn measurements_do_not_change_the_guarantee_and_cannot_cost_more() {
    let plain = terms(10, &[1.0], 0.5, 4);
    let guarantee = *plain.guarantee().unwrap();
    let budget = MeasurementBudget { slots: 5, measurements: 3, epsilon: guarantee.epsilon };
    let vault = |terms: &Terms| {
        Vault::seal_in_memory(same_rows(10, &[1.0]), terms, Randomness::from_os().unwrap()).unwrap()
    };
    let terms = plain.clone().measuring(budget).unwrap();
    assert_eq!(terms.measurement_budget(), Some(budget));
    let mut measured = vault(&terms);
    let _ = measured.measure(&mut cells(5, 2), &None).unwrap();
    assert_eq!(measured.account().privacy_status().unwrap(), PrivacyStatus::Private(guarantee));
    let more = Epsilon::new(guarantee.epsilon.get() * 1.000_001).unwrap();
    let refused = plain.clone().measuring(MeasurementBudget { epsilon: more, ..budget });
    assert!(matches!(refused, Err(PrivacyError::OverBudget { .. })));
    // Other slots than the terms have, and terms without measurements.
    assert!(matches!(measured.measure(&mut cells(6, 2), &None), Err(PrivacyError::Mismatch(_))));
    assert!(matches!(
        vault(&plain).measure(&mut cells(5, 2), &None),
        Err(PrivacyError::NoMeasurementLeft { planned: 0 })
    ));
    let unprotected = Terms::unprotected(plain.plan().unwrap().clone(), 10, "plain");
    assert!(matches!(unprotected.measuring(budget), Err(PrivacyError::Mismatch(_))));
}

/// No step was taken, and a held-back slot has paid for one of two measurements.
#[test]
fn the_price_of_the_first_steps_includes_the_measurements_that_were_made() {
    let folder = Folder::new("measure-so-far");
    let terms = measuring(30, 2, 1.0);
    let mut vault = sealed(&terms, &folder.file("l"));
    let epsilon = |vault: &Vault<Rows>, steps| match vault.account().privacy_status_after(steps).unwrap() {
        PrivacyStatus::Private(guarantee) => guarantee.epsilon.get(),
        PrivacyStatus::NotPrivate(why) => panic!("{why}"),
    };
    assert_eq!(epsilon(&vault, 0), 0.0);
    let _ = vault.measure(&mut cells(30, 3), &None).unwrap();
    assert!((0.5..0.5 + 1e-9).contains(&epsilon(&vault, 0)));
    assert_eq!(epsilon(&vault, 4), terms.guarantee().unwrap().epsilon.get());
}

/// A slot that is replaced leaves one cell and enters another.
#[test]
fn replacing_a_record_needs_twice_the_noise() {
    let sampling = Sampling::FixedSize { batch_size: 5, population: 10 };
    let multipliers = vec![NoiseMultiplier::new(1.0).unwrap()];
    let plan = Plan::new(vec![Entry::new(sampling, multipliers, Steps::new(4).unwrap()).unwrap()]);
    let terms = Terms::price(plan, 10, Delta::new(1e-5).unwrap(), None, Accountant::Rdp).unwrap();
    let epsilon = Epsilon::new(1.0).unwrap();
    let terms = terms.measuring(MeasurementBudget { slots: 30, measurements: 1, epsilon }).unwrap();
    let mut vault =
        Vault::seal_in_memory(same_rows(10, &[1.0]), &terms, Randomness::from_os().unwrap()).unwrap();
    let table = vault.measure(&mut cells(30, 3), &None).unwrap();
    assert!((table.noise_std() / (2.0 * 2.0_f64.sqrt()) - 1.0).abs() < 1e-5);
}

#[test]
fn a_ledger_of_an_earlier_version_has_no_measurements() {
    let folder = Folder::new("measure-old");
    let path = folder.file("l");
    drop(sealed(&terms(10, &[1.0], 0.5, 4), &path));
    // The first line has the words of earlier versions.
    assert!(!fs::read_to_string(&path).unwrap().contains("measuring"));
    let account = Account::read(&path).unwrap();
    assert_eq!((account.measurement_budget(), account.measured()), (None, 0));
    // A ledger with measurements cannot be resumed under terms without them, or with others.
    let path = folder.file("new");
    drop(sealed(&measuring(30, 2, 1.0), &path));
    for other in [terms(10, &[1.0], 0.5, 4), measuring(30, 3, 1.0), measuring(31, 2, 1.0)] {
        let resumed = Vault::resume(same_rows(10, &[1.0]), &other, Randomness::from_os().unwrap(), &path);
        assert!(matches!(resumed, Err(PrivacyError::Mismatch(_))));
    }
}

/// What a measurement may be asked to do wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    NoNoise,
    HalvesTheNoise,
    NoiseForNonEmptyCellsOnly,
    ReusesNoise,
}

/// Tables of one measurement each, for 20 slots in the first of 400 cells and one in the last, at epsilon 1.
fn tables(bug: Option<Bug>, count: u64) -> Vec<Vec<f64>> {
    let one = |seed: u64| {
        let epsilon = Epsilon::new(1.0).unwrap();
        let budget = MeasurementBudget { slots: 21, measurements: 1, epsilon };
        let terms = terms(10, &[1.0], 0.5, 4).measuring(budget).unwrap();
        let seed = if bug == Some(Bug::ReusesNoise) { 0 } else { seed };
        let mut vault =
            Vault::seal_in_memory(same_rows(10, &[1.0]), &terms, Randomness::seeded(seed)).unwrap();
        let mut slots = vec![Some(0); 20];
        slots.push(Some(399));
        let mut held_back = Cells { slots: slots.clone(), ..cells(0, 400) };
        let mut table = vault.measure(&mut held_back, &None).unwrap().into_inner();
        for (cell, value) in table.iter_mut().enumerate() {
            let exact = slots.iter().filter(|slot| **slot == Some(cell)).count() as f64;
            match bug {
                Some(Bug::NoNoise) => *value = exact,
                Some(Bug::HalvesTheNoise) => *value = exact + 0.5 * (*value - exact),
                Some(Bug::NoiseForNonEmptyCellsOnly) if exact == 0.0 => *value = 0.0,
                _ => {}
            }
        }
        table
    };
    (0..count).map(one).collect()
}

/// The noise of 25 tables: its mean absolute value, which is 1 / epsilon for Laplace noise; the empty cells that are exactly 0; whether
/// two tables are equal. With 10,000 cells the mean has a standard deviation of 0.01.
fn is_sound(tables: &[Vec<f64>]) -> bool {
    let empty: Vec<f64> = tables.iter().flat_map(|table| table[1..399].to_vec()).collect();
    let mean = empty.iter().map(|value| value.abs()).sum::<f64>() / empty.len() as f64;
    let zeros = empty.iter().filter(|value| **value == 0.0).count();
    let biased = tables.iter().map(|table| table[0] - 20.0).sum::<f64>().abs() / tables.len() as f64;
    (mean - 1.0).abs() < 0.05 && zeros < 5 && biased < 1.5 && tables[0] != tables[1]
}

#[test]
fn every_cell_of_a_table_has_fresh_noise_of_the_planned_scale() {
    assert!(is_sound(&tables(None, 25)));
    for bug in [Bug::NoNoise, Bug::HalvesTheNoise, Bug::NoiseForNonEmptyCellsOnly, Bug::ReusesNoise] {
        assert!(!is_sound(&tables(Some(bug), 25)), "{bug:?} was not found");
    }
}
