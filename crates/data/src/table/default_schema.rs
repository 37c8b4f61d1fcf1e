//! The schema of a table that is read without one.

use super::rows::Rows;
use super::{Options, name_of, no_such_target};
use crate::error::DataError;
use crate::field::{listed, parse};
use crate::labels::check_classes;
use crate::schema::Schema;

/// A schema in which every column except the target is a number, or a text if a tokenizer is given, with the names of the header.
pub(super) fn default_schema(rows: &dyn Rows, options: &Options<'_>) -> Result<Schema, DataError> {
    let (file, first) = (rows.file(), rows.record());
    // A first line with a number in it is a record: a record with a bad value must not be taken for a header.
    let header = rows.names_columns() || !first.iter().any(|field| parse(field.trim_ascii()).is_some());
    // A record without a number must not be taken for a header either.
    if header
        && !rows.names_columns()
        && first.iter().any(|field| field.trim_ascii().is_empty() || Schema::counts_as_missing(field))
    {
        return Err(DataError::file(
            rows.place(),
            "is neither a header, which names every column, nor a record, which has numbers",
            "describe the file with {schema}; a column without a name has name = \"\" there, and possibly type = \"ignore\"",
        ));
    }
    let names: Vec<String> = match header {
        true => first.iter().map(name_of).collect(),
        false => (1..=first.len()).map(|number| number.to_string()).collect(),
    };
    let by_number = |name: &str| name.parse().ok().filter(|number| (1..=names.len()).contains(number));
    let place_of = |name: &str| {
        let place = names.iter().position(|other| other == name);
        place.or_else(|| by_number(name).map(|number| number - 1))
    };
    let named = options.target.and_then(place_of);
    let unit = match options.unit.map(|name| (name, place_of(name))) {
        Some((name, None)) => {
            return Err(DataError::file(
                file,
                format!("the unit `{name}` is not one of the {} columns", names.len()),
                format!("the columns are {}; a number from 1 is also permitted", listed(&names)),
            ));
        }
        found => found.and_then(|(_, place)| place),
    };
    let last = (0..names.len()).rev().find(|&place| Some(place) != unit).unwrap_or(0);
    // A target is needed: with labels, or if there is one column more than there are features.
    let needed = options.labelled || options.features.is_some_and(|features| names.len() == features + 1);
    if needed && named.is_none() && options.target.is_none() && !rows.orders_columns() {
        return Err(DataError::Setting {
            what: "target",
            permitted: format!("declared for {file}, because the keys of an object have no order"),
            got: "none".to_owned(),
            hint: "name the key that is predicted: {target}; or describe the columns in {schema}".to_owned(),
        });
    }
    let target = match (options.labelled, options.target, named, options.features) {
        (true, Some(name), None, _) => return Err(no_such_target(file, name, &names)),
        (true, _, place, _) => Some(place.unwrap_or(last)),
        (false, _, _, Some(features)) if names.len() == features => None,
        (false, _, place, Some(features)) if names.len() == features + 1 => Some(place.unwrap_or(last)),
        (false, _, place, _) => place,
    };
    let features = names.len() - usize::from(target.is_some()) - usize::from(unit.is_some());
    if let Some(expected) = options.features
        && features != expected
    {
        return Err(DataError::file(
            rows.place(),
            format!("{features} columns are features, expected {expected}"),
            "every column except the target is a feature; {schema} can ignore columns",
        ));
    }
    if options.labelled && options.classes.is_none() {
        return Err(DataError::Setting {
            what: "number of classes",
            permitted: "declared for a table without a schema".to_owned(),
            got: "none".to_owned(),
            hint: "declare {classes}, which is public and never derived from the records; to predict a number, describe the \
                   target in {schema} as type = \"number\""
                .to_owned(),
        });
    }
    let classes = options.classes.filter(|_| options.labelled).map(check_classes).transpose()?;
    let target = target.map(|place| (place, classes));
    Schema::plain(file, header, options.delimiter, &names, target, unit, options.texts.as_ref())
}
