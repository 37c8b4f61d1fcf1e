//! Data sets for training with differential privacy: from arrays and texts, from CSV, JSON Lines, Parquet, IDX, NPY, NPZ, SVMLight
//! and image files, and from folders of texts.
//!
//! [`Dataset::from_rows`] makes a data set from arrays in memory, [`Dataset::from_texts`] from texts. [`read`] reads a file or a
//! directory. Every format except NPZ, Parquet, images and `.sordino` may be compressed with gzip.
//!
//! Data that is larger than memory stays in its file: in a folder of NPY arrays, or in a `.sordino` file that [`convert`] writes. Records
//! are read when a pass needs them. [`draft`](draft()), [`check`](check()) and [`overview`](overview()) help to prepare data.
//!
//! # Guarantees
//!
//! The description of a data set is public: the shape of a record, the scale of its numbers, its vocabulary and its classes.
//! It comes from a [`Schema`], a [`Source`], [`Labels`] or a file's header, and is never derived from the values of the
//! records. A value that does not fit the description is an error; the description is never adapted to it. No `Debug` output
//! shows a record.
//!
//! Error messages quote the first bad value, at most 40 characters of it. They are for the owner of the data and should not be published. A
//! hint names settings in braces, such as `{classes=10}`; a front end replaces them with its own notation.
#![forbid(unsafe_code)]

mod arrays;
mod cache;
mod check;
mod class_folders;
mod column_names;
mod dataset;
mod draft;
pub mod embedded;
mod encoding;
mod error;
mod features;
mod field;
mod format;
mod gaps;
#[cfg(any(feature = "parquet", feature = "tokenizers"))]
mod guard;
mod idx;
mod images;
mod input;
mod joined;
mod labels;
mod line_numbers;
mod npy;
mod npy_folder;
mod npy_header;
mod overview;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(not(feature = "parquet"))]
#[path = "parquet/absent.rs"]
mod parquet;
mod positioned;
mod preparation;
mod schema;
mod source;
mod stored;
mod svmlight;
mod table;
mod text;
mod unit;
mod unlabelled;
mod unstated;
mod values;

pub use cache::{Converted, convert};
pub use check::{Problems, check};
pub use dataset::{Dataset, held_out};
pub use draft::draft;
pub use encoding::Encoding;
pub use error::DataError;
pub use features::{Colours, FeatureConfig, Features, Normalisation, ScatteringOptions};
pub use format::{files, is_published};
pub use images::{ImageOptions, ImageSize};
pub use labels::{Labels, Scale};
pub use overview::{Overview, OverviewPart, overview};
pub use preparation::Preparation;
pub use schema::Schema;
pub use source::{Source, Splits, read, read_test, read_unlabelled};
pub use table::{Fields, TableColumn};
pub use text::{Text, TextEncoder, Truncation};
pub use unlabelled::{PredictionOptions, Row, UnlabelledRows};
pub use unstated::Unstated;

/// Runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
