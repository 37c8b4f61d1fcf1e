//! Parquet files: tables by a schema, and images as Hugging Face stores them.

use std::sync::Arc;

use parquet::basic::Compression;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use sordino_data::{PredictionOptions, Source, check, draft, overview, read, read_test, read_unlabelled};
use sordino_nn::Shape;

use crate::files::{Directory, classes, numbers, source, texts, unlabelled, values};
use crate::images::{grey, options, png};

/// The values of a column with the definition level of each row; 0 is a missing value.
enum Cells {
    Longs(Vec<i64>),
    Doubles(Vec<Option<f64>>),
    Texts(Vec<&'static str>),
    Bools(Vec<bool>),
    /// Optional bytes within an optional group.
    Bytes(Vec<Option<Vec<u8>>>),
}

/// A Parquet file with two groups of rows of the same content.
fn file(schema: &str, columns: &[Cells], properties: WriterProperties) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    for _ in 0..2 {
        let mut group = writer.next_row_group().unwrap();
        for cells in columns {
            let mut column = group.next_column().unwrap().unwrap();
            match (column.untyped(), cells) {
                (ColumnWriter::Int64ColumnWriter(writer), Cells::Longs(values)) => {
                    writer.write_batch(values, None, None).unwrap();
                }
                (ColumnWriter::BoolColumnWriter(writer), Cells::Bools(values)) => {
                    writer.write_batch(values, None, None).unwrap();
                }
                (ColumnWriter::DoubleColumnWriter(writer), Cells::Doubles(values)) => {
                    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
                    let values: Vec<f64> = values.iter().copied().flatten().collect();
                    writer.write_batch(&values, Some(&levels), None).unwrap();
                }
                (ColumnWriter::ByteArrayColumnWriter(writer), Cells::Texts(values)) => {
                    let values: Vec<ByteArray> = values.iter().map(|&value| value.into()).collect();
                    writer.write_batch(&values, None, None).unwrap();
                }
                (ColumnWriter::ByteArrayColumnWriter(writer), Cells::Bytes(values)) => {
                    let levels: Vec<i16> =
                        values.iter().map(|value| 1 + i16::from(value.is_some())).collect();
                    let values: Vec<ByteArray> =
                        values.iter().flatten().map(|value| value.clone().into()).collect();
                    writer.write_batch(&values, Some(&levels), None).unwrap();
                }
                _ => panic!("a column of another type"),
            }
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

/// Two rows, twice: a number, which may be missing, a category, a flag, a date that is not read, and the class.
pub(crate) fn table(compression: Compression) -> Vec<u8> {
    let schema =
        "message table { optional double size; required binary colour (STRING); required boolean new;
                  required int64 when; required int64 class; }";
    let cells = [
        Cells::Doubles(vec![Some(0.1), None]),
        Cells::Texts(vec!["red", "green"]),
        Cells::Bools(vec![true, false]),
        Cells::Longs(vec![1, 2]),
        Cells::Longs(vec![2, 0]),
    ];
    file(schema, &cells, WriterProperties::builder().set_compression(compression).build())
}

pub(crate) const SCHEMA: &str = r#"
target = "class"
[[columns]]
name = "size"
type = "number"
center = 0.0
scale = 0.5
missing = -1.0
[[columns]]
name = "colour"
type = "category"
values = ["green", "red"]
[[columns]]
name = "new"
type = "number"
[[columns]]
name = "when"
type = "ignore"
[[columns]]
name = "class"
type = "category"
values = ["0", "1", "2"]
"#;

fn by_schema(directory: &Directory, path: impl Into<std::path::PathBuf>) -> Source {
    Source { schema: Some(directory.write("schema.toml", SCHEMA)), ..source(path) }
}

const RECORDS: [f32; 8] = [0.2, 0.0, 1.0, 1.0, -1.0, 1.0, 0.0, 0.0];

#[test]
fn a_table_is_read_by_a_schema_whatever_its_compression() {
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        Compression::LZ4_RAW,
        Compression::BROTLI(Default::default()),
    ];
    for codec in codecs {
        let directory = Directory::new();
        let table = by_schema(&directory, directory.write("t.parquet", table(codec)));
        let sets = read(&table).unwrap();
        assert_eq!(values(&sets.train), RECORDS.repeat(2));
        assert_eq!(classes(&sets.train), [2, 0, 2, 0]);
        assert!(sets.test.is_none() && sets.schema.is_some());
        assert_eq!(values(&unlabelled(&table).unwrap()), RECORDS.repeat(2));
    }
}

#[test]
fn a_table_of_numbers_needs_no_schema() {
    let directory = Directory::new();
    // The name of a column may be a number.
    let schema = "message table { required int64 7; required boolean b; required int64 class; }";
    let cells = [Cells::Longs(vec![3, -4]), Cells::Bools(vec![false, true]), Cells::Longs(vec![1, 0])];
    let path = directory.write("t.parquet", file(schema, &cells, WriterProperties::default()));
    let sets = read(&Source { classes: Some(2), ..source(&path) }).unwrap();
    assert_eq!(values(&sets.train), [3.0, 0.0, -4.0, 1.0, 3.0, 0.0, -4.0, 1.0]);
    assert_eq!(classes(&sets.train), [1, 0, 1, 0]);
    let sets = read(&Source { classes: Some(2), target: Some("b".to_owned()), ..source(&path) }).unwrap();
    assert_eq!(classes(&sets.train), [0, 1, 0, 1]);
}

#[test]
fn the_files_of_a_folder_are_parts() {
    let directory = Directory::new();
    for name in ["train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001", "validation"] {
        directory.write(&format!("set/data/{name}.parquet"), table(Compression::SNAPPY));
    }
    let folder = by_schema(&directory, directory.path().join("set"));
    let sets = read(&folder).unwrap();
    assert_eq!((sets.train.len(), sets.test.as_ref().unwrap().len()), (8, 4));
    assert_eq!(values(&sets.train), RECORDS.repeat(4));
    let rows = read_unlabelled(
        &folder,
        &PredictionOptions { id: Some("when".to_owned()), ..PredictionOptions::default() },
    )
    .unwrap();
    let ids: Vec<&str> = rows.rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids, ["1", "2", "1", "2"]);
    // Another file, and a CSV file, are read by the same schema.
    let other = directory.write("other.parquet", table(Compression::SNAPPY));
    assert_eq!(read_test(&other, &folder, &sets).unwrap().len(), 4);
    let other = directory.write("other.csv", "size,colour,new,when,class\n0.1,red,1,x,2\n");
    assert_eq!(values(&read_test(&other, &folder, &sets).unwrap()), &RECORDS[..4]);
    directory.write("set/data/extra.parquet", table(Compression::SNAPPY));
    let error = read(&folder).unwrap_err();
    assert!(error.to_string().contains("extra.parquet: the name does not say whether"), "{error}");
}

