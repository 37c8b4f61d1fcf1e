//! The header of a file of records: its arrays, and the public facts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sordino_nn::Shape;

use crate::dataset::{Dataset, MAX_VALUES};
use crate::encoding::Encoding;
use crate::error::{DataError, quoted};
use crate::input::unreadable;
use crate::labels::{Scale, check_classes};
use crate::positioned::PositionedFile;
use crate::schema::Schema;

/// The longest permitted header. Only its class names and its schema can be large.
const MAX_HEADER: u64 = 1 << 26;

/// The format and its version, as the metadata states them.
const FORMAT: &str = "sordino-records";
const VERSION: &str = "1";

const WRITE_AGAIN: &str = "the file is damaged; write it again with sordino data convert";

/// What is publicly known about the records of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Facts {
    /// The shape of a record.
    pub(crate) shape: Shape,
    /// How the source stored the values.
    pub(crate) encoding: Encoding,
    /// The names of the classes; empty for numbers.
    pub(crate) classes: Vec<String>,
    /// The scale of each number to be predicted; empty for classes.
    pub(crate) scales: Vec<Scale>,
    /// The schema by which a table was read.
    pub(crate) schema: Option<Schema>,
    /// What a unit of privacy is, if it is not a record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unit: Option<String>,
}

/// An array of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tensor {
    pub(crate) dtype: Type,
    pub(crate) shape: Vec<u64>,
    /// Where the array begins and ends, from the end of the header on.
    pub(crate) data_offsets: [u64; 2],
}

/// The type of the numbers of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Type {
    U8,
    I32,
    I64,
    F32,
}

impl Type {
    fn size(self) -> u64 {
        match self {
            Type::U8 => 1,
            Type::I32 | Type::F32 => 4,
            Type::I64 => 8,
        }
    }
}

/// A header that has been checked.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) facts: Facts,
    tensors: BTreeMap<String, Tensor>,
    /// The position of the first array.
    pub(crate) start: u64,
}

/// A header as it is written.
#[derive(Serialize, Deserialize)]
struct RawHeader {
    #[serde(rename = "__metadata__")]
    metadata: BTreeMap<String, String>,
    #[serde(flatten)]
    tensors: BTreeMap<String, Tensor>,
}

impl Facts {
    pub(crate) fn of(data: &Dataset, schema: Option<&Schema>) -> Facts {
        Facts {
            shape: data.shape(),
            encoding: data.encoding(),
            classes: data.classes().to_vec(),
            scales: data.scales().to_vec(),
            schema: schema.cloned(),
            unit: data.unit().map(str::to_owned),
        }
    }

    fn check(&self) -> Result<(), String> {
        let sizes = match self.shape {
            Shape::Features(features) => vec![features],
            Shape::Image { channels, height, width } => vec![channels, height, width],
            Shape::Tokens { steps, vocabulary } if vocabulary <= i32::MAX as usize => vec![steps, vocabulary],
            _ => return Err(format!("records of shape {} are not supported", self.shape)),
        };
        let product = sizes.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
        if !product.is_some_and(|product| (1..=MAX_VALUES).contains(&product)) {
            return Err(format!("the shape {} of a record is too large or empty", self.shape));
        }
        let scales = self.scales.iter().all(|scale| scale.center.is_finite() && scale.scale.is_finite());
        match (self.classes.len(), self.scales.len()) {
            (0, 1..) if scales => Ok(()),
            (classes, 0) if check_classes(classes).is_ok() => Ok(()),
            _ => Err("the facts state neither classes nor scales of numbers".to_owned()),
        }
    }
}

impl Header {
    /// Reads the header and compares it with the size of the file.
    pub(crate) fn read(name: &str, file: &PositionedFile) -> Result<Header, DataError> {
        let refuse = |at: u64, problem: String, hint: &str| {
            Err(DataError::file(format!("{name}, byte {at}"), problem, hint))
        };
        if file.len < 8 {
            return refuse(file.len, "the file ends here, within its header".to_owned(), WRITE_AGAIN);
        }
        let mut length = [0; 8];
        file.read_at(&mut length, 0).map_err(|error| unreadable(name, &error))?;
        let length = u64::from_le_bytes(length);
        if length > MAX_HEADER || length > file.len - 8 {
            let problem = format!("a header of {length} bytes in a file of {} bytes", file.len);
            return refuse(0, problem, WRITE_AGAIN);
        }
        let mut text = vec![0; length as usize];
        file.read_at(&mut text, 8).map_err(|error| unreadable(name, &error))?;
        let raw: RawHeader = match serde_json::from_slice(&text) {
            Ok(raw) => raw,
            Err(error) => return refuse(8, format!("the header cannot be read: {error}"), WRITE_AGAIN),
        };
        if raw.metadata.get("format").is_none_or(|format| format != FORMAT) {
            let problem = "is not a file of records".to_owned();
            return refuse(8, problem, "write it with sordino data convert");
        }
        match raw.metadata.get("version").map(String::as_str) {
            Some(VERSION) => {}
            other => {
                let version = quoted(other.unwrap_or("none").as_bytes());
                let problem = format!("version {version} of the format is not supported; {VERSION} is");
                return refuse(8, problem, "write it again with this version of sordino data convert");
            }
        }
        let facts = raw.metadata.get("facts").map(String::as_str).unwrap_or_default();
        let facts = serde_json::from_str(facts).map_err(|error| error.to_string());
        let facts: Facts = match facts.and_then(|facts: Facts| facts.check().map(|()| facts)) {
            Ok(facts) => facts,
            Err(problem) => return refuse(8, format!("the public facts: {problem}"), WRITE_AGAIN),
        };
        let header = Header { facts, tensors: raw.tensors, start: 8 + length };
        match header.check_tensors() {
            Ok(end) => file.check_len(name, header.start.saturating_add(end))?,
            Err(problem) => return refuse(8, problem, WRITE_AGAIN),
        }
        Ok(header)
    }

