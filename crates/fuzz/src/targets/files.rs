//! Good files of every format of records.

use std::{io::Cursor, sync::Arc};

use image::{DynamicImage, GrayImage, ImageFormat, RgbImage};
use parquet::{
    basic::Compression,
    column::writer::ColumnWriter,
    data_type::ByteArray,
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};

/// An NPY file.
pub(crate) fn npy(descr: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}          \n");
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), bytes].concat()
}

/// Floats as bytes.
pub(crate) fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// An IDX file.
pub(crate) fn idx(magic: u32, sizes: &[u32], bytes: &[u8]) -> Vec<u8> {
    let numbers = [&[magic], sizes].concat();
    [numbers.iter().flat_map(|number| number.to_be_bytes()).collect(), bytes.to_vec()].concat()
}

/// A grey and a coloured image in a format.
pub(crate) fn images(format: ImageFormat) -> Vec<Vec<u8>> {
    let grey = GrayImage::from_fn(5, 4, |x, y| image::Luma([(x * 50 + y) as u8]));
    let colour = RgbImage::from_fn(9, 8, |x, y| image::Rgb([x as u8, y as u8, 200]));
    let encoded = |image: DynamicImage| {
        let mut bytes = Cursor::new(Vec::new());
        image.write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    };
    vec![encoded(grey.into()), encoded(colour.into())]
}

/// A table of a number that may be missing, a text and a class, as a Parquet file.
pub(crate) fn parquet_table(compression: Compression) -> Vec<u8> {
    let schema = "message table { optional double a; required binary t (STRING); required int64 b; }";
    parquet(schema, compression, |column, number| match (column, number) {
        (ColumnWriter::DoubleColumnWriter(writer), 0) => {
            writer.write_batch(&[0.5, 1.5], Some(&[1, 0, 1]), None)
        }
        (ColumnWriter::ByteArrayColumnWriter(writer), 1) => {
            writer.write_batch(&["x", "yes", "x"].map(ByteArray::from), None, None)
        }
        (ColumnWriter::Int64ColumnWriter(writer), 2) => writer.write_batch(&[1, 0, 1], None, None),
        _ => unreachable!("the columns are those of the schema"),
    })
}

/// A column of images as Hugging Face stores them, as a Parquet file.
pub(crate) fn parquet_images() -> Vec<u8> {
    let schema = "message table { optional group image { optional binary bytes; optional binary path (STRING); } required int64 label; }";
    let image: ByteArray = images(ImageFormat::Png).swap_remove(0).into();
    parquet(schema, Compression::SNAPPY, |column, number| match (column, number) {
        (ColumnWriter::ByteArrayColumnWriter(writer), 0) => {
            writer.write_batch(&[image.clone(), image.clone()], Some(&[2, 2]), None)
        }
        (ColumnWriter::ByteArrayColumnWriter(writer), 1) => {
            writer.write_batch(&["a.png", "b.png"].map(ByteArray::from), Some(&[2, 2]), None)
        }
        (ColumnWriter::Int64ColumnWriter(writer), 2) => writer.write_batch(&[1, 0], None, None),
        _ => unreachable!("the columns are those of the schema"),
    })
}

fn parquet(
    schema: &str,
    compression: Compression,
    mut write: impl FnMut(&mut ColumnWriter<'_>, usize) -> Result<usize, parquet::errors::ParquetError>,
) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut number = 0;
    while let Some(mut column) = group.next_column().unwrap() {
        write(column.untyped(), number).unwrap();
        column.close().unwrap();
        number += 1;
    }
    group.close().unwrap();
    writer.into_inner().unwrap()
}
