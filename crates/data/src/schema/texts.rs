//! The text columns of a schema.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{
    Category, Column, ColumnReference, RawSchema, Schema, SchemaProblem, TextColumn, Unknown, blanks,
};
use crate::error::DataError;
use crate::text::{
    Choice, DEFAULT_MAX_LENGTH, DEFAULT_TOKENIZER, Form, TextEncoder, Tokenization, Truncation,
};

impl TextColumn {
    pub(super) fn new(name: &str, texts: &Tokenization) -> TextColumn {
        TextColumn {
            name: name.into(),
            tokenizer: Some(texts.tokenizer.clone()),
            tokenizer_sha256: None,
            max_length: Some(texts.max_length),
            truncation: Some(texts.truncation).filter(|truncation| *truncation != Truncation::End),
        }
    }

    fn tokenizer(&self) -> &str {
        self.tokenizer.as_deref().unwrap_or(DEFAULT_TOKENIZER)
    }

    fn max_length(&self) -> usize {
        self.max_length.unwrap_or(DEFAULT_MAX_LENGTH)
    }
}

impl Schema {
    /// A schema of texts with classes, in the columns `text` and `label`.
    pub(crate) fn classified_texts(
        file: &str,
        tokenizer: &str,
        max_length: usize,
        classes: Vec<String>,
    ) -> Result<Schema, DataError> {
        let truncation = Truncation::End;
        let texts = Tokenization { tokenizer: tokenizer.to_owned(), max_length, truncation };
        let label = Category { name: "label".into(), values: classes, unknown: Unknown::Error };
        let raw = RawSchema {
            header: true,
            delimiter: ',',
            quotes: true,
            missing: blanks(),
            others: Unknown::Error,
            target: Some(ColumnReference::Name("label".to_owned())),
            unit: None,
            columns: vec![Column::Text(TextColumn::new("text", &texts)), Column::Category(label)],
        };
        raw.check().map_err(|(problem, hint)| DataError::file(file, problem, hint))
    }

    /// Whether a text column has no tokenizer, and whether one has no maximum length.
    pub(crate) fn unstated_texts(&self) -> (bool, bool) {
        let lacks = |lacks: fn(&TextColumn) -> bool| self.text_columns().any(|(_, text)| lacks(text));
        (lacks(|text| text.tokenizer.is_none()), lacks(|text| text.max_length.is_none()))
    }

    /// Whether a column is a text.
    pub fn has_texts(&self) -> bool {
        self.text_columns().next().is_some()
    }

    fn text_columns(&self) -> impl Iterator<Item = (usize, &TextColumn)> {
        self.columns.iter().enumerate().filter_map(|(place, column)| match column {
            Column::Text(text) => Some((place, text)),
            _ => None,
        })
    }

    /// The encoder of the texts; `None` if there are none.
    ///
    /// # Errors
    ///
    /// A tokenizer that cannot be read, or whose hash differs from that in the schema.
    pub fn encoder(&self) -> Result<Option<TextEncoder>, DataError> {
        self.check_tokenizer()?;
        let texts = self.text_columns().next();
        let encoder = |(_, text): (usize, &TextColumn)| {
            let encoder = TextEncoder::new(text.tokenizer(), text.max_length())?;
            Ok(encoder.with_truncation(text.truncation.unwrap_or_default()))
        };
        texts.map(encoder).transpose()
    }

    /// The form of the records.
    pub(crate) fn text_form(&self, target: Option<usize>, labelled: bool) -> Form {
        let predicted = self.text_columns().any(|(place, _)| Some(place) == target);
        match (predicted, self.text_columns().count()) {
            (true, _) if labelled => Form::Continuation,
            (true, _) => Form::Prompt,
            (false, 1) => Form::One,
            (false, _) => Form::Pair,
        }
    }

    /// The index of a text among those of a record: 0 or 1. A text that is predicted comes last.
    pub(crate) fn text_index(&self, place: usize, target: Option<usize>) -> usize {
        let others = self.text_columns().filter(|&(other, _)| Some(other) != target);
        if Some(place) == target { 1 } else { others.filter(|&(other, _)| other < place).count() }
    }

