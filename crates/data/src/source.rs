//! Files and directories of records, and the reader for each format.

use std::path::{Path, PathBuf};

use crate::dataset::Dataset;
use crate::encoding::{Conversion, Encoding};
use crate::error::DataError;
use crate::format::Format;
use crate::images::sets::ImageSets;
use crate::images::{self, ImageOptions};
use crate::input::open;
use crate::schema::Schema;
use crate::text::Truncation;
use crate::unlabelled::{PredictionOptions, UnlabelledRows};
use crate::{cache, idx, npy, npy_folder, parquet, svmlight};

/// The location of records, and what is publicly known about them.
///
/// | path | format | needs |
/// | --- | --- | --- |
/// | a directory | IDX, the format of MNIST | `classes` unless there are 10 |
/// | a directory | CIFAR-10 or CIFAR-100, binary | |
/// | a directory with `x.npy` and `y.npy` | arrays whose records stay in their file, optionally `x_test.npy` and `y_test.npy` | `classes` if `y` has integers |
/// | a directory | a folder of PNG and JPEG files for each class, optionally under `train` and `test` | `images.size` and `images.channels` |
/// | a directory | texts: a folder of `.txt` files for each class, a `.txt` file with a text on each line for each class, or the files of SST-2, QNLI or E2E | |
/// | `.csv` `.tsv` `.txt` `.data` | CSV | `schema`; or `classes`, if every column is a number and the target (the last column, or `target`) is a class |
/// | `.jsonl` `.ndjson` | JSON Lines: an object on each line, all with the same keys | as CSV |
/// | `.parquet`, or a directory of such files | a table | as CSV |
/// | `.parquet`, or a directory of such files | a column of images, as Hugging Face stores them | `images.size` and `images.channels`; `classes` unless the file names them |
/// | `.npz` | arrays `x` and `y`, optionally `x_test` and `y_test`; or the names of MedMNIST | `classes` if `y` has integers |
/// | `.npy` | `x`, for prediction | |
/// | `.sordino` | a file written by [`convert`](crate::convert); the records stay in their file | |
/// | `.svm` `.svmlight` `.libsvm` | SVMLight, LIBSVM | `features`; `classes` unless there are 2 |
/// | `mushroom`, if there is no such file | [`embedded::mushroom`](crate::embedded::mushroom) | |
///
/// All names except `.npz`, `.parquet`, `.sordino` and those of images may also end in `.gz`. Bytes (IDX files and arrays of `uint8`) are
/// divided by 255. Other numbers are not scaled, except by a schema.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Source {
    /// The file, or the directory.
    pub path: PathBuf,
    /// The schema of a table.
    pub schema: Option<PathBuf>,
    /// The column of a table that is to be predicted: its name, or its number from 1. It overrides the target of the schema.
    pub target: Option<String>,
    /// The unit of privacy: the column of a table that identifies it (its name, or its number from 1), which overrides the unit of the
    /// schema; or the array that identifies it, with `_test` after its name for the test records.
    pub unit: Option<String>,
    /// The number of classes.
    pub classes: Option<usize>,
    /// The number of features.
    pub features: Option<usize>,
    /// How images are converted.
    pub images: ImageOptions,
    /// The tokenizer of texts (see [`TextEncoder`](crate::TextEncoder)). It overrides that of the schema. Without a schema, it
    /// states that all columns except the target are texts.
    pub tokenizer: Option<String>,
    /// The largest number of tokens of a text.
    pub max_length: Option<usize>,
    /// Where long texts are truncated.
    pub truncation: Option<Truncation>,
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

impl Source {
    fn file(&self) -> String {
        self.path.display().to_string()
    }

