//! Writes the records of a table to a file of records, row by row: memory grows with the labels, not with the values.

use std::path::Path;

use sordino_nn::Targets;

use super::layout::{Labelling, Layout};
use super::{Options, Rows, begin, first_record, labels_of, shape_of};
use crate::cache::{CacheWriter, Converted, Facts, Type};
use crate::encoding::Encoding;
use crate::error::DataError;
use crate::labels::LabelValues;
use crate::schema::Schema;
use crate::text::{TextEncoder, TokenBuffer};

/// Writes labelled training records, and test records if there are any, to `path`; the first value that is not permitted is an error.
pub(super) fn convert(
    train: &mut dyn Rows,
    test: Option<&mut dyn Rows>,
    mut options: Options<'_>,
    path: &Path,
) -> Result<Converted, DataError> {
    let schema = begin(train, &mut options)?;
    let layout = Layout::new(train, &schema, &options)?;
    let encoder = schema.encoder()?;
    let shape = shape_of(&layout, encoder.as_ref());
    let (classes, scales) = match labels_of(&layout, Vec::new(), Vec::new(), Vec::new()) {
        LabelValues::Classes { names, .. } => (names, Vec::new()),
        LabelValues::Numbers { scales, .. } => (Vec::new(), scales),
        LabelValues::NextTokens { .. } => return Err(CacheWriter::no_language_models(path)),
        LabelValues::Absent => (Vec::new(), Vec::new()),
    };
    let stored = schema.clone().with_target(options.target).with_absolute_tokenizer().with_pinned_tokenizer();
    let unit = layout.unit().map(str::to_owned);
    let facts = Facts { shape, encoding: Encoding::Text, classes, scales, schema: Some(stored), unit };
    let mut writer = CacheWriter::create(path, &facts)?;
    let records = set(&mut writer, "", train, &schema, &layout, encoder.as_ref())?;
    let test_records = match test {
        None => 0,
        Some(test) => {
            options.schema = Some(schema);
            let schema = begin(test, &mut options)?;
            let layout = Layout::new(test, &schema, &options)?;
            set(&mut writer, "test_", test, &schema, &layout, encoder.as_ref())?
        }
    };
    writer.finish()?;
    Ok(Converted { records, test_records, shape })
}

/// Writes one set of records and its labels; returns the number of records.
fn set(
    writer: &mut CacheWriter<'_>,
    prefix: &str,
    rows: &mut dyn Rows,
    schema: &Schema,
    layout: &Layout<'_>,
    encoder: Option<&TextEncoder>,
) -> Result<u64, DataError> {
    first_record(rows, schema)?;
    let file = rows.file().to_owned();
    let mut tokens = encoder.map(|encoder| TokenBuffer::new(&file, encoder, layout.form));
    let (mut features, mut bytes) = (vec![0.0; layout.width], Vec::new());
    let (mut classes, mut numbers, mut units, mut records) = (Vec::new(), Vec::new(), Vec::new(), 0);
    loop {
        features.fill(0.0);
        let row = layout.read(rows, &mut features)?;
        classes.extend(row.class);
        numbers.extend(row.number);
        units.extend(row.unit);
        match &mut tokens {
            Some(tokens) => {
                tokens.push(row.texts)?;
                tokens.encoded().each(|record| writer.tokens(record))?;
            }
            None => {
                bytes.clear();
                bytes.extend(features.iter().flat_map(|value: &f32| value.to_le_bytes()));
                writer.bytes(&bytes)?;
            }
        }
        records += 1;
        if !rows.next()? {
            break;
        }
    }
    match tokens {
        Some(mut tokens) => {
            tokens.encode()?;
            tokens.encoded().each(|record| writer.tokens(record))?;
            writer.token_arrays(prefix)?;
        }
        None => writer.array(prefix, "values", Type::F32, vec![records, layout.width as u64]),
    }
    if layout.unit().is_some() {
        writer.units(prefix, &units)?;
    }
    let targets = match layout.labelling() {
        Labelling::Class(_) => Targets::Classes(&classes),
        _ => Targets::Values { values: &numbers, width: 1 },
    };
    writer.labels(prefix, records, targets)?;
    Ok(records)
}
