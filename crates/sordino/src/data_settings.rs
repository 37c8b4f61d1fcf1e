//! Settings of the data: which records are private, which are public, and when they last changed.

use std::{fs, path::PathBuf, time::UNIX_EPOCH};

use sordino_data::{Dataset, Source, Splits};

use crate::{problem::Problem, run_files::RunFiles, settings::Settings};

/// The data's source as the settings have it.
pub(crate) fn source(settings: &Settings) -> Source {
    Source {
        path: settings.data.clone().unwrap_or_else(|| "mushroom".into()),
        schema: settings.schema.clone(),
        target: settings.target.clone(),
        classes: settings.classes,
        features: settings.features,
    }
}

/// The records of a run.
pub(crate) struct Records {
    /// The private records.
    pub(crate) train: Dataset,
    /// The public records.
    pub(crate) test: Option<Dataset>,
    /// The schema of a table.
    pub(crate) schema: Option<String>,
}

/// Reads the private and the public records.
pub(crate) fn read(settings: &mut Settings) -> Result<Records, Problem> {
    // A run can be resumed from any folder.
    settings.data = settings.data.take().map(|path| path.canonicalize().unwrap_or(path));
    settings.test_data = settings.test_data.take().map(|path| path.canonicalize().unwrap_or(path));
    let source = source(settings);
    for path in [Some(&source.path), settings.test_data.as_ref()].into_iter().flatten() {
        if path.to_str().is_none() {
            return Err(Problem::refused(
                format!("the path {} is not UTF-8, so it cannot be written to the settings", path.display()),
                "rename it, or make a link to it whose name is UTF-8",
            ));
        }
    }
    settings.data = Some(source.path.clone());
    let sets = sordino_data::read(&source)?;
    let apart = match &settings.test_data {
        // Accuracy is printed without noise: the records that it is measured on have no protection.
        Some(path) if *path == source.path => {
            return Err(Problem::refused(
                format!("test_data is {}, which is the training data itself", path.display()),
                "test records are public; give other records, or use --test-fraction to hold back part of the data",
            ));
        }
        Some(path) if sets.test.is_some() => {
            return Err(Problem::refused(
                format!("test_data is {}, but the data has a test set of its own", path.display()),
                "leave out one of them",
            ));
        }
        Some(path) => Some(sordino_data::read_test(path, &source, &sets)?),
        None => None,
    };
    let Splits { train, test, schema } = sets;
    if schema.is_some() {
        // The schema says it all.
        settings.schema = Some(RunFiles::SCHEMA.into());
        (settings.target, settings.classes, settings.features) = (None, None, None);
    }
    let schema =
        schema.map(|schema| toml::to_string(&schema).expect("a schema of numbers and strings is TOML"));
    if let Some(test) = test.or(apart) {
        let split = settings.test_fraction.map(|fraction| format!("test_fraction is {fraction}"));
        let split = split.or(settings.split_seed.map(|seed| format!("split_seed is {seed}")));
        return match split {
            None => Ok(Records { train, test: Some(test), schema }),
            Some(given) => Err(Problem::refused(
                format!("{given}, but there is a test set, so no records are held back"),
                "leave it out",
            )),
        };
    }
    let fraction = *settings.test_fraction.get_or_insert(0.2);
    let seed = if fraction == 0.0 { 0 } else { *settings.split_seed.get_or_insert(0) };
    let (train, test) = train.split(fraction, seed)?;
    Ok(Records { train, test, schema })
}

/// When the data was last changed, as the ledger keeps it: a run must go on with the records it began with, and nothing that is
/// computed from them may stand in a file to tell.
pub(crate) fn last_changed(settings: &Settings) -> String {
    let Some(path) = &settings.data else { return String::new() };
    // Of a folder, the IDX files in it.
    let of_images =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains("-idx"));
    let mut files = vec![path.clone()];
    if let Ok(entries) = fs::read_dir(path) {
        files = entries.flatten().map(|entry| entry.path()).filter(of_images).collect();
    }
    let changed = |path: &PathBuf| fs::metadata(path).and_then(|found| found.modified()).ok();
    let last = files.iter().filter_map(changed).max().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    last.map_or(String::new(), |time| {
        format!("# data last changed at {}.{:09}\n", time.as_secs(), time.subsec_nanos())
    })
}
