//! Runs on several ranks, which are threads here.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sordino_privacy::{Account, Communicator};
use sordino_testing::{Folder, ThreadRank, on_connected, on_ranks};
use sordino_train::{Ending, Observer, PricedRun, RunData, RunFolder, Settings, TrainError, price, resolve};

/// The settings of these tests, and more.
fn priced(more: &str) -> (PricedRun, RunData) {
    priced_with(&format!("steps = 20\n{more}"))
}

fn priced_with(more: &str) -> (PricedRun, RunData) {
    let settings = format!("data = 'mushroom'\nbatch_size = 100\n{more}");
    let settings = Settings::parse(&settings).unwrap();
    let data = RunData::read(&settings).unwrap();
    (price(resolve(&settings, &data.description).unwrap(), None).unwrap(), data)
}

/// Trains as one rank, in a folder if this is the first rank.
fn train(
    settings: &str,
    communicator: Arc<dyn Communicator>,
    folder: Option<&RunFolder>,
) -> Result<Ending, TrainError> {
    let (priced, mut data) = priced(settings);
    let first = communicator.rank() == 0;
    let test = data.test.take().filter(|_| first);
    let share = priced.share(data, communicator)?;
    let folder = folder.filter(|_| first);
    if let Some(folder) = folder {
        priced.write_settings(folder)?;
    }
    let run = priced.run(&share.records, test.as_ref(), folder).among(&share.communicator);
    run.begin(&AtomicBool::new(false), &mut ())
}

/// Every sound algorithm, and one that discloses, gives the same model on any number of ranks, up to rounding.
#[test]
fn a_seeded_run_gives_the_same_model_on_any_number_of_ranks() {
    for settings in [
        "",
        "algorithm = 'dc-sgd-p'",
        "algorithm = 'dice'",
        "algorithm = 'band-mf,band=4'",
        "algorithm = 'dp-c4'",
        "algorithm = 'dice-published'",
        "algorithm = 'none'",
        "sampling = 'fixed-size'",
        "model = 'mlp'\noptimizer = 'adam'",
    ] {
        let settings = format!("{settings}\nseed = 3");
        let (alone, data) = priced(&settings);
        let alone = alone.run(&data.train, data.test.as_ref(), None);
        let alone = alone.begin(&AtomicBool::new(false), &mut ()).unwrap();
        for size in [2, 3] {
            let endings = on_ranks(size, |rank| train(&settings, rank, None).unwrap());
            for (rank, ending) in endings.iter().enumerate() {
                assert!(ending.finished && ending.score.is_some() == (rank == 0));
                let (ours, theirs) = (alone.params.values(), ending.params.values());
                let scale = ours.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
                let apart =
                    ours.iter().zip(theirs).fold(0.0_f32, |most, (one, other)| most.max((one - other).abs()));
                assert!(apart < 2e-3 * scale, "{settings}: rank {rank} of {size} is {apart} of {scale} off");
            }
        }
    }
}

#[test]
fn units_stay_whole_on_ranks() {
    let folder = Folder::new("rank-units");
    let rows: String = (0..300).map(|i| format!("{},{},{}\n", i % 60, i % 7, i % 2)).collect();
    std::fs::write(folder.file("t.csv"), format!("person,x,y\n{rows}")).unwrap();
    let settings = format!(
        "data = {:?}\nunit = 'person'\ntarget = 'y'\nclasses = 2\nsteps = 5\nbatch_size = 10\nepsilon = 8.0\ndelta = 1e-4",
        folder.file("t.csv")
    );
    let settings = Settings::parse(&settings).unwrap();
    let shares = on_ranks(4, |communicator| {
        let mut data = RunData::read(&settings).unwrap();
        let priced = price(resolve(&settings, &data.description).unwrap(), None).unwrap();
        data.test = None;
        let share = priced.share(data, communicator).unwrap();
        let ending = priced.run(&share.records, None, None).among(&share.communicator);
        assert!(ending.begin(&AtomicBool::new(false), &mut ()).unwrap().finished);
        (share.records.slots(), share.records.len())
    });
    // 48 of 60 persons are training units, with five records each.
    assert_eq!(shares, [(12, 60); 4]);
}

