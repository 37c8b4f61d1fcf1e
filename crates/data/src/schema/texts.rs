//! The text columns of a schema.

use std::path::{Path, PathBuf};

use super::{
    Category, Column, ColumnReference, RawSchema, Schema, SchemaProblem, TextColumn, Unknown, blanks,
};
use crate::error::DataError;
use crate::text::{Choice, Form, Tokenization};

impl TextColumn {
    pub(super) fn new(name: String, texts: &Tokenization) -> TextColumn {
        TextColumn { name, tokenizer: texts.tokenizer.clone(), max_length: texts.max_length }
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
        let texts = Tokenization { tokenizer: tokenizer.to_owned(), max_length };
        let label = Category { name: "label".to_owned(), values: classes, unknown: Unknown::Error };
        let raw = RawSchema {
            header: true,
            delimiter: ',',
            quotes: true,
            missing: blanks(),
            target: Some(ColumnReference::Name("label".to_owned())),
            columns: vec![Column::Text(TextColumn::new("text".to_owned(), &texts)), Column::Category(label)],
        };
        raw.check().map_err(|(problem, hint)| DataError::file(file, problem, hint))
    }

    /// Whether a column is a text.
    pub(crate) fn has_texts(&self) -> bool {
        self.text_columns().next().is_some()
    }

    fn text_columns(&self) -> impl Iterator<Item = (usize, &TextColumn)> {
        self.columns.iter().enumerate().filter_map(|(place, column)| match column {
            Column::Text(text) => Some((place, text)),
            _ => None,
        })
    }

    /// How the texts are read; `None` if there are none.
    pub(crate) fn tokenization(&self) -> Option<Tokenization> {
        let (_, text) = self.text_columns().next()?;
        Some(Tokenization { tokenizer: text.tokenizer.clone(), max_length: text.max_length })
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

    /// Checks that texts are the only features, and that they are read in the same way.
    pub(crate) fn check_texts(&self, target: Option<usize>) -> Result<(), SchemaProblem> {
        let Some((_, first)) = self.text_columns().next() else { return Ok(()) };
        let feature = self.columns.iter().enumerate().find(|&(place, column)| {
            Some(place) != target && matches!(column, Column::Number(_) | Column::Category(_))
        });
        if let Some((_, column)) = feature {
            let problem =
                format!("column `{}` is a text, so `{}` cannot be a feature", first.name, column.name());
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
        let different =
            |other: &TextColumn| other.tokenizer != first.tokenizer || other.max_length != first.max_length;
        if let Some((_, other)) = self.text_columns().find(|(_, other)| different(other)) {
            let problem = format!("the columns `{}` and `{}` form a pair", first.name, other.name);
            return Err((problem, "give them the same tokenizer and the same max_length"));
        }
        Ok(())
    }

    /// The same schema with another tokenizer or maximum length, if they are given.
    pub(crate) fn with_texts(
        mut self,
        tokenizer: Option<&str>,
        max_length: Option<usize>,
    ) -> Result<Schema, DataError> {
        let given = tokenizer.map(str::to_owned).or(max_length.map(|length| length.to_string()));
        if let Some(got) = given.filter(|_| !self.has_texts()) {
            return Err(DataError::Setting {
                what: if tokenizer.is_some() { "tokenizer" } else { "max_length" },
                permitted: "left out for a table without texts".to_owned(),
                got,
                hint: "a column of texts has type = \"text\" in the schema".to_owned(),
            });
        }
        for column in &mut self.columns {
            if let Column::Text(text) = column {
                text.tokenizer = tokenizer.map_or_else(|| text.tokenizer.clone(), str::to_owned);
                text.max_length = max_length.unwrap_or(text.max_length);
            }
        }
        Ok(self)
    }

    /// The file of the tokenizer, if it is one.
    pub fn tokenizer_file(&self) -> Option<PathBuf> {
        let (_, text) = self.text_columns().next()?;
        Choice::file(&text.tokenizer).map(Path::to_owned)
    }

    /// The same schema with another file of the tokenizer, if its tokenizer is a file.
    #[must_use]
    pub fn with_tokenizer_file(mut self, file: &str) -> Schema {
        for column in &mut self.columns {
            if let Column::Text(text) = column
                && Choice::file(&text.tokenizer).is_some()
            {
                text.tokenizer = file.to_owned();
            }
        }
        self
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

    /// The names of the text and, if records have one, of the class, for files that have nothing else.
    pub(crate) fn classified_columns(&self, file: &str) -> Result<(&str, Option<&str>), DataError> {
        let target = self.target_place(None);
        let texts: Vec<_> = self.text_columns().filter(|&(place, _)| Some(place) != target).collect();
        match (&texts[..], target.map(|place| &self.columns[place])) {
            ([(_, text)], Some(Column::Category(class))) => Ok((&text.name, Some(&class.name))),
            ([(_, text)], _) => Ok((&text.name, None)),
            _ => Err(DataError::file(
                file,
                format!("has one text for each record, but the schema describes {}", texts.len()),
                "give a table, with a column for each text",
            )),
        }
    }
}
