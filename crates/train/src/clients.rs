//! The clients of a federated run: which records belong to which client, and how a client trains.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sordino_data::{Dataset, Source, Splits};

use crate::{
    ClientSource, DataFacts, LocalTraining, Origin, ProtectedUnit, SettingValues, Settings, TrainError,
    Value, settings::given,
};

/// The name of the unit of privacy, if no column identifies the client.
pub(crate) const CLIENT: &str = "client";

/// The largest number of records in a local step, and of local steps; more is most likely a mistake.
const MOST: u64 = 1 << 20;

/// The files from which records are read. For a folder with a file for each client, these are all its files in the order of their names.
///
/// # Errors
/// A folder of clients that cannot be read or has fewer than two files.
pub(crate) fn files(settings: &Settings, path: &Path) -> Result<Vec<PathBuf>, TrainError> {
    if settings.clients != Some(ClientSource::Files) {
        return Ok(vec![path.to_owned()]);
    }
    let refuse = |problem: String| {
        TrainError::refused(
            format!("{}: {problem}", path.display()),
            "give a folder with one file for each client as {data}, or split the records with {clients=100}",
        )
    };
    let entries = fs::read_dir(path).map_err(|error| refuse(error.to_string()))?;
    let hidden =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.is_file() && !hidden(file));
    files.sort();
    match files.len() {
        0 | 1 => Err(refuse(format!("has {} files, but there must be at least 2 clients", files.len()))),
        _ => Ok(files),
    }
}

/// Reads the records of these files, and assigns them to clients. The files are one data set, or each has the records of one client.
///
/// # Errors
/// Files that cannot be read or do not fit together; settings that do not fit the clients.
pub(crate) fn read(settings: &Settings, source: &Source, files: &[PathBuf]) -> Result<Splits, TrainError> {
    let mut sets = sordino_data::read(source)?;
    if settings.protect.is_some() && settings.records_per_unit.is_some() {
        return Err(TrainError::refused(
            "records_per_unit has no effect here: all records of a client are used",
            "leave out {records_per_unit}; {local_steps} and {local_batch_size} limit the work of a client",
        ));
    }
    if settings.clients.is_some() && settings.unit.as_deref().is_some_and(|unit| unit != CLIENT) {
        return Err(TrainError::refused(
            "clients and the column of the client exclude each other",
            "leave out {clients} or {unit}",
        ));
    }
    let Some(clients) = settings.clients else {
        let train = if settings.protect.is_some() { sets.train.with_whole_units() } else { sets.train };
        return Ok(Splits { train, ..sets });
    };
    if let Some(unit) = sets.train.unit() {
        return Err(TrainError::refused(
            format!("clients is {clients}, but the records already belong to clients, by {unit}"),
            "leave out {clients}",
        ));
    }
    let ids: Vec<usize> = match clients {
        ClientSource::Split(count) => {
            let records = sets.train.len();
            if !(2..=records).contains(&count) {
                return Err(TrainError::refused(
                    format!("clients must be between 2 and the number of records, {records}; got {count}"),
                    "{clients=100} splits the records over 100 clients",
                ));
            }
            (0..records).map(|record| record % count).collect()
        }
        ClientSource::Files if sets.test.is_some() => {
            return Err(TrainError::refused(
                format!("{} has test records of its own", source.path.display()),
                "give files with training records only; {test_data} or {test_fraction} chooses test records",
            ));
        }
        ClientSource::Files => {
            let mut ids = vec![0; sets.train.len()];
            for (client, file) in files.iter().enumerate().skip(1) {
                let more = sordino_data::read_test(file, source, &sets)?;
                ids.resize(ids.len() + more.len(), client);
                sets.train = sets.train.joined_with(&more)?;
            }
            ids
        }
    };
    let train = sets.train.in_units(CLIENT, &ids)?.with_whole_units();
    Ok(Splits { train, ..sets })
}

/// The clients of separate test records. If clients come from a split or from files, each test record counts as a client with one record.
///
/// # Errors
/// None: every record has an id.
pub(crate) fn of_test_records(settings: &Settings, test: Dataset) -> Result<Dataset, TrainError> {
    let ids = (0..test.len()).map(|record| format!("test record {record}"));
    Ok(match (settings.clients, settings.protect) {
        (Some(_), _) => test.in_units(CLIENT, &ids.collect::<Vec<_>>())?.with_whole_units(),
        (None, Some(_)) => test.with_whole_units(),
        (None, None) => test,
    })
}

/// The settings of local training; `None` if the run is not federated.
///
/// # Errors
/// Settings of federated training in another run, values that are not permitted, and records that belong to no clients.
pub(crate) fn local_training(
    settings: &Settings,
    facts: &DataFacts,
    values: &mut SettingValues,
) -> Result<Option<LocalTraining>, TrainError> {
    let set = [
        ("clients", settings.clients.is_some()),
        ("client", settings.client.is_some()),
        ("local_steps", settings.local_steps.is_some()),
        ("local_batch_size", settings.local_batch_size.is_some()),
        ("local_learning_rate", settings.local_learning_rate.is_some()),
    ];
    let Some(protect) = settings.protect else {
        return match set.into_iter().find(|(_, set)| *set) {
            None => Ok(None),
            Some((name, _)) => Err(TrainError::refused(
                format!("{name} is for federated training"),
                format!("train with `sordino federate`, or leave out {{{name}}}"),
            )),
        };
    };
    values.protect = Some(Value::new(protect, Origin::User));
    values.clients = given(settings.clients);
    if protect == ProtectedUnit::Records {
        if settings.client.is_none() {
            return Err(TrainError::refused(
                "protect is records, for which each client has a run and a ledger of its own",
                "train with `sordino federate`, or use {protect=clients}",
            ));
        }
        values.client = given(settings.client);
        values.local_steps = given(settings.local_steps);
        values.local_batch_size = given(settings.local_batch_size);
        values.local_learning_rate = given(settings.local_learning_rate);
        return Ok(None);
    }
    if facts.unit.is_none() {
        return Err(TrainError::refused(
            "federated training needs clients, but the records belong to none",
            "split them with {clients=100}, give a folder with a file for each client and {clients=files}, or name the column of the client",
        ));
    }
    if settings.unit_gradient.is_some() {
        return Err(TrainError::refused(
            "unit_gradient has no effect here: a client takes steps along the mean gradient of its batches",
            "leave out {unit_gradient}",
        ));
    }
    let steps = Value::given_or(settings.local_steps, 1, Origin::Default);
    let batch_size = Value::given_or(settings.local_batch_size, 32, Origin::Default);
    let learning_rate = Value::given_or(settings.local_learning_rate, 1.0, Origin::Default);
    for (name, value) in [("local_steps", steps.value), ("local_batch_size", batch_size.value as u64)] {
        if !(1..=MOST).contains(&value) {
            return Err(TrainError::refused(
                format!("{name} must be between 1 and {MOST}, got {value}"),
                format!("use {{{name}=10}}, for example"),
            ));
        }
    }
    if !(learning_rate.value > 0.0 && learning_rate.value <= 1e6) {
        return Err(TrainError::refused(
            format!("local_learning_rate must be above 0 and at most 1e6, got {}", learning_rate.value),
            "start with {local_learning_rate=0.1} for several local steps",
        ));
    }
    let local = LocalTraining {
        steps: steps.value,
        batch_size: batch_size.value,
        learning_rate: learning_rate.value,
    };
    values.local_steps = Some(steps);
    values.local_batch_size = Some(batch_size);
    values.local_learning_rate = Some(learning_rate);
    Ok(Some(local))
}