#[test]
fn a_rank_with_another_plan_or_other_records_is_refused_by_its_number() {
    let folder = Folder::new("rank-differs");
    for (name, label) in [("one", 0), ("other", 1)] {
        let rows: String = (0..50).map(|i| format!("{},{}\n", i, (i + label) % 2)).collect();
        std::fs::create_dir_all(folder.file(name)).unwrap();
        std::fs::write(folder.file(name).join("t.csv"), format!("x,y\n{rows}")).unwrap();
    }
    let settings = |name: &str, steps: u64| {
        let path = folder.file(name).join("t.csv");
        format!("data = {path:?}\ntarget = 'y'\nclasses = 2\nepsilon = 8.0\ndelta = 1e-3\nsteps = {steps}")
    };
    let outcome = |different: &str, steps: u64| {
        let refusals = on_ranks(3, |communicator| {
            let (name, steps) = if communicator.rank() == 1 { (different, steps) } else { ("one", 5) };
            let settings = Settings::parse(&settings(name, steps)).unwrap();
            let data = RunData::read(&settings).unwrap();
            let priced = price(resolve(&settings, &data.description).unwrap(), None).unwrap();
            priced.share(data, communicator).err().map(|error| error.to_string())
        });
        refusals[0].clone()
    };
    assert_eq!(outcome("one", 5), None);
    assert_eq!(outcome("one", 6).as_deref(), Some("rank 1 has different settings from rank 0"));
    assert_eq!(outcome("other", 5).as_deref(), Some("rank 1 has different records from rank 0"));
}

/// Stops a run after this step.
struct StopAfter<'a>(u64, &'a AtomicBool);

impl Observer for StopAfter<'_> {
    fn stepped(&mut self, position: u64, _: &Account) {
        self.1.store(position >= self.0, Ordering::Relaxed);
    }
}

#[test]
fn a_run_is_resumed_with_any_number_of_ranks() {
    let place = Folder::new("rank-resume");
    let folder = RunFolder::create(&place.file("run")).unwrap();
    let mut reached = 0;
    for (size, until) in [(2, 7), (3, 12), (1, 15), (4, 20)] {
        let endings = on_ranks(size, |communicator| {
            let first = communicator.rank() == 0;
            let (mut run, mut data) = priced("");
            let test = data.test.take().filter(|_| first);
            if reached > 0 {
                let account = Account::read(&folder.ledger()).unwrap();
                run = price(run.resolved, Some(&account)).unwrap();
            }
            let share = run.share(data, communicator).unwrap();
            let stop = AtomicBool::new(false);
            let own = Some(&folder).filter(|_| first);
            if first && reached == 0 {
                run.write_settings(&folder).unwrap();
            }
            let run = run.run(&share.records, test.as_ref(), own).among(&share.communicator);
            match reached {
                0 => run.begin(&stop, &mut StopAfter(until, &stop)),
                _ => run.resume(&stop, &mut StopAfter(until, &stop)),
            }
            .unwrap()
        });
        reached = until;
        assert!(endings.iter().all(|ending| ending.finished == (until == 20)), "{size} ranks");
        assert!(endings.iter().all(|ending| ending.params == endings[0].params));
        assert_eq!(Account::read(&folder.ledger()).unwrap().charged(), until);
    }
}

/// A rank that ends stops the others, and what was charged is in the ledger.
#[test]
fn a_rank_that_ends_stops_the_others() {
    let place = Folder::new("rank-ends");
    let folder = RunFolder::create(&place.file("run")).unwrap();
    let results = on_connected(ThreadRank::connected(3, Duration::from_secs(10)), |communicator| {
        if communicator.rank() == 2 {
            // It agrees with the others, receives the initial state, hears that training goes on, and is gone.
            let (run, data) = priced("");
            let share = run.share(data, communicator).unwrap();
            share.communicator.broadcast_bytes(&mut Vec::new()).unwrap();
            share.communicator.broadcast_bytes(&mut Vec::new()).unwrap();
            return Ok(());
        }
        train("", communicator, Some(&folder)).map(drop).map_err(|error| error.to_string())
    });
    for result in &results[..2] {
        let problem = result.as_ref().unwrap_err();
        assert!(problem.contains("rank"), "{problem}");
    }
    let account = Account::read(&folder.ledger()).unwrap();
    assert!(account.charged() >= 1 && !account.is_closed());
}

/// The clipping norms of a listed schedule are in a file, and not in the plan.
#[test]
fn a_rank_with_another_schedule_file_is_refused() {
    let folder = Folder::new("rank-schedules");
    std::fs::write(folder.file("one.txt"), "1\n1\n").unwrap();
    std::fs::write(folder.file("other.txt"), "1\n1000\n").unwrap();
    let outcome = |other: &str| {
        let refusals = on_ranks(2, |communicator| {
            let name = if communicator.rank() == 0 { "one.txt" } else { other };
            let (priced, data) = priced_with(&format!(
                "steps = 2\nalgorithm = 'dynamic,clip_schedule=@{}'",
                folder.file(name).display()
            ));
            priced.share(data, communicator).err().map(|error| error.to_string())
        });
        refusals[0].clone()
    };
    assert_eq!(outcome("one.txt"), None);
    assert_eq!(outcome("other.txt").as_deref(), Some("rank 1 has different settings from rank 0"));
}
