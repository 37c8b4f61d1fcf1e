//! Data sets for training with differential privacy: from arrays and texts, and from CSV, JSON Lines, IDX, NPY, NPZ and SVMLight
//! files and folders of texts.
//!
//! [`Dataset::from_rows`] makes a data set from arrays in memory, [`Dataset::from_texts`] from texts. [`read`] reads a file or a
//! directory. Every format except NPZ may be compressed with gzip; NPZ has its own compression.
//!
//! # Guarantees
//!
//! The description of a data set is public: the shape of a record, the scale of its numbers, its vocabulary and its classes.
//! It comes from a [`Schema`], a [`Source`], [`Labels`] or a file's header, and is never derived from the values of the
//! records. A value that does not fit the description is an error; the description is never adapted to it. No `Debug` output
//! shows a record.
//!
//! Error messages quote the first bad value, at most 40 characters of it. They are for the owner of the data and should not
//! be published. A hint names settings in braces, such as `{classes=10}`; a front end replaces them by its own notation.
#![forbid(unsafe_code)]

mod arrays;
mod csv;
mod dataset;
pub mod embedded;
mod encoding;
mod error;
mod field;
mod idx;
mod input;
mod labels;
mod line_numbers;
mod npy;
mod npy_header;
mod schema;
mod source;
mod svmlight;
mod text;
mod unlabelled;
mod values;

pub use dataset::{Dataset, held_out};
pub use encoding::Encoding;
pub use error::DataError;
pub use labels::{Labels, Scale};
pub use schema::Schema;
pub use source::{Source, Splits, files, read, read_test, read_unlabelled};
pub use text::{Text, TextEncoder};
pub use unlabelled::{PredictionOptions, Row, UnlabelledRows};

/// Runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
