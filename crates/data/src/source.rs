//! Files and directories of records, and the reader for each format.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use crate::dataset::Dataset;
use crate::encoding::{Conversion, Encoding};
use crate::error::DataError;
use crate::input::open;
use crate::schema::Schema;
use crate::unlabelled::{PredictionOptions, UnlabelledRows};
use crate::{cache, csv, embedded, idx, npy, npy_folder, svmlight};

/// The location of records, and what is publicly known about them.
///
/// | path | format | needs |
/// | --- | --- | --- |
/// | a directory | IDX, as MNIST | `classes` unless there are 10 |
/// | a directory with `x.npy` and `y.npy` | arrays whose records stay in their file, optionally `x_test.npy` and `y_test.npy` | `classes` if `y` has integers |
/// | `.csv` `.tsv` `.txt` `.data` | CSV | `schema`; or `classes`, if every column is a number and the target (the last column, or `target`) is a class |
/// | `.npz` | arrays `x` and `y`, optionally `x_test` and `y_test` | `classes` if `y` has integers |
/// | `.npy` | `x`, for prediction | |
/// | `.sordino` | what [`convert`](crate::convert) wrote; the records stay in their file | |
/// | `.svm` `.svmlight` `.libsvm` | SVMLight, LIBSVM | `features`; `classes` unless there are 2 |
/// | `mushroom`, if there is no such file | [`embedded::mushroom`] | |
///
/// All names except `.npz` may also end in `.gz`. Bytes (IDX files and arrays of `uint8`) are divided by 255. Other numbers are not
/// scaled, except by a schema.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// The file, or the directory.
    pub path: PathBuf,
    /// The schema of a CSV file.
    pub schema: Option<PathBuf>,
    /// The column of a CSV file that is to be predicted: its name, or its number from 1. It overrides the target of the schema.
    pub target: Option<String>,
    /// The number of classes.
    pub classes: Option<usize>,
    /// The number of features.
    pub features: Option<usize>,
}

/// The records of a source: a training set and, if the format separates them, a test set.
#[derive(Debug)]
pub struct Splits {
    /// The training set.
    pub train: Dataset,
    /// The test set, with records of the same shape.
    pub test: Option<Dataset>,
    /// The schema by which a table was read, given or derived from its header; `None` for other formats.
    pub schema: Option<Schema>,
}

/// The format of a source.
#[derive(Clone, Copy)]
pub(crate) enum Format {
    Idx,
    Csv { delimiter: u8 },
    Npz,
    Npy,
    NpyFolder,
    Cache,
    SvmLight,
    Mushroom,
}

impl Format {
    pub(crate) fn of(path: &Path) -> Result<Format, DataError> {
        if path.is_dir() {
            return Ok(if npy_folder::is_npy_folder(path) { Format::NpyFolder } else { Format::Idx });
        }
        if path == Path::new(embedded::NAME) && !path.exists() {
            return Ok(Format::Mushroom);
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("csv" | "txt" | "data") => Ok(Format::Csv { delimiter: b',' }),
            Some("tsv") => Ok(Format::Csv { delimiter: b'\t' }),
            Some("npz") => Ok(Format::Npz),
            Some("npy") => Ok(Format::Npy),
            Some(cache::EXTENSION) => Ok(Format::Cache),
            Some("svm" | "svmlight" | "libsvm") => Ok(Format::SvmLight),
            _ if !path.exists() => Err(DataError::file(
                path.display().to_string(),
                "no such file or directory",
                "give a file, a directory of IDX files, or mushroom for the data that is part of Sordino",
            )),
            _ => Err(DataError::file(
                path.display().to_string(),
                "the format is not clear from the name",
                "give a file .csv, .tsv, .txt, .data (CSV), .npz, .npy, .svm, .svmlight or .libsvm (all except .npz also \
                 with .gz) or .sordino, a directory of IDX files or of x.npy and y.npy, or the name mushroom",
            )),
        }
    }

    pub(crate) fn is_table(self) -> bool {
        matches!(self, Format::Csv { .. } | Format::Mushroom)
    }
}

