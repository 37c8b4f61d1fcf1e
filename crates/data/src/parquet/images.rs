//! Parquet files with a column of images, as Hugging Face stores them: `{bytes, path}`, with a column of integers for the classes.

use std::path::{Path, PathBuf};

use ::parquet::data_type::ByteArray;
use ::parquet::file::reader::FileReader;
use ::parquet::record::{Field, Row};
use rayon::prelude::*;
use sordino_nn::Shape;

use super::rows::FileRows;
use super::{Parts, is_image, no_training_files};
use crate::dataset::{Dataset, check_size};
use crate::encoding::{Conversion, Encoding};
use crate::error::DataError;
use crate::field::listed;
use crate::images::Decoder;
use crate::labels::{LabelValues, check_classes, numbered};
use crate::source::{Source, Splits};
use crate::unlabelled::UnlabelledRows;

/// Names of class columns that are recognised without a setting.
const LABELS: [&str; 3] = ["label", "labels", "fine_label"];
/// The number of images that are decoded at once.
const BATCH: usize = 256;

/// Reads the training set and, if present, the test set.
pub(crate) fn read_images(source: &Source) -> Result<Splits, DataError> {
    let shape = source.images.shape(&source.path.display().to_string(), None)?;
    let parts = Parts::of(&source.path)?;
    if parts.train.is_empty() {
        return Err(no_training_files(&source.path));
    }
    let rows = FileRows::open(&parts.train)?;
    let columns = Columns::of(&rows, source.target.as_deref())?;
    let names = classes(&rows, &columns, source.classes)?;
    let train = labelled(rows, &columns, &names, shape, None)?;
    let test = match parts.test.is_empty() {
        true => None,
        false => Some(labelled_files(&parts.test, source, &names, shape, None)?),
    };
    Ok(Splits { train, test, schema: None })
}

/// Reads the test set, or the training set if there is none, with the classes, the shape and the encoding of the training records.
pub(crate) fn read_test_images(path: &Path, source: &Source, train: &Dataset) -> Result<Dataset, DataError> {
    let shape = source.images.shape(&path.display().to_string(), Some(train.shape()))?;
    let files = Parts::of(path)?.one();
    labelled_files(&files, source, train.classes(), shape, Some(train.encoding()))
}

/// Reads images without labels: the test set, or the training set if there is none.
pub(crate) fn read_unlabelled_images(
    source: &Source,
    wanted: Option<Encoding>,
    known: Option<Shape>,
) -> Result<UnlabelledRows, DataError> {
    let file = source.path.display().to_string();
    let shape = source.images.shape(&file, known)?;
    let parts = Parts::of(&source.path)?;
    let part = (!parts.train.is_empty() && !parts.test.is_empty()).then(|| format!("the test set of {file}"));
    let rows = FileRows::open(&parts.one())?;
    let columns = Columns { image: image_column(&rows)?, label: None };
    let conversion = Conversion::new(&file, Encoding::Bytes, wanted)?;
    let Images { values, refused, .. } = decoded(rows, &columns, shape, conversion)?;
    let records = Dataset::new(&file, shape, conversion.encoding, values, LabelValues::Absent)?;
    Ok(UnlabelledRows { part, ..UnlabelledRows::new(records, refused, None) })
}

fn labelled_files(
    files: &[PathBuf],
    source: &Source,
    names: &[String],
    shape: Shape,
    wanted: Option<Encoding>,
) -> Result<Dataset, DataError> {
    let rows = FileRows::open(files)?;
    let columns = Columns::of(&rows, source.target.as_deref())?;
    if let Some(found) = stored_names(rows.reader(), &columns)
        && found != names
    {
        return Err(DataError::file(
            rows.place(),
            format!(
                "the classes are {}, but those of the training records are {}",
                listed(&found),
                listed(names)
            ),
            "give test records with the classes of the training records",
        ));
    }
    labelled(rows, &columns, names, shape, wanted)
}

