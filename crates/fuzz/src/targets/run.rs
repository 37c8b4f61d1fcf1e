//! The files of a run: ledger, checkpoint, weights, settings, measurements, and saved models.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    sync::atomic::{AtomicBool, Ordering},
};

use safetensors::SafeTensors;
use serde_json::Value;
use sordino::Fitted;
use sordino_nn::Params;
use sordino_privacy::Account;
use sordino_testing::Folder;
use sordino_train::{
    Observer, PricedRun, RunData, RunFolder, Settings, inspect, price, resolve, verified_settings,
    write_weights,
};

use super::Make;
use crate::{
    Target,
    container::{Container, chained, events},
};

pub(super) const ALL: [(&str, Make); 7] = [
    ("ledger", ledgers),
    ("ledger-of-run", || Damage::of("ledger", Container::Ledger, opened)),
    ("checkpoint", || Damage::of("checkpoint.safetensors", Container::Safetensors, restored)),
    ("weights", || Damage::of("model.safetensors", Container::Safetensors, opened)),
    ("config", || Damage::of("config.toml", Container::Text, opened)),
    ("metrics", || Damage::of("metrics.jsonl", Container::Text, resumed)),
    ("saved-model", saved_model),
];

/// A run that was stopped, in a folder of its own.
struct StoppedRun {
    // The folder is removed when the target is dropped.
    _folder: Folder,
    run: RunFolder,
    priced: PricedRun,
    data: RunData,
    /// The files of the run as it wrote them.
    files: BTreeMap<&'static str, Vec<u8>>,
}

const FILES: [&str; 5] =
    ["ledger", "checkpoint.safetensors", "model.safetensors", "config.toml", "metrics.jsonl"];

/// Stops a run after some steps.
struct StopAfter<'a>(u64, &'a AtomicBool);

impl Observer for StopAfter<'_> {
    fn stepped(&mut self, position: u64, _: &Account) {
        self.1.store(position >= self.0, Ordering::Relaxed);
    }
}

impl StoppedRun {
    fn new(name: &str) -> Self {
        let folder = Folder::new(&format!("fuzz-run-{name}"));
        let table = folder.file("t.csv");
        fs::write(&table, "a,b\n1,0\n2,1\n0,0\n3,1\n1.5,0\n2.5,1\n0.5,0\n2,1\n").unwrap();
        let text = format!(
            "data = {:?}\nclasses = 2\nmodel = \"logistic\"\nnoise_multiplier = 2.0\ndelta = 1e-3\naccountant = \"rdp\"\nbatch_size = 2\n\
             steps = 40\noptimizer = \"adam\"\nlearning_rate = 0.1\naverage = 0.9\ntest_set = \"public\"\n",
            table.display().to_string()
        );
        let settings = Settings::parse(&text).unwrap();
        let data = RunData::read(&settings).unwrap();
        let priced = price(resolve(&settings, &data.description).unwrap(), None).unwrap();
        let run = RunFolder::create(&folder.file("run")).unwrap();
        priced.write_settings(&run).unwrap();
        let stop = AtomicBool::new(false);
        let running = priced.run(&data.train, data.test.as_ref(), Some(&run));
        running.begin(&stop, &mut StopAfter(10, &stop)).unwrap();
        let files = FILES.map(|name| (name, fs::read(run.path().join(name)).unwrap()));
        Self { _folder: folder, run, priced, data, files: files.into() }
    }

    /// Writes all files as they were, with one of them replaced.
    fn damage(&self, file: &str, input: &[u8]) {
        for (name, good) in &self.files {
            fs::write(self.run.path().join(name), if *name == file { input } else { good }).unwrap();
        }
    }

    /// Resumes the run until some step. Returns whether it could be resumed.
    fn resume(&self, until: u64) -> bool {
        let stop = AtomicBool::new(until == 0);
        let running = self.priced.run(&self.data.train, self.data.test.as_ref(), Some(&self.run));
        running.resume(&stop, &mut StopAfter(until, &stop)).is_ok()
    }
}

/// A run with one damaged file.
struct Damage {
    run: StoppedRun,
    file: &'static str,
    container: Container,
    good: Vec<Vec<u8>>,
    read: fn(&StoppedRun, &[u8]) -> Result<bool, String>,
}

impl Damage {
    fn of(
        file: &'static str,
        container: Container,
        read: fn(&StoppedRun, &[u8]) -> Result<bool, String>,
    ) -> Box<dyn Target> {
        let run = StoppedRun::new(file);
        let good = vec![run.files[file].clone()];
        Box::new(Self { run, file, container, good, read })
    }
}

/// The ledgers of a run that was stopped, resumed and finished.
fn ledgers() -> Box<dyn Target> {
    let run = StoppedRun::new("ledgers");
    let mut good = vec![run.files["ledger"].clone()];
    for until in [20, 40] {
        assert!(run.resume(until));
        good.push(fs::read(run.run.ledger()).unwrap());
    }
    Box::new(Damage { run, file: "ledger", container: Container::Ledger, good, read: ledger })
}

impl Target for Damage {
    fn container(&self) -> Container {
        self.container
    }

    fn good(&self) -> &[Vec<u8>] {
        &self.good
    }

    fn read(&mut self, input: &[u8]) -> Result<bool, String> {
        self.run.damage(self.file, input);
        (self.read)(&self.run, input)
    }
}

/// The complete lines of a ledger.
fn complete(ledger: &[u8]) -> &[u8] {
    &ledger[..ledger.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1)]
}