    /// Checks that texts are the only features, and that all have the same tokenizer, maximum length and truncation.
    pub(crate) fn check_texts(&self, target: Option<usize>) -> Result<(), SchemaProblem> {
        let Some((_, first)) = self.text_columns().next() else { return Ok(()) };
        let feature = self.columns.iter().enumerate().find(|&(place, column)| {
            Some(place) != target && matches!(column, Column::Number(_) | Column::Category(_))
        });
        if let Some((_, column)) = feature {
            let problem = format!(
                "column `{}` is a text, so `{}` cannot be a feature",
                first.name.first(),
                column.name()
            );
            return Err((
                problem,
                "give it type = \"ignore\"; a record is a text, a pair of texts, or numbers",
            ));
        }
        let count = self.text_columns().count();
        if count > 2 {
            let problem = format!("{count} columns are texts; a record is one text or a pair of texts");
            return Err((problem, "give the others type = \"ignore\""));
        }
        let predicted = self.text_columns().any(|(place, _)| Some(place) == target);
        if (count > 1 || predicted) && first.truncation == Some(Truncation::Middle) {
            let problem = format!("column `{}` cannot have truncation = \"middle\"", first.name.first());
            return Err((
                problem,
                "pairs of texts and texts that are predicted are truncated at the end; leave out {truncation}",
            ));
        }
        let different = |other: &TextColumn| {
            (other.tokenizer(), other.max_length(), other.truncation)
                != (first.tokenizer(), first.max_length(), first.truncation)
        };
        if let Some((_, other)) = self.text_columns().find(|(_, other)| different(other)) {
            let problem =
                format!("the columns `{}` and `{}` form a pair", first.name.first(), other.name.first());
            return Err((problem, "give them the same tokenizer, max_length and truncation"));
        }
        Ok(())
    }

    /// The same schema with a different tokenizer, maximum length or truncation, if they are given. It then states the first two for every
    /// text column.
    pub(crate) fn with_texts(
        mut self,
        tokenizer: Option<&str>,
        max_length: Option<usize>,
        truncation: Option<Truncation>,
    ) -> Result<Schema, DataError> {
        let given = [
            tokenizer.map(|tokenizer| ("tokenizer", tokenizer.to_owned())),
            max_length.map(|length| ("max_length", length.to_string())),
            truncation.map(|truncation| ("truncation", truncation.name().to_owned())),
        ];
        if let Some((what, got)) = given.into_iter().flatten().find(|_| !self.has_texts()) {
            return Err(DataError::Setting {
                what,
                permitted: "left out for a table without texts".to_owned(),
                got,
                hint: "a column of texts has type = \"text\" in the schema".to_owned(),
            });
        }
        for column in &mut self.columns {
            if let Column::Text(text) = column {
                if tokenizer.is_some() {
                    text.tokenizer_sha256 = None;
                }
                text.tokenizer = Some(tokenizer.unwrap_or(text.tokenizer()).to_owned());
                text.max_length = Some(max_length.unwrap_or(text.max_length()));
                text.truncation = truncation.or(text.truncation);
            }
        }
        Ok(self)
    }

    /// The file of the tokenizer, if it has one.
    pub fn tokenizer_file(&self) -> Option<PathBuf> {
        let (_, text) = self.text_columns().next()?;
        Choice::file(text.tokenizer()).map(Path::to_owned)
    }

    /// The same schema with another file of the tokenizer, if its tokenizer is a file.
    #[must_use]
    pub fn with_tokenizer_file(mut self, file: &str) -> Schema {
        for column in &mut self.columns {
            if let Column::Text(text) = column
                && Choice::file(text.tokenizer()).is_some()
            {
                text.tokenizer = Some(file.to_owned());
            }
        }
        self
    }