fn labelled(
    rows: FileRows,
    columns: &Columns,
    names: &[String],
    shape: Shape,
    wanted: Option<Encoding>,
) -> Result<Dataset, DataError> {
    let file = rows.place();
    let conversion = Conversion::new(&file, Encoding::Bytes, wanted)?;
    let Images { values, labels, refused } = decoded(rows, columns, shape, conversion)?;
    if let Some((_, error)) = refused.into_iter().next() {
        return Err(error);
    }
    let class = |(place, label): (String, Option<i64>)| match label {
        Some(label) if (0..names.len() as i64).contains(&label) => Ok(label as u32),
        label => Err(DataError::value(
            place,
            format!("a class of 0 to {}", names.len() - 1),
            label.map_or("no integer".to_owned(), |label| label.to_string()),
            "leave the record out, or declare {classes}, which is public and never derived from the labels",
        )),
    };
    let classes = labels.into_iter().map(class).collect::<Result<_, _>>()?;
    let labels = LabelValues::Classes { classes, names: names.to_vec() };
    Dataset::new(&file, shape, conversion.encoding, values, labels)
}

/// The indices of the columns that are read.
struct Columns {
    image: usize,
    label: Option<usize>,
}

impl Columns {
    /// The column of images, and the column of classes: `target`, or a column with a usual name.
    fn of(rows: &FileRows, target: Option<&str>) -> Result<Columns, DataError> {
        let names = rows.names();
        let place = |name: &str| names.iter().position(|other| other == name);
        let label = match target {
            Some(name) => place(name),
            None => LABELS.into_iter().find_map(place),
        };
        match label {
            Some(_) => Ok(Columns { image: image_column(rows)?, label }),
            None => Err(DataError::file(
                rows.place(),
                format!("has no column `{}`, only {}", target.unwrap_or(LABELS[0]), listed(names)),
                "name the column of classes with {target}",
            )),
        }
    }
}

fn image_column(rows: &FileRows) -> Result<usize, DataError> {
    let fields = rows.reader().metadata().file_metadata().schema().get_fields();
    let images: Vec<usize> = (0..fields.len()).filter(|&place| is_image(&fields[place])).collect();
    match images[..] {
        [only] => Ok(only),
        _ => Err(DataError::file(
            rows.place(),
            format!("has {} columns of images, expected 1", images.len()),
            "keep one column of images; it has the parts `bytes` and `path`",
        )),
    }
}

/// The public names of the classes: those of the file's metadata, or numbers if their number is declared.
fn classes(rows: &FileRows, columns: &Columns, declared: Option<usize>) -> Result<Vec<String>, DataError> {
    let setting = |permitted: String, got: String, hint: &str| {
        Err(DataError::Setting { what: "number of classes", permitted, got, hint: hint.to_owned() })
    };
    match (stored_names(rows.reader(), columns), declared) {
        (Some(names), Some(declared)) if declared != names.len() => setting(
            format!("{} as in the metadata of {}, or left out", names.len(), rows.place()),
            declared.to_string(),
            "leave out {classes}",
        ),
        (Some(names), _) => check_classes(names.len()).map(|_| names),
        (None, Some(declared)) => check_classes(declared).map(numbered),
        (None, None) => setting(
            format!("declared, because {} does not name the classes", rows.place()),
            "none".to_owned(),
            "declare {classes}, which is public and never derived from the labels",
        ),
    }
}

/// The names of the classes in the metadata that Hugging Face writes. They belong to the description of the data set, not to its
/// records.
fn stored_names(reader: &dyn FileReader, columns: &Columns) -> Option<Vec<String>> {
    let metadata = reader.metadata().file_metadata();
    let label = metadata.schema().get_fields().get(columns.label?)?.name().to_owned();
    let entry = metadata.key_value_metadata()?.iter().find(|entry| entry.key == "huggingface")?;
    let features: serde_json::Value = serde_json::from_str(entry.value.as_deref()?).ok()?;
    let names = features.get("info")?.get("features")?.get(&label)?.get("names")?.as_array()?;
    names.iter().map(|name| name.as_str().map(str::to_owned)).collect()
}

