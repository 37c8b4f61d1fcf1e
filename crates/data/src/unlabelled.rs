//! Records for prediction: rows that can be read, and rows that cannot.

use sordino_nn::Shape;

use crate::dataset::Dataset;
use crate::encoding::Encoding;
use crate::error::DataError;

/// Options for reading records for prediction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PredictionOptions {
    /// The column of a table that identifies its rows: its name, or its number from 1. The schema need not describe it.
    pub id: Option<String>,
    /// Whether a category that the schema does not list is read as all zeros.
    pub ignore_unknown: bool,
    /// The encoding of the records that the model was trained on; without it, any encoding is accepted.
    pub encoding: Option<Encoding>,
    /// The shape of the records that the model was trained on. PNG and JPEG images are converted to it.
    pub shape: Option<Shape>,
}

impl PredictionOptions {
    /// Refuses options that would have no effect on a file without a schema.
    pub(crate) fn check_plain(&self, file: &str) -> Result<(), DataError> {
        let given =
            [("id", self.id.clone()), ("ignore_unknown", self.ignore_unknown.then(|| "true".to_owned()))];
        match given.into_iter().find_map(|(what, got)| got.map(|got| (what, got))) {
            Some((what, got)) => Err(DataError::Setting {
                what,
                permitted: format!("left out for {file}"),
                got,
                hint: "{id} and {ignore_unknown} are for tables with a schema".to_owned(),
            }),
            None => Ok(()),
        }
    }
}

/// Records for prediction, read from a file.
#[derive(Debug)]
pub struct UnlabelledRows {
    /// The records of the rows that could be read, in their order; `None` if there is no such row.
    pub records: Option<Dataset>,
    /// All rows of the file.
    pub rows: Vec<Row>,
    /// Which part of the source was read, if it has several parts.
    pub part: Option<String>,
    /// Columns with ignored categories, which the schema does not list, and the number of such fields in each.
    pub unknown: Vec<(String, u64)>,
}

/// A row of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The value in the id column (empty if the row ends before it), or the row's number from 1.
    pub id: String,
    /// Why the row cannot be read.
    pub refused: Option<DataError>,
}

impl UnlabelledRows {
    /// Removes the records of rows that were refused; `all` has one record for every row.
    pub(crate) fn new(all: Dataset, refused: Vec<(usize, DataError)>, ids: Option<Vec<String>>) -> Self {
        let ids = ids.unwrap_or_else(|| (1..=all.len()).map(|number| number.to_string()).collect());
        let mut rows: Vec<Row> = ids.into_iter().map(|id| Row { id, refused: None }).collect();
        for (row, error) in refused {
            // The first error of a row is kept.
            rows[row].refused.get_or_insert(error);
        }
        let bad: Vec<bool> = rows.iter().map(|row| row.refused.is_some()).collect();
        let records = match (bad.contains(&true), bad.contains(&false)) {
            (false, _) => Some(all),
            (true, true) => Some(all.part(&bad, false)),
            (true, false) => None,
        };
        Self { records, rows, part: None, unknown: Vec::new() }
    }
}
