//! The format of a file or a directory, by its name and the names in it.

use std::path::{Path, PathBuf};

use crate::class_folders::{Parts, entries, has_extension, name_of};
use crate::error::DataError;
use crate::images::{self, cifar::Cifar};
use crate::table::TableFormat;
use crate::text::TextFolder;
use crate::{cache, embedded, npy_folder, parquet};

/// Whether a test set in this source counts as public by default: the formats of published data sets (IDX, CIFAR, NPZ, folders of NPY arrays), and the
/// included data. The test set of any other source may be the user's own.
pub fn is_published(path: &Path) -> bool {
    let published = |format| {
        matches!(
            format,
            Format::Idx
                | Format::Cifar(_)
                | Format::Npz
                | Format::NpyFolder
                | Format::Table(TableFormat::Mushroom)
        )
    };
    Format::of(path).is_ok_and(published)
}

/// The format of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Idx,
    Cifar(Cifar),
    /// A folder of PNG and JPEG files for each class.
    ClassImages,
    /// PNG and JPEG files without classes: a folder of them, or one file.
    Images,
    /// Parquet files with a column of images.
    ParquetImages,
    /// Rows with the columns of a schema.
    Table(TableFormat),
    Npz,
    Npy,
    /// A folder of NPY arrays.
    NpyFolder,
    SvmLight,
    /// A file written by `convert`.
    Cache,
}

impl Format {
    /// The format of a path. For Parquet files, the names and types of the columns are read.
    pub(crate) fn of(path: &Path) -> Result<Format, DataError> {
        if path.is_dir() {
            return Format::of_directory(path);
        }
        if path == Path::new(embedded::NAME) && !path.exists() {
            return Ok(Format::Table(TableFormat::Mushroom));
        }
        let name = name_of(path).to_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("csv" | "txt" | "data") => Ok(Format::Table(TableFormat::Csv { delimiter: b',' })),
            Some("tsv") => Ok(Format::Table(TableFormat::Csv { delimiter: b'\t' })),
            Some("jsonl" | "ndjson") => Ok(Format::Table(TableFormat::JsonLines)),
            Some("npz") => Ok(Format::Npz),
            Some("npy") => Ok(Format::Npy),
            Some(cache::EXTENSION) => Ok(Format::Cache),
            Some("svm" | "svmlight" | "libsvm") => Ok(Format::SvmLight),
            Some("parquet") if path.exists() => parquet::format(path),
            Some(extension) if path.exists() && images::EXTENSIONS.contains(&extension) => Ok(Format::Images),
            _ if !path.exists() => Err(DataError::file(
                path.display().to_string(),
                "no such file or directory",
                "give a file, a directory, or mushroom for the data that is part of Sordino",
            )),
            _ => Err(DataError::file(
                path.display().to_string(),
                "the format is not clear from the name",
                "give a file .csv, .tsv, .txt, .data (CSV), .jsonl, .ndjson, .npz, .npy, .parquet, .sordino, .svm, .svmlight or \
                 .libsvm (all except .npz, .parquet and .sordino also with .gz), a directory of IDX, CIFAR, NPY, Parquet, image or \
                 text files, or the name mushroom",
            )),
        }
    }

    /// The format of a directory. Only names are examined, except for Parquet files.
    fn of_directory(path: &Path) -> Result<Format, DataError> {
        if npy_folder::is_npy_folder(path) {
            return Ok(Format::NpyFolder);
        }
        let files = entries(path)?;
        if files.iter().any(|file| name_of(file).contains("-idx")) {
            return Ok(Format::Idx);
        }
        if let Some(cifar) = Cifar::detect(path) {
            return Ok(Format::Cifar(cifar));
        }
        if parquet::is_folder(path)? {
            return parquet::format(path);
        }
        let train = Parts::of(path).train;
        let train_files = if train == path { files } else { entries(&train)? };
        let is_image = |file: &PathBuf| has_extension(file, &images::EXTENSIONS);
        for class in train_files.iter().filter(|file| file.is_dir()) {
            if entries(class)?.iter().any(is_image) {
                return Ok(Format::ClassImages);
            }
        }
        if train_files.iter().any(is_image) {
            return Ok(Format::Images);
        }
        if TextFolder::find(path).is_some() {
            return Ok(Format::Table(TableFormat::TextFolder));
        }
        Err(DataError::file(
            path.display().to_string(),
            "has no files of a known format",
            "give a directory of IDX files (train-images-idx3-ubyte, train-labels-idx1-ubyte), of CIFAR files (data_batch_1.bin, \
             or train.bin), of arrays (x.npy, y.npy), of Parquet files, with a folder of .png, .jpg or .txt files for each class, \
             optionally under train and test, or with a .txt file for each class",
        ))
    }

    /// Whether the records have the columns of a schema.
    pub(crate) fn is_table(self) -> bool {
        matches!(self, Format::Table(_))
    }

    /// Whether the records are stored as PNG or JPEG, so that their shape must be declared.
    pub(crate) fn has_stored_images(self) -> bool {
        matches!(self, Format::ClassImages | Format::Images | Format::ParquetImages)
    }
}

/// The depth to which folders within a directory are read: `train`, and a class within it.
const DEPTH: usize = 2;

/// The files and folders whose changes change the records of a source: a file itself; of a directory, its data files and the
/// folders of its classes.
pub fn files(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    // A folder that cannot be read is an error of the reader.
    match Format::of_directory(path) {
        Ok(Format::NpyFolder) => return npy_folder::files(path),
        Ok(Format::Table(TableFormat::TextFolder)) => {
            return TextFolder::find(path).and_then(|folder| folder.all_files().ok()).unwrap_or_default();
        }
        _ => {}
    }
    let mut found = Vec::new();
    collect(path, DEPTH, &mut found);
    found
}

/// Adds the data files of a folder, and those of the folders within it down to a depth.
fn collect(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    for path in entries(folder).unwrap_or_default() {
        let is_record = has_extension(&path, &images::EXTENSIONS);
        if path.is_dir() {
            if depth > 0 {
                collect(&path, depth - 1, found);
            }
        } else if is_record && depth < DEPTH {
            if found.last().and_then(|last| last.parent()) != Some(folder) {
                found.push(folder.to_owned());
            }
            found.push(path);
        } else if is_record || has_extension(&path, &["parquet", "bin"]) || name_of(&path).contains("-idx") {
            found.push(path);
        }
    }
}
