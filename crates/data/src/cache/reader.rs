//! Reads a file of records. Labels are read into memory; values and tokens stay in the file.

use std::path::Path;
use std::sync::Arc;

use sordino_nn::Shape;

use super::header::{Header, Type};
use crate::dataset::Dataset;
use crate::encoding::{Conversion, Encoding};
use crate::error::DataError;
use crate::input::unreadable;
use crate::labels::LabelValues;
use crate::npy_header::Dtype;
use crate::positioned::PositionedFile;
use crate::schema::Schema;
use crate::source::{Source, Splits};
use crate::stored::{Content, Decoder, RecordFile};
use crate::unit::{RecordUnits, UnitId};
use crate::unlabelled::UnlabelledRows;

/// Reads all sets of a file.
pub(crate) fn read(source: &Source) -> Result<Splits, DataError> {
    let cache = Cache::open(&source.path)?;
    if let Some(path) = &source.schema {
        cache.check_schema(&Schema::read(path)?)?;
    }
    if let Some(classes) = source.classes.filter(|&classes| classes != cache.header.facts.classes.len()) {
        return Err(DataError::Setting {
            what: "number of classes",
            permitted: format!("{} as in {}, or left out", cache.header.facts.classes.len(), cache.name),
            got: classes.to_string(),
            hint: "the file states its classes".to_owned(),
        });
    }
    if let Some(unit) = source.unit.as_ref().filter(|unit| cache.header.facts.unit.as_ref() != Some(*unit)) {
        return Err(DataError::Setting {
            what: "unit",
            permitted: match &cache.header.facts.unit {
                Some(unit) => format!("{unit} as in {}, or left out", cache.name),
                None => format!("left out for {}, which was written without one", cache.name),
            },
            got: unit.clone(),
            hint: "convert the records again with this {unit}".to_owned(),
        });
    }
    let train = cache.set("", true, None)?;
    let test = if cache.header.has_test() { Some(cache.set("test_", true, None)?) } else { None };
    Ok(Splits { train, test, schema: cache.header.facts.schema.clone() })
}

/// Reads the test set, or the only set, like records that were read from another file.
pub(crate) fn read_test(path: &Path, sets: &Splits) -> Result<Dataset, DataError> {
    let cache = Cache::open(path)?;
    match &sets.schema {
        Some(schema) => cache.check_schema(schema)?,
        None if cache.header.facts.schema.is_some() => return Err(cache.another_schema()),
        None => {}
    }
    let prefix = if cache.header.has_test() { "test_" } else { "" };
    cache.set(prefix, true, Some(sets.train.encoding()))
}

/// Reads the records of the training set, without labels.
pub(crate) fn read_unlabelled(
    path: &Path,
    schema: Option<&Schema>,
    wanted: Option<Encoding>,
) -> Result<UnlabelledRows, DataError> {
    let cache = Cache::open(path)?;
    if let Some(schema) = schema {
        cache.check_schema(schema)?;
    }
    let records = cache.set("", false, wanted)?;
    let rest = if cache.header.has_test() { "; its test records are not read" } else { "" };
    let part = Some(format!("the training records of {}{rest}", cache.name));
    Ok(UnlabelledRows { part, ..UnlabelledRows::new(records, Vec::new(), None) })
}

/// An open file.
struct Cache {
    name: String,
    file: Arc<PositionedFile>,
    header: Header,
}

impl Cache {
    fn open(path: &Path) -> Result<Cache, DataError> {
        let name = path.display().to_string();
        let file = Arc::new(PositionedFile::open(path)?);
        let header = Header::read(&name, &file)?;
        header.facts.schema.as_ref().map_or(Ok(()), Schema::check_tokenizer)?;
        Ok(Cache { name, file, header })
    }

    fn check_schema(&self, schema: &Schema) -> Result<(), DataError> {
        match self.header.facts.schema.as_ref().is_some_and(|stored| stored.reads_like(schema)) {
            true => Ok(()),
            false => Err(self.another_schema()),
        }
    }

    fn another_schema(&self) -> DataError {
        DataError::file(
            &self.name,
            "the records were read by another schema",
            "a file of records has the schema that it was converted with; convert the table again with this one",
        )
    }

