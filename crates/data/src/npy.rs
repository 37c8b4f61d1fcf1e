//! NPY, an array of numbers, and NPZ, a zip archive of such arrays.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

use sordino_nn::Shape;
use zip::ZipArchive;
use zip::result::ZipError;

use crate::dataset::{Dataset, check_size};
use crate::encoding::{Conversion, Encoding};
use crate::error::{DataError, quoted};
use crate::input::{open, read_exactly, unreadable};
use crate::labels::{LabelValues, Scale, check_classes, numbered};
use crate::npy_header::{self, Header, NumberKind};
use crate::source::{Source, Splits};
use crate::stored::{Decoder, channels_first, not_permitted};
use crate::unit::{RecordUnits, UnitId};
use crate::unlabelled::UnlabelledRows;

/// Only arrays above this size, in bytes, are limited to a compression ratio of [`MAX_INFLATION`].
const MAX_REPEATED: u64 = 1 << 28;
/// The largest compression ratio. Deflate reaches 1032 on zeros; images and numbers stay below 100.
const MAX_INFLATION: u64 = 500;

/// The names of the arrays of a training set and of its test sets, of which the first that is present is read.
struct Naming {
    train: (&'static str, &'static str),
    tests: &'static [(&'static str, &'static str)],
}

/// The names that Sordino, Keras and MedMNIST use.
const NAMINGS: [Naming; 3] = [
    Naming { train: ("x", "y"), tests: &[("x_test", "y_test")] },
    Naming { train: ("x_train", "y_train"), tests: &[("x_test", "y_test")] },
    Naming {
        train: ("train_images", "train_labels"),
        tests: &[("test_images", "test_labels"), ("val_images", "val_labels")],
    },
];

/// Reads the training set and, if present, the test set.
pub(crate) fn read_npz(path: &Path, classes: Option<usize>, unit: Option<&str>) -> Result<Splits, DataError> {
    let mut archive = Archive::open(path)?;
    let (x, y) = archive.naming.train;
    let train = archive.labelled(x, y, classes, None)?;
    let train = archive.in_units(train, unit, false)?;
    let Some((x_test, y_test)) = archive.test() else {
        return Ok(Splits { train, test: None, schema: None });
    };
    let test = archive.labelled(x_test, y_test, classes, Some(train.encoding()))?;
    let test = archive.in_units(test, unit, true)?;
    if test.shape() != train.shape() {
        return Err(DataError::file(
            &archive.file,
            format!("records of {x} are {}, but records of {x_test} are {}", train.shape(), test.shape()),
            "both sets must have records of the same shape",
        ));
    }
    Ok(Splits { train, test: Some(test), schema: None })
}

/// Reads the test set, or the training set if there is none, in the encoding of the training records.
pub(crate) fn read_npz_test(path: &Path, source: &Source, wanted: Encoding) -> Result<Dataset, DataError> {
    let mut archive = Archive::open(path)?;
    let test = archive.test();
    let (x, y) = test.unwrap_or(archive.naming.train);
    let records = archive.labelled(x, y, source.classes, Some(wanted))?;
    archive.in_units(records, source.unit.as_deref(), test.is_some())
}

/// Reads `x`; or, with other names, the records of the test set, or of the training set if there is none.
pub(crate) fn read_npz_unlabelled(
    path: &Path,
    wanted: Option<Encoding>,
) -> Result<UnlabelledRows, DataError> {
    let mut archive = Archive::open(path)?;
    let test = archive.test();
    let (x, rest) = match (archive.naming.train.0, test) {
        ("x", Some((test, _))) => ("x", format!("; {test} is not read")),
        (train, Some((test, _))) => (test, format!("; {train} is not read")),
        (train, None) => (train, String::new()),
    };
    let unlabelled = archive
        .array(x, |place, source, size| records(place, source, size, wanted))?
        .unlabelled(&archive.file)?;
    Ok(UnlabelledRows { part: Some(format!("the array {x} of {}{rest}", archive.file)), ..unlabelled })
}

/// The arrays of an archive, with their types and shapes.
pub(crate) fn arrays(path: &Path) -> Result<Vec<(String, String)>, DataError> {
    let mut archive = Archive::open(path)?;
    let names = archive.zip.file_names().filter_map(Result::ok);
    let mut names: Vec<String> =
        names.filter_map(|name| Some(name.strip_suffix(".npy")?.to_owned())).collect();
    names.sort_unstable();
    let describe = |name: String| {
        let header = archive.array(&name, |place, source, _| npy_header::read(place, source))?;
        Ok((name, header.to_string()))
    };
    names.into_iter().map(describe).collect()
}

