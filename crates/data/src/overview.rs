//! What a source contains: shapes, types, and the numbers of records and classes, but no values and no statistics of values.

use std::path::Path;

use serde::Serialize;

use crate::cache;
use crate::class_folders::name_of;
use crate::dataset::Dataset;
use crate::draft::Table;
use crate::error::DataError;
use crate::format::Format;
use crate::positioned::PositionedFile;
use crate::source::{Source, read};
use crate::table::TableFormat;
use crate::{images, npy, npy_folder};

/// What a source contains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Overview {
    /// The arrays, columns or sets of records, in their order.
    pub parts: Vec<OverviewPart>,
}

/// An array, a column or a set of records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OverviewPart {
    /// Its name.
    pub name: String,
    /// Its type and its size.
    pub content: String,
}

impl Overview {
    pub(crate) fn new(parts: impl IntoIterator<Item = (String, String)>) -> Overview {
        let parts = parts.into_iter().map(|(name, content)| OverviewPart { name, content });
        Overview { parts: parts.collect() }
    }
}

/// Describes a source without its values. Arrays and tables are described by their headers, and so is a source whose required settings are
/// missing.
///
/// # Errors
///
/// A source that cannot be read.
pub fn overview(source: &Source) -> Result<Overview, DataError> {
    let path = &source.path;
    match Format::of(path)? {
        Format::Cache => return cached(path),
        Format::Npz => return npy::arrays(path).map(Overview::new),
        Format::NpyFolder => return npy_folder::arrays(path).map(Overview::new),
        Format::Npy => {
            let array = (name_of(path), npy_folder::header(path)?.to_string());
            return Ok(Overview::new([array]));
        }
        Format::Table(TableFormat::Csv { .. } | TableFormat::JsonLines | TableFormat::Parquet)
            if source.schema.is_none() && source.classes.is_none() =>
        {
            return header(path);
        }
        Format::ClassImages if source.images.size.is_none() => {
            return images::files::count(path).map(Overview::new);
        }
        _ => {}
    }
    let sets = read(source)?;
    let mut parts = vec![("training records".to_owned(), described(&sets.train))];
    parts.extend(sets.test.iter().map(|test| ("test records".to_owned(), described(test))));
    Ok(Overview::new(parts))
}

fn described(data: &Dataset) -> String {
    let (count, shape) = (data.len(), data.shape());
    format!("{count} of shape {shape}, stored as {}; {}", data.encoding(), data.described_labels())
}

fn labels(classes: &[String], numbers: usize) -> String {
    match classes.len() {
        0 => format!("{numbers} numbers to predict"),
        count => format!("{count} classes"),
    }
}

/// A table without a schema is described by its header and the number of its records.
fn header(path: &Path) -> Result<Overview, DataError> {
    let (header, names) = Table::open(path)?.first_line(false)?;
    let records = Table::open(path)?.count(header)?;
    let counts = [("records", records), ("columns", names.len() as u64)];
    let counts = counts.map(|(name, count)| (name.to_owned(), count.to_string()));
    let columns = names.into_iter().enumerate().map(|(place, name)| (format!("column {}", place + 1), name));
    Ok(Overview::new(counts.into_iter().chain(columns.filter(|_| header))))
}

/// A file of records is described by its header alone.
fn cached(path: &Path) -> Result<Overview, DataError> {
    let header = cache::Header::read(&path.display().to_string(), &PositionedFile::open(path)?)?;
    let facts = &header.facts;
    let set = |(name, prefix): (&str, &str)| {
        let count = header.records(prefix)?;
        let labels = labels(&facts.classes, facts.scales.len());
        let content = format!("{count} of shape {}, stored as {}; {labels}", facts.shape, facts.encoding);
        Some((name.to_owned(), content))
    };
    Ok(Overview::new([("training records", ""), ("test records", "test_")].into_iter().filter_map(set)))
}