#[test]
fn bad_tables_are_refused_with_file_and_row() {
    let directory = Directory::new();
    let path = directory.write("t.parquet", table(Compression::SNAPPY));
    let refused = |schema: &str| {
        let schema = directory.write("schema.toml", schema);
        let table = Source { schema: Some(schema), ..source(&path) };
        directory.message(&read(&table).unwrap_err())
    };
    assert_eq!(
        refused(&SCHEMA.replace("name = \"new\"", "name = \"old\"")),
        "t.parquet, column 3: the column `new` is not in the schema"
    );
    let message = refused(&format!("{SCHEMA}\n[[columns]]\nname = \"more\"\ntype = \"number\"\n"));
    assert_eq!(message, "t.parquet: the header has no column `more`, which the schema describes");
    let message = refused(&SCHEMA.replace("missing = -1.0", ""));
    assert_eq!(message, "t.parquet, row 2, column 1 (size): must be a finite number, got ``");
    let message = refused(&SCHEMA.replace("\"red\"]", "\"blue\"]"));
    assert_eq!(message, "t.parquet, row 1, column 2 (colour): must be one of `green`, `blue`, got `red`");
    let message = refused(&format!("header = false\n{SCHEMA}"));
    assert_eq!(message, "t.parquet: the columns have names, but the schema has header = false");

    let whole = table(Compression::SNAPPY);
    for bytes in [&whole[..whole.len() - 9], &whole[..6], b"not Parquet at all", b""] {
        let table = by_schema(&directory, directory.write("bad.parquet", bytes));
        let message = directory.message(&read(&table).unwrap_err());
        assert!(message.starts_with("bad.parquet: cannot be read: "), "{message}");
    }
}

