//! The files and folders that are read as tables, and how each is opened.

use std::path::Path;

use super::{CsvRows, JsonRows, Notation, Options, Rows};
use crate::cache::Converted;
use crate::check::Problems;
use crate::dataset::Dataset;
use crate::embedded;
use crate::error::DataError;
use crate::input::{open, unreadable};
use crate::parquet;
use crate::schema::Schema;
use crate::source::{Source, Splits};
use crate::text::{
    DEFAULT_MAX_LENGTH, DEFAULT_TOKENIZER, Part, PartFiles, TextFolder, TextRows, Tokenization,
};
use crate::unlabelled::{PredictionOptions, UnlabelledRows};

/// A file or folder that is read as a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "parquet"),
    expect(dead_code, reason = "only the Parquet reader finds Parquet formats")
)]
pub(crate) enum TableFormat {
    Csv {
        delimiter: u8,
    },
    JsonLines,
    /// Parquet files with columns of numbers, categories and texts.
    Parquet,
    TextFolder,
    Mushroom,
}

impl TableFormat {
    /// Reads labelled records.
    pub(crate) fn read(self, source: &Source) -> Result<Splits, DataError> {
        let options = Options { labelled: true, ..self.options(source)? };
        let rows = self.rows(&source.path, options.schema.as_ref(), Part::Train, true)?;
        let (train, schema) = super::read(rows, options)?;
        let has_test = self.has_test(&source.path)?;
        let test = has_test.then(|| self.read_part(&source.path, &schema, Part::Test)).transpose()?;
        Ok(Splits { train, test, schema: Some(schema) })
    }

    /// Reads labelled records with the schema of other records. From a folder, the test records are read if there are any.
    pub(crate) fn read_test(self, path: &Path, schema: &Schema) -> Result<Dataset, DataError> {
        self.read_part(path, schema, self.one_part(path)?)
    }

    fn read_part(self, path: &Path, schema: &Schema, part: Part) -> Result<Dataset, DataError> {
        let rows = self.rows(path, Some(schema), part, true)?;
        let options = Options { schema: Some(schema.clone()), labelled: true, ..Options::default() };
        super::read(rows, options).map(|(records, _)| records)
    }

    /// Reads records without labels. From a folder, the test records are read if there are any.
    pub(crate) fn read_unlabelled(
        self,
        source: &Source,
        reading: &PredictionOptions,
    ) -> Result<UnlabelledRows, DataError> {
        let options = self.options(source)?;
        if options.schema.is_none() {
            reading.check_plain(&source.path.display().to_string())?;
        }
        let part = self.one_part(&source.path)?;
        let rows = self.rows(&source.path, options.schema.as_ref(), part, false)?;
        let (id, ignore_unknown) = (reading.id.as_deref(), reading.ignore_unknown);
        let read = super::read_unlabelled(rows, Options { id, ignore_unknown, ..options })?;
        Ok(UnlabelledRows { part: self.described(&source.path, part)?, ..read })
    }

    /// Finds every problem of all records; `None` without a schema.
    pub(crate) fn check(self, source: &Source) -> Result<Option<Problems>, DataError> {
        let options = Options { labelled: true, ..self.options(source)? };
        let Some(schema) = &options.schema else { return Ok(None) };
        let mut problems = Problems::default();
        for &part in self.parts(&source.path)? {
            let mut rows = self.rows(&source.path, Some(schema), part, true)?;
            super::check::check(&mut *rows, options.clone(), &mut problems)?;
        }
        Ok(Some(problems))
    }

    /// Writes labelled records to a file of records.
    pub(crate) fn convert(self, source: &Source, path: &Path) -> Result<Converted, DataError> {
        let options = Options { labelled: true, ..self.options(source)? };
        let rows = |part| self.rows(&source.path, options.schema.as_ref(), part, true);
        let mut train = rows(Part::Train)?;
        let mut test = self.has_test(&source.path)?.then(|| rows(Part::Test)).transpose()?;
        let test = test.as_mut().map(|test| &mut **test as &mut dyn Rows);
        super::convert::convert(&mut *train, test, options.clone(), path)
    }