    /// Returns an error for settings that the format does not use.
    pub(crate) fn check(&self, format: Format) -> Result<(), DataError> {
        let (table, stored) = (format.is_table(), format.has_stored_images());
        let schema = self.schema.as_ref().map(|path| path.display().to_string());
        let unused = [
            ("schema", schema, table || format == Format::Cache),
            ("target", self.target.clone(), table || format == Format::ParquetImages),
            (
                "unit",
                self.unit.clone(),
                table || matches!(format, Format::Npz | Format::NpyFolder | Format::Cache),
            ),
            ("number of features", self.features.map(|n| n.to_string()), table || format == Format::SvmLight),
            ("image size", self.images.size.map(|size| size.to_string()), stored),
            ("number of channels", self.images.channels.map(|n| n.to_string()), stored),
            ("tokenizer", self.tokenizer.clone(), table),
            ("max_length", self.max_length.map(|n| n.to_string()), table),
            ("truncation", self.truncation.map(|part| part.name().to_owned()), table),
        ];
        for (what, given, used) in unused {
            if let Some(got) = given.filter(|_| !used) {
                let hint = "{schema} and {target} are for tables, {unit} is for tables and NPZ and NPY arrays, {feature_count} is for \
                            tables and SVMLight files, {image_size} and {channels} are for PNG and JPEG images, {tokenizer}, {max_length} and {truncation} for texts"
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
/// The first value that is not permitted, with its file and its line and column, record or byte; see [`DataError`].
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
    let (path, file) = (&source.path, source.file());
    let sets = match format {
        Format::Idx => idx::read(path, source.classes),
        Format::Cifar(cifar) => cifar.read(path, source.classes),
        Format::ClassImages | Format::ParquetImages => image_sets(source, format, &mut Err)?.read(),
        Format::Table(table) => table.read(source),
        Format::Npz => npy::read_npz(path, source.classes, source.unit.as_deref()),
        Format::NpyFolder => npy_folder::read(path, source.classes, source.unit.as_deref()),
        Format::Cache => cache::read(source),
        Format::Npy | Format::Images => Err(without_labels(path, format)),
        Format::SvmLight => {
            let train = svmlight::read(&file, open(path)?, source.features, source.classes)?;
            Ok(Splits { train, test: None, schema: None })
        }
    }?;
    let normalised = |set: Dataset| set.normalised(&file, &source.images);
    Ok(Splits { train: normalised(sets.train)?, test: sets.test.map(normalised).transpose()?, ..sets })
}

/// The labelled images of a folder with a subfolder for each class, or of Parquet files. `note` receives the folders and files that are
/// not permitted.
pub(crate) fn image_sets(
    source: &Source,
    format: Format,
    note: &mut dyn FnMut(DataError) -> Result<(), DataError>,
) -> Result<ImageSets, DataError> {
    match format {
        Format::ParquetImages => parquet::image_sets(source),
        _ => images::files::sets(&source.path, source.classes, &source.images, note),
    }
}

/// Reads labelled records from another file, to test a model trained on `sets`, which were read from `source`.
///
/// A table is read by the schema of `sets`. From a source that has a test set, the test set is read, otherwise the training set.
///
/// # Errors
///
/// Those of [`read`]; records or labels whose description differs from that of `sets`.
pub fn read_test(path: &Path, source: &Source, sets: &Splits) -> Result<Dataset, DataError> {
    let format = Format::of(path)?;
    let (file, train) = (path.display().to_string(), &sets.train);
    let test = match (format, &sets.schema) {
        (Format::Npy | Format::Images, _) => return Err(without_labels(path, format)),
        (Format::Cache, _) => cache::read_test(path, sets)?,
        (Format::Table(table), Some(schema)) => table.read_test(path, schema)?,
        (_, Some(_)) => return Err(not_a_table(file)),
        (Format::Idx, None) => idx::read_test(path, source.classes, train.encoding())?,
        (Format::Cifar(cifar), None) => cifar.read_test(path, train.encoding())?,
        (Format::ClassImages, None) => images::files::read_test(path, train, &source.images)?,
        (Format::ParquetImages, None) => parquet::read_test_images(path, source, train)?,
        (Format::Npz, None) => npy::read_npz_test(path, source, train.encoding())?,
        (Format::NpyFolder, None) => npy_folder::read_test(path, source, train.encoding())?,
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
    test.normalised(&file, &source.images)
}

fn described(records: &Dataset) -> String {
    format!("of shape {} with {}", records.shape(), records.described_labels())
}

fn without_labels(path: &Path, format: Format) -> DataError {
    let file = path.display().to_string();
    match format {
        Format::Images => DataError::file(
            file,
            "the images have no classes",
            "make a folder of images for each class; a folder without classes is for prediction",
        ),
        _ => DataError::file(
            file,
            "an NPY file has no labels",
            "put both into an NPZ file: numpy.savez(path, x=..., y=...); or into a folder: x.npy and y.npy",
        ),
    }
}

/// The error for a source that is not a table, because the training records are a table.
fn not_a_table(file: String) -> DataError {
    DataError::file(
        file,
        "is not a table, but the training records are",
        "give a table (.csv, .tsv, .txt, .data, .jsonl, .ndjson, .parquet) with the columns of the training records, or a folder of \
         texts if they are texts",
    )
}

/// Reads records without their labels, for prediction.
///
/// Labels are optional and are not read: a CSV file may lack the target column, an NPZ file `y`, and lines of SVMLight their label. A CSV
/// file without a schema has no target unless [`Source::target`] names it, or [`Source::features`] is one less than the number of columns.
/// From a source with a training set and a test set, the test set is read; but from an NPZ file with `x`, from a directory with `x.npy` and
/// from a file `.sordino`, the training set is read. [`UnlabelledRows::part`] states what was read. The ids of PNG and JPEG images are
/// their names; their shape is [`PredictionOptions::shape`], or is declared as for training. If the schema has a text column, a `.txt` file
/// is read as one text per line.
///
/// # Errors
///
/// Those of [`read`], except errors in labels, which are not read, and in the values of a row: such a row is kept apart, with
/// the reason.
pub fn read_unlabelled(source: &Source, reading: &PredictionOptions) -> Result<UnlabelledRows, DataError> {
    let (format, file) = (Format::of(&source.path)?, source.file());
    if source.schema.is_some() && !format.is_table() && format != Format::Cache {
        return Err(not_a_table(file));
    }
    if format.is_table() || format == Format::SvmLight {
        Conversion::new(&file, Encoding::Text, reading.encoding)?;
    }
    if !format.is_table() {
        reading.check_plain(&file)?;
    }
    let (path, wanted) = (&source.path, reading.encoding);
    let rows = match format {
        Format::Idx => idx::read_unlabelled(path, wanted),
        Format::Cifar(cifar) => cifar.read_unlabelled(path, wanted),
        Format::ClassImages | Format::Images => {
            images::files::read_unlabelled(path, &source.images, wanted, reading.shape)
        }
        Format::Table(table) => table.read_unlabelled(source, reading),
        Format::ParquetImages => parquet::read_unlabelled_images(source, wanted, reading.shape),
        Format::Npz => npy::read_npz_unlabelled(path, wanted),
        Format::Npy => npy_folder::read_array(path, wanted),
        Format::NpyFolder => npy_folder::read_unlabelled(path, wanted),
        Format::Cache => {
            let schema = source.schema.as_deref().map(Schema::read).transpose()?;
            cache::read_unlabelled(path, schema.as_ref(), wanted)
        }
        Format::SvmLight => svmlight::read_unlabelled(&file, open(path)?, source.features),
    }?;
    let records = rows.records.map(|records| records.normalised(&file, &source.images)).transpose()?;
    Ok(UnlabelledRows { records, ..rows })
}
