//! IDX, the format of MNIST and similar data sets: images and labels in two files of bytes.

use std::io::Read;
use std::path::{Path, PathBuf};

use sordino_nn::Shape;

use crate::dataset::{Dataset, check_size};
use crate::encoding::{Conversion, Encoding};
use crate::error::DataError;
use crate::input::{fill, open, read_exactly, unreadable};
use crate::labels::{LabelValues, check_classes, numbered};
use crate::source::Splits;
use crate::unlabelled::UnlabelledRows;

/// The number of classes of MNIST and similar data sets.
const DIGITS: usize = 10;

/// Reads `train-*` and, if present, `t10k-*` of a directory.
pub(crate) fn read(directory: &Path, classes: Option<usize>) -> Result<Splits, DataError> {
    let classes = check_classes(classes.unwrap_or(DIGITS))?;
    let train = labelled(directory, "train", classes, None)?;
    let test = match find(directory, "t10k-images-idx3-ubyte") {
        Some(_) => Some(labelled(directory, "t10k", classes, None)?),
        None => None,
    };
    if let Some(test) = &test
        && test.shape() != train.shape()
    {
        return Err(DataError::file(
            directory.display().to_string(),
            format!("training images are {}, but test images are {}", train.shape(), test.shape()),
            "both sets must have images of the same size",
        ));
    }
    Ok(Splits { train, test, schema: None })
}

/// Reads the test set of a directory, or its only set, in the encoding of the training records.
pub(crate) fn read_test(
    directory: &Path,
    classes: Option<usize>,
    wanted: Encoding,
) -> Result<Dataset, DataError> {
    let set = if find(directory, "t10k-images-idx3-ubyte").is_some() { "t10k" } else { "train" };
    labelled(directory, set, check_classes(classes.unwrap_or(DIGITS))?, Some(wanted))
}

/// Reads the images of a directory without their labels: the test images if there are any.
pub(crate) fn read_unlabelled(
    directory: &Path,
    wanted: Option<Encoding>,
) -> Result<UnlabelledRows, DataError> {
    let path = match find(directory, "t10k-images-idx3-ubyte") {
        Some(path) => path,
        None => expect(directory, "train-images-idx3-ubyte")?,
    };
    let file = path.display().to_string();
    let conversion = Conversion::new(&file, Encoding::Bytes, wanted)?;
    let (shape, values) = images(&file, &mut open(&path)?, conversion)?;
    let records = Dataset::new(&file, shape, conversion.encoding, values, LabelValues::Absent)?;
    Ok(UnlabelledRows { part: Some(file), ..UnlabelledRows::new(records, Vec::new(), None) })
}

fn labelled(
    directory: &Path,
    set: &str,
    classes: usize,
    wanted: Option<Encoding>,
) -> Result<Dataset, DataError> {
    let images_path = expect(directory, &format!("{set}-images-idx3-ubyte"))?;
    let labels_path = expect(directory, &format!("{set}-labels-idx1-ubyte"))?;
    let file = images_path.display().to_string();
    let conversion = Conversion::new(&file, Encoding::Bytes, wanted)?;
    let (shape, values) = images(&file, &mut open(&images_path)?, conversion)?;
    let labels_file = labels_path.display().to_string();
    let labels = labels(&labels_file, &mut open(&labels_path)?, classes)?;
    let count = values.len() / shape.len();
    if count != labels.len() {
        return Err(DataError::file(
            format!("{labels_file}, byte 4"),
            format!("{} labels, but {file} has {count} images", labels.len()),
            "every image needs a label; the two files must belong together",
        ));
    }
    let labels = LabelValues::Classes { classes: labels, names: numbered(classes) };
    Dataset::new(&file, shape, conversion.encoding, values, labels)
}

/// Pixels are bytes.
fn images(file: &str, source: &mut dyn Read, conversion: Conversion) -> Result<(Shape, Vec<f32>), DataError> {
    let [count, height, width] = header(file, source, 0x0803, "images")?;
    let shape = Shape::Image { channels: 1, height, width };
    let total = height.checked_mul(width).and_then(|pixels| pixels.checked_mul(count));
    if height == 0 || width == 0 {
        return Err(DataError::file(
            format!("{file}, byte 8"),
            format!("images of {height}x{width} pixels; both must be at least 1"),
            "the header is damaged, or this is not a file of images",
        ));
    }
    let total = total.unwrap_or(usize::MAX);
    check_size(|| format!("{file}, byte 4 ({count} images of {height}x{width})"), total)?;
    // The value of each byte.
    let pixels: [f32; 256] = std::array::from_fn(|byte| conversion.apply(byte as f64).unwrap_or_default());
    let mut values = Vec::new();
    read_exactly(file, source, 16, total as u64, |bytes| {
        values.extend(bytes.iter().map(|&byte| pixels[usize::from(byte)]));
        Ok(())
    })?;
    Ok((shape, values))
}

fn labels(file: &str, source: &mut dyn Read, classes: usize) -> Result<Vec<u32>, DataError> {
    let [count] = header(file, source, 0x0801, "labels")?;
    let mut labels: Vec<u32> = Vec::new();
    read_exactly(file, source, 8, count as u64, |bytes| {
        for &label in bytes {
            if usize::from(label) >= classes {
                return Err(DataError::value(
                    format!("{file}, byte {}", 8 + labels.len()),
                    format!("a class of 0 to {}", classes - 1),
                    label.to_string(),
                    "declare the number of classes with {classes}; it is public and never derived from the labels",
                ));
            }
            labels.push(u32::from(label));
        }
        Ok(())
    })?;
    Ok(labels)
}

/// Reads the magic number and `N` sizes, all big-endian.
fn header<const N: usize>(
    file: &str,
    source: &mut dyn Read,
    magic: u32,
    what: &str,
) -> Result<[usize; N], DataError> {
    let mut bytes = [0; 16];
    let bytes = &mut bytes[..4 + 4 * N];
    let got = fill(source, bytes).map_err(|error| unreadable(file, &error))?;
    let number = |at: usize| bytes[at..at + 4].iter().fold(0, |number, &byte| number << 8 | u32::from(byte));
    if got >= 4 && number(0) != magic {
        return Err(DataError::file(
            format!("{file}, byte 0"),
            format!("the file begins with 0x{:08x}; IDX files of {what} begin with 0x{magic:08x}", number(0)),
            "check the path; the files of images and of labels may be interchanged",
        ));
    }
    if got < bytes.len() {
        return Err(DataError::file(
            format!("{file}, byte {got}"),
            format!("the file ends here, within its header of {} bytes", bytes.len()),
            "the file is truncated; copy or download it again",
        ));
    }
    Ok(std::array::from_fn(|size| number(4 + 4 * size) as usize))
}

/// A file of a directory, compressed or not.
fn find(directory: &Path, name: &str) -> Option<PathBuf> {
    [directory.join(name), directory.join(format!("{name}.gz"))].into_iter().find(|path| path.exists())
}

fn expect(directory: &Path, name: &str) -> Result<PathBuf, DataError> {
    find(directory, name).ok_or_else(|| {
        DataError::file(
            directory.display().to_string(),
            format!("has neither {name} nor {name}.gz"),
            "a directory of IDX files has train-images-idx3-ubyte and train-labels-idx1-ubyte, and may have \
             t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte",
        )
    })
}
