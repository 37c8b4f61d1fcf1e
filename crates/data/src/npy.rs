//! NPY, an array of numbers, and NPZ, a zip of them.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

use sordino_nn::Shape;
use zip::ZipArchive;
use zip::result::ZipError;

use crate::dataset::{Dataset, Labels, Scale, check_classes, check_size, numbered};
use crate::error::{DataError, quoted};
use crate::input::{open, pieces, unreadable};
use crate::npy_header::{self, Header, Kind};
use crate::source::Sets;

/// Reads `x` and `y` and, if they are there, `x_test` and `y_test`.
pub(crate) fn read_npz(path: &Path, classes: Option<usize>) -> Result<Sets, DataError> {
    let mut archive = Archive::open(path)?;
    let train = archive.labelled("x", "y", classes)?;
    let test = match archive.has("x_test") || archive.has("y_test") {
        true => Some(archive.labelled("x_test", "y_test", classes)?),
        false => None,
    };
    if let Some(test) = &test
        && test.shape() != train.shape()
    {
        return Err(DataError::file(
            &archive.file,
            format!("records of x are {}, records of x_test {}", train.shape(), test.shape()),
            "both sets must have records of one shape",
        ));
    }
    Ok(Sets { train, test, schema: None })
}

/// Reads `x` only.
pub(crate) fn read_npz_unlabelled(path: &Path) -> Result<Dataset, DataError> {
    let mut archive = Archive::open(path)?;
    let (shape, values) = archive.array("x", records)?;
    Dataset::new(&archive.file, shape, values, Labels::Absent)
}

/// Reads an array of records without labels.
pub(crate) fn read_npy(path: &Path) -> Result<Dataset, DataError> {
    let file = path.display().to_string();
    let (shape, values) = records(&file, &mut open(path)?)?;
    Dataset::new(&file, shape, values, Labels::Absent)
}

struct Archive {
    file: String,
    zip: ZipArchive<BufReader<File>>,
}

impl Archive {
    fn open(path: &Path) -> Result<Archive, DataError> {
        let file = path.display().to_string();
        let opened = File::open(path).map_err(|error| unreadable(&file, &error))?;
        let zip = ZipArchive::new(BufReader::new(opened)).map_err(|error| damaged(&file, &error))?;
        Ok(Archive { file, zip })
    }

    fn has(&self, name: &str) -> bool {
        self.zip.index_for_name(&format!("{name}.npy")).is_some()
    }

    /// Hands an array to a reader, with its name for errors.
    fn array<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str, &mut dyn Read) -> Result<T, DataError>,
    ) -> Result<T, DataError> {
        if !self.has(name) {
            let mut names: Vec<_> = self.zip.file_names().take(12).filter_map(Result::ok).collect();
            names.sort_unstable();
            let problem = format!("has no array `{name}`, only {}", quoted(names.join(" ").as_bytes()));
            let hint = "numpy.savez(path, x=..., y=...) and, for testing, x_test=... and y_test=...";
            return Err(DataError::file(&self.file, problem, hint));
        }
        array_of(&mut self.zip, &self.file, name, read)
    }

    fn labelled(&mut self, x: &str, y: &str, classes: Option<usize>) -> Result<Dataset, DataError> {
        let (shape, values) = self.array(x, records)?;
        let count = values.len() / shape.len();
        let labels = self.array(y, |place, source| labels(place, source, classes, count))?;
        Dataset::new(&self.file, shape, values, labels)
    }
}

fn array_of<R: Read + Seek, T>(
    zip: &mut ZipArchive<R>,
    file: &str,
    name: &str,
    read: impl FnOnce(&str, &mut dyn Read) -> Result<T, DataError>,
) -> Result<T, DataError> {
    let place = format!("{file}, array {name}");
    let mut entry = zip.by_name(&format!("{name}.npy")).map_err(|error| damaged(&place, &error))?;
    read(&place, &mut entry)
}

fn damaged(place: &str, error: &ZipError) -> DataError {
    DataError::file(place, error.to_string(), "an NPZ file is a zip; write it again with numpy.savez")
}

