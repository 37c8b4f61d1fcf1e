//! Every problem of a table, instead of the first.

use std::io::BufRead;

use super::Options;
use super::layout::{Layout, check_header};
use super::rows::Rows;
use crate::check::Problems;
use crate::dataset::no_records;
use crate::error::DataError;
use crate::schema::Schema;

/// Finds every problem of a table; memory does not grow with its size.
///
/// # Errors
/// A file that cannot be read to its end; a schema that does not fit any table.
pub(crate) fn check(
    file: &str,
    source: impl BufRead,
    schema: &Schema,
    options: &Options<'_>,
) -> Result<Problems, DataError> {
    let mut problems = Problems::default();
    let mut rows = Rows::new(file, source, schema.delimiter());
    if !rows.next()? {
        return Err(no_records(file));
    }
    check_header(&rows, schema, |problem| problems.add(problem));
    // Without an order of the columns, the rows cannot be read.
    if problems.total > 0 {
        return Ok(problems);
    }
    let layout = Layout::new(&rows, schema, options)?;
    if schema.header && !rows.next()? {
        return Err(no_records(file));
    }
    let mut features = vec![0.0; layout.width];
    loop {
        problems.records += 1;
        layout.read_all(&rows, &mut features, |problem| problems.add(problem));
        if !rows.next()? {
            return Ok(problems);
        }
    }
}
