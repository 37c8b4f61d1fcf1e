//! A tokenizer with a vocabulary: the file `tokenizer.json` of a Hugging Face model.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};
use tokenizers::{EncodeInput, PostProcessor, Tokenizer, TruncationParams};

use crate::error::DataError;
use crate::guard::caught;
use crate::input::unreadable;

/// The largest file, in bytes.
const MAX_FILE: u64 = 256 << 20;

/// Tokens that end a text, in order of preference. The first one that exists separates the texts of a language model.
const SEPARATORS: [&str; 3] = ["<|endoftext|>", "</s>", "[SEP]"];
/// Tokens that stand for a text without tokens if there is no separator.
const BLANKS: [&str; 4] = ["<pad>", "[PAD]", "<unk>", "[UNK]"];

/// A tokenizer that truncates texts to the maximum length.
pub(crate) struct VocabularyFile {
    file: String,
    tokenizer: Tokenizer,
    vocabulary: usize,
    separator: Option<u32>,
    /// The token of a text without tokens.
    blank: Option<u32>,
}

impl VocabularyFile {
    pub(crate) fn read(path: &Path, max_length: usize) -> Result<VocabularyFile, DataError> {
        let file = path.display().to_string();
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|source| source.take(MAX_FILE + 1).read_to_end(&mut bytes));
        if read.map_err(|error| unreadable(&file, &error))? as u64 > MAX_FILE {
            return Err(refused(&file, format!("is larger than {} MiB", MAX_FILE >> 20)));
        }
        let not_one = |problem: String| refused(&file, format!("is not a tokenizer.json: {problem}"));
        check_template(&bytes).map_err(not_one)?;
        check_dropout(&bytes).map_err(|problem| refused(&file, problem))?;
        let parsed = caught(|| Tokenizer::from_bytes(&bytes));
        let parsed = parsed.ok_or_else(|| not_one("the content contradicts itself".to_owned()))?;
        let mut tokenizer = parsed.map_err(|error| not_one(error.to_string()))?;
        tokenizer.with_padding(None);
        let added = |pair| tokenizer.get_post_processor().map_or(0, |added| added.added_tokens(pair));
        let added = added(false).max(added(true));
        if added >= max_length {
            return Err(DataError::Setting {
                what: "max_length",
                permitted: format!("more than {added}, the number of special tokens of {file}"),
                got: max_length.to_string(),
                hint: "choose a larger {max_length}".to_owned(),
            });
        }
        let vocabulary = tokenizer.get_vocab(true).into_values().max().map_or(0, |last| last as usize + 1);
        let first = |names: &[&str]| names.iter().find_map(|name| tokenizer.token_to_id(name));
        let (separator, blank) = (first(&SEPARATORS), first(&SEPARATORS).or_else(|| first(&BLANKS)));
        let mut read = VocabularyFile { file, tokenizer, vocabulary, separator, blank };
        read.set_truncation(Some(max_length));
        read.check()?;
        Ok(read)
    }

    /// Checks that texts of every kind can be encoded: empty ones, and ones with an unknown word (a hieroglyph).
    fn check(&self) -> Result<(), DataError> {
        for input in [EncodeInput::from(""), EncodeInput::from(("", "")), EncodeInput::from("a \u{13080}")] {
            let tokens = self.encode(input)?;
            if let Some(token) = tokens.into_iter().find(|&token| token as usize >= self.vocabulary) {
                let problem =
                    format!("adds the token {token}, but its vocabulary ends at {}", self.vocabulary);
                return Err(refused(&self.file, problem));
            }
        }
        Ok(())
    }

    /// Truncates texts at the end to this many tokens, or not at all.
    pub(crate) fn set_truncation(&mut self, max_length: Option<usize>) {
        let params = |max_length| TruncationParams { max_length, ..TruncationParams::default() };
        // This fails only for a stride, and none is set.
        let _ = self.tokenizer.with_truncation(max_length.map(params));
    }

    pub(crate) fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The tokens of a text or a pair, with special tokens.
    pub(crate) fn encode<'a>(&self, input: impl Into<EncodeInput<'a>>) -> Result<Vec<u32>, DataError> {
        let tokens = self.tokens(input.into(), true)?;
        match (tokens.is_empty(), self.blank) {
            (false, _) => Ok(tokens),
            (true, Some(blank)) => Ok(vec![blank]),
            (true, None) => Err(refused(
                &self.file,
                format!(
                    "an empty text has no tokens, and there is none of {}, {}",
                    SEPARATORS.join(", "),
                    BLANKS.join(", ")
                ),
            )),
        }
    }

    /// The tokens of a text without special tokens; there may be none.
    pub(crate) fn plain(&self, text: &str) -> Result<Vec<u32>, DataError> {
        self.tokens(text.into(), false)
    }

    /// The token between the texts of a language model.
    pub(crate) fn separator(&self) -> Result<u32, DataError> {
        self.separator.ok_or_else(|| {
            refused(&self.file, format!("a language model needs one of the tokens {}", SEPARATORS.join(", ")))
        })
    }

    /// The text of tokens, without special ones.
    pub(crate) fn decode(&self, tokens: &[u32]) -> Result<String, DataError> {
        // Some decoders, such as Strip, panic at some tokens.
        let decoded = caught(|| self.tokenizer.decode(tokens, true));
        let decoded = decoded.ok_or_else(|| refused(&self.file, "cannot decode tokens"))?;
        decoded.map_err(|error| refused(&self.file, format!("cannot decode tokens: {error}")))
    }

    fn tokens(&self, input: EncodeInput<'_>, special: bool) -> Result<Vec<u32>, DataError> {
        let encoding = caught(|| self.tokenizer.encode_fast(input, special));
        let encoding = encoding.ok_or_else(|| refused(&self.file, "cannot encode a text"))?;
        let encoding =
            encoding.map_err(|error| refused(&self.file, format!("cannot encode a text: {error}")))?;
        Ok(encoding.get_ids().to_vec())
    }
}

/// The parts of a `tokenizer.json` that the crate `tokenizers` does not check.
#[derive(Deserialize)]
struct Unchecked {
    post_processor: Option<Processor>,
}

/// A post-processor. All fields are optional here, because the crate checks them.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Processor {
    processors: Vec<Processor>,
    single: Vec<Value>,
    pair: Vec<Value>,
    special_tokens: Map<String, Value>,
}

/// Refuses random merges: the tokens of a text must depend on the text alone.
fn check_dropout(bytes: &[u8]) -> Result<(), String> {
    let file: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
    match file["model"]["dropout"].as_f64() {
        Some(dropout) if dropout != 0.0 => {
            Err(format!("the dropout of the model must be null or 0, got {dropout}"))
        }
        _ => Ok(()),
    }
}

/// Checks that the special tokens of every template are defined; the crate `tokenizers` panics if one is not.
fn check_template(bytes: &[u8]) -> Result<(), String> {
    let file: Unchecked = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let mut processors: Vec<Processor> = file.post_processor.into_iter().collect();
    while let Some(processor) = processors.pop() {
        let pieces = processor.single.iter().chain(&processor.pair);
        let names = pieces.filter_map(|piece| piece.get("SpecialToken")?.get("id")?.as_str());
        if let Some(name) = names.into_iter().find(|name| !processor.special_tokens.contains_key(*name)) {
            return Err(format!("the special token {name} of a template is not defined"));
        }
        processors.extend(processor.processors);
    }
    Ok(())
}

fn refused(file: &str, problem: impl Into<String>) -> DataError {
    DataError::file(file, problem, "give the tokenizer.json of a Hugging Face model, or {tokenizer=hashed}")
}