/// Records: `[n, d]` are features, `[n, h, w]` and `[n, c, h, w]` images. Bytes are scaled by 1/255, a constant; all other
/// numbers are as they are.
fn records(file: &str, source: &mut dyn Read) -> Result<(Shape, Vec<f32>), DataError> {
    let header = npy_header::read(file, source)?;
    let shape = match header.shape[..] {
        [_, features] => Shape::Features(features),
        [_, height, width] => Shape::Image { channels: 1, height, width },
        [_, channels, height, width] => Shape::Image { channels, height, width },
        _ => {
            return Err(DataError::file(
                file,
                format!("the shape {:?} has {} dimensions", header.shape, header.shape.len()),
                "permitted are [n, features], [n, height, width] and [n, channels, height, width]",
            ));
        }
    };
    // No overflow hides behind 0 records.
    let size = header.shape[1..].iter().try_fold(1_usize, |size, &length| size.checked_mul(length));
    check_size(|| format!("{file}, shape {:?}", header.shape), size.unwrap_or(usize::MAX))?;
    if size == Some(0) {
        let problem = format!("the shape {:?} leaves no values in a record", header.shape);
        return Err(DataError::file(file, problem, "every size must be at least 1"));
    }
    let scale = if (header.dtype.kind, header.dtype.size) == (Kind::Unsigned, 1) { 255.0 } else { 1.0 };
    let mut values: Vec<f32> = Vec::new();
    numbers(file, source, &header, |at, number| {
        let value = (number / scale) as f32;
        values.push(value);
        if value.is_finite() { Ok(()) } else { Err(not_finite(file, at, shape.len(), number)) }
    })?;
    Ok((shape, values))
}

/// Labels: whole numbers are classes, floats are numbers to predict.
fn labels(
    file: &str,
    source: &mut dyn Read,
    classes: Option<usize>,
    count: usize,
) -> Result<Labels, DataError> {
    let header = npy_header::read(file, source)?;
    let float = header.dtype.kind == Kind::Float;
    let width = match header.shape[..] {
        [_] => 1,
        [_, width] if width == 1 || width > 0 && float => width,
        _ => {
            return Err(DataError::file(
                file,
                format!("labels of the shape {:?}", header.shape),
                "permitted are [n], and [n, width] for numbers to predict",
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
            let hint = "floats are numbers to predict; classes are saved as integers";
            return setting("left out for labels that are floats", classes.to_string(), hint);
        }
        let mut values = Vec::new();
        numbers(file, source, &header, |at, number| {
            values.push(number as f32);
            if (number as f32).is_finite() { Ok(()) } else { Err(not_finite(file, at, width, number)) }
        })?;
        return Ok(Labels::Numbers { values, scales: vec![Scale::NONE; width] });
    }
    let Some(classes) = classes else {
        let hint = "it is public and never derived from the labels; to predict numbers, save y as floats";
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
                "the number of classes is declared, and never derived from the labels",
            ));
        }
        classes.push(number as u32);
        Ok(())
    })?;
    Ok(Labels::Classes { classes, names: numbered(declared) })
}

fn not_finite(file: &str, at: usize, width: usize, number: f64) -> DataError {
    DataError::value(
        format!("{file}, record {}, value {}", at / width + 1, at % width + 1),
        "a finite number in single precision",
        number.to_string(),
        "replace it by a public constant before saving; records and values count from 1",
    )
}

/// Decodes all numbers of an array, with their places.
fn numbers(
    file: &str,
    source: &mut dyn Read,
    header: &Header,
    mut take: impl FnMut(usize, f64) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let total = header.shape.iter().try_fold(1_usize, |total, &size| total.checked_mul(size));
    let total = total.unwrap_or(usize::MAX);
    check_size(|| format!("{file}, shape {:?}", header.shape), total)?;
    let mut place = 0;
    pieces(file, source, header.start, total as u64 * header.dtype.size as u64, |bytes| {
        for number in bytes.chunks_exact(header.dtype.size) {
            take(place, header.dtype.decode(number))?;
            place += 1;
        }
        Ok(())
    })
}
