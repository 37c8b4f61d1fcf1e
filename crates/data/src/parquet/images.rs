//! Parquet files with a column of images, as Hugging Face stores them: `{bytes, path}`, with a column of integers for the classes.

use std::iter;
use std::path::{Path, PathBuf};

use ::parquet::file::reader::FileReader;
use ::parquet::record::{Field, Row};
use sordino_nn::Shape;

use super::rows::FileRows;
use super::{Parts, is_image, no_training_files};
use crate::dataset::Dataset;
use crate::encoding::Encoding;
use crate::error::DataError;
use crate::field::listed;
use crate::images::sets::{Content, ImageSets, Images, StoredImage};
use crate::labels::{check_classes, numbered};
use crate::source::Source;
use crate::unlabelled::UnlabelledRows;

/// Names of class columns that are recognised without a setting.
const LABELS: [&str; 3] = ["label", "labels", "fine_label"];

/// The training set and, if present, the test set.
pub(crate) fn image_sets(source: &Source) -> Result<ImageSets, DataError> {
    let shape = source.images.shape(&source.path.display().to_string(), None)?;
    let parts = Parts::of(&source.path)?;
    if parts.train.is_empty() {
        return Err(no_training_files(&source.path));
    }
    let rows = FileRows::open(&parts.train)?;
    let columns = Columns::of(&rows, source.target.as_deref())?;
    let names = classes(&rows, &columns, source.classes)?;
    let test = match parts.test.is_empty() {
        true => None,
        false => Some(test_images(&parts.test, source, &names)?),
    };
    let train = images(rows, columns, names.len());
    Ok(ImageSets { shape, names, train, test })
}

/// Reads the test set, or the training set if there is none, with the classes, the shape and the encoding of the training records.
pub(crate) fn read_test_images(path: &Path, source: &Source, train: &Dataset) -> Result<Dataset, DataError> {
    let shape = source.images.shape(&path.display().to_string(), Some(train.shape()))?;
    let images = test_images(&Parts::of(path)?.one(), source, train.classes())?;
    images.labelled(shape, train.classes(), Some(train.encoding()))
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
    let (records, refused) = images(rows, columns, 0).unlabelled(shape, wanted)?;
    Ok(UnlabelledRows { part, ..UnlabelledRows::new(records, refused, None) })
}

/// Labelled images with the classes of the training records.
fn test_images(files: &[PathBuf], source: &Source, names: &[String]) -> Result<Images, DataError> {
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
    Ok(images(rows, columns, names.len()))
}

/// The images of rows, with classes below `classes` if there is a column for them.
fn images(mut rows: FileRows, columns: Columns, classes: usize) -> Images {
    let file = rows.place();
    let images = iter::from_fn(move || {
        let row = rows.next().transpose()?;
        Some(row.map(|row| {
            let place = rows.place();
            let (content, label) = fields(row, &columns);
            let class = columns.label.map_or(Ok(0), |_| class(&place, label, classes));
            StoredImage { place, content, class }
        }))
    });
    Images { file, images: Box::new(images) }
}

fn class(place: &str, label: Option<i64>, classes: usize) -> Result<u32, DataError> {
    match label {
        Some(label) if (0..classes as i64).contains(&label) => Ok(label as u32),
        label => Err(DataError::value(
            place,
            format!("a class of 0 to {}", classes - 1),
            label.map_or("no integer".to_owned(), |label| label.to_string()),
            "leave the record out, or declare {classes}, which is public and never derived from the labels",
        )),
    }
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

/// The image and the label of a row.
fn fields(row: Row, columns: &Columns) -> (Content, Option<i64>) {
    let (mut image, mut label) = (Content::Missing, None);
    for (place, (_, value)) in row.into_columns().into_iter().enumerate() {
        if place == columns.image {
            image = content(value);
        } else if Some(place) == columns.label {
            label = integer(&value);
        }
    }
    (image, label)
}

fn content(value: Field) -> Content {
    let Field::Group(parts) = value else { return Content::Missing };
    let mut bytes = parts.into_columns().into_iter().filter_map(|(name, value)| match value {
        Field::Bytes(bytes) if name == "bytes" => Some(bytes.data().to_vec()),
        _ => None,
    });
    bytes.next().map_or(Content::Missing, Content::Bytes)
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
