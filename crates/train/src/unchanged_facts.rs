//! What is publicly known about the data of a run must not change when the run is resumed.

use sordino_data::Preparation;

use crate::{
    DataFacts, RunFolder, TrainError, UnitFacts, data::shortened, folder::failed, format::grouped, inspect,
};

/// Rejects records about which other things are publicly known than about those that the run began with, such as other classes or another
/// scale. The facts are stored with the weights of the run, which the ledger covers.
///
/// # Errors
/// A fact that differs; weights that are missing or were changed, so that the facts are not known.
pub fn check_unchanged_facts(folder: &RunFolder, now: &DataFacts) -> Result<(), TrainError> {
    let account = inspect(folder)?.account;
    if !folder.model().is_file() {
        // Weights are written before the first step, but earlier versions did not enter them into the ledger.
        return match account.charged() > 0 && account.covers_model("").is_some() {
            true => {
                Err(failed(&folder.model(), &"is missing, so it is not known which facts the run began with"))
            }
            false => Ok(()),
        };
    }
    // Weights of earlier versions have no facts.
    let Ok(then) = DataFacts::read(folder) else { return Ok(()) };
    // Numbers are compared as they are stored.
    let now = serde_json::to_string(now).ok().and_then(|text| serde_json::from_str(&text).ok());
    let now: DataFacts =
        now.ok_or_else(|| failed(&folder.model(), &"the facts about the records cannot be stored"))?;
    if then == now {
        return Ok(());
    }
    let difference = described(&then).into_iter().zip(described(&now)).find(|(then, now)| then != now);
    let (then, now) = difference.unwrap_or_default();
    let which = if then.1 == now.1 { ", which is not the same" } else { "" };
    Err(TrainError::refused(
        format!("the run began with {}, but is resumed with {}{which}", then.1, now.1),
        "give the records, classes and scales that the run began with, or start a new run",
    ))
}

/// A fact: all of it, and how it is shown.
type Described = (String, String);

/// The facts one by one, in the same order for all data.
fn described(facts: &DataFacts) -> Vec<Described> {
    let DataFacts {
        input,
        classes,
        observed_classes,
        numbers,
        encoding,
        normalisation,
        test_records,
        unit,
        preparation,
    } = facts;
    let targets = match (classes.as_slice(), numbers.as_slice()) {
        ([], []) => "no labels".to_owned(),
        ([], _) => match facts.scaling() {
            Some(scaling) => format!("targets that are scaled so that {scaling}"),
            None => "targets that are not scaled".to_owned(),
        },
        (classes, _) => format!("the classes {}", shortened(classes)),
    };
    let origin = match observed_classes {
        true => "classes that were taken from the labels",
        false => "classes that were declared",
    };
    let images = match normalisation.as_slice() {
        [] => "images that are not normalised".to_owned(),
        channels => format!("images that are normalised by the (mean, std) {channels:?}"),
    };
    let unit = match unit {
        None => "no unit of privacy but the record".to_owned(),
        Some(UnitFacts { name, records: Some(records) }) => {
            format!("the unit of privacy {name}, with at most {records} records each")
        }
        Some(UnitFacts { name, records: None }) => format!("the unit of privacy {name}"),
    };
    let Preparation { schema, features, labels, axes } = preparation.clone().unwrap_or_default();
    let shown = |text: String| (text.clone(), text);
    vec![
        shown(format!("records of {input}")),
        (format!("{classes:?} {numbers:?}"), targets),
        shown(origin.to_owned()),
        (format!("{schema:?}"), schema.map_or("no schema", |_| "a schema").to_owned()),
        (
            format!("{features:?}"),
            features.map_or("features without names".to_owned(), |names| {
                format!("the features {}", shortened(&names))
            }),
        ),
        shown(
            labels.map_or("labels of no stated type".to_owned(), |labels| {
                format!("labels of the type {labels}")
            }),
        ),
        shown(axes.map_or("records of no stated axes".to_owned(), |axes| {
            format!("records with the axes {axes:?}")
        })),
        shown(format!("records of {encoding}")),
        shown(images),
        shown(unit),
        shown(format!("{} test records", grouped(*test_records))),
    ]
}
