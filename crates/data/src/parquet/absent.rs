//! Replaces the Parquet reader in a build without the feature `parquet`: every Parquet file is an error.

use std::path::{Path, PathBuf};

use sordino_nn::Shape;

use crate::class_folders::{entries, has_extension};
use crate::dataset::Dataset;
use crate::encoding::Encoding;
use crate::error::DataError;
use crate::format::Format;
use crate::images::sets::ImageSets;
use crate::source::Source;
use crate::table::JsonRows;
use crate::unlabelled::UnlabelledRows;

fn absent(path: &Path) -> DataError {
    DataError::file(
        path.display().to_string(),
        "is Parquet, which this build does not read",
        "build Sordino with the feature parquet",
    )
}

pub(crate) struct Parts {
    pub(crate) train: Vec<PathBuf>,
    pub(crate) test: Vec<PathBuf>,
}

impl Parts {
    pub(crate) fn of(path: &Path) -> Result<Parts, DataError> {
        Err(absent(path))
    }
}

pub(crate) fn is_folder(folder: &Path) -> Result<bool, DataError> {
    Ok(entries(folder)?.iter().any(|file| has_extension(file, &["parquet"])))
}

pub(crate) fn format(path: &Path) -> Result<Format, DataError> {
    Err(absent(path))
}

pub(crate) fn rows(path: &Path, _files: &[PathBuf]) -> Result<JsonRows<std::io::Empty>, DataError> {
    Err(absent(path))
}

pub(crate) fn image_sets(source: &Source) -> Result<ImageSets, DataError> {
    Err(absent(&source.path))
}

pub(crate) fn read_test_images(
    path: &Path,
    _source: &Source,
    _train: &Dataset,
) -> Result<Dataset, DataError> {
    Err(absent(path))
}

pub(crate) fn read_unlabelled_images(
    source: &Source,
    _wanted: Option<Encoding>,
    _known: Option<Shape>,
) -> Result<UnlabelledRows, DataError> {
    Err(absent(&source.path))
}
