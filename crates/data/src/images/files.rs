//! PNG and JPEG files: a folder for each class, or a folder of images for prediction.

use std::fs;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use sordino_nn::Shape;

use super::{Decoder, EXTENSIONS, ImageOptions};
use crate::class_folders::{self, ClassFile, Parts};
use crate::dataset::{Dataset, check_size, no_records};
use crate::encoding::{Conversion, Encoding};
use crate::error::DataError;
use crate::input::unreadable;
use crate::labels::LabelValues;
use crate::source::Splits;
use crate::unlabelled::UnlabelledRows;

/// Reads a folder of images for each class, with a test set if there is one.
pub(crate) fn read(
    folder: &Path,
    classes: Option<usize>,
    options: &ImageOptions,
) -> Result<Splits, DataError> {
    let file = folder.display().to_string();
    let shape = options.shape(&file, None)?;
    let parts = Parts::of(folder);
    let names = class_folders::names(&parts.train, classes)?;
    let train = labelled(&parts.train, &names, shape, None)?;
    let test = parts.test.map(|test| labelled(&test, &names, shape, None)).transpose()?;
    Ok(Splits { train, test, schema: None })
}

/// Reads the test set of a folder, or its only set, with the classes, the shape and the encoding of the training records.
pub(crate) fn read_test(
    folder: &Path,
    train: &Dataset,
    options: &ImageOptions,
) -> Result<Dataset, DataError> {
    let shape = options.shape(&folder.display().to_string(), Some(train.shape()))?;
    let parts = Parts::of(folder);
    labelled(&parts.test.unwrap_or(parts.train), train.classes(), shape, Some(train.encoding()))
}

/// Reads images without labels: those of a folder, those of the folders of its classes, or one file. Their ids are their names.
pub(crate) fn read_unlabelled(
    path: &Path,
    options: &ImageOptions,
    wanted: Option<Encoding>,
    known: Option<Shape>,
) -> Result<UnlabelledRows, DataError> {
    let file = path.display().to_string();
    let shape = options.shape(&file, known)?;
    let (files, part) = match path.is_dir() {
        false => (vec![ClassFile::single(path)], None),
        true => {
            let parts = Parts::of(path);
            let split = parts.train != path;
            let part = parts.test.unwrap_or(parts.train);
            let files = class_folders::all_files(&part, &EXTENSIONS)?;
            (files, split.then(|| part.display().to_string()))
        }
    };
    let conversion = Conversion::new(&file, Encoding::Bytes, wanted)?;
    let (values, refused) = decoded(&file, &files, shape, conversion, false)?;
    let records = Dataset::new(&file, shape, conversion.encoding, values, LabelValues::Absent)?;
    let ids = files.into_iter().map(|file| file.id).collect();
    Ok(UnlabelledRows { part, ..UnlabelledRows::new(records, refused, Some(ids)) })
}

/// The numbers of the images and classes of a folder for each class; no image is read.
pub(crate) fn count(folder: &Path) -> Result<Vec<(String, String)>, DataError> {
    let parts = Parts::of(folder);
    let names = class_folders::names(&parts.train, None)?;
    let sets = [("training records", Some(parts.train)), ("test records", parts.test)];
    let describe = |(name, folder): (&str, Option<PathBuf>)| {
        let count = class_folders::files(&folder?, &names, &EXTENSIONS).map(|files| files.len());
        Some(count.map(|count| (name.to_owned(), format!("{count} images; {} classes", names.len()))))
    };
    sets.into_iter().filter_map(describe).collect()
}

fn labelled(
    folder: &Path,
    names: &[String],
    shape: Shape,
    wanted: Option<Encoding>,
) -> Result<Dataset, DataError> {
    let file = folder.display().to_string();
    let files = class_folders::files(folder, names, &EXTENSIONS)?;
    let conversion = Conversion::new(&file, Encoding::Bytes, wanted)?;
    let (values, refused) = decoded(&file, &files, shape, conversion, true)?;
    if let Some((_, error)) = refused.into_iter().next() {
        return Err(error);
    }
    let classes = files.iter().map(|file| file.class).collect();
    let labels = LabelValues::Classes { classes, names: names.to_vec() };
    Dataset::new(&file, shape, conversion.encoding, values, labels)
}

/// The values of records, and the records, from 0, that could not be read, in their order.
type Decoded = (Vec<f32>, Vec<(usize, DataError)>);

/// Decodes files on all cores. If `stop` is true, decoding ends at the first file that cannot be read, and only this file is reported.
fn decoded(
    file: &str,
    files: &[ClassFile],
    shape: Shape,
    conversion: Conversion,
    stop: bool,
) -> Result<Decoded, DataError> {
    if files.is_empty() {
        return Err(no_records(file));
    }
    let total = files.len().saturating_mul(shape.len());
    check_size(|| format!("{file} ({} images of {shape})", files.len()), total)?;
    let decoder = Decoder::new(shape, conversion);
    let mut values = vec![0.0; total];
    let read = |(place, (values, file)): (usize, (&mut [f32], &ClassFile))| {
        let name = file.path.display().to_string();
        let bytes = fs::read(&file.path).map_err(|error| unreadable(&name, &error));
        let error = bytes.and_then(|bytes| decoder.decode(&name, &bytes, values)).err()?;
        Some((place, error))
    };
    let images = values.par_chunks_exact_mut(shape.len()).zip(files).enumerate();
    let refused =
        if stop { Vec::from_iter(images.find_map_first(read)) } else { images.filter_map(read).collect() };
    Ok((values, refused))
}
