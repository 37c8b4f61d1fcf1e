//! Test records are measured as the settings say: with noise and charged to the ledger if they are protected, exactly if they are public.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::atomic::AtomicBool;

use sordino_data::{Dataset, Labels};
use sordino_nn::{Loss, Params};
use sordino_testing::Folder;
use sordino_train::{
    DataDescription, Ending, Evaluator, Measurement, Observer, PricedRun, Run, RunFolder, Settings,
    measurements, price, resolve,
};

/// Two classes: a row's first value is -1 or 1, by its class, in all but every tenth row.
fn records(count: usize, shift: usize) -> Dataset {
    let class = |row: usize| usize::from((row * 7 + shift).is_multiple_of(2));
    let row = |row: usize| {
        let side = if class(row) == 1 { 1.0 } else { -1.0 };
        [if (row + shift).is_multiple_of(10) { -side } else { side }, (row % 13) as f32 / 13.0]
    };
    let rows: Vec<[f32; 2]> = (0..count).map(row).collect();
    let labels: Vec<bool> = (0..count).map(|row| class(row) == 1).collect();
    Dataset::from_rows(&rows, &labels).unwrap()
}

fn priced(text: &str, train: &Dataset, test: Option<&Dataset>) -> PricedRun {
    let settings =
        Settings::parse(&format!("model = 'logistic'\nsteps = 30\nbatch_size = 100\n{text}")).unwrap();
    let description = DataDescription::in_memory(&settings, train, test).unwrap();
    price(resolve(&settings, &description).unwrap(), None).unwrap()
}

fn begin(priced: &PricedRun, train: &Dataset, test: &Dataset, folder: Option<&RunFolder>) -> Ending {
    priced.run(train, Some(test), folder).begin(&AtomicBool::new(false), &mut ()).unwrap()
}

fn evaluator<'d>(priced: &PricedRun, test: &'d Dataset) -> Evaluator<'d> {
    let model = &priced.resolved.model;
    Evaluator::new(model.network().unwrap(), model.loss, test).unwrap()
}

#[test]
fn protected_records_are_measured_once_with_noise() {
    let (train, test) = (records(1000, 0), records(300, 1));
    let priced = priced("epsilon = 1.0", &train, Some(&test));
    let budget = priced.terms.measurement_budget().unwrap();
    let guarantee = priced.terms.guarantee().unwrap();
    assert_eq!((budget.slots, budget.measurements, budget.epsilon), (300, 1, guarantee.epsilon));
    let ending = begin(&priced, &train, &test, None);
    assert_eq!(ending.account.measured(), 1);
    let metrics = ending.metrics.as_ref().unwrap();
    // Laplace noise of scale 1 / epsilon.
    let expected = 2.0_f64.sqrt() / guarantee.epsilon.get();
    assert!((metrics.noise_std / expected - 1.0).abs() < 1e-4);
    // The noise of a run without a seed is random. The counts of fewer than 80 cells are added up, whose noise has a standard deviation of less than
    // 13 of the 300 records, so the bound is 6 standard deviations.
    let score = ending.score.unwrap();
    let (accuracy, [low, high]) = (score.accuracy.unwrap(), score.interval.unwrap());
    let exact = evaluator(&priced, &test).score(&ending.params).unwrap().accuracy.unwrap();
    assert!((accuracy - exact).abs() < 0.26, "{accuracy}, without noise {exact}");
    assert!(low <= accuracy && accuracy <= high && high - low < 0.3, "{low} {accuracy} {high}");
    // The accuracy is not a number of records divided by their number.
    let times = 300.0 * accuracy;
    assert!((times - times.round()).abs() > 1e-6 || times >= 300.0);
}

/// With hardly any noise, the table is that of the test records, whatever the training records are.
#[test]
fn the_held_back_records_are_measured_and_no_others() {
    let train = records(1000, 0);
    // All test records have the same class.
    let test = Dataset::from_flat(
        (0..200).flat_map(|row| [if row < 150 { 1.0 } else { -1.0 }, 0.0]).collect(),
        train.shape(),
        Labels::named(train.classes(), &["true"; 200]),
    )
    .unwrap();
    let priced = priced("noise_multiplier = 0.01\naccountant = 'rdp'", &train, Some(&test));
    let ending = begin(&priced, &train, &test, None);
    let exact = evaluator(&priced, &test).score(&ending.params).unwrap().accuracy.unwrap();
    let metrics = ending.metrics.unwrap();
    assert!(metrics.noise_std > 0.0 && metrics.noise_std < 0.01, "{}", metrics.noise_std);
    assert!((metrics.accuracy.unwrap().value - exact).abs() < 1e-3);
    let majority = metrics.majority.unwrap();
    assert!(majority.class == 1 && majority.share.value > 0.999);
}