impl Source {
    pub(crate) fn file(&self) -> String {
        self.path.display().to_string()
    }

    /// Returns an error for settings that the format does not use.
    pub(crate) fn check(&self, format: Format) -> Result<(), DataError> {
        let table = format.is_table();
        let unused = [
            (
                "schema",
                self.schema.as_ref().map(|path| path.display().to_string()),
                table || matches!(format, Format::Cache),
            ),
            ("target", self.target.clone(), table),
            (
                "number of features",
                self.features.map(|n| n.to_string()),
                table || matches!(format, Format::SvmLight),
            ),
        ];
        for (what, given, used) in unused {
            if let Some(got) = given.filter(|_| !used) {
                let hint =
                    "{schema} and {target} are for CSV files, {features} is for CSV and SVMLight files"
                        .to_owned();
                let permitted = format!("left out for {}", self.file());
                return Err(DataError::Setting { what, permitted, got, hint });
            }
        }
        Ok(())
    }

    /// The text of a table.
    pub(crate) fn text(&self, format: Format) -> Result<Box<dyn BufRead>, DataError> {
        if matches!(format, Format::Mushroom) { embedded::records() } else { open(&self.path) }
    }

    /// The options for reading a table that are the same for training and prediction.
    pub(crate) fn options(&self, format: Format) -> Result<csv::Options<'_>, DataError> {
        let schema = match (&self.schema, format) {
            (Some(path), _) => Some(Schema::read(path)?),
            (None, Format::Mushroom) => Some(embedded::schema()?),
            (None, _) => None,
        };
        let delimiter = if let Format::Csv { delimiter } = format { delimiter } else { b',' };
        let target = self.target.as_deref();
        let (classes, features) = (self.classes, self.features);
        Ok(csv::Options { schema, target, classes, features, delimiter, ..csv::Options::default() })
    }
}

/// Reads labelled records.
///
/// # Errors
///
/// The first value that does not fit, with the file and its line and column, its record or its byte; see [`DataError`].
///
/// ```
/// use sordino_data::{Source, read};
///
/// let sets = read(&Source { path: "mushroom".into(), ..Source::default() })?;
/// assert_eq!(sets.train.len(), 8124);
/// # Ok::<(), sordino_data::DataError>(())
/// ```
pub fn read(source: &Source) -> Result<Splits, DataError> {
    let format = Format::of(&source.path)?;
    source.check(format)?;
    match format {
        Format::Idx => idx::read(&source.path, source.classes),
        Format::Csv { .. } | Format::Mushroom => {
            let options = csv::Options { labelled: true, ..source.options(format)? };
            let (train, schema) = csv::read(&source.file(), source.text(format)?, options)?;
            Ok(Splits { train, test: None, schema: Some(schema) })
        }
        Format::Npz => npy::read_npz(&source.path, source.classes),
        Format::Npy => Err(without_labels(&source.path)),
        Format::NpyFolder => npy_folder::read(&source.path, source.classes),
        Format::Cache => cache::read(source),
        Format::SvmLight => {
            let text = open(&source.path)?;
            let train = svmlight::read(&source.file(), text, source.features, source.classes)?;
            Ok(Splits { train, test: None, schema: None })
        }
    }
}