    /// Checks that the arrays match the facts and are contiguous; returns their end.
    fn check_tensors(&self) -> Result<u64, String> {
        let mut known: Vec<String> = Vec::new();
        for prefix in ["", "test_"].iter().take(1 + usize::from(self.has_test())) {
            let expected = self.check_set(prefix)?;
            known.extend(expected.iter().map(|name| format!("{prefix}{name}")));
            known.extend(self.facts.unit.as_ref().map(|_| format!("{prefix}units")));
        }
        if let Some(name) = self.tensors.keys().find(|name| !known.contains(name)) {
            return Err(format!("the array {} is not known", quoted(name.as_bytes())));
        }
        let mut tensors: Vec<_> = self.tensors.iter().collect();
        tensors.sort_by_key(|(_, tensor)| tensor.data_offsets);
        let mut end = 0;
        for (name, tensor) in tensors {
            let size = tensor.shape.iter().try_fold(tensor.dtype.size(), |n, &size| n.checked_mul(size));
            let [first, last] = tensor.data_offsets;
            if first != end || size.and_then(|size| first.checked_add(size)) != Some(last) {
                let problem = format!("the array {name} is at {first} to {last}");
                return Err(format!("{problem}, which does not fit its shape or the arrays before it"));
            }
            end = last;
        }
        Ok(end)
    }

    /// Checks the shapes and types of the arrays of one set; returns their names.
    fn check_set(&self, prefix: &str) -> Result<&'static [&'static str], String> {
        let records = self.records(prefix).ok_or_else(|| format!("there is no array {prefix}labels"))?;
        let count = [records];
        let expect = |name: &str, types: &[Type], shape: &[u64]| {
            let tensor =
                self.tensor(prefix, name).ok_or_else(|| format!("there is no array {prefix}{name}"))?;
            match types.contains(&tensor.dtype) && tensor.shape == shape {
                true => Ok(()),
                false => Err(format!(
                    "the array {prefix}{name} is {:?} {:?}, expected {:?} {shape:?}",
                    tensor.dtype, tensor.shape, types[0]
                )),
            }
        };
        if self.facts.unit.is_some() {
            expect("units", &[Type::I64], &count)?;
        }
        match self.facts.scales.len() as u64 {
            0 => expect("labels", &[Type::I32], &count)?,
            width => expect("labels", &[Type::F32], &[records, width])?,
        }
        let sizes: Vec<u64> = match self.facts.shape {
            Shape::Image { channels, height, width } => [channels, height, width].map(|n| n as u64).into(),
            Shape::Tokens { .. } => {
                let total = self.tensor(prefix, "tokens").and_then(|tensor| tensor.shape.first().copied());
                expect("tokens", &[Type::I32], &[total.unwrap_or_default()])?;
                expect("starts", &[Type::I64], &[records.saturating_add(1)])?;
                return Ok(&["tokens", "starts", "labels"]);
            }
            shape => vec![shape.len() as u64],
        };
        expect("values", &[Type::F32, Type::U8], &[&count[..], &sizes].concat())?;
        Ok(&["values", "labels"])
    }

    /// The number of records of the set.
    pub(crate) fn records(&self, prefix: &str) -> Option<u64> {
        self.tensor(prefix, "labels")?.shape.first().copied()
    }

    /// Whether there is a test set.
    pub(crate) fn has_test(&self) -> bool {
        self.tensors.keys().any(|name| name.starts_with("test_"))
    }

    pub(crate) fn tensor(&self, prefix: &str, name: &str) -> Option<&Tensor> {
        self.tensors.get(&format!("{prefix}{name}"))
    }

    /// The header as text, padded with spaces to `room` bytes.
    pub(crate) fn text(facts: &Facts, tensors: &BTreeMap<String, Tensor>, room: usize) -> Vec<u8> {
        let facts = serde_json::to_string(facts).expect("facts are numbers and strings");
        let metadata = [("format", FORMAT.to_owned()), ("version", VERSION.to_owned()), ("facts", facts)];
        let metadata = metadata.map(|(key, value)| (key.to_owned(), value)).into();
        let raw = RawHeader { metadata, tensors: tensors.clone() };
        let mut text = serde_json::to_vec(&raw).expect("a header is numbers and strings");
        text.resize(room.max(text.len()), b' ');
        text
    }
}
