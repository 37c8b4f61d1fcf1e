//! Readers for records: CSV, IDX, NPY and NPZ, SVMLight, each with its public schema.
//!
//! [`read`] turns a file, or a directory of IDX files, into a [`Dataset`]; every format may be compressed by gzip, except
//! NPZ, which is compressed by itself.
//!
//! # Guarantees
//!
//! What a data set says about itself is public: the shape of a record, the scale of its numbers, its vocabulary and its
//! classes come from a [`Schema`], from the [`Source`] or from a file's header, and are never derived from the values of the
//! records. A value that does not fit is an error; the schema is not bent to it. No `Debug` prints a record.
//!
//! Errors quote the first bad value, at most 40 characters of it: they are for the owner of the data, and should not be
//! published.
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
mod lines;
mod npy;
mod npy_header;
mod schema;
mod source;
mod svmlight;
mod unlabelled;

pub use dataset::{Dataset, held_back};
pub use encoding::Encoding;
pub use error::DataError;
pub use labels::{Labels, Scale};
pub use schema::Schema;
pub use source::{Sets, Source, read, read_test, read_unlabelled};
pub use unlabelled::{Reading, Row, Unlabelled};