/// The content of the rows.
struct Images {
    /// The values of images that cannot be read are 0.
    values: Vec<f32>,
    /// The position of each row and its label.
    labels: Vec<(String, Option<i64>)>,
    /// The rows, from 0, whose images cannot be read.
    refused: Vec<(usize, DataError)>,
}

/// Decodes the images of all rows, batch by batch on all cores. With labels, decoding ends after a batch with an image that cannot be read.
fn decoded(
    mut rows: FileRows,
    columns: &Columns,
    shape: Shape,
    conversion: Conversion,
) -> Result<Images, DataError> {
    let decoder = Decoder::new(shape, conversion);
    let mut images = Images { values: Vec::new(), labels: Vec::new(), refused: Vec::new() };
    loop {
        let mut batch = Vec::with_capacity(BATCH);
        while batch.len() < BATCH
            && let Some(row) = rows.next()?
        {
            let place = rows.place();
            let (bytes, label) = fields(row, columns);
            if columns.label.is_some() {
                images.labels.push((place.clone(), label));
            }
            batch.push(StoredImage { place, bytes });
        }
        if batch.is_empty() || columns.label.is_some() && !images.refused.is_empty() {
            return Ok(images);
        }
        let (start, first) = (images.values.len(), images.values.len() / shape.len());
        let total = start.saturating_add(batch.len().saturating_mul(shape.len()));
        check_size(|| rows.place(), total)?;
        images.values.resize(total, 0.0);
        let values = images.values[start..].par_chunks_exact_mut(shape.len());
        let errors = values.zip(&batch).map(|(values, image)| image.decode(&decoder, values).err());
        images.refused.par_extend(
            errors.enumerate().filter_map(|(record, error)| error.map(|error| (first + record, error))),
        );
    }
}

/// An image as it is stored.
struct StoredImage {
    place: String,
    bytes: Option<ByteArray>,
}

impl StoredImage {
    fn decode(&self, decoder: &Decoder, values: &mut [f32]) -> Result<(), DataError> {
        match &self.bytes {
            Some(bytes) => decoder.decode(&self.place, bytes.data(), values),
            None => Err(DataError::file(
                &self.place,
                "the image has no bytes",
                "store the images in the file: in Python, data.cast_column(\"image\", Image()) before to_parquet",
            )),
        }
    }
}

/// The bytes of the image and the label of a row.
fn fields(row: Row, columns: &Columns) -> (Option<ByteArray>, Option<i64>) {
    let (mut image, mut label) = (None, None);
    for (place, (_, value)) in row.into_columns().into_iter().enumerate() {
        if place == columns.image {
            image = bytes(value);
        } else if Some(place) == columns.label {
            label = integer(&value);
        }
    }
    (image, label)
}

fn bytes(value: Field) -> Option<ByteArray> {
    let Field::Group(parts) = value else { return None };
    parts.into_columns().into_iter().find_map(|(name, value)| match value {
        Field::Bytes(bytes) if name == "bytes" => Some(bytes),
        _ => None,
    })
}

fn integer(value: &Field) -> Option<i64> {
    match *value {
        Field::Byte(value) => Some(i64::from(value)),
        Field::Short(value) => Some(i64::from(value)),
        Field::Int(value) => Some(i64::from(value)),
        Field::Long(value) => Some(value),
        Field::UByte(value) => Some(i64::from(value)),
        Field::UShort(value) => Some(i64::from(value)),
        Field::UInt(value) => Some(i64::from(value)),
        Field::ULong(value) => i64::try_from(value).ok(),
        Field::Bool(value) => Some(i64::from(value)),
        _ => None,
    }
}