    /// A set of records; their values are checked once.
    fn set(&self, prefix: &str, labelled: bool, wanted: Option<Encoding>) -> Result<Dataset, DataError> {
        let facts = &self.header.facts;
        let records = self.header.records(prefix).unwrap_or_default() as usize;
        let encoding = wanted.unwrap_or(facts.encoding);
        let conversion = Conversion::new(&self.name, facts.encoding, wanted)?;
        let (array, content) = match facts.shape {
            Shape::Tokens { steps, .. } => {
                ("tokens", Content::Tokens { starts: self.starts(prefix, steps)? })
            }
            _ => match self.dtype(prefix, "values") {
                Type::U8 => ("values", Content::Numbers(Decoder::new(Dtype::U8, conversion, None))),
                // Bytes that are stored as floats are divided already.
                _ if encoding == facts.encoding => ("values", Content::Numbers(Decoder::floats())),
                _ => ("values", Content::Numbers(Decoder::new(Dtype::F32, conversion, None))),
            },
        };
        let labels = if labelled { self.labels(prefix)? } else { LabelValues::Absent };
        let (start, _) = self.range(prefix, array);
        let place = format!("{}, array {prefix}{array}", self.name);
        let file = RecordFile::new(self.file.clone(), place, facts.shape, records, start, content)?;
        let data = Dataset::new(&self.name, facts.shape, encoding, file.checked()?, labels)?;
        let Some(unit) = facts.unit.as_ref().filter(|_| labelled) else { return Ok(data) };
        let mut ids = Vec::with_capacity(records);
        self.numbers(prefix, "units", |_, bytes: [u8; 8]| {
            ids.push(UnitId(u64::from_le_bytes(bytes)));
            Ok(())
        })?;
        Ok(data.with_units(RecordUnits::new(unit, ids)))
    }

    fn dtype(&self, prefix: &str, name: &str) -> Type {
        self.header.tensor(prefix, name).map_or(Type::F32, |tensor| tensor.dtype)
    }

    /// The positions of an array in the file.
    fn range(&self, prefix: &str, name: &str) -> (u64, u64) {
        let [start, end] = self.header.tensor(prefix, name).map_or([0; 2], |tensor| tensor.data_offsets);
        (self.header.start + start, self.header.start + end)
    }

    /// Calls `take` with every number of an array of `N` bytes each, and its place.
    fn numbers<const N: usize>(
        &self,
        prefix: &str,
        name: &str,
        mut take: impl FnMut(usize, [u8; N]) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let (start, end) = self.range(prefix, name);
        self.file.pieces(&self.name, start, end, |position, bytes| {
            let first = (position - start) as usize / N;
            let mut numbers = bytes.chunks_exact(N).enumerate();
            numbers.try_for_each(|(place, number)| {
                take(first + place, number.try_into().map_err(|_| unreadable(&self.name, &short()))?)
            })
        })
    }

    fn starts(&self, prefix: &str, steps: usize) -> Result<Vec<u64>, DataError> {
        let mut starts: Vec<u64> = Vec::new();
        self.numbers(prefix, "starts", |place, start| {
            let start = u64::from_le_bytes(start);
            let permitted = match starts.last() {
                None => 0..=0,
                Some(&last) => last + 1..=last.saturating_add(steps as u64),
            };
            if !permitted.contains(&start) {
                let permitted = format!("{} to {}", permitted.start(), permitted.end());
                let at = format!("{}, array {prefix}starts, value {}", self.name, place + 1);
                return Err(DataError::value(at, permitted, start.to_string(), DAMAGED));
            }
            starts.push(start);
            Ok(())
        })?;
        let tokens = self.header.tensor(prefix, "tokens").and_then(|tensor| tensor.shape.first());
        match starts.last() == tokens {
            true => Ok(starts),
            false => Err(DataError::file(
                format!("{}, array {prefix}starts", self.name),
                "the last record does not end at the last token",
                DAMAGED,
            )),
        }
    }

    fn labels(&self, prefix: &str) -> Result<LabelValues, DataError> {
        let facts = &self.header.facts;
        let place = |at: usize| format!("{}, array {prefix}labels, value {}", self.name, at + 1);
        if facts.classes.is_empty() {
            let mut values = Vec::new();
            self.numbers(prefix, "labels", |at, number| {
                let number = f32::from_le_bytes(number);
                values.push(number);
                match number.is_finite() {
                    true => Ok(()),
                    false => Err(DataError::value(place(at), "a finite number", number.to_string(), DAMAGED)),
                }
            })?;
            return Ok(LabelValues::Numbers { values, scales: facts.scales.clone() });
        }
        let (mut classes, count) = (Vec::new(), facts.classes.len());
        self.numbers(prefix, "labels", |at, class| {
            let class = u32::from_le_bytes(class);
            classes.push(class);
            match (class as usize) < count {
                true => Ok(()),
                false => {
                    let permitted = format!("a class of 0 to {}", count - 1);
                    Err(DataError::value(place(at), permitted, (class as i32).to_string(), DAMAGED))
                }
            }
        })?;
        Ok(LabelValues::Classes { classes, names: facts.classes.clone() })
    }
}

const DAMAGED: &str = "the file is damaged; write it again with sordino data convert";

fn short() -> std::io::Error {
    std::io::ErrorKind::UnexpectedEof.into()
}