    /// The same schema with the absolute path of the tokenizer's file, if there is one.
    pub(crate) fn with_absolute_tokenizer(self) -> Schema {
        match self.tokenizer_file().and_then(|file| file.canonicalize().ok()) {
            Some(file) => self.with_tokenizer_file(&file.display().to_string()),
            None => self,
        }
    }

    /// Whether texts are read by a tokenizer whose file has this content.
    pub fn tokenizer_is(&self, content: &[u8]) -> bool {
        self.tokenizer_sha256() == Some(sha256(content))
    }

    /// The SHA-256 hash of the tokenizer's file: the one that the schema states, or that of the file as it is now.
    fn tokenizer_sha256(&self) -> Option<String> {
        self.pinned_sha256().map(str::to_owned).or_else(|| self.file_sha256())
    }

    /// The SHA-256 hash of the tokenizer's file as it is now; `None` if there is no such file.
    fn file_sha256(&self) -> Option<String> {
        fs::read(self.tokenizer_file()?).ok().map(|bytes| sha256(&bytes))
    }

    /// The hash that the tokenizer's file must have.
    fn pinned_sha256(&self) -> Option<&str> {
        self.text_columns().find_map(|(_, text)| text.tokenizer_sha256.as_deref())
    }

    /// The same schema with the hash of the tokenizer's present file, if there is one: a different file is then refused.
    pub(crate) fn with_pinned_tokenizer(self) -> Schema {
        let hash = self.file_sha256();
        self.with_sha256(hash)
    }

    fn with_sha256(mut self, hash: Option<String>) -> Schema {
        for column in &mut self.columns {
            if let Column::Text(text) = column {
                text.tokenizer_sha256.clone_from(&hash);
            }
        }
        self
    }

    /// Checks that the tokenizer's file has the hash that the schema states. A file that does not exist is not an error here.
    pub(crate) fn check_tokenizer(&self) -> Result<(), DataError> {
        match (self.file_sha256(), self.pinned_sha256(), self.tokenizer_file()) {
            (Some(found), Some(pinned), Some(file)) if found != pinned => Err(DataError::file(
                file.display().to_string(),
                format!(
                    "is a different tokenizer: its SHA-256 hash is {found}, but the schema states {pinned}"
                ),
                "restore the tokenizer that the records were read with, or convert the records again",
            )),
            _ => Ok(()),
        }
    }

    /// Whether records that were read by either schema are the same: their tokenizers may be copies of one file.
    pub(crate) fn reads_like(&self, other: &Schema) -> bool {
        let same_tokenizer = match (self.tokenizer_sha256(), other.tokenizer_sha256()) {
            (Some(one), Some(other)) => one == other,
            // A tokenizer that needs no file, or whose file no longer exists.
            _ => true,
        };
        let anywhere =
            |schema: &Schema| schema.clone().with_tokenizer_file("tokenizer.json").with_sha256(None);
        same_tokenizer && anywhere(self) == anywhere(other)
    }

    /// The same schema; a relative path of a tokenizer is taken relative to this folder.
    pub(super) fn with_tokenizer_below(self, folder: &Path) -> Schema {
        match self.tokenizer_file() {
            Some(file) => {
                let file = folder.join(file).display().to_string();
                self.with_tokenizer_file(&file)
            }
            None => self,
        }
    }

    /// The names of the text column and, if there is one, of the class column, for files without other columns.
    pub(crate) fn classified_columns(&self, file: &str) -> Result<(&str, Option<&str>), DataError> {
        let target = self.target_place(None);
        let texts: Vec<_> = self.text_columns().filter(|&(place, _)| Some(place) != target).collect();
        match (&texts[..], target.map(|place| &self.columns[place])) {
            ([(_, text)], Some(Column::Category(class))) => Ok((text.name.first(), Some(class.name.first()))),
            ([(_, text)], _) => Ok((text.name.first(), None)),
            _ => Err(DataError::file(
                file,
                format!("has one text for each record, but the schema describes {}", texts.len()),
                "give a table, with a column for each text",
            )),
        }
    }
}

/// The SHA-256 hash in hexadecimal digits.
fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
