//! SVMLight and LIBSVM: a line `label index:value ...` for each record, without zeros.

use std::io::{BufRead, Read};

use sordino_nn::Shape;

use crate::dataset::{Dataset, MAX_VALUES, check_size};
use crate::encoding::Encoding;
use crate::error::{DataError, quoted};
use crate::input::unreadable;
use crate::labels::{LabelValues, check_classes, numbered};
use crate::unlabelled::UnlabelledRows;

/// The longest permitted line, in bytes.
const MAX_LINE: u64 = 1 << 28;

/// Reads records of `features` values with labels; two classes unless more are declared. The first field that does not fit
/// is an error.
pub(crate) fn read(
    file: &str,
    source: impl BufRead,
    features: Option<usize>,
    classes: Option<usize>,
) -> Result<Dataset, DataError> {
    let features = check_features(features)?;
    let declared = check_classes(classes.unwrap_or(2))?;
    let mut values: Vec<f32> = Vec::new();
    let mut labels = LabelReader { classes: declared, smallest: None };
    let mut classes = Vec::new();
    lines(file, source, |place, text| {
        let mut fields = fields(text);
        let (_, label) = fields.next().unwrap_or_default();
        classes.push(labels.class(|| format!("{place}, column 1 (label)"), label)?);
        record(place, fields, features, &mut values)
    })?;
    let labels = LabelValues::Classes { classes, names: numbered(declared) };
    Dataset::new(file, Shape::Features(features), Encoding::Text, values, labels)
}

/// Reads records of `features` values, with or without labels; a line that does not fit is kept apart.
pub(crate) fn read_unlabelled(
    file: &str,
    source: impl BufRead,
    features: Option<usize>,
) -> Result<UnlabelledRows, DataError> {
    let features = check_features(features)?;
    let mut values: Vec<f32> = Vec::new();
    let mut refused = Vec::new();
    lines(file, source, |place, text| {
        let start = values.len();
        let fields = fields(text).skip_while(|(column, field)| *column == 0 && !field.contains(&b':'));
        if let Err(error) = record(place, fields, features, &mut values) {
            check_size(|| place.to_owned(), start.saturating_add(features))?;
            refused.push((start / features, error));
        }
        Ok(())
    })?;
    let records = Dataset::new(file, Shape::Features(features), Encoding::Text, values, LabelValues::Absent)?;
    Ok(UnlabelledRows::new(records, refused, None))
}

/// Calls `take` with the position and the text of every line that is not empty or a comment.
fn lines(
    file: &str,
    mut source: impl BufRead,
    mut take: impl FnMut(&str, &[u8]) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let read = (&mut source).take(MAX_LINE).read_until(b'\n', &mut line);
        let place = format!("{file}, line {number}");
        match read.map_err(|error| unreadable(file, &error))? as u64 {
            0 => break,
            MAX_LINE => {
                return Err(DataError::file(
                    place,
                    "the line is too long",
                    "check that this is an SVMLight file",
                ));
            }
            _ => {}
        }
        let text = line.split(|&byte| byte == b'#').next().unwrap_or_default();
        if fields(text).next().is_some() {
            take(&place, text)?;
        }
    }
    Ok(())
}

/// The fields of a line, with their numbers from 0.
fn fields(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    text.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty()).enumerate()
}

/// Appends a record. After an error, the values before it remain.
fn record<'a>(
    place: &str,
    fields: impl Iterator<Item = (usize, &'a [u8])>,
    features: usize,
    values: &mut Vec<f32>,
) -> Result<(), DataError> {
    let start = values.len();
    check_size(|| place.to_owned(), start.saturating_add(features))?;
    values.resize(start + features, 0.0);
    let mut last = 0;
    for (column, field) in fields {
        let (index, value) = pair(field, last, features).map_err(|(permitted, hint)| {
            DataError::value(format!("{place}, column {}", column + 1), permitted, quoted(field), hint)
        })?;
        values[start + index - 1] = value;
        last = index;
    }
    Ok(())
}

fn check_features(features: Option<usize>) -> Result<usize, DataError> {
    match features {
        Some(features) if (1..=MAX_VALUES).contains(&features) => Ok(features),
        _ => Err(DataError::Setting {
            what: "number of features",
            permitted: format!("declared for SVMLight, as 1 to {MAX_VALUES}"),
            got: features.map_or_else(|| "none".to_owned(), |features| features.to_string()),
            hint: "set {feature_count} to the largest index that a record may have; it is public and never derived from the records"
                .to_owned(),
        }),
    }
}

/// `index:value` with an index beyond `last`.
fn pair(field: &[u8], last: usize, features: usize) -> Result<(usize, f32), (String, &'static str)> {
    let text = std::str::from_utf8(field).unwrap_or_default();
    let Some((index, value)) = text.split_once(':') else {
        return Err(("index:value".to_owned(), "the label comes first; pairs are separated by spaces"));
    };
    match index.parse() {
        Ok(index) if index > last && index <= features => match value.parse::<f32>() {
            Ok(value) if value.is_finite() => Ok((index, value)),
            _ => {
                Err(("index:value with a finite number".to_owned(), "leave out values that are 0 or missing"))
            }
        },
        Ok(0) => Err(("index:value with an index from 1".to_owned(), "add 1 to every index")),
        Ok(index) if index <= last => Err((
            format!("index:value with an index above {last}"),
            "indices must increase, and each may occur only once",
        )),
        Ok(_) => Err((
            format!("index:value with an index of 1 to {features}"),
            "the number of features, {feature_count}, is public and never derived from the records",
        )),
        Err(_) => Err((
            "index:value with an integer as index".to_owned(),
            "other keys, such as qid, are not supported",
        )),
    }
}

/// Turns labels into classes: -1 and 1, or 0 and 1, or 0 to k - 1.
struct LabelReader {
    classes: usize,
    /// The label of class 0 in this file (-1 or 0), once it has occurred.
    smallest: Option<i64>,
}

impl LabelReader {
    fn class(&mut self, place: impl FnOnce() -> String, text: &[u8]) -> Result<u32, DataError> {
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
        let refuse =
            |permitted: String, hint: &str| Err(DataError::value(place(), permitted, quoted(text), hint));
        match number.filter(|number| number.fract() == 0.0) {
            Some(label @ (-1.0 | 0.0)) if self.classes == 2 => {
                let label = label as i64;
                if *self.smallest.get_or_insert(label) != label {
                    let permitted = format!("{} or 1, as in earlier lines", -1 - label);
                    return refuse(permitted, "labels must be -1 and 1, or 0 and 1, throughout a file");
                }
                Ok(0)
            }
            Some(label) if label >= 0.0 && label < self.classes as f64 => Ok(label as u32),
            _ if self.classes == 2 => refuse(
                "-1 or 1, or 0 or 1".to_owned(),
                "declare {classes} if there are more than 2; it is public and never derived from the labels",
            ),
            _ => refuse(
                format!("a class of 0 to {}", self.classes - 1),
                "the number of classes, {classes}, is public and never derived from the labels",
            ),
        }
    }
}