/// Rows of images with the metadata that Hugging Face writes.
pub(crate) fn images(pixels: &[Option<u8>], labels: &[i64], names: Option<&str>) -> Vec<u8> {
    let schema =
        "message schema { optional group image { optional binary bytes; optional binary path (STRING); }
                  required int64 label; }";
    let bytes = pixels.iter().map(|pixel| pixel.map(|pixel| png(grey([pixel, 0, 0, 255])))).collect();
    let paths = pixels.iter().map(|_| None).collect();
    let cells = [Cells::Bytes(bytes), Cells::Bytes(paths), Cells::Longs(labels.to_vec())];
    let metadata = names.map(|names| {
        let text = format!(
            r#"{{"info": {{"features": {{"image": {{"_type": "Image"}}, "label": {{"names": {names}, "_type": "ClassLabel"}}}}}}}}"#
        );
        vec![KeyValue::new("huggingface".to_owned(), text)]
    });
    file(schema, &cells, WriterProperties::builder().set_key_value_metadata(metadata).build())
}

#[test]
fn images_are_read_with_the_names_of_their_classes() {
    let directory = Directory::new();
    let names = Some(r#"["cat", "dog"]"#);
    directory.write("train-0.parquet", images(&[Some(51), Some(102)], &[1, 0], names));
    directory.write("test-0.parquet", images(&[Some(255)], &[1], names));
    let folder = Source { images: options("2", 1), ..source(directory.path()) };
    let sets = read(&folder).unwrap();
    assert_eq!(sets.train.shape(), Shape::Image { channels: 1, height: 2, width: 2 });
    assert_eq!(sets.train.classes(), ["cat", "dog"]);
    assert_eq!(classes(&sets.train), [1, 0, 1, 0]);
    let twice = [[0.2, 0.0, 0.0, 1.0], [0.4, 0.0, 0.0, 1.0]].concat().repeat(2);
    assert_eq!(values(&sets.train), twice);
    assert_eq!(values(sets.test.as_ref().unwrap()), [1.0, 0.0, 0.0, 1.0].repeat(2));
    assert_eq!(unlabelled(&folder).unwrap().len(), 2);
    let test = directory.write("other/t.parquet", images(&[Some(0)], &[0], None));
    assert_eq!(read_test(&test, &folder, &sets).unwrap().classes(), ["cat", "dog"]);
    let test = directory.write("other/t.parquet", images(&[Some(0)], &[0], Some(r#"["dog", "cat"]"#)));
    let error = read_test(&test, &folder, &sets).unwrap_err();
    assert!(error.to_string().contains("the classes are `dog`, `cat`, but those of"), "{error}");
}

#[test]
fn classes_of_images_are_named_or_declared() {
    let directory = Directory::new();
    let path = directory.write("t.parquet", images(&[Some(0), Some(1)], &[0, 2], None));
    let table = Source { images: options("2", 1), ..source(&path) };
    let message = directory.message(&read(&table).unwrap_err());
    assert_eq!(
        message,
        "number of classes must be declared, because t.parquet does not name the classes, got none"
    );
    assert_eq!(classes(&read(&Source { classes: Some(3), ..table.clone() }).unwrap().train), [0, 2, 0, 2]);
    let error = read(&Source { classes: Some(2), ..table.clone() }).unwrap_err();
    assert_eq!(directory.message(&error), "t.parquet, row 2: must be a class of 0 to 1, got 2");
    let error = read(&Source { target: Some("kind".to_owned()), ..table.clone() }).unwrap_err();
    assert_eq!(directory.message(&error), "t.parquet: has no column `kind`, only `image`, `label`");
    let error = read(&source(&path)).unwrap_err();
    assert!(error.to_string().starts_with("image size must be declared"), "{error}");
}

#[test]
fn bad_images_are_refused_with_their_row() {
    let directory = Directory::new();
    let path = directory.write("t.parquet", images(&[Some(0), None], &[0, 1], None));
    let table = Source { images: options("2", 1), classes: Some(2), ..source(&path) };
    let error = read(&table).unwrap_err();
    assert_eq!(directory.message(&error), "t.parquet, row 2: the image has no bytes");
    let rows = read_unlabelled(&table, &PredictionOptions::default()).unwrap();
    let refused: Vec<bool> = rows.rows.iter().map(|row| row.refused.is_some()).collect();
    assert_eq!(refused, [false, true, false, true]);
    assert_eq!(rows.records.unwrap().len(), 2);
}

#[test]
fn numbers_to_predict_are_read_from_a_column() {
    let directory = Directory::new();
    let schema = SCHEMA.replace("target = \"class\"", "target = \"new\"");
    let schema = directory.write("schema.toml", schema);
    let path = directory.write("t.parquet", table(Compression::SNAPPY));
    let train = read(&Source { schema: Some(schema), ..source(path) }).unwrap().train;
    assert_eq!(numbers(&train), (&[1.0, 0.0, 1.0, 0.0][..], 1));
}

#[test]
fn texts_in_parquet_columns_become_tokens() {
    let directory = Directory::new();
    let columns = [Cells::Texts(vec!["é", "a b", ""]), Cells::Longs(vec![1, 0, 1])];
    let bytes = file(
        "message m { required binary text (UTF8); required int64 label; }",
        &columns,
        WriterProperties::default(),
    );
    let path = directory.write("t.parquet", bytes);
    let plain = Source { classes: Some(2), tokenizer: Some("bytes".to_owned()), ..source(&path) };
    let schema = "target = 'label'\n[[columns]]\nname = 'label'\ntype = 'category'\nvalues = ['0', '1']\n\
                  [[columns]]\nname = 'text'\ntype = 'text'\ntokenizer = 'bytes'\n";
    let schema = Some(directory.write("s.toml", schema));
    for source in [plain, Source { schema, ..source(&path) }] {
        let sets = read(&source).unwrap();
        assert_eq!(texts(&sets.train)[..3], ["é", "a b", "|"]);
        assert_eq!(classes(&sets.train), [1, 0, 1, 1, 0, 1]);
    }
}

#[test]
fn tables_in_parquet_are_checked_drafted_and_shown() {
    let directory = Directory::new();
    let table = by_schema(&directory, directory.write("t.parquet", table(Compression::SNAPPY)));
    assert_eq!(check(&table).unwrap().total, 0);
    let schema = Some(directory.write("s.toml", SCHEMA.replace("\"red\"]", "\"blue\"]")));
    let problems = check(&Source { schema, ..table.clone() }).unwrap();
    // Both groups of rows have the same values.
    assert!(problems.total > 1 && problems.total.is_multiple_of(2), "{problems:?}");
    let text = draft(&table.path, None, false).unwrap();
    assert!(text.contains("name = \"colour\"\ntype = \"FILL IN: ") && !text.contains("green"), "{text}");
    let parts = overview(&source(&table.path)).unwrap().parts;
    assert_eq!((parts[0].name.as_str(), parts[2].content.as_str()), ("records", "size"));
}
