//! Federated training that protects records: every client trains with a vault and a ledger of its own, and the server averages the
//! parameters.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use sordino_accounting::Steps;
use sordino_data::Dataset;
use sordino_privacy::Account;

use crate::{
    DataDescription, DataFacts, Evaluator, Measurement, Observer, PricedRun, Run, RunData, RunFolder, Score,
    Settings, TestSetName, TrainError,
    metrics::append,
    parse_algorithm, price, resolve,
    resolve::{algorithm_text, of_every_client},
    run::{Clock, SealedRecords},
    state::{Position, TrainState},
};

/// The clients of a run that protects records within clients, before training.
///
/// In a round, every client takes `local_steps` private steps on its own records, from the parameters of the server. Then the server sets
/// its parameters to the mean of the clients' parameters, without weights.
///
/// **Guarantees.** A record belongs to one client, so the guarantee for one record is the largest of the clients' guarantees ("Clients with
/// vaults of their own" in `PROOF.md`). The number of records of each client is public.
pub struct Federation {
    clients: Vec<Client>,
    test: Option<Dataset>,
    local_steps: u64,
}

/// A client: an ordinary run, on its own records.
struct Client {
    priced: PricedRun,
    records: Dataset,
}

/// A client during training.
struct Training<'a> {
    priced: &'a PricedRun,
    run: Run<'a>,
    vault: SealedRecords<'a>,
    state: TrainState<'a>,
    /// Seconds of training in earlier processes.
    seconds: f64,
}

/// The result of a federation.
pub struct FederationEnding {
    /// The content of each client's ledger.
    pub accounts: Vec<Account>,
    /// The score on public test records, if there are any.
    pub score: Option<Score>,
    /// Whether the plans of all clients are finished.
    pub finished: bool,
    /// Seconds of training, in all processes.
    pub seconds: f64,
}

impl Federation {
    /// Prices the plan of each client, before any record is used. A resumed federation keeps the plans of its ledgers.
    ///
    /// # Errors
    /// Settings that do not apply if records are protected within clients; as for [`resolve`] and [`price`].
    pub fn price(
        settings: &Settings,
        data: RunData,
        resumed: Option<&[Account]>,
    ) -> Result<Self, TrainError> {
        check(settings, &data)?;
        let RunData { train, test, description } = data;
        // A test record belongs to no training client.
        let test = test.map(Dataset::without_units);
        let local_steps = settings.local_steps.unwrap_or(1);
        let clients = (0..train.slots()).map(|client| {
            let records = train.of_unit(client);
            let settings = of_client(settings, client, records.len() as u64, local_steps)?;
            let mut values = description.values.clone();
            (values.unit, values.records_per_unit) = (None, None);
            let facts = DataFacts::new(&records, test.as_ref());
            let description =
                DataDescription { facts, records: records.len(), values, ..description.clone() };
            let account = resumed.map(|accounts| &accounts[client]);
            let priced = price(resolve(&settings, &description)?, account)?;
            let records = priced.resolved.model.encode(&records)?.unwrap_or(records);
            Ok(Client { priced, records })
        });
        let clients = clients.collect::<Result<Vec<Client>, TrainError>>()?;
        let first = &clients[0].priced.resolved;
        first.footprint.check(clients.len())?;
        let test =
            test.map(|test| Ok::<_, TrainError>(first.model.encode(&test)?.unwrap_or(test))).transpose()?;
        Ok(Self { clients, test, local_steps })
    }

    /// The priced run of each client.
    pub fn clients(&self) -> impl ExactSizeIterator<Item = &PricedRun> {
        self.clients.iter().map(|client| &client.priced)
    }

    /// Trains, in a folder for each client within this one: `1`, `2`, ... Each is the folder of an ordinary run, whose ledger has the
    /// steps of the client, and whose model is that of the server.
    ///
    /// # Errors
    /// As [`TrainError`] lists them. What was released before an error is in the ledgers.
    pub fn run(
        &self,
        folder: &Path,
        resumed: bool,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<FederationEnding, TrainError> {
        let folders = (1..=self.clients.len()).map(|client| folder.join(client.to_string()));
        let folders = folders
            .map(|path| if resumed { RunFolder::open(&path) } else { RunFolder::create(&path) })
            .collect::<Result<Vec<RunFolder>, TrainError>>()?;
        let clients = self.clients.iter().zip(&folders);
        let mut clients = clients
            .map(|(Client { priced, records }, folder)| {
                let number = priced.resolved.values.client.as_ref().map_or(0, |client| client.value);
                // With a fixed seed, clients still have different random numbers.
                let run = priced.run(records, self.test.as_ref(), Some(folder)).with_seed_offset(number);
                if resumed {
                    let (vault, state, position) = run.reopen(folder)?;
                    return Ok(Training { priced, run, vault, state, seconds: position.seconds });
                }
                priced.write_settings(folder)?;
                let (vault, state) = run.open()?;
                Ok(Training { priced, run, vault, state, seconds: 0.0 })
            })
            .collect::<Result<Vec<Training<'_>>, TrainError>>()?;
        let clock = Clock::after(clients.iter().map(|client| client.seconds).fold(0.0, f64::max));
        average(&mut clients, !resumed);
        save(&mut clients, &clock)?;
        let mut saved = Instant::now();
        let every = self.clients[0].priced.resolved.checkpoint_every;
        while !stop.load(Ordering::Relaxed) && clients.iter().any(|client| !client.is_finished()) {
            let steps = self.local_steps;
            clients.iter_mut().try_for_each(|client| client.take(steps))?;
            average(&mut clients, false);
            observer.stepped(clients[0].vault.position(), clients[0].vault.account());
            if saved.elapsed() >= every {
                save(&mut clients, &clock)?;
                saved = Instant::now();
            }
        }
        self.end(clients, &folders, &clock)
    }

    fn end(
        &self,
        mut clients: Vec<Training<'_>>,
        folders: &[RunFolder],
        clock: &Clock,
    ) -> Result<FederationEnding, TrainError> {
        save(&mut clients, clock)?;
        let finished = clients.iter().all(Training::is_finished);
        let seconds = clock.seconds();
        let score = self.score(&clients[0])?;
        let mut accounts = Vec::new();
        for (client, folder) in clients.into_iter().zip(folders) {
            if let Some(score) = score {
                let private = client.priced.not_private().is_none();
                let step = client.vault.position();
                let measurement =
                    Measurement { step, score, seconds, private, protected: false, metrics: None };
                append(folder, &measurement)?;
            }
            accounts.push(client.run.end(client.vault, &client.state, None)?);
        }
        Ok(FederationEnding { accounts, score, finished, seconds })
    }

    /// The exact score of the server's model on public test records.
    fn score(&self, client: &Training<'_>) -> Result<Option<Score>, TrainError> {
        let Some(test) = &self.test else { return Ok(None) };
        let model = &self.clients[0].priced.resolved.model;
        let mut evaluator = Evaluator::new(model.network()?, model.loss, test)?;
        Ok(Some(evaluator.score(&client.state.learner.best())?))
    }
}

impl Training<'_> {
    fn is_finished(&self) -> bool {
        self.vault.position() == self.priced.terms.steps()
    }

