//! A folder of NPY arrays whose records stay in their file: `x.npy`, `y.npy` and optionally `x_test.npy`, `y_test.npy`.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use crate::class_folders::name_of;
use crate::dataset::Dataset;
use crate::encoding::Encoding;
use crate::error::DataError;
use crate::input::{open, unreadable};
use crate::labels::LabelValues;
use crate::npy::{self, ArrayLayout};
use crate::npy_header::{self, Header};
use crate::positioned::PositionedFile;
use crate::source::{Source, Splits};
use crate::stored::{Content, Decoder, RecordFile, StoredRecords};
use crate::unit::RecordUnits;
use crate::unlabelled::UnlabelledRows;

/// Whether a folder has arrays of records.
pub(crate) fn is_npy_folder(directory: &Path) -> bool {
    directory.join("x.npy").exists()
}

fn has_test(directory: &Path) -> bool {
    directory.join("x_test.npy").exists() || directory.join("y_test.npy").exists()
}

/// The arrays of a folder, with their types and shapes.
pub(crate) fn arrays(directory: &Path) -> Result<Vec<(String, String)>, DataError> {
    let describe = |path: &PathBuf| Ok((name_of(path), header(path)?.to_string()));
    files(directory).iter().map(describe).collect()
}

/// The files of a folder that are read.
pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let known = ["x", "y", "x_test", "y_test"].map(|name| directory.join(format!("{name}.npy")));
    let entries = std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let arrays = entries.map(|entry| entry.path()).filter(|path| path.extension() == Some("npy".as_ref()));
    // Any other array may identify units.
    let mut others: Vec<PathBuf> = arrays.filter(|path| !known.contains(path)).collect();
    others.sort_unstable();
    known.into_iter().filter(|path| path.exists()).chain(others).collect()
}

/// The header of an array that may be compressed.
pub(crate) fn header(path: &Path) -> Result<Header, DataError> {
    npy_header::read(&path.display().to_string(), &mut open(path)?)
}

/// Reads the labels, and checks the records, which stay in their files.
pub(crate) fn read(
    directory: &Path,
    classes: Option<usize>,
    unit: Option<&str>,
) -> Result<Splits, DataError> {
    let train = in_units(directory, labelled(directory, "x", "y", classes, None)?, unit, false)?;
    let test = match has_test(directory) {
        true => {
            let test = labelled(directory, "x_test", "y_test", classes, Some(train.encoding()))?;
            Some(in_units(directory, test, unit, true)?)
        }
        false => None,
    };
    if let Some(test) = &test
        && test.shape() != train.shape()
    {
        return Err(DataError::file(
            directory.display().to_string(),
            format!("records of x.npy are {}, but records of x_test.npy are {}", train.shape(), test.shape()),
            "both sets must have records of the same shape",
        ));
    }
    Ok(Splits { train, test, schema: None })
}

/// The test set, or the only set, in the encoding of the training records.
pub(crate) fn read_test(directory: &Path, source: &Source, wanted: Encoding) -> Result<Dataset, DataError> {
    let test = has_test(directory);
    let (x, y) = if test { ("x_test", "y_test") } else { ("x", "y") };
    let records = labelled(directory, x, y, source.classes, Some(wanted))?;
    in_units(directory, records, source.unit.as_deref(), test)
}

/// The records in the units that an array identifies.
fn in_units(
    directory: &Path,
    records: Dataset,
    unit: Option<&str>,
    test: bool,
) -> Result<Dataset, DataError> {
    let Some(unit) = unit else { return Ok(records) };
    let path = directory.join(format!("{}.npy", npy::unit_array(unit, test)));
    let ids = npy::units(&path.display().to_string(), &mut open(&path)?, None, records.len())?;
    Ok(records.with_units(RecordUnits::new(unit, ids)))
}

/// The records of `x.npy`, without labels.
pub(crate) fn read_unlabelled(
    directory: &Path,
    wanted: Option<Encoding>,
) -> Result<UnlabelledRows, DataError> {
    let path = directory.join("x.npy");
    let rest = if has_test(directory) { "; x_test.npy is not read" } else { "" };
    Ok(UnlabelledRows { part: Some(format!("{}{rest}", path.display())), ..read_array(&path, wanted)? })
}

/// The records of an array without labels; a compressed array is read into memory.
pub(crate) fn read_array(path: &Path, wanted: Option<Encoding>) -> Result<UnlabelledRows, DataError> {
    if is_compressed(path)? {
        return npy::read_npy(path, wanted);
    }
    let (layout, file) = array(path, wanted)?;
    let refused = file.refused()?;
    let name = path.display().to_string();
    let records = StoredRecords::of_file(file);
    let all = Dataset::new(&name, layout.shape, layout.conversion.encoding, records, LabelValues::Absent)?;
    Ok(UnlabelledRows::new(all, refused, None))
}

fn is_compressed(path: &Path) -> Result<bool, DataError> {
    let mut begin = Vec::new();
    let read = File::open(path).and_then(|file| file.take(2).read_to_end(&mut begin));
    read.map_err(|error| unreadable(&path.display().to_string(), &error))?;
    Ok(begin == [0x1f, 0x8b])
}

fn labelled(
    directory: &Path,
    x: &str,
    y: &str,
    classes: Option<usize>,
    wanted: Option<Encoding>,
) -> Result<Dataset, DataError> {
    let [x, y] = [x, y].map(|name| directory.join(format!("{name}.npy")));
    let (layout, file) = array(&x, wanted)?;
    let labels = npy::labels(&y.display().to_string(), &mut open(&y)?, None, classes, file.records())?;
    let records = file.checked()?;
    Dataset::new(&x.display().to_string(), layout.shape, layout.conversion.encoding, records, labels)
}

/// Opens an array of records.
fn array(path: &Path, wanted: Option<Encoding>) -> Result<(ArrayLayout, RecordFile), DataError> {
    let name = path.display().to_string();
    let file = PositionedFile::open(path)?;
    let mut source = BufReader::new(File::open(path).map_err(|error| unreadable(&name, &error))?);
    let header = npy_header::read(&name, &mut source)?;
    let layout = ArrayLayout::new(&name, &header, wanted)?;
    let total = header.shape.iter().try_fold(1_u64, |total, &size| total.checked_mul(size as u64));
    let bytes = total.and_then(|total| total.checked_mul(header.dtype.size as u64));
    let end = bytes.and_then(|bytes| bytes.checked_add(header.start)).unwrap_or(u64::MAX);
    file.check_len(&name, end)?;
    let decoder = Decoder::new(header.dtype, layout.conversion, layout.channels_last);
    let content = Content::Numbers(decoder);
    let file = RecordFile::new(file, name, layout.shape, header.shape[0], header.start, content)?;
    Ok((layout, file))
}
