//! Parquet: tables, and images as Hugging Face stores them, in one file or in the files of a folder.

mod guard;
mod images;
mod rows;

use std::fs::File;
use std::path::{Path, PathBuf};

use ::parquet::basic::Type as PhysicalType;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::schema::types::Type;

use self::guard::guarded;
pub(crate) use self::images::{image_sets, read_test_images, read_unlabelled_images};
use self::rows::TableRows;
use crate::class_folders::{entries, has_extension, name_of};
use crate::error::DataError;
use crate::format::Format;
use crate::input::unreadable;
use crate::table::TableFormat;

/// The files of the training set and of the test set.
pub(crate) struct Parts {
    pub(crate) train: Vec<PathBuf>,
    pub(crate) test: Vec<PathBuf>,
}

impl Parts {
    /// The parts of a file or a folder. The names of a folder's files begin with `train`, `test` or `validation`; the validation set is the
    /// test set if there is no other. If no file has such a name, all files are the training set.
    pub(crate) fn of(path: &Path) -> Result<Parts, DataError> {
        if !path.is_dir() {
            return Ok(Parts { train: vec![path.to_owned()], test: Vec::new() });
        }
        let (mut train, mut test, mut validation, mut others) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for file in files(path)? {
            let name = name_of(&file).to_lowercase();
            match name.split(|letter: char| !letter.is_ascii_alphabetic()).next() {
                Some("train") => train.push(file),
                Some("test") => test.push(file),
                Some("val" | "valid" | "validation") => validation.push(file),
                _ => others.push(file),
            }
        }
        match others.first() {
            Some(other) if !(train.is_empty() && test.is_empty() && validation.is_empty()) => {
                return Err(DataError::file(
                    other.display().to_string(),
                    "the name does not say whether these are training or test records",
                    "begin the names of the files of a folder with train, test or validation; or none of them",
                ));
            }
            Some(_) => train = others,
            None => {}
        }
        Ok(Parts { train, test: if test.is_empty() { validation } else { test } })
    }

    /// The test set, or the training set if there is none.
    pub(crate) fn one(self) -> Vec<PathBuf> {
        if self.test.is_empty() { self.train } else { self.test }
    }
}

/// The Parquet files of a folder, or of the folder `data` in it.
fn files(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let list = |folder: &Path| -> Result<Vec<PathBuf>, DataError> {
        Ok(entries(folder)?.into_iter().filter(|file| has_extension(file, &["parquet"])).collect())
    };
    let found = list(folder)?;
    let inner = folder.join("data");
    if found.is_empty() && inner.is_dir() { list(&inner) } else { Ok(found) }
}

/// Whether a folder has Parquet files.
pub(crate) fn is_folder(folder: &Path) -> Result<bool, DataError> {
    Ok(!files(folder)?.is_empty())
}

/// Whether the files have a column of images, or are a table.
pub(crate) fn format(path: &Path) -> Result<Format, DataError> {
    let parts = Parts::of(path)?;
    let Some(first) = parts.train.first().or(parts.test.first()) else {
        return Err(no_training_files(path));
    };
    let reader = open(first)?;
    let is_image =
        reader.metadata().file_metadata().schema().get_fields().iter().any(|field| is_image(field));
    Ok(if is_image { Format::ParquetImages } else { Format::Table(TableFormat::Parquet) })
}

/// The rows of these files, which are a part of the table `path`.
pub(crate) fn rows(path: &Path, files: &[PathBuf]) -> Result<TableRows, DataError> {
    if files.is_empty() {
        return Err(no_training_files(path));
    }
    TableRows::open(files)
}

/// Whether a column has images: a group of `bytes` and `path`.
fn is_image(field: &Type) -> bool {
    field.is_group()
        && field.get_fields().iter().all(|part| matches!(part.name(), "bytes" | "path"))
        && field.get_fields().iter().any(|part| {
            part.name() == "bytes"
                && part.is_primitive()
                && part.get_physical_type() == PhysicalType::BYTE_ARRAY
        })
}

fn open(path: &Path) -> Result<SerializedFileReader<File>, DataError> {
    let file = path.display().to_string();
    let opened = File::open(path).map_err(|error| unreadable(&file, &error))?;
    let length = opened.metadata().map_err(|error| unreadable(&file, &error))?.len();
    let reader = guarded(&file, || SerializedFileReader::new(opened))?;
    match reader.metadata().row_groups().iter().all(|group| is_within(group, length)) {
        true => Ok(reader),
        false => Err(DataError::file(
            file,
            "cannot be read: the end of the file describes columns that are not in it",
            DAMAGED,
        )),
    }
}

/// Whether the columns of a group of rows lie within a file of this length.
fn is_within(group: &RowGroupMetaData, length: u64) -> bool {
    let within = |column: &ColumnChunkMetaData| {
        let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        let end = u64::try_from(start).ok().zip(u64::try_from(column.compressed_size()).ok());
        end.and_then(|(start, size)| start.checked_add(size)).is_some_and(|end| end <= length)
            && column.num_values() >= 0
    };
    group.num_rows() >= 0
        && group.num_columns() == group.schema_descr().num_columns()
        && group.columns().iter().all(within)
}

const DAMAGED: &str = "the file is truncated or damaged, or is not a Parquet file; copy or download it again";

fn damaged(place: &str, error: &ParquetError) -> DataError {
    let text = error.to_string();
    let hint = match text.contains("compile") || text.contains("ZSTD") {
        true => {
            "compress the file with snappy, gzip, lz4 or brotli, or build Sordino with the feature parquet-zstd"
        }
        false => "the file is truncated or damaged, or is not a Parquet file; copy or download it again",
    };
    DataError::file(place, format!("cannot be read: {text}"), hint)
}

fn no_training_files(path: &Path) -> DataError {
    DataError::file(
        path.display().to_string(),
        "has no Parquet files of training records",
        "the names of the files of a folder begin with train, test or validation, or all with something else",
    )
}
