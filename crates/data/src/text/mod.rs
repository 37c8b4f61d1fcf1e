//! Texts: how they become tokens, and the files and folders that contain them.
//!
//! A tokenizer is public. It is `bytes`, `characters` or `hashed`, which need no vocabulary, or a `tokenizer.json`, whose
//! vocabulary was made from other texts. Nothing about it is derived from the records.

mod characters;
mod choice;
mod encoder;
mod folder;
mod in_memory;
mod lines;
mod rows;
mod tokens;
mod truncation;
#[cfg(feature = "tokenizers")]
mod vocabulary_file;
mod words;

pub(crate) use choice::Choice;
pub use encoder::{Text, TextEncoder};
pub(crate) use folder::{Part, PartFiles, TextFolder};
pub(crate) use lines::Lines;
pub(crate) use rows::TextRows;
pub(crate) use tokens::{Form, TokenBuffer};
pub use truncation::Truncation;

/// The tokenizer that is used if none is named.
pub(crate) const DEFAULT_TOKENIZER: &str = "hashed,size=16384";
/// The default of the largest number of tokens of a record.
pub(crate) const DEFAULT_MAX_LENGTH: usize = 256;
/// The same if each text is a file of its own. Such texts are often longer than those in a column of a table.
pub(crate) const DOCUMENT_MAX_LENGTH: usize = 1024;

/// How texts are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tokenization {
    pub(crate) tokenizer: String,
    pub(crate) max_length: usize,
    pub(crate) truncation: Truncation,
}
