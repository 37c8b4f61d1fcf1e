//! Assigns each field of a row to a column of the schema.

use std::collections::HashMap;

use super::name_of;
use super::rows::Rows;
use crate::error::{DataError, quoted};
use crate::field::listed;
use crate::schema::{Column, Schema, Unknown};

/// Whether the first row has the names of the columns.
pub(super) fn named(rows: &dyn Rows, schema: &Schema) -> bool {
    schema.header || rows.names_columns()
}

/// The field of the id, by its name in the header or by its number from 1.
pub(super) fn id_place(rows: &dyn Rows, schema: &Schema, name: &str) -> Result<usize, DataError> {
    let place = named(rows, schema)
        .then(|| rows.record().iter().position(|field| field.trim_ascii() == name.as_bytes()));
    let fields = rows.record().len();
    let numbered =
        || name.parse::<usize>().ok().filter(|number| (1..=fields).contains(number)).map(|n| n - 1);
    place.flatten().or_else(numbered).ok_or_else(|| {
        let hint = match named(rows, schema) {
            true => {
                let names: Vec<String> = rows.record().iter().map(name_of).collect();
                format!("the columns are {}; a number from 1 is also permitted", listed(&names))
            }
            false => format!("the table has no header; give a number from 1 to {fields}"),
        };
        DataError::file(rows.file(), format!("the id `{name}` is not one of the {fields} columns"), hint)
    })
}

/// The schema's column of each field of a table without a header; none for an id that the schema does not describe.
pub(super) fn order_without_header(
    rows: &dyn Rows,
    schema: &Schema,
    target: Option<usize>,
    labelled: bool,
    id: Option<usize>,
) -> Result<Vec<Option<usize>>, DataError> {
    let (fields, columns) = (rows.record().len(), schema.columns.len());
    let mut order: Vec<Option<usize>> = (0..columns).map(Some).collect();
    match id {
        // There is one field more than the schema describes: the id.
        Some(id) if fields == columns + 1 => order.insert(id, None),
        Some(id)
            if fields == columns
                && target.is_some_and(|target| target != id)
                && !matches!(schema.columns[id], Column::Ignore(_)) =>
        {
            return Err(DataError::file(
                rows.place(),
                format!(
                    "{fields} fields may be all columns of the schema, or an id in column {} and all columns except the target",
                    id + 1
                ),
                "leave out the id, or add a column for the target, which may be empty",
            ));
        }
        // There is one field fewer than the schema describes: the target, which prediction does not need.
        _ if !labelled && target.is_some() && fields + 1 == columns => order.retain(|&place| place != target),
        _ => {}
    }
    Ok(order)
}

/// Reports every problem of a header.
pub(super) fn check_header(
    rows: &dyn Rows,
    schema: &Schema,
    target: Option<&str>,
    report: impl FnMut(DataError),
) {
    if named(rows, schema) {
        order_by_header(rows, schema, schema.target_place(target), true, None, report);
    }
}

/// The schema's column of each field, by the header's names; none for an id that the schema does not describe, and for a column that is
/// ignored because the schema does not describe it. Without labels, the target and ignored columns may be absent.
pub(super) fn order_by_header(
    rows: &dyn Rows,
    schema: &Schema,
    target: Option<usize>,
    labelled: bool,
    id: Option<usize>,
    mut report: impl FnMut(DataError),
) -> Vec<Option<usize>> {
    let line = rows.place();
    let mut places: HashMap<&[u8], usize> = HashMap::new();
    for (place, column) in schema.columns.iter().enumerate() {
        places.insert(column.name().as_bytes(), place);
    }
    let mut found = vec![false; schema.columns.len()];
    let mut order = Vec::new();
    for (field, name) in rows.record().iter().enumerate() {
        let name = name.trim_ascii();
        let place = places.get(name).copied();
        order.push(place);
        let problem = match place {
            None if id == Some(field) || schema.others == Unknown::Ignore => None,
            None if labelled => Some((
                "is not in the schema",
                "describe it, possibly as type = \"ignore\"; or ignore all others with others = \"ignore\"; or set \
                 header = false if this line is a record",
            )),
            None => Some((
                "is not in the schema of the training records",
                "remove it, or name it with {id} if it identifies the rows",
            )),
            Some(place) => {
                let twice = std::mem::replace(&mut found[place], true);
                twice.then_some(("occurs twice", "the names in a header must differ"))
            }
        };
        if let Some((problem, hint)) = problem {
            let place = format!("{line}, column {}", field + 1);
            report(DataError::file(place, format!("the column {} {problem}", quoted(name)), hint));
        }
    }
    for (place, column) in schema.columns.iter().enumerate() {
        let optional = !labelled && (Some(place) == target || matches!(column, Column::Ignore(_)));
        if !found[place] && !optional {
            report(DataError::file(
                &line,
                format!("the header has no column `{}`, which the schema describes", column.name()),
                "check the spelling and the delimiter",
            ));
        }
    }
    order
}