/// Reads labelled records from another file, to test a model trained on `sets`, which were read from `source`.
///
/// A table is read by the schema of `sets`. From a directory, an NPZ file or a file `.sordino` the test set is read, or the training set
/// if there is no test set.
///
/// # Errors
///
/// Those of [`read`]; records or labels whose description differs from that of `sets`.
pub fn read_test(path: &Path, source: &Source, sets: &Splits) -> Result<Dataset, DataError> {
    let format = Format::of(path)?;
    let (file, train) = (path.display().to_string(), &sets.train);
    let test = match (format, &sets.schema) {
        (Format::Npy, _) => return Err(without_labels(path)),
        (Format::Cache, _) => cache::read_test(path, sets)?,
        (_, Some(schema)) => {
            let source = Source { path: path.to_owned(), ..Source::default() };
            let schema = Some(schema.clone());
            let options = csv::Options { schema, labelled: true, ..csv::Options::default() };
            check_table(format, &file)?;
            csv::read(&file, source.text(format)?, options)?.0
        }
        (Format::Idx, None) => idx::read_test(path, source.classes, train.encoding())?,
        (Format::Npz, None) => npy::read_npz_test(path, source.classes, train.encoding())?,
        (Format::NpyFolder, None) => npy_folder::read_test(path, source.classes, train.encoding())?,
        (Format::SvmLight, None) => {
            Conversion::new(&file, Encoding::Text, Some(train.encoding()))?;
            svmlight::read(&file, open(path)?, source.features, source.classes)?
        }
        (Format::Csv { .. } | Format::Mushroom, None) => {
            return Err(DataError::file(
                file,
                format!("is a table, but {} is not", source.file()),
                "give test records in the format of the training records",
            ));
        }
    };
    if test.shape() != train.shape() || test.classes() != train.classes() || test.scales() != train.scales() {
        return Err(DataError::file(
            file,
            format!(
                "the test records are {}, but the training records are {}",
                described(&test),
                described(train)
            ),
            "test records must have the shape and the labels of the training records",
        ));
    }
    Ok(test)
}

fn described(records: &Dataset) -> String {
    let labels = match (records.classes().len(), records.scales().len()) {
        (0, numbers) => format!("{numbers} numbers to predict"),
        (classes, _) => format!("{classes} classes"),
    };
    format!("of shape {} with {labels}", records.shape())
}

fn without_labels(path: &Path) -> DataError {
    DataError::file(
        path.display().to_string(),
        "an NPY file has no labels",
        "put both into an NPZ file: numpy.savez(path, x=..., y=...); or into a folder: x.npy and y.npy",
    )
}

/// Returns an error for a file that is not a table, because the training records are a table.
fn check_table(format: Format, file: &str) -> Result<(), DataError> {
    if format.is_table() {
        return Ok(());
    }
    Err(DataError::file(
        file,
        "is not a table, but the training records are",
        "give a CSV file (.csv, .tsv, .txt, .data) with the columns of the training records",
    ))
}

/// Reads records without their labels, for prediction.
///
/// Labels are optional and are not read: a CSV file may lack the target column, an NPZ file `y`, and lines of SVMLight their
/// label. A CSV file without a schema has no target unless [`Source::target`] names it, or [`Source::features`] is one less
/// than the number of columns. From a directory of IDX files the test images are read, or the training images if there are no
/// others; `x_test` of an NPZ file is not read. [`UnlabelledRows::part`] states what was read.
///
/// # Errors
///
/// Those of [`read`], except errors in labels, which are not read, and in the values of a row: such a row is kept apart, with
/// the reason.
pub fn read_unlabelled(source: &Source, reading: &PredictionOptions) -> Result<UnlabelledRows, DataError> {
    let (format, file) = (Format::of(&source.path)?, source.file());
    if source.schema.is_some() && !matches!(format, Format::Cache) {
        check_table(format, &file)?;
    }
    if matches!(format, Format::Csv { .. } | Format::Mushroom | Format::SvmLight) {
        Conversion::new(&file, Encoding::Text, reading.encoding)?;
    }
    let options = source.options(format)?;
    if options.schema.is_none() || matches!(format, Format::Cache) {
        reading.check_plain(&file)?;
    }
    match format {
        Format::Idx => idx::read_unlabelled(&source.path, reading.encoding),
        Format::Csv { .. } | Format::Mushroom => {
            let (id, ignore_unknown) = (reading.id.as_deref(), reading.ignore_unknown);
            csv::read_unlabelled(&file, source.text(format)?, csv::Options { id, ignore_unknown, ..options })
        }
        Format::Npz => npy::read_npz_unlabelled(&source.path, reading.encoding),
        Format::Npy => npy_folder::read_array(&source.path, reading.encoding),
        Format::NpyFolder => npy_folder::read_unlabelled(&source.path, reading.encoding),
        Format::Cache => cache::read_unlabelled(&source.path, options.schema.as_ref(), reading.encoding),
        Format::SvmLight => svmlight::read_unlabelled(&file, open(&source.path)?, source.features),
    }
}
