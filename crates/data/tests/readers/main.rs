//! Files of every format, and files that are refused.
#![expect(clippy::unwrap_used, reason = "the functions that tests share may fail as the tests may")]

mod cache;
mod check;
mod cifar;
mod columns;
mod csv;
mod draft;
mod files;
mod idx;
mod images;
mod json_lines;
mod never_panics;
mod npy;
mod npy_folder;
mod overview;
#[cfg(feature = "parquet")]
mod parquet;
mod prediction;
mod schema;
mod source;
mod svmlight;
mod text_folders;
mod texts;
#[cfg(feature = "tokenizers")]
mod tokenizer_files;
mod units;