#[test]
fn planned_measurements_share_epsilon_and_are_spread_over_the_run() {
    #[derive(Default)]
    struct Seen(Vec<Measurement>);
    impl Observer for Seen {
        fn measured(&mut self, measurement: &Measurement) {
            self.0.push(measurement.clone());
        }
    }
    let (train, test) = (records(1000, 0), records(300, 1));
    let priced = priced("epsilon = 1.0\nmeasurements = 3", &train, Some(&test));
    let mut seen = Seen::default();
    let run = priced.run(&train, Some(&test), None);
    let ending = run.begin(&AtomicBool::new(false), &mut seen).unwrap();
    assert_eq!(ending.account.measured(), 3);
    assert_eq!(seen.0.iter().map(|measurement| measurement.step).collect::<Vec<_>>(), [10, 20, 30]);
    let epsilon = priced.terms.guarantee().unwrap().epsilon.get();
    for Measurement { metrics, protected, private, .. } in seen.0 {
        let noise = metrics.unwrap().noise_std;
        assert!(protected && private && (noise * epsilon / (3.0 * 2.0_f64.sqrt()) - 1.0).abs() < 1e-4);
    }
    // Without a curve, one of them is made.
    let once = priced.run(&train, Some(&test), None).measured_once();
    assert_eq!(once.begin(&AtomicBool::new(false), &mut ()).unwrap().account.measured(), 1);
}

#[test]
fn public_records_and_runs_that_are_not_private_are_measured_exactly() {
    let (train, test) = (records(1000, 0), records(300, 1));
    for text in ["test_set = 'public'", "seed = 3", "algorithm = 'none'"] {
        let priced = priced(text, &train, Some(&test));
        assert!(priced.terms.measurement_budget().is_none(), "{text}");
        let ending = begin(&priced, &train, &test, None);
        let exact = evaluator(&priced, &test).score(&ending.params).unwrap();
        let (score, metrics) = (ending.score.unwrap(), ending.metrics.unwrap());
        assert_eq!((score.accuracy, metrics.noise_std), (exact.accuracy, 0.0), "{text}");
        // Only a run that is measured once is not measured if it is stopped.
        let stopped = |run: Run<'_>| run.begin(&AtomicBool::new(true), &mut ()).unwrap();
        let run = || priced.run(&train, Some(&test), None);
        assert!(stopped(run()).score.is_some() && stopped(run().measured_once()).score.is_none(), "{text}");
        assert!((metrics.accuracy.unwrap().value - exact.accuracy.unwrap()).abs() < 1e-12);
    }
    let refused = |text: &str| {
        let settings = Settings::parse(text).unwrap();
        let description = DataDescription::in_memory(&settings, &train, Some(&test)).unwrap();
        resolve(&settings, &description).unwrap_err().to_string()
    };
    assert!(refused("measurements = 0").contains("from 1 to the number of steps"));
    for text in ["measurements = 2\nseed = 1", "measurements = 2\ntest_set = 'public'"] {
        assert!(
            refused(text).contains("measurements is 2, but this run has no protected test records"),
            "{text}"
        );
    }
}