/// Reads a compressed array of records without labels.
pub(crate) fn read_npy(path: &Path, wanted: Option<Encoding>) -> Result<UnlabelledRows, DataError> {
    let file = path.display().to_string();
    records(&file, &mut open(path)?, None, wanted)?.unlabelled(&file)
}

struct Archive {
    file: String,
    naming: &'static Naming,
    zip: ZipArchive<BufReader<File>>,
}

impl Archive {
    fn open(path: &Path) -> Result<Archive, DataError> {
        let file = path.display().to_string();
        let opened = File::open(path).map_err(|error| unreadable(&file, &error))?;
        let zip = ZipArchive::new(BufReader::new(opened)).map_err(|error| damaged(&file, &error))?;
        let mut archive = Archive { file, naming: &NAMINGS[0], zip };
        if let Some(naming) = NAMINGS.iter().find(|naming| archive.has(naming.train.0)) {
            archive.naming = naming;
        }
        Ok(archive)
    }

    fn has(&self, name: &str) -> bool {
        self.zip.index_for_name(&format!("{name}.npy")).is_some()
    }

    /// The names of the test set, if there is one.
    fn test(&self) -> Option<(&'static str, &'static str)> {
        self.naming.tests.iter().copied().find(|(x, y)| self.has(x) || self.has(y))
    }

    /// Calls `read` with the array `name`.
    fn array<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str, &mut dyn Read, Option<ZipSize>) -> Result<T, DataError>,
    ) -> Result<T, DataError> {
        if !self.has(name) {
            let mut names: Vec<_> = self.zip.file_names().take(12).filter_map(Result::ok).collect();
            names.sort_unstable();
            let problem = format!("has no array `{name}`, only {}", quoted(names.join(" ").as_bytes()));
            let hint = "numpy.savez(path, x=..., y=...) and, for testing, x_test=... and y_test=...; or the names of MedMNIST \
                        (train_images, train_labels, test_images, ...)";
            return Err(DataError::file(&self.file, problem, hint));
        }
        array_of(&mut self.zip, &self.file, name, read)
    }

    fn labelled(
        &mut self,
        x: &str,
        y: &str,
        classes: Option<usize>,
        wanted: Option<Encoding>,
    ) -> Result<Dataset, DataError> {
        let Records { shape, encoding, values, refused } =
            self.array(x, |place, source, size| records(place, source, size, wanted))?;
        if let Some((_, error)) = refused.into_iter().next() {
            return Err(error);
        }
        let count = values.len() / shape.len();
        let labels = self.array(y, |place, source, size| labels(place, source, size, classes, count))?;
        Dataset::new(&self.file, shape, encoding, values, labels)
    }

    /// The records in the units that an array identifies.
    fn in_units(&mut self, records: Dataset, unit: Option<&str>, test: bool) -> Result<Dataset, DataError> {
        let Some(unit) = unit else { return Ok(records) };
        let count = records.len();
        let ids =
            self.array(&unit_array(unit, test), |place, source, size| units(place, source, size, count))?;
        Ok(records.with_units(RecordUnits::new(unit, ids)))
    }
}

/// The name of the array that identifies the units of a set.
pub(crate) fn unit_array(unit: &str, test: bool) -> String {
    format!("{unit}{}", if test { "_test" } else { "" })
}

fn array_of<R: Read + Seek, T>(
    zip: &mut ZipArchive<R>,
    file: &str,
    name: &str,
    read: impl FnOnce(&str, &mut dyn Read, Option<ZipSize>) -> Result<T, DataError>,
) -> Result<T, DataError> {
    let place = format!("{file}, array {name}");
    let mut entry = zip.by_name(&format!("{name}.npy")).map_err(|error| damaged(&place, &error))?;
    let size = ZipSize { stored: entry.compressed_size(), inflated: entry.size() };
    read(&place, &mut entry, Some(size))
}

/// The size of an array in a zip archive, as the archive states it.
#[derive(Clone, Copy)]
pub(crate) struct ZipSize {
    stored: u64,
    inflated: u64,
}

/// Reads a header. An array of a zip archive must not be larger than its header states, and the compression ratio of a large array is
/// limited, because an archive of a few kilobytes could fill the memory.
fn header(file: &str, source: &mut dyn Read, size: Option<ZipSize>) -> Result<Header, DataError> {
    let header = npy_header::read(file, source)?;
    let Some(ZipSize { stored, inflated }) = size else { return Ok(header) };
    if let Some(promised) = header.promised()
        && inflated > promised
    {
        return Err(DataError::file(
            file,
            format!("the archive has {inflated} bytes for this array, but its header states {promised}"),
            "header and data do not belong together; write the file again with numpy.savez",
        ));
    }
    if inflated > MAX_REPEATED && inflated / MAX_INFLATION > stored {
        return Err(DataError::file(
            file,
            format!("{stored} bytes become {inflated}, which is more than {MAX_INFLATION} times as many"),
            "this may be a zip bomb; if the array is correct, write it with numpy.savez, which does not compress",
        ));
    }
    Ok(header)
}