    /// The same format; the delimiter of a CSV file is the common one that occurs most often in its first line.
    pub(crate) fn with_usual_delimiter(self, path: &Path) -> Result<TableFormat, DataError> {
        match self {
            TableFormat::Csv { .. } => usual_delimiter(path).map(|delimiter| TableFormat::Csv { delimiter }),
            other => Ok(other),
        }
    }

    /// The delimiter of a CSV file, or the default.
    pub(crate) fn delimiter(self) -> u8 {
        if let TableFormat::Csv { delimiter } = self { delimiter } else { b',' }
    }

    /// Whether the texts of a source have no tokenizer, and whether they have no maximum length. The defaults of a folder of texts do not
    /// count, because they can be replaced.
    pub(crate) fn unstated_texts(self, source: &Source) -> Result<(bool, bool), DataError> {
        let (tokenizer, max_length) = match (&source.schema, self) {
            (Some(path), _) => Schema::read(path)?.unstated_texts(),
            (None, TableFormat::Mushroom) => (false, false),
            (None, _) => (true, true),
        };
        Ok((tokenizer && source.tokenizer.is_none(), max_length && source.max_length.is_none()))
    }

    fn has_test(self, path: &Path) -> Result<bool, DataError> {
        match self {
            TableFormat::TextFolder => Ok(text_folder(path)?.has_test()),
            TableFormat::Parquet => Ok(!parquet::Parts::of(path)?.test.is_empty()),
            _ => Ok(false),
        }
    }

