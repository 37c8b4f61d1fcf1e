//! Encodes texts in parallel, many at a time.

use rayon::prelude::*;

use super::encoder::{Text, TextEncoder};
use crate::dataset::check_size;
use crate::error::DataError;
use crate::values::RecordValues;

/// The largest total size of the texts not yet encoded, in bytes, and their largest number.
const MAX_WAITING: (usize, usize) = (4 << 20, 4096);

/// The form of the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    One,
    Pair,
    Continuation,
    Prompt,
}

impl Form {
    fn text(self, [first, second]: &[String; 2]) -> Text<'_> {
        match self {
            Form::One => Text::One(first),
            Form::Pair => Text::Pair(first, second),
            Form::Continuation => Text::Continuation { prompt: first, text: second },
            Form::Prompt => Text::Prompt(first),
        }
    }
}

/// The tokens of records, one record after another.
pub(crate) struct Sequences {
    tokens: Vec<u32>,
    starts: Vec<usize>,
    /// The index of the first token of each record that a language model predicts.
    from: Vec<usize>,
}

impl Sequences {
    pub(crate) fn new() -> Sequences {
        Sequences { tokens: Vec::new(), starts: vec![0], from: Vec::new() }
    }

    /// Encodes records and appends them in their order.
    pub(crate) fn append(
        &mut self,
        file: &str,
        texts: &[Text<'_>],
        encoder: &TextEncoder,
    ) -> Result<(), DataError> {
        let encode = |&text: &Text<'_>| encoder.encode_with_start(text);
        for (tokens, from) in texts.par_iter().map(encode).collect::<Result<Vec<_>, _>>()? {
            check_size(|| file.to_owned(), self.tokens.len() + tokens.len())?;
            self.tokens.extend(tokens);
            self.starts.push(self.tokens.len());
            self.from.push(from);
        }
        Ok(())
    }

    /// Calls `take` with the tokens of each record.
    pub(crate) fn each(
        &self,
        mut take: impl FnMut(&[u32]) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        self.starts.windows(2).try_for_each(|record| take(&self.tokens[record[0]..record[1]]))
    }

    /// The tokens, and where the predictions of a language model begin.
    pub(crate) fn finish(self) -> (RecordValues, Vec<usize>) {
        (RecordValues::Tokens { tokens: self.tokens, starts: self.starts }, self.from)
    }
}

/// Collects texts and encodes them when there are enough.
pub(crate) struct TokenBuffer<'a> {
    file: &'a str,
    encoder: &'a TextEncoder,
    form: Form,
    waiting: Vec<[String; 2]>,
    bytes: usize,
    encoded: Sequences,
}

impl<'a> TokenBuffer<'a> {
    pub(crate) fn new(file: &'a str, encoder: &'a TextEncoder, form: Form) -> TokenBuffer<'a> {
        TokenBuffer { file, encoder, form, waiting: Vec::new(), bytes: 0, encoded: Sequences::new() }
    }

    /// Appends a record. Forms of one text ignore the second.
    pub(crate) fn push(&mut self, texts: [&str; 2]) -> Result<(), DataError> {
        self.bytes += texts[0].len() + texts[1].len();
        self.waiting.push(texts.map(str::to_owned));
        match self.bytes < MAX_WAITING.0 && self.waiting.len() < MAX_WAITING.1 {
            true => Ok(()),
            false => self.encode(),
        }
    }

    /// The tokens of all records, and where the predictions of a language model begin.
    pub(crate) fn finish(mut self) -> Result<(RecordValues, Vec<usize>), DataError> {
        self.encode()?;
        Ok(self.encoded.finish())
    }

    /// The records that were encoded since the last call.
    pub(crate) fn encoded(&mut self) -> Sequences {
        std::mem::replace(&mut self.encoded, Sequences::new())
    }

    /// Encodes the texts collected so far.
    pub(crate) fn encode(&mut self) -> Result<(), DataError> {
        let texts: Vec<Text<'_>> = self.waiting.iter().map(|texts| self.form.text(texts)).collect();
        self.encoded.append(self.file, &texts, self.encoder)?;
        self.waiting.clear();
        self.bytes = 0;
        Ok(())
    }
}