fn damaged(place: &str, error: &ZipError) -> DataError {
    DataError::file(place, error.to_string(), "an NPZ file is a zip archive; write it again with numpy.savez")
}

/// The records of an array.
struct Records {
    shape: Shape,
    encoding: Encoding,
    /// Values that cannot be read are 0.
    values: Vec<f32>,
    /// Records, from 0, with a value that cannot be read, each with the first such value.
    refused: Vec<(usize, DataError)>,
}

impl Records {
    fn unlabelled(self, file: &str) -> Result<UnlabelledRows, DataError> {
        let records = Dataset::new(file, self.shape, self.encoding, self.values, LabelValues::Absent)?;
        Ok(UnlabelledRows::new(records, self.refused, None))
    }
}

/// What the header of an array states about its records.
pub(crate) struct ArrayLayout {
    pub(crate) shape: Shape,
    pub(crate) conversion: Conversion,
    /// The number of channels of an image whose channels come last.
    pub(crate) channels_last: Option<usize>,
}

impl ArrayLayout {
    /// `[n, d]` are features, `[n, h, w]` and `[n, c, h, w]` images, and `[n, h, w, c]` images whose channels come last, if `c` is 1,
    /// 3 or 4, and `h` and `w` are at least 8.
    pub(crate) fn new(
        file: &str,
        header: &Header,
        wanted: Option<Encoding>,
    ) -> Result<ArrayLayout, DataError> {
        let mut channels_last = None;
        let shape = match header.shape[..] {
            [_, features] => Shape::Features(features),
            [_, height, width] => Shape::Image { channels: 1, height, width },
            [_, height, width, channels @ (1 | 3 | 4)] if height >= 8 && width >= 8 => {
                channels_last = Some(channels);
                Shape::Image { channels, height, width }
            }
            [_, channels, height, width] => Shape::Image { channels, height, width },
            _ => {
                return Err(DataError::file(
                    file,
                    format!("the shape {:?} has {} dimensions", header.shape, header.shape.len()),
                    "use [n, features], [n, height, width], [n, channels, height, width] or \
                     [n, height, width, channels]",
                ));
            }
        };
        // Also checked for 0 records, so that no later product overflows.
        let size = header.shape[1..].iter().try_fold(1_usize, |size, &length| size.checked_mul(length));
        check_size(|| format!("{file}, shape {:?}", header.shape), size.unwrap_or(usize::MAX))?;
        if size == Some(0) {
            let problem = format!("the shape {:?} leaves no values in a record", header.shape);
            return Err(DataError::file(file, problem, "every size must be at least 1"));
        }
        let stored = match (header.dtype.kind, header.dtype.size) {
            (NumberKind::Unsigned, 1) => Encoding::Bytes,
            (NumberKind::Unsigned | NumberKind::Signed, _) => Encoding::Integers,
            (NumberKind::Bool, _) => Encoding::Booleans,
            (NumberKind::Float, _) => Encoding::Floats,
        };
        Ok(ArrayLayout { shape, conversion: Conversion::new(file, stored, wanted)?, channels_last })
    }
}

/// Reads records into memory.
fn records(
    file: &str,
    source: &mut dyn Read,
    size: Option<ZipSize>,
    wanted: Option<Encoding>,
) -> Result<Records, DataError> {
    let header = header(file, source, size)?;
    let ArrayLayout { shape, conversion, channels_last } = ArrayLayout::new(file, &header, wanted)?;
    let decoder = Decoder::new(header.dtype, conversion, None);
    let mut values: Vec<f32> = Vec::new();
    let mut refused: Vec<(usize, DataError)> = Vec::new();
    pieces(file, source, &header, |first, bytes| {
        let bad = decoder.refused(bytes);
        values.resize(first + bytes.len() / header.dtype.size, 0.0);
        if bad.is_empty() {
            return decoder.decode(bytes, &mut values[first..]).map_err(|error| unreadable(file, &error));
        }
        header.dtype.decode_all(bytes, |place, number| {
            values[first + place] = conversion.apply(number).unwrap_or(0.0);
        });
        for (place, permitted, number) in bad {
            let (at, record) = (first + place, (first + place) / shape.len());
            if refused.last().is_none_or(|(last, _)| *last != record) {
                refused.push((record, not_permitted(file, at, shape.len(), permitted, number)));
            }
        }
        Ok(())
    })?;
    if let Some(channels) = channels_last {
        values.chunks_exact_mut(shape.len()).for_each(|image| channels_first(image, channels));
    }
    Ok(Records { shape, encoding: conversion.encoding, values, refused })
}

