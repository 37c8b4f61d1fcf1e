//! Where records come from, and which reader reads them.

use std::path::{Path, PathBuf};

use crate::dataset::Dataset;
use crate::error::DataError;
use crate::input::open;
use crate::schema::Schema;
use crate::{csv, embedded, idx, npy, svmlight};

/// Where records are, and what is publicly known about them.
///
/// | path | format | needs |
/// | --- | --- | --- |
/// | a directory | IDX, as MNIST | `classes` unless there are 10 |
/// | `.csv` `.tsv` `.txt` `.data` | CSV | `schema`, unless every column is a number and the target, the last column or `target`, a class; then `classes` |
/// | `.npz` | `x`, `y`, perhaps `x_test`, `y_test` | `classes` if `y` is of whole numbers |
/// | `.npy` | `x`, for prediction | |
/// | `.svm` `.svmlight` `.libsvm` | SVMLight, LIBSVM | `features`; `classes` unless there are 2 |
/// | `mushroom`, if there is no such file | [`embedded::mushroom`] | |
///
/// Each may end in `.gz` as well, except `.npz`. Bytes, in IDX and in arrays of `uint8`, are scaled by 1/255, all other
/// numbers are as they are or as the schema says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// The file, or the directory.
    pub path: PathBuf,
    /// The schema of a CSV file.
    pub schema: Option<PathBuf>,
    /// The column of a CSV file that is to be predicted: its name, or its number from 1. It goes before the schema's.
    pub target: Option<String>,
    /// The number of classes.
    pub classes: Option<usize>,
    /// The number of features.
    pub features: Option<usize>,
}

/// What a source has: records to train with and, where the format separates them, records to test with.
#[derive(Debug)]
pub struct Sets {
    /// Records to train with.
    pub train: Dataset,
    /// Records to test with, of the same shape.
    pub test: Option<Dataset>,
    /// The schema by which a table was read, its own or one that follows from its header; `None` for other formats.
    pub schema: Option<Schema>,
}

enum Format {
    Idx,
    Csv { delimiter: u8 },
    Npz,
    Npy,
    SvmLight,
    Mushroom,
}

impl Source {
    fn format(&self) -> Result<Format, DataError> {
        if self.path.is_dir() {
            return Ok(Format::Idx);
        }
        if self.path == Path::new("mushroom") && !self.path.exists() {
            return Ok(Format::Mushroom);
        }
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("csv" | "txt" | "data") => Ok(Format::Csv { delimiter: b',' }),
            Some("tsv") => Ok(Format::Csv { delimiter: b'\t' }),
            Some("npz") => Ok(Format::Npz),
            Some("npy") => Ok(Format::Npy),
            Some("svm" | "svmlight" | "libsvm") => Ok(Format::SvmLight),
            _ if !self.path.exists() => Err(DataError::file(
                self.file(),
                "no such file or directory",
                "give a file, a directory of IDX files, or mushroom for the data that comes with Sordino",
            )),
            _ => Err(DataError::file(
                self.file(),
                "the name does not tell the format",
                "permitted are .csv, .tsv, .txt and .data (CSV), .npz and .npy, .svm, .svmlight and .libsvm, each but \
                 .npz also with .gz, a directory of IDX files, and the name mushroom",
            )),
        }
    }

    fn file(&self) -> String {
        self.path.display().to_string()
    }

    /// Refuses parameters that the format would pass over in silence.
    fn check(&self, format: &Format) -> Result<(), DataError> {
        let table = matches!(format, Format::Csv { .. });
        let unused = [
            ("schema", self.schema.as_ref().map(|path| path.display().to_string()), table),
            ("target", self.target.clone(), table),
            (
                "number of features",
                self.features.map(|n| n.to_string()),
                table || matches!(format, Format::SvmLight),
            ),
        ];
        for (what, given, used) in unused {
            if let Some(got) = given.filter(|_| !used) {
                let hint = "a schema and a target belong to CSV, a number of features to CSV and SVMLight"
                    .to_owned();
                let permitted = format!("left out for {}", self.file());
                return Err(DataError::Setting { what, permitted, got, hint });
            }
        }
        Ok(())
    }

    fn table(&self, delimiter: u8, labelled: bool) -> Result<(Dataset, Schema), DataError> {
        let options = csv::Options {
            schema: self.schema.as_deref().map(Schema::read).transpose()?,
            target: self.target.as_deref(),
            classes: self.classes,
            features: self.features,
            delimiter,
            labelled,
        };
        csv::read(&self.file(), open(&self.path)?, options)
    }

    fn svmlight(&self, labelled: bool) -> Result<Dataset, DataError> {
        svmlight::read(&self.file(), open(&self.path)?, self.features, self.classes, labelled)
    }
}

/// Reads labelled records.
///
/// # Errors
///
/// The first value that does not fit, by file, line and column or by record or byte; see [`DataError`].
///
/// ```
/// use sordino_data::{Source, read};
///
/// let sets = read(&Source { path: "mushroom".into(), ..Source::default() })?;
/// assert_eq!(sets.train.len(), 8124);
/// # Ok::<(), sordino_data::DataError>(())
/// ```
pub fn read(source: &Source) -> Result<Sets, DataError> {
    let format = source.format()?;
    source.check(&format)?;
    let alone = |train| Sets { train, test: None, schema: None };
    match format {
        Format::Idx => idx::read(&source.path, source.classes),
        Format::Csv { delimiter } => {
            let (train, schema) = source.table(delimiter, true)?;
            Ok(Sets { train, test: None, schema: Some(schema) })
        }
        Format::Npz => npy::read_npz(&source.path, source.classes),
        Format::Npy => Err(DataError::file(
            source.file(),
            "an NPY file has no labels",
            "put both into an NPZ file: numpy.savez(path, x=..., y=...)",
        )),
        Format::SvmLight => source.svmlight(true).map(alone),
        Format::Mushroom => embedded::read(source.classes, true).map(alone),
    }
}

/// Reads records without their labels, for prediction.
///
/// Labels need not be there, and are not read where they are: a CSV file may lack the target's column, an NPZ file `y`,
/// lines of SVMLight their label. A CSV file without schema has no target unless [`Source::target`] names it, or
/// [`Source::features`] is one less than its columns. Of a directory of IDX files it reads the images for testing, or else
/// those for training; `x_test` of an NPZ file is not read.
///
/// # Errors
///
/// Those of [`read`], but for labels.
pub fn read_unlabelled(source: &Source) -> Result<Dataset, DataError> {
    let format = source.format()?;
    source.check(&format)?;
    match format {
        Format::Idx => idx::read_unlabelled(&source.path),
        Format::Csv { delimiter } => source.table(delimiter, false).map(|(records, _)| records),
        Format::Npz => npy::read_npz_unlabelled(&source.path),
        Format::Npy => npy::read_npy(&source.path),
        Format::SvmLight => source.svmlight(false),
        Format::Mushroom => embedded::read(None, false),
    }
}
