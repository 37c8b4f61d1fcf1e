//! Lists every problem of a table, not only the first.

use super::column_order::check_header;
use super::layout::Layout;
use super::{Options, Rows, begin, first_record};
use crate::check::Problems;
use crate::error::DataError;

/// Adds every problem of a table; memory does not grow with its size. The check ends at a row of a CSV or Parquet
/// file that cannot be split into fields.
///
/// # Errors
/// A file without records; a schema that does not fit any table.
pub(super) fn check(
    rows: &mut dyn Rows,
    mut options: Options<'_>,
    problems: &mut Problems,
) -> Result<(), DataError> {
    let schema = begin(rows, &mut options)?;
    let before = problems.total;
    check_header(rows, &schema, options.target, |problem| problems.add(problem));
    // Without an order of the columns, the rows cannot be read.
    if problems.total > before {
        return Ok(());
    }
    let layout = Layout::new(rows, &schema, &options)?;
    schema.encoder()?;
    let mut features = vec![0.0; layout.width];
    let mut more = first_record(rows, &schema).map(|()| true);
    loop {
        match more {
            Ok(true) => {
                problems.records += 1;
                layout.read_all(rows, &mut features, |problem| problems.add(problem));
            }
            Ok(false) => return Ok(()),
            Err(problem) => {
                problems.add(problem);
                if !rows.resumes() {
                    return Ok(());
                }
            }
        }
        more = rows.next();
    }
}