/// Reads labels: integers are classes, floats are numbers to predict.
pub(crate) fn labels(
    file: &str,
    source: &mut dyn Read,
    size: Option<ZipSize>,
    classes: Option<usize>,
    count: usize,
) -> Result<LabelValues, DataError> {
    let header = header(file, source, size)?;
    let float = header.dtype.kind == NumberKind::Float;
    let width = match header.shape[..] {
        [_] => 1,
        [_, width] if width == 1 || width > 0 && float => width,
        _ => {
            return Err(DataError::file(
                file,
                format!("labels of the shape {:?}", header.shape),
                "use [n], or [n, width] for numbers to predict",
            ));
        }
    };
    if header.shape[0] != count {
        let problem = format!("{} labels for {count} records", header.shape[0]);
        return Err(DataError::file(file, problem, "every record needs a label"));
    }
    let setting = |permitted: &str, got: String, hint: &str| {
        let (what, permitted, hint) = ("number of classes", permitted.to_owned(), hint.to_owned());
        Err(DataError::Setting { what, permitted, got, hint })
    };
    if float {
        if let Some(classes) = classes {
            let hint = "floats are numbers to predict; leave out {classes}, or save y as integers";
            return setting("left out for labels that are floats", classes.to_string(), hint);
        }
        let mut values = Vec::new();
        numbers(file, source, &header, |at, number| {
            values.push(number as f32);
            let permitted = "a finite number in single precision";
            let refused = || not_permitted(file, at, width, permitted, number);
            if (number as f32).is_finite() { Ok(()) } else { Err(refused()) }
        })?;
        return Ok(LabelValues::Numbers { values, scales: vec![Scale::NONE; width] });
    }
    let Some(classes) = classes else {
        let hint = "declare {classes}, which is public and never derived from the labels; to predict numbers, save y as floats";
        return setting("declared for labels that are integers", "none".to_owned(), hint);
    };
    let declared = check_classes(classes)?;
    let mut classes: Vec<u32> = Vec::new();
    numbers(file, source, &header, |at, number| {
        if !(number >= 0.0 && number < declared as f64) {
            return Err(DataError::value(
                format!("{file}, record {}", at + 1),
                format!("a class of 0 to {}", declared - 1),
                number.to_string(),
                "the number of classes, {classes}, is public and never derived from the labels",
            ));
        }
        classes.push(number as u32);
        Ok(())
    })?;
    Ok(LabelValues::Classes { classes, names: numbered(declared) })
}

/// Reads the ids of units, which are integers.
pub(crate) fn units(
    file: &str,
    source: &mut dyn Read,
    size: Option<ZipSize>,
    count: usize,
) -> Result<Vec<UnitId>, DataError> {
    /// Integers above this size are not exact in double precision.
    const MOST: f64 = 9_007_199_254_740_992.0;
    let header = header(file, source, size)?;
    if header.shape[..] != [count] || header.dtype.kind == NumberKind::Float {
        return Err(DataError::file(
            file,
            format!("is {header}, expected {count} integers"),
            "the array of a unit has an integer for each record that identifies its unit",
        ));
    }
    let mut ids = Vec::new();
    numbers(file, source, &header, |at, number| {
        if number.abs() >= MOST {
            return Err(not_permitted(file, at, 1, "an integer below 2^53", number));
        }
        ids.push(UnitId::of((number as i64).to_string().as_bytes()));
        Ok(())
    })?;
    Ok(ids)
}

/// Decodes all numbers of an array, with their indices, until `take` returns an error.
fn numbers(
    file: &str,
    source: &mut dyn Read,
    header: &Header,
    mut take: impl FnMut(usize, f64) -> Result<(), DataError>,
) -> Result<(), DataError> {
    pieces(file, source, header, |first, bytes| {
        let mut taken = Ok(());
        header.dtype.decode_all(bytes, |place, number| {
            if taken.is_ok() {
                taken = take(first + place, number);
            }
        });
        taken
    })
}

/// Reads all numbers of an array in pieces. `take` receives the index of the first number of a piece, and the bytes of the piece.
fn pieces(
    file: &str,
    source: &mut dyn Read,
    header: &Header,
    mut take: impl FnMut(usize, &[u8]) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let total = header.shape.iter().try_fold(1_usize, |total, &size| total.checked_mul(size));
    let total = total.unwrap_or(usize::MAX);
    check_size(|| format!("{file}, shape {:?}", header.shape), total)?;
    let mut first = 0;
    read_exactly(file, source, header.start, total as u64 * header.dtype.size as u64, |bytes| {
        take(first, bytes)?;
        first += bytes.len() / header.dtype.size;
        Ok(())
    })
}
