//! The files and folders that are read as tables, and how each is opened.

use std::path::Path;

use super::{CsvRows, Options, Rows};
use crate::dataset::Dataset;
use crate::error::DataError;
use crate::input::open;
use crate::schema::Schema;
use crate::source::{Source, Splits};
use crate::unlabelled::{PredictionOptions, UnlabelledRows};
use crate::{embedded, parquet};

/// A file or folder that is read as a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableFormat {
    Csv { delimiter: u8 },
    Parquet,
    Mushroom,
}

/// The training records or the test records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Train,
    Test,
}

impl TableFormat {
    /// Reads labelled records. The test records of a folder are read by the schema of its training records.
    pub(crate) fn read(self, source: &Source) -> Result<Splits, DataError> {
        let options = Options { labelled: true, ..self.options(source)? };
        let mut rows = self.rows(&source.path, &options, Part::Train)?;
        let (train, schema) = super::read(&mut *rows, options)?;
        let test = match self.part(&source.path)? {
            Part::Train => None,
            Part::Test => Some(self.read_test(&source.path, &schema)?),
        };
        Ok(Splits { train, test, schema: Some(schema) })
    }

    /// Reads labelled records by the schema of other records. Of a folder, the test records are read if there are any.
    pub(crate) fn read_test(self, path: &Path, schema: &Schema) -> Result<Dataset, DataError> {
        let options = Options { schema: Some(schema.clone()), labelled: true, ..Options::default() };
        let mut rows = self.rows(path, &options, self.part(path)?)?;
        super::read(&mut *rows, options).map(|(records, _)| records)
    }

    /// Reads records without labels. Of a folder, the test records are read if there are any.
    pub(crate) fn read_unlabelled(
        self,
        source: &Source,
        reading: &PredictionOptions,
    ) -> Result<UnlabelledRows, DataError> {
        let (options, file) = (self.options(source)?, source.path.display().to_string());
        if options.schema.is_none() {
            reading.check_plain(&file)?;
        }
        let part = self.part(&source.path)?;
        let mut rows = self.rows(&source.path, &options, part)?;
        let (id, ignore_unknown) = (reading.id.as_deref(), reading.ignore_unknown);
        let read = super::read_unlabelled(&mut *rows, Options { id, ignore_unknown, ..options })?;
        let part = (part == Part::Test).then(|| format!("the test set of {file}"));
        Ok(UnlabelledRows { part, ..read })
    }

    /// The test records, if there are any.
    fn part(self, path: &Path) -> Result<Part, DataError> {
        let has_test = self == TableFormat::Parquet && !parquet::Parts::of(path)?.test.is_empty();
        Ok(if has_test { Part::Test } else { Part::Train })
    }

    /// The options that are the same for training and prediction.
    fn options(self, source: &Source) -> Result<Options<'_>, DataError> {
        let schema = match (&source.schema, self) {
            (Some(path), _) => Some(Schema::read(path)?),
            (None, TableFormat::Mushroom) => Some(embedded::schema()?),
            (None, _) => None,
        };
        let delimiter = if let TableFormat::Csv { delimiter } = self { delimiter } else { b',' };
        let target = source.target.as_deref();
        let (classes, features) = (source.classes, source.features);
        Ok(Options { schema, target, classes, features, delimiter, ..Options::default() })
    }

    /// Opens the file or a part of the folder.
    fn rows(self, path: &Path, options: &Options<'_>, part: Part) -> Result<Box<dyn Rows>, DataError> {
        Ok(match self {
            TableFormat::Mushroom => Box::new(embedded::rows()?),
            TableFormat::Parquet => {
                let parts = parquet::Parts::of(path)?;
                Box::new(parquet::rows(path, if part == Part::Test { &parts.test } else { &parts.train })?)
            }
            TableFormat::Csv { .. } => {
                Box::new(CsvRows::new(&path.display().to_string(), open(path)?, options.delimiter()))
            }
        })
    }
}