    fn parts(self, path: &Path) -> Result<&'static [Part], DataError> {
        Ok(if self.has_test(path)? { &[Part::Train, Part::Test] } else { &[Part::Train] })
    }

    /// The test records if there are any, otherwise the training records.
    fn one_part(self, path: &Path) -> Result<Part, DataError> {
        Ok(if self.has_test(path)? { Part::Test } else { Part::Train })
    }

    /// A part as it is named in messages, if there may be several.
    fn described(self, path: &Path, part: Part) -> Result<Option<String>, DataError> {
        match (self, part) {
            (TableFormat::TextFolder, _) => Ok(Some(text_folder(path)?.describe(part))),
            (TableFormat::Parquet, Part::Test) => Ok(Some(format!("the test set of {}", path.display()))),
            _ => Ok(None),
        }
    }

    /// The options that are the same for training and prediction.
    fn options(self, source: &Source) -> Result<Options<'_>, DataError> {
        let schema = match (&source.schema, self) {
            (Some(path), _) => Some(Schema::read(path)?),
            (None, TableFormat::Mushroom) => Some(embedded::schema()?),
            (None, TableFormat::TextFolder) => Some(text_folder(&source.path)?.schema()?),
            (None, _) => None,
        };
        let (tokenizer, max_length) = (source.tokenizer.as_deref(), source.max_length);
        let truncation = source.truncation;
        let unit = source.unit.as_deref();
        let schema = schema.map(|schema| schema.with_texts(tokenizer, max_length, truncation)).transpose()?;
        let schema = schema.map(|schema| schema.with_unit(unit)).transpose()?;
        let stated = tokenizer.is_some() || max_length.is_some() || truncation.is_some();
        let texts = (schema.is_none() && stated).then(|| Tokenization {
            tokenizer: tokenizer.unwrap_or(DEFAULT_TOKENIZER).to_owned(),
            max_length: max_length.unwrap_or(DEFAULT_MAX_LENGTH),
            truncation: truncation.unwrap_or_default(),
        });
        let delimiter = self.delimiter();
        let target = source.target.as_deref();
        let (classes, features) = (source.classes, source.features);
        Ok(Options { schema, target, unit, classes, features, delimiter, texts, ..Options::default() })
    }

    /// Opens the file or a part of the folder.
    pub(crate) fn rows(
        self,
        path: &Path,
        schema: Option<&Schema>,
        part: Part,
        labelled: bool,
    ) -> Result<Box<dyn Rows>, DataError> {
        let file = path.display().to_string();
        match (self, schema) {
            (TableFormat::Mushroom, _) => {
                Ok(Box::new(CsvRows::new(file, embedded::records()?, notation(schema, b','))))
            }
            (TableFormat::JsonLines, _) => Ok(Box::new(JsonRows::new(&file, open(path)?))),
            (TableFormat::Parquet, _) => {
                let parts = parquet::Parts::of(path)?;
                let files = if part == Part::Test { parts.test } else { parts.train };
                Ok(Box::new(parquet::rows(path, &files)?))
            }
            // A text on each line, for a model of texts.
            (TableFormat::Csv { .. }, Some(schema)) if !labelled && is_txt(path) && schema.has_texts() => {
                let (text, _) = schema.classified_columns(&file)?;
                Ok(Box::new(TextRows::new(path.to_owned(), &[text], vec![(path.to_owned(), None)], true)))
            }
            (TableFormat::Csv { delimiter }, _) => {
                Ok(Box::new(CsvRows::new(file, open(path)?, notation(schema, delimiter))))
            }
            (TableFormat::TextFolder, _) => match (text_folder(path)?.files(part)?, schema) {
                (PartFiles::Texts { files, by_line }, Some(schema)) => {
                    let (text, class) = schema.classified_columns(&file)?;
                    let (columns, has_class) = match (labelled, class) {
                        (false, _) => (vec![text], false),
                        (true, Some(class)) => (vec![text, class], true),
                        (true, None) => return Err(without_class(file)),
                    };
                    let file = |(file, class)| (file, Some(class).filter(|_| has_class));
                    let files = files.into_iter().map(file).collect();
                    Ok(Box::new(TextRows::new(path.to_owned(), &columns, files, by_line)))
                }
                (PartFiles::Texts { .. }, None) => Err(not_texts(path)),
                (PartFiles::Table(path, delimiter), _) => {
                    let file = path.display().to_string();
                    Ok(Box::new(CsvRows::new(file, open(&path)?, notation(schema, delimiter))))
                }
            },
        }
    }
}

/// The common delimiter that occurs most often in the first line of a file.
fn usual_delimiter(path: &Path) -> Result<u8, DataError> {
    let mut text = open(path)?;
    let begin = text.fill_buf().map_err(|error| unreadable(&path.display().to_string(), &error))?;
    let line = begin.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let count = |delimiter: &u8| line.iter().filter(|byte| *byte == delimiter).count();
    // Of equal counts, the last one is taken.
    Ok([b'\t', b';', b','].into_iter().max_by_key(count).unwrap_or(b','))
}

/// The notation that the schema states, or that of the file's name.
fn notation(schema: Option<&Schema>, delimiter: u8) -> Notation {
    schema.map_or(Notation { delimiter, quotes: true }, Schema::notation)
}

fn is_txt(path: &Path) -> bool {
    let name = path.to_string_lossy().to_lowercase();
    name.strip_suffix(".gz").unwrap_or(&name).ends_with(".txt")
}

fn text_folder(path: &Path) -> Result<TextFolder, DataError> {
    TextFolder::find(path).ok_or_else(|| not_texts(path))
}

fn not_texts(path: &Path) -> DataError {
    DataError::file(
        path.display().to_string(),
        "is not a folder of texts",
        "give a folder with a folder of .txt files for each class, or a .txt file for each class",
    )
}

fn without_class(file: String) -> DataError {
    DataError::file(
        file,
        "the files or folders are classes, but the target of the schema is not a category",
        "give a schema whose target is a category with these classes, or a table",
    )
}