/// The steps that the lines of a ledger charge: a second, naive reading.
fn charged(ledger: &[u8]) -> u64 {
    let mut charged = 0;
    for event in events(complete(ledger)) {
        let event: Value = serde_json::from_slice(event).unwrap_or_default();
        charged += event["charge"]["steps"].as_u64().unwrap_or(0);
        charged = event["settled"]["drawn"].as_u64().unwrap_or(charged);
    }
    charged
}

/// Reads a ledger. Its chain of hashes and its charges are computed a second time.
fn ledger(run: &StoppedRun, input: &[u8]) -> Result<bool, String> {
    let Ok(account) = Account::read(&run.run.ledger()) else { return Ok(false) };
    if chained(&events(complete(input))) != complete(input) {
        return Err("a ledger with a broken chain of hashes was accepted".to_owned());
    }
    if !(charged(input)..=account.steps()).contains(&account.charged()) {
        return Err(format!(
            "{} of {} steps are charged, the lines charge {}",
            account.charged(),
            account.steps(),
            charged(input)
        ));
    }
    let _ = (account.privacy_status(), account.privacy_status_after(account.charged()), account.seal());
    Ok(true)
}

/// The tensors of a file.
fn tensors(bytes: &[u8]) -> Option<BTreeMap<String, Vec<u8>>> {
    let tensors = SafeTensors::deserialize(bytes).ok()?.tensors();
    Some(tensors.into_iter().map(|(name, tensor)| (name, tensor.data().to_vec())).collect())
}

/// Opens a run with a damaged file, as `show` and `predict` do. What is accepted must agree with the ledger.
fn opened(run: &StoppedRun, _: &[u8]) -> Result<bool, String> {
    let inspected = inspect(&run.run);
    let fitted = Fitted::open(run.run.path());
    let Ok(inspection) = inspected else {
        return if fitted.is_ok() { Err("a run that show refuses was opened".to_owned()) } else { Ok(false) };
    };
    let file = |name: &str| fs::read(run.run.path().join(name)).unwrap();
    let weights = file("model.safetensors");
    if inspection.weights_covered && tensors(&weights) != tensors(&run.files["model.safetensors"]) {
        return Err("weights that the run did not write were accepted".to_owned());
    }
    if let Ok(settings) = verified_settings(&run.run, &inspection.account)
        && settings != Settings::read_as_written(&run.run.config()).unwrap()
    {
        return Err("settings that are not those of the file were accepted".to_owned());
    }
    let original = Settings::parse(std::str::from_utf8(&run.files["config.toml"]).unwrap()).unwrap();
    let ledger_is_original = run.files["ledger"] == file("ledger");
    if fitted.is_ok()
        && ledger_is_original
        && Settings::read_as_written(&run.run.config()).unwrap() != original
    {
        return Err("settings that differ from those in the ledger were accepted".to_owned());
    }
    Ok(fitted.is_ok())
}

/// Resumes a run with a damaged checkpoint. Values that the run did not write are refused.
fn restored(run: &StoppedRun, input: &[u8]) -> Result<bool, String> {
    let resumed = resumed(run, input)?;
    // Checkpoints of earlier versions have no hash.
    let has_hash = SafeTensors::read_metadata(input)
        .is_ok_and(|(_, head)| head.metadata().as_ref().is_some_and(|notes| notes.contains_key("hash")));
    if resumed && has_hash && tensors(input) != tensors(&run.files["checkpoint.safetensors"]) {
        return Err("a checkpoint that the run did not write was accepted".to_owned());
    }
    Ok(resumed)
}

/// Resumes a run with a damaged file. The ledger never charges less afterwards.
fn resumed(run: &StoppedRun, _: &[u8]) -> Result<bool, String> {
    let resumed = run.resume(0);
    let after = fs::read(run.run.ledger()).unwrap();
    match Account::read(&run.run.ledger()) {
        Ok(account) if account.charged() >= charged(&run.files["ledger"]) => {}
        other => return Err(format!("after resuming, the ledger is {other:?}")),
    }
    if !after.starts_with(&run.files["ledger"]) {
        return Err("lines of the ledger were changed".to_owned());
    }
    Ok(resumed && inspect(&run.run).is_ok())
}

/// A saved model whose notes are damaged, with a correct hash of its content.
struct SavedModel {
    folder: Folder,
    params: Params,
    good: Vec<Vec<u8>>,
}

fn saved_model() -> Box<dyn Target> {
    let run = StoppedRun::new("saved");
    let folder = Folder::new("fuzz-saved");
    let path = folder.file("saved.safetensors");
    Fitted::open(run.run.path()).unwrap().save(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    let notes = SafeTensors::read_metadata(&bytes).unwrap().1.metadata().clone().unwrap();
    let network = run.priced.resolved.model.network().unwrap();
    let params = Params::from_safetensors(network.layout().clone(), &bytes).unwrap();
    Box::new(SavedModel { folder, params, good: vec![serde_json::to_vec(&notes).unwrap()] })
}

impl Target for SavedModel {
    fn container(&self) -> Container {
        Container::Text
    }

    fn good(&self) -> &[Vec<u8>] {
        &self.good
    }

    fn read(&mut self, input: &[u8]) -> Result<bool, String> {
        let Ok(notes) = serde_json::from_slice::<HashMap<String, String>>(input) else { return Ok(false) };
        let path = self.folder.file("saved.safetensors");
        if write_weights(&path, &self.params, notes).is_err() {
            return Ok(false);
        }
        let Ok(fitted) = Fitted::load(&path) else { return Ok(false) };
        let _ = fitted.guarantee().to_string();
        Ok(true)
    }
}