/// A run that was stopped is not measured; it is measured when it is finished, once, however often it is resumed.
#[test]
fn a_run_is_measured_when_it_is_finished_and_a_lost_measurement_is_not_repeated() {
    let place = Folder::new("train-measured");
    let (train, test) = (records(1000, 0), records(300, 1));
    let priced = priced("epsilon = 1.0", &train, Some(&test));
    let folder = RunFolder::create(&place.file("run")).unwrap();
    priced.write_settings(&folder).unwrap();
    struct StopsAt<'a>(u64, &'a AtomicBool);
    impl Observer for StopsAt<'_> {
        fn stepped(&mut self, position: u64, _: &sordino_privacy::Account) {
            self.1.store(position == self.0, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    let run = priced.run(&train, Some(&test), Some(&folder));
    let ending = run.begin(&stop, &mut StopsAt(5, &stop)).unwrap();
    assert!(!ending.finished && ending.score.is_none() && ending.account.measured() == 0);
    let ending = run.resume(&AtomicBool::new(false), &mut ()).unwrap();
    assert!(ending.finished && ending.score.is_some() && ending.account.measured() == 1);
    let lines = measurements(&folder);
    assert_eq!((lines.len(), lines[0].step), (1, 30));
    assert!(lines[0].protected && lines[0].metrics.is_some());
    // A second run whose measurement was charged but never written, as if it had been killed in between.
    let folder = RunFolder::create(&place.file("killed")).unwrap();
    priced.write_settings(&folder).unwrap();
    let run = priced.run(&train, Some(&test), Some(&folder));
    struct Panics;
    impl Observer for Panics {
        fn measured(&mut self, _: &Measurement) {
            panic!("on purpose");
        }
    }
    let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = run.begin(&AtomicBool::new(false), &mut Panics);
    }));
    assert!(killed.is_err());
    std::fs::remove_file(folder.metrics()).unwrap();
    let ending = run.resume(&AtomicBool::new(false), &mut ()).unwrap();
    assert!(ending.finished && ending.score.is_none() && ending.metrics.is_none());
    assert_eq!((ending.account.measured(), measurements(&folder).len()), (1, 0));
}

/// The ledger of an earlier version says nothing about test records: they were public.
#[test]
fn a_run_of_an_earlier_version_keeps_its_public_test_records() {
    let (train, test) = (records(1000, 0), records(300, 1));
    let settings = Settings::parse("model = 'logistic'\nsteps = 30\nbatch_size = 100").unwrap();
    let description = DataDescription::in_memory(&settings, &train, Some(&test)).unwrap();
    let resolved = || resolve(&settings, &description).unwrap();
    let new = price(resolved(), None).unwrap();
    let mut old = resolved();
    (old.values.test_set, old.values.measurements) = (None, None);
    let old = price(old, None).unwrap();
    assert!(old.terms.measurement_budget().is_none());
    let account = |priced: &PricedRun| {
        let ending = begin(priced, &train, &test, None);
        ending.account
    };
    let resumed = price(resolved(), Some(&account(&old))).unwrap();
    assert_eq!((&resumed.terms, resumed.settings().test_set), (&old.terms, None));
    let resumed = price(resolved(), Some(&account(&new))).unwrap();
    assert_eq!(resumed.terms.measurement_budget(), new.terms.measurement_budget());
}

/// What a slot adds to a table does not depend on other slots, and it adds 1 in total.
#[test]
fn one_held_back_record_moves_a_table_by_at_most_one() {
    let train = records(200, 0);
    let priced = priced("seed = 1", &train, None);
    let network = || priced.resolved.model.network().unwrap();
    let params: Params = network().init(5);
    let table = |data: &Dataset| {
        let mut evaluator = Evaluator::new(network(), Loss::Logistic, data).unwrap();
        let layout = evaluator.layout(0.0).unwrap();
        evaluator.table(&params, &layout).unwrap()
    };
    let whole = table(&train);
    assert_eq!(whole.iter().sum::<f64>(), 200.0);
    // The first record is held out of the rest: what remains is what the rest alone gives.
    let (rest, held_out) = records(200, 0).split(0.1, 3).unwrap();
    let parts: Vec<f64> = table(&rest).iter().zip(table(&held_out.unwrap())).map(|(a, b)| a + b).collect();
    assert_eq!(whole, parts);
    // Several records of one slot share its weight.
    let units: Vec<usize> = (0..200).map(|record| record / 4).collect();
    let in_units = records(200, 0).in_units("person", &units).unwrap();
    let mut evaluator = Evaluator::new(network(), Loss::Logistic, &in_units).unwrap();
    let layout = evaluator.layout(0.0).unwrap();
    let table = evaluator.table(&params, &layout).unwrap();
    assert!((table.iter().sum::<f64>() - 50.0).abs() < 1e-9 && evaluator.slots() == 50);
    // Records beyond the public maximum of a unit are not counted.
    let limited = in_units.limit_units(1).unwrap();
    let mut evaluator = Evaluator::new(network(), Loss::Logistic, &limited).unwrap();
    let first: Vec<f64> = evaluator.table(&params, &layout).unwrap();
    assert!(first.iter().all(|count| count.fract() == 0.0) && first.iter().sum::<f64>() == 50.0);
}
