//! Writes the records of a table to a file of records, row by row: memory grows with the labels, not with the values.

use std::io::BufRead;
use std::path::Path;

use sordino_nn::{Shape, Targets};

use super::default_schema::default_schema;
use super::layout::{Labelling, Layout};
use super::rows::Rows;
use super::{Options, labels_of};
use crate::cache::{CacheWriter, Converted, Facts, Type};
use crate::dataset::no_records;
use crate::encoding::Encoding;
use crate::error::DataError;
use crate::labels::LabelValues;
use crate::schema::Schema;

/// Writes a labelled table to `path`; the first value that does not fit is an error.
pub(crate) fn convert(
    file: &str,
    source: impl BufRead,
    mut options: Options<'_>,
    path: &Path,
) -> Result<Converted, DataError> {
    let delimiter = options.schema.as_ref().map_or(options.delimiter, Schema::delimiter);
    let mut rows = Rows::new(file, source, delimiter);
    if !rows.next()? {
        return Err(no_records(file));
    }
    let schema = match options.schema.take() {
        Some(schema) => schema.with_target(options.target),
        None => default_schema(&rows, &options)?,
    };
    options.target = None;
    let layout = Layout::new(&rows, &schema, &options)?;
    if schema.header && !rows.next()? {
        return Err(no_records(file));
    }
    let shape = Shape::Features(layout.width);
    let (classes, scales) = match labels_of(&layout, Vec::new(), Vec::new()) {
        LabelValues::Classes { names, .. } => (names, Vec::new()),
        LabelValues::Numbers { scales, .. } => (Vec::new(), scales),
        LabelValues::Absent => (Vec::new(), Vec::new()),
    };
    let facts = Facts { shape, encoding: Encoding::Text, classes, scales, schema: Some(schema.clone()) };
    let mut writer = CacheWriter::create(path, &facts)?;
    let (mut features, mut bytes) = (vec![0.0; layout.width], Vec::new());
    let (mut classes, mut numbers, mut records) = (Vec::new(), Vec::new(), 0);
    loop {
        features.fill(0.0);
        let row = layout.read(&rows, &mut features)?;
        bytes.clear();
        bytes.extend(features.iter().flat_map(|value: &f32| value.to_le_bytes()));
        writer.bytes(&bytes)?;
        classes.extend(row.class);
        numbers.extend(row.number);
        records += 1;
        if !rows.next()? {
            break;
        }
    }
    writer.array("", "values", Type::F32, vec![records, layout.width as u64]);
    let targets = match layout.labelling() {
        Labelling::Class(_) => Targets::Classes(&classes),
        _ => Targets::Values { values: &numbers, width: 1 },
    };
    writer.labels("", records, targets)?;
    writer.finish()?;
    Ok(Converted { records, test_records: 0, shape })
}
