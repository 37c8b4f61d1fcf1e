//! Files and directories of records, and the reader for each format.

use std::path::{Path, PathBuf};

use crate::csv::{TableFormat, text_files};
use crate::dataset::Dataset;
use crate::encoding::{Conversion, Encoding};
use crate::error::DataError;
use crate::input::open;
use crate::schema::Schema;
use crate::text::TextFolder;
use crate::unlabelled::{PredictionOptions, UnlabelledRows};
use crate::{embedded, idx, npy, svmlight};

/// The location of records, and what is publicly known about them.
///
/// | path | format | needs |
/// | --- | --- | --- |
/// | a directory | IDX, as MNIST | `classes` unless there are 10 |
/// | a directory | texts: a folder of `.txt` files for each class, a `.txt` file with a text on each line for each class, or the files of SST-2, QNLI or E2E | |
/// | `.jsonl` `.ndjson` | JSON Lines: an object on each line, all with the same keys | as CSV |
/// | `.csv` `.tsv` `.txt` `.data` | CSV | `schema`; or `classes`, if every column is a number and the target (the last column, or `target`) is a class |
/// | `.npz` | arrays `x` and `y`, optionally `x_test` and `y_test` | `classes` if `y` has integers |
/// | `.npy` | `x`, for prediction | |
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
    /// The tokenizer of texts (see [`TextEncoder`](crate::TextEncoder)). It overrides that of the schema. Without a schema, it
    /// states that all columns except the target are texts.
    pub tokenizer: Option<String>,
    /// The largest number of tokens of a text.
    pub max_length: Option<usize>,
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

#[derive(Clone, Copy)]
enum Format {
    Idx,
    Table(TableFormat),
    Npz,
    Npy,
    SvmLight,
}

impl Format {
    fn of(path: &Path) -> Result<Format, DataError> {
        if path.is_dir() {
            let texts = TextFolder::find(path).is_some();
            return Ok(if texts { Format::Table(TableFormat::TextFolder) } else { Format::Idx });
        }
        if path == Path::new(embedded::NAME) && !path.exists() {
            return Ok(Format::Table(TableFormat::Mushroom));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("csv" | "txt" | "data") => Ok(Format::Table(TableFormat::Csv { delimiter: b',' })),
            Some("tsv") => Ok(Format::Table(TableFormat::Csv { delimiter: b'\t' })),
            Some("jsonl" | "ndjson") => Ok(Format::Table(TableFormat::JsonLines)),
            Some("npz") => Ok(Format::Npz),
            Some("npy") => Ok(Format::Npy),
            Some("svm" | "svmlight" | "libsvm") => Ok(Format::SvmLight),
            _ if !path.exists() => Err(DataError::file(
                path.display().to_string(),
                "no such file or directory",
                "give a file, a directory of IDX files or texts, or mushroom for the data that is part of Sordino",
            )),
            _ => Err(DataError::file(
                path.display().to_string(),
                "the format is not clear from the name",
                "give a file .csv, .tsv, .txt, .data (CSV), .jsonl, .ndjson, .npz, .npy, .svm, .svmlight or .libsvm (all \
                 except .npz also with .gz), a directory of IDX files or texts, or the name mushroom",
            )),
        }
    }

    fn is_table(self) -> bool {
        matches!(self, Format::Table(_))
    }
}

impl Source {
    fn file(&self) -> String {
        self.path.display().to_string()
    }

    /// Returns an error for settings that the format does not use.
    fn check(&self, format: Format) -> Result<(), DataError> {
        let table = format.is_table();
        let unused = [
            ("schema", self.schema.as_ref().map(|path| path.display().to_string()), table),
            ("target", self.target.clone(), table),
            ("tokenizer", self.tokenizer.clone(), table),
            ("max_length", self.max_length.map(|n| n.to_string()), table),
            (
                "number of features",
                self.features.map(|n| n.to_string()),
                table || matches!(format, Format::SvmLight),
            ),
        ];
        for (what, given, used) in unused {
            if let Some(got) = given.filter(|_| !used) {
                let hint =
                    "{schema} and {target} are for tables, {tokenizer} and {max_length} for texts, {features} is for \
                     CSV and SVMLight files"
                        .to_owned();
                let permitted = format!("left out for {}", self.file());
                return Err(DataError::Setting { what, permitted, got, hint });
            }
        }
        Ok(())
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
        Format::Table(table) => table.read(source),
        Format::Npz => npy::read_npz(&source.path, source.classes),
        Format::Npy => Err(without_labels(&source.path)),
        Format::SvmLight => {
            let text = open(&source.path)?;
            let train = svmlight::read(&source.file(), text, source.features, source.classes)?;
            Ok(Splits { train, test: None, schema: None })
        }
    }
}