    /// Takes up to this many private steps.
    fn take(&mut self, steps: u64) -> Result<(), TrainError> {
        self.vault.charge_by(steps);
        for _ in 0..steps {
            if !self.run.step(&mut self.vault, &mut self.state)? {
                break;
            }
        }
        Ok(())
    }
}

/// Sets the parameters of all clients to their mean, or to those of the first client before the first round.
fn average(clients: &mut [Training<'_>], begins: bool) {
    let mut mean = vec![0.0_f64; clients[0].state.learner.params().values().len()];
    let (members, share) = if begins { (1, 1.0) } else { (clients.len(), 1.0 / clients.len() as f64) };
    for client in &clients[..members] {
        let values = client.state.learner.params().values();
        mean.iter_mut().zip(values).for_each(|(mean, value)| *mean += share * f64::from(*value));
    }
    clients.iter_mut().for_each(|client| client.state.learner.move_to(&mean));
}

/// Writes the checkpoints and the models of all clients.
fn save(clients: &mut [Training<'_>], clock: &Clock) -> Result<(), TrainError> {
    let seconds = clock.seconds();
    clients.iter_mut().try_for_each(|client| {
        let position = Position { step: client.vault.position(), seconds };
        client.run.save(&client.state, &position, None, &mut client.vault)
    })
}

/// The settings of the run of a client. All its steps are planned at once.
fn of_client(
    settings: &Settings,
    client: usize,
    records: u64,
    local_steps: u64,
) -> Result<Settings, TrainError> {
    let rounds = settings.steps.map_or(100, Steps::get);
    let batch_size = settings.local_batch_size.map_or(256, |size| size as u64);
    let defaults = parse_algorithm(&algorithm_text(settings).value)?.defaults(settings.max_grad_norm)?;
    let settings = Settings {
        steps: Some(Steps::new(rounds.saturating_mul(local_steps))?),
        batch_size: Some(batch_size.min(records)),
        learning_rate: settings.local_learning_rate,
        client: Some(client as u64 + 1),
        unit: None,
        ..settings.clone()
    };
    Ok(of_every_client(settings, defaults.contribution))
}

/// Rejects settings that do not apply if records are protected within clients.
fn check(settings: &Settings, data: &RunData) -> Result<(), TrainError> {
    if data.train.unit().is_none() {
        return Err(TrainError::refused(
            "federated training needs clients, but the records belong to none",
            "split them with {clients=100}, give a folder with a file for each client and {clients=files}, or name the column of the client",
        ));
    }
    let unused = [
        (
            "batch_size",
            settings.batch_size.is_some(),
            "all clients take part in every round; {local_batch_size} sets their batch size",
        ),
        (
            "learning_rate",
            settings.learning_rate.is_some(),
            "the server averages the parameters; {local_learning_rate} is the learning rate of the clients",
        ),
        ("average", settings.average.is_some(), "the server averages the parameters of the clients"),
        ("epochs", settings.epochs.is_some(), "give the number of rounds with {steps}"),
    ];
    if let Some((name, _, instead)) = unused.into_iter().find(|(_, set, _)| *set) {
        return Err(TrainError::refused(
            format!("{name} has no effect if records are protected within their clients"),
            format!("leave out {{{name}}}: {instead}"),
        ));
    }
    let public = data.description.values.test_set.as_ref().is_none_or(|set| set.value == TestSetName::Public);
    match data.test.is_some() && !public {
        true => Err(TrainError::refused(
            "the test records are protected, but federated training that protects records needs public test records",
            "train on all records with {test_fraction=0}, or declare the test records public with {test_set=public}",
        )),
        false => Ok(()),
    }
}
