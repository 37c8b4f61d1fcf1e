//! Lists all problems of a file.

use crate::error::DataError;
use crate::format::Format;
use crate::source::{Source, image_sets, read};

/// The largest number of problems that are listed.
const LISTED: usize = 100;

/// The problems of a file. They quote private values, so they are only for the owner of the data.
#[derive(Debug, Default)]
pub struct Problems {
    /// The first 100 problems, in the order of the file.
    pub listed: Vec<DataError>,
    /// The total number of problems.
    pub total: u64,
    /// The number of records that were read.
    pub records: u64,
}

impl Problems {
    pub(crate) fn add(&mut self, problem: DataError) {
        self.total += 1;
        if self.listed.len() < LISTED {
            self.listed.push(problem);
        }
    }
}

/// Finds every problem of a table, of texts, or of PNG and JPEG images; in other formats, only the first problem.
///
/// # Errors
///
/// A schema that cannot be used, settings that do not fit the source, or a source that cannot be read at all.
pub fn check(source: &Source) -> Result<Problems, DataError> {
    let format = Format::of(&source.path)?;
    source.check(format)?;
    if let Format::Table(table) = format
        && let Some(problems) = table.check(source)?
    {
        return Ok(problems);
    }
    let mut problems = Problems::default();
    if let Format::ClassImages | Format::ParquetImages = format {
        let sets = image_sets(source, format, &mut |problem| {
            problems.add(problem);
            Ok(())
        })?;
        sets.check(&mut problems)?;
        return Ok(problems);
    }
    match read(source) {
        Ok(sets) => {
            let sets = [Some(&sets.train), sets.test.as_ref()];
            problems.records = sets.into_iter().flatten().map(|set| set.len() as u64).sum();
        }
        Err(error @ DataError::Setting { .. }) => return Err(error),
        Err(error) => problems.add(error),
    }
    Ok(problems)
}
