//! The files and folders that are read as tables, and how each is opened.

use std::path::{Path, PathBuf};

use super::{CsvRows, JsonRows, Notation, Options, Rows};
use crate::dataset::Dataset;
use crate::embedded;
use crate::error::DataError;
use crate::input::open;
use crate::schema::Schema;
use crate::source::{Source, Splits};
use crate::text::{
    DEFAULT_MAX_LENGTH, DEFAULT_TOKENIZER, Part, PartFiles, TextFolder, TextRows, Tokenization,
};
use crate::unlabelled::{PredictionOptions, UnlabelledRows};

/// A file or folder that is read as a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableFormat {
    Csv { delimiter: u8 },
    JsonLines,
    TextFolder,
    Mushroom,
}

impl TableFormat {
    /// Reads labelled records.
    pub(crate) fn read(self, source: &Source) -> Result<Splits, DataError> {
        let options = Options { labelled: true, ..self.options(source)? };
        let mut rows = self.rows(&source.path, options.schema.as_ref(), Part::Train, true)?;
        let (train, schema) = super::read(&mut *rows, options)?;
        let has_test = self == TableFormat::TextFolder && text_folder(&source.path)?.has_test();
        let test = has_test.then(|| self.read_part(&source.path, &schema, Part::Test)).transpose()?;
        Ok(Splits { train, test, schema: Some(schema) })
    }

    /// Reads labelled records by the schema of other records. Of a folder, the test records are read if there are any.
    pub(crate) fn read_test(self, path: &Path, schema: &Schema) -> Result<Dataset, DataError> {
        self.read_part(path, schema, self.part(path)?)
    }

    fn read_part(self, path: &Path, schema: &Schema, part: Part) -> Result<Dataset, DataError> {
        let mut rows = self.rows(path, Some(schema), part, true)?;
        let options = Options { schema: Some(schema.clone()), labelled: true, ..Options::default() };
        super::read(&mut *rows, options).map(|(records, _)| records)
    }

    /// Reads records without labels. Of a folder, the test records are read if there are any.
    pub(crate) fn read_unlabelled(
        self,
        source: &Source,
        reading: &PredictionOptions,
    ) -> Result<UnlabelledRows, DataError> {
        let options = self.options(source)?;
        if options.schema.is_none() {
            reading.check_plain(&source.path.display().to_string())?;
        }
        let part = self.part(&source.path)?;
        let mut rows = self.rows(&source.path, options.schema.as_ref(), part, false)?;
        let (id, ignore_unknown) = (reading.id.as_deref(), reading.ignore_unknown);
        let read = super::read_unlabelled(&mut *rows, Options { id, ignore_unknown, ..options })?;
        let part = match self {
            TableFormat::TextFolder => Some(text_folder(&source.path)?.describe(part)),
            _ => None,
        };
        Ok(UnlabelledRows { part, ..read })
    }

    fn part(self, path: &Path) -> Result<Part, DataError> {
        let has_test = self == TableFormat::TextFolder && text_folder(path)?.has_test();
        Ok(if has_test { Part::Test } else { Part::Train })
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
        let schema = schema.map(|schema| schema.with_texts(tokenizer, max_length)).transpose()?;
        let texts =
            (schema.is_none() && (tokenizer.is_some() || max_length.is_some())).then(|| Tokenization {
                tokenizer: tokenizer.unwrap_or(DEFAULT_TOKENIZER).to_owned(),
                max_length: max_length.unwrap_or(DEFAULT_MAX_LENGTH),
            });
        let delimiter = if let TableFormat::Csv { delimiter } = self { delimiter } else { b',' };
        let target = source.target.as_deref();
        let (classes, features) = (source.classes, source.features);
        Ok(Options { schema, target, classes, features, delimiter, texts, ..Options::default() })
    }

    /// Opens the file or a part of the folder.
    fn rows(
        self,
        path: &Path,
        schema: Option<&Schema>,
        part: Part,
        labelled: bool,
    ) -> Result<Box<dyn Rows>, DataError> {
        let file = path.display().to_string();
        match (self, schema) {
            (TableFormat::Mushroom, _) => Ok(Box::new(embedded::rows()?)),
            (TableFormat::JsonLines, _) => Ok(Box::new(JsonRows::new(&file, open(path)?))),
            // A text on each line, for a model of texts.
            (TableFormat::Csv { .. }, Some(schema)) if !labelled && is_txt(path) && schema.has_texts() => {
                let (text, _) = schema.classified_columns(&file)?;
                Ok(Box::new(TextRows::new(path.to_owned(), &[text], vec![(path.to_owned(), None)], true)))
            }
            (TableFormat::Csv { delimiter }, _) => {
                Ok(Box::new(CsvRows::new(&file, open(path)?, notation(schema, delimiter))))
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
                    Ok(Box::new(CsvRows::new(&file, open(&path)?, notation(schema, delimiter))))
                }
            },
        }
    }
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

/// The files of a folder of texts that [`read`](crate::read) reads; `None` if it does not have texts.
pub(crate) fn text_files(path: &Path) -> Option<Vec<PathBuf>> {
    TextFolder::find(path).and_then(|folder| folder.all_files().ok())
}