/// Reads labelled records from another file, to test a model trained on `sets`, which were read from `source`.
///
/// A table is read by the schema of `sets`. From a directory or an NPZ file the test set is read, or the training set if there is
/// no test set.
///
/// # Errors
///
/// Those of [`read`]; records or labels whose description differs from that of `sets`.
pub fn read_test(path: &Path, source: &Source, sets: &Splits) -> Result<Dataset, DataError> {
    let format = Format::of(path)?;
    let (file, train) = (path.display().to_string(), &sets.train);
    let test = match (format, &sets.schema) {
        (Format::Npy, _) => return Err(without_labels(path)),
        (Format::Table(table), Some(schema)) => table.read_test(path, schema)?,
        (_, Some(_)) => return Err(not_a_table(file)),
        (Format::Idx, None) => idx::read_test(path, source.classes, train.encoding())?,
        (Format::Npz, None) => npy::read_npz_test(path, source.classes, train.encoding())?,
        (Format::SvmLight, None) => {
            Conversion::new(&file, Encoding::Text, Some(train.encoding()))?;
            svmlight::read(&file, open(path)?, source.features, source.classes)?
        }
        (Format::Table(_), None) => {
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
        _ if records.next_tokens().is_some() => "next tokens to predict".to_owned(),
        (0, numbers) => format!("{numbers} numbers to predict"),
        (classes, _) => format!("{classes} classes"),
    };
    format!("of shape {} with {labels}", records.shape())
}

fn without_labels(path: &Path) -> DataError {
    DataError::file(
        path.display().to_string(),
        "an NPY file has no labels",
        "put both into an NPZ file: numpy.savez(path, x=..., y=...)",
    )
}

/// The error for a file that is not a table, because the training records are a table.
fn not_a_table(file: String) -> DataError {
    DataError::file(
        file,
        "is not a table, but the training records are",
        "give a table (.csv, .tsv, .txt, .data, .jsonl, .ndjson) with the columns of the training records, or a folder of texts",
    )
}

/// Reads records without their labels, for prediction.
///
/// Labels are optional and are not read: a CSV file may lack the target column, an NPZ file `y`, and lines of SVMLight their
/// label. A CSV file without a schema has no target unless [`Source::target`] names it, or [`Source::features`] is one less
/// than the number of columns. From a directory of IDX files the test images are read, or the training images if there are no
/// others; `x_test` of an NPZ file is not read. From a directory of texts the test records are read, or the training records if
/// there are no others. If the schema has a text, a file `.txt` has a text on each line. [`UnlabelledRows::part`] states what was
/// read.
///
/// # Errors
///
/// Those of [`read`], except errors in labels, which are not read, and in the values of a row: such a row is kept apart, with
/// the reason.
pub fn read_unlabelled(source: &Source, reading: &PredictionOptions) -> Result<UnlabelledRows, DataError> {
    let (format, file) = (Format::of(&source.path)?, source.file());
    if source.schema.is_some() && !format.is_table() {
        return Err(not_a_table(file));
    }
    if matches!(format, Format::Table(_) | Format::SvmLight) {
        Conversion::new(&file, Encoding::Text, reading.encoding)?;
    }
    if !format.is_table() {
        reading.check_plain(&file)?;
    }
    match format {
        Format::Idx => idx::read_unlabelled(&source.path, reading.encoding),
        Format::Table(table) => table.read_unlabelled(source, reading),
        Format::Npz => npy::read_npz_unlabelled(&source.path, reading.encoding),
        Format::Npy => npy::read_npy(&source.path, reading.encoding),
        Format::SvmLight => svmlight::read_unlabelled(&file, open(&source.path)?, source.features),
    }
}

/// The files that [`read`] reads from this path: the path itself, or files of the directory.
pub fn files(path: &Path) -> Vec<PathBuf> {
    let is_idx =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains("-idx"));
    match std::fs::read_dir(path) {
        Err(_) => vec![path.to_owned()],
        Ok(entries) => text_files(path)
            .unwrap_or_else(|| entries.flatten().map(|entry| entry.path()).filter(is_idx).collect()),
    }
}
