//! Files of every format, and files that are refused.
#![expect(clippy::unwrap_used, reason = "the functions that tests share may fail as the tests may")]

mod csv;
mod files;
mod idx;
mod json_lines;
mod never_panics;
mod npy;
mod prediction;
mod schema;
mod source;
mod svmlight;
mod text_folders;
mod texts;
#[cfg(feature = "tokenizers")]
mod tokenizer_files;
