//! Records for prediction: ids, rows that cannot be read, unknown categories, encodings.

use sordino_data::{
    DataError, Encoding, PredictionOptions, Source, UnlabelledRows, read, read_test, read_unlabelled,
};

use crate::files::{Directory, source, values};
use crate::npy::{npy, npz};

const SCHEMA: &str = "target = 'ill'\n[[columns]]\nname = 'age'\ntype = 'number'\n[[columns]]\nname = 'ward'\n\
                      type = 'category'\nvalues = ['a', 'b']\n[[columns]]\nname = 'ill'\ntype = 'category'\n\
                      values = ['no', 'yes']\n";

fn table(text: &str, schema: &str, id: Option<&str>, ignore_unknown: bool) -> Result<UnlabelledRows, String> {
    let directory = Directory::new();
    let schema = Some(directory.write("schema.toml", schema));
    let source = Source { schema, ..source(directory.write("t.csv", text)) };
    let reading =
        PredictionOptions { id: id.map(str::to_owned), ignore_unknown, ..PredictionOptions::default() };
    read_unlabelled(&source, &reading).map_err(|error| directory.message(&error))
}

fn ids(unlabelled: &UnlabelledRows) -> Vec<&str> {
    unlabelled.rows.iter().map(|row| row.id.as_str()).collect()
}

fn refused(unlabelled: &UnlabelledRows) -> Vec<usize> {
    (0..unlabelled.rows.len()).filter(|&row| unlabelled.rows[row].refused.is_some()).collect()
}

#[test]
fn a_row_that_cannot_be_read_is_set_aside() {
    let text = "age,ward\n1,a\n2,c\nx,b\n4\n\n5,b\n";
    let unlabelled = table(text, SCHEMA, None, false).unwrap();
    assert_eq!(ids(&unlabelled), ["1", "2", "3", "4", "5"]);
    assert_eq!(refused(&unlabelled), [1, 2, 3]);
    assert_eq!(values(unlabelled.records.as_ref().unwrap()), [1.0, 1.0, 0.0, 5.0, 0.0, 1.0]);
    let message = |row: usize| unlabelled.rows[row].refused.as_ref().map(ToString::to_string).unwrap();
    assert!(message(1).ends_with("t.csv, line 3, column 2 (ward): must be one of `a`, `b`, got `c`"));
    assert!(message(2).ends_with("t.csv, line 4, column 1 (age): must be a finite number, got `x`"));
    assert!(message(3).contains("t.csv, line 5, column 2 (ward): the record has 1 fields"), "{}", message(3));
    // The schema belongs to the model: no hint says that it should be changed.
    for row in [1, 2] {
        let hint = unlabelled.rows[row].refused.as_ref().map(DataError::hint).unwrap();
        assert!(hint.starts_with("the model") && !hint.contains("schema"), "{hint}");
    }
    assert!(table("age,ward\nx,a\n", SCHEMA, None, false).unwrap().records.is_none());
}

#[test]
fn unknown_categories_can_be_ignored_and_are_counted() {
    let unlabelled = table("age,ward\n1,c\n2,a\n3,d\nx,e\n", SCHEMA, None, true).unwrap();
    assert_eq!(refused(&unlabelled), [3]);
    assert_eq!(values(unlabelled.records.as_ref().unwrap()), [1.0, 0.0, 0.0, 2.0, 1.0, 0.0, 3.0, 0.0, 0.0]);
    assert_eq!(unlabelled.unknown, [("ward".to_owned(), 2)]);
}

#[test]
fn an_id_is_any_column() {
    // A column that the schema does not describe, by name and by number; a column that it describes.
    for (text, id, expected) in [
        ("age,key,ward\n1,x,a\n2,y,b\n", "key", ["x", "y"]),
        ("age,key,ward\n1,x,a\n2,y,b\n", "2", ["x", "y"]),
        (",age,ward\nx,1,a\ny,2,b\n", "", ["x", "y"]),
        ("age,ward\n1,a\n2,b\n", "age", ["1", "2"]),
    ] {
        let unlabelled = table(text, SCHEMA, Some(id), false).unwrap();
        assert_eq!(ids(&unlabelled), expected);
        assert_eq!(values(unlabelled.records.as_ref().unwrap()), [1.0, 1.0, 0.0, 2.0, 0.0, 1.0]);
    }
    let message = table("age,ward\n1,a\n", SCHEMA, Some("key"), false).unwrap_err();
    assert_eq!(message, "t.csv: the id `key` is not one of the 2 columns");
    let message = table("age,key,ward\n1,x,a\n", SCHEMA, None, false).unwrap_err();
    assert_eq!(
        message,
        "t.csv, line 1, column 2: the column `key` is not in the schema of the training records"
    );
}

#[test]
fn without_a_header_an_id_is_a_number_and_never_taken_for_a_feature() {
    let schema = format!("header = false\n{SCHEMA}");
    let with = |text: &str, id: &str| table(text, &schema, Some(id), false);
    let unlabelled = with("x,1,a,no\ny,2,b,no\n", "1").unwrap();
    assert_eq!(ids(&unlabelled), ["x", "y"]);
    assert_eq!(values(unlabelled.records.as_ref().unwrap()), [1.0, 1.0, 0.0, 2.0, 0.0, 1.0]);
    // The last of three fields is the target or an id besides the features: they are the same features.
    assert_eq!(ids(&with("1,a,x\n2,b,y\n", "3").unwrap()), ["x", "y"]);
    // The first may be the feature that is described there, or not.
    let message = with("7,1,a\n8,2,b\n", "1").unwrap_err();
    assert!(message.contains("or an id in column 1"), "{message}");
    assert!(with("1,a,x\n", "4").unwrap_err().contains("the id `4` is not one of the 3 columns"));
}

#[test]
fn an_unnamed_column_is_described_by_an_empty_name() {
    let directory = Directory::new();
    let text = ",age,ward,ill\n0,1,a,no\n1,2,b,yes\n";
    let path = directory.write("t.csv", text);
    let unnamed = "[[columns]]\nname = ''\ntype = 'ignore'\n";
    let schema = Some(directory.write("schema.toml", format!("{SCHEMA}{unnamed}")));
    let sets = read(&Source { schema, ..source(&path) }).unwrap();
    assert_eq!(values(&sets.train), [1.0, 1.0, 0.0, 2.0, 0.0, 1.0]);
    let error = read(&Source { classes: Some(2), ..source(path) }).unwrap_err();
    assert!(error.hint().contains("name = \"\""), "{}", error.hint());
}

#[test]
fn values_must_have_the_encoding_of_the_training_records() {
    let directory = Directory::new();
    let array = |descr, bytes: &[u8], encoding| {
        let path = directory.write("t.npy", npy(descr, "(1, 2)", bytes));
        let reading = PredictionOptions { encoding: Some(encoding), ..PredictionOptions::default() };
        read_unlabelled(&source(path), &reading)
    };
    let read = |unlabelled: Result<UnlabelledRows, DataError>| {
        let records = unlabelled.unwrap().records.unwrap();
        (values(&records).to_vec(), records.encoding())
    };
    let (bytes, shorts): ([u8; 2], [u8; 4]) = ([51, 255], [51, 0, 255, 0]);
    let floats: Vec<u8> = [51.0_f32, 255.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let (scaled, whole) = (vec![0.2, 1.0], vec![51.0, 255.0]);
    // Bytes and other whole numbers are the same pixels.
    assert_eq!(read(array("|u1", &bytes, Encoding::Bytes)), (scaled.clone(), Encoding::Bytes));
    assert_eq!(read(array("<i2", &shorts, Encoding::Bytes)), (scaled, Encoding::Bytes));
    assert_eq!(read(array("|u1", &bytes, Encoding::Integers)), (whole.clone(), Encoding::Integers));
    assert_eq!(read(array("<f4", &floats, Encoding::Floats)), (whole, Encoding::Floats));
    let beyond = array("<i2", &[0, 1, 0, 0], Encoding::Bytes).unwrap();
    assert_eq!(refused(&beyond), [0]);
    // A file of floats does not show whether its pixels are from 0 to 255 or from 0 to 1.
    for (descr, bytes, encoding) in [
        ("<f4", &floats[..], Encoding::Bytes),
        ("|u1", &bytes[..], Encoding::Floats),
        ("|b1", &[0, 1][..], Encoding::Bytes),
    ] {
        let error = array(descr, bytes, encoding).unwrap_err();
        assert!(error.to_string().contains("those of the training records are"), "{error}");
        assert!(error.hint().contains("astype"), "{}", error.hint());
    }
    let reading = PredictionOptions { encoding: Some(Encoding::Bytes), ..PredictionOptions::default() };
    let error = read_unlabelled(&source(directory.write("t.csv", "1,2\n")), &reading).unwrap_err();
    assert!(error.to_string().contains("the values are text"), "{error}");
}

#[test]
fn channels_may_come_last() {
    let directory = Directory::new();
    // Values of a record are numbered as they lie in the file: channels last.
    let bytes: Vec<u8> = (0..8 * 8 * 3).map(|value| value as u8).collect();
    let path = directory.write("t.npy", npy("|i1", "(1, 8, 8, 3)", &bytes));
    let records = read_unlabelled(&source(path), &PredictionOptions::default()).unwrap().records.unwrap();
    assert_eq!(records.shape(), sordino_nn::Shape::Image { channels: 3, height: 8, width: 8 });
    assert_eq!(values(&records)[..3], [0.0, 3.0, 6.0]);
    assert_eq!(values(&records)[64..67], [1.0, 4.0, 7.0]);
    assert_eq!(values(&records)[128..130], [2.0, 5.0]);
}

#[test]
fn the_part_of_an_archive_that_was_read_is_reported() {
    let directory = Directory::new();
    let x = npy("<f4", "(1, 1)", &[0; 4]);
    let part = |arrays: &[(&str, Vec<u8>)]| {
        let path = directory.write("t.npz", npz(arrays, zip::CompressionMethod::Stored));
        read_unlabelled(&source(path), &PredictionOptions::default()).unwrap().part.unwrap()
    };
    assert!(
        part(&[("x", x.clone())]).ends_with("t.npz")
            && part(&[("x", x.clone())]).starts_with("the array x of")
    );
    assert!(part(&[("x", x.clone()), ("x_test", x)]).ends_with("t.npz; x_test is not read"));
}

#[test]
fn a_record_of_an_array_that_is_not_finite_is_set_aside() {
    let directory = Directory::new();
    let floats: Vec<u8> = [1.0, f32::NAN, 3.0, 4.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let path = directory.write("t.npy", npy("<f4", "(2, 2)", &floats));
    let unlabelled = read_unlabelled(&source(path), &PredictionOptions::default()).unwrap();
    assert_eq!(refused(&unlabelled), [0]);
    assert_eq!(values(unlabelled.records.as_ref().unwrap()), [3.0, 4.0]);
    let path = directory.write("t.svm", "1:2\n1:x\n");
    let svm = Source { features: Some(1), ..source(path) };
    let unlabelled = read_unlabelled(&svm, &PredictionOptions::default()).unwrap();
    assert_eq!(refused(&unlabelled), [1]);
    assert_eq!(values(unlabelled.records.as_ref().unwrap()), [2.0]);
}

#[test]
fn test_records_are_like_the_training_records() {
    let directory = Directory::new();
    let schema = Some(directory.write("schema.toml", SCHEMA));
    let table = Source { schema, ..source(directory.write("t.csv", "age,ward,ill\n1,a,no\n")) };
    let sets = read(&table).unwrap();
    let path = directory.write("test.csv", "ill,age,ward\nyes,7,b\n");
    assert_eq!(values(&read_test(&path, &table, &sets).unwrap()), [7.0, 0.0, 1.0]);
    let path = directory.write("test.csv", "ill,age,ward\nmaybe,7,b\n");
    assert!(read_test(&path, &table, &sets).unwrap_err().to_string().contains("must be one of `no`, `yes`"));
    let y = npy("|u1", "(1,)", &[1]);
    let archive = |arrays: &[(&str, Vec<u8>)], name: &str| {
        directory.write(name, npz(arrays, zip::CompressionMethod::Stored))
    };
    let bytes = |width: usize| npy("|u1", &format!("(1, {width})"), &vec![51; width]);
    let numbers = archive(&[("x", bytes(2)), ("y", y.clone())], "t.npz");
    let message = read_test(&numbers, &table, &sets).unwrap_err().to_string();
    assert!(message.contains("is not a table"), "{message}");
    // The test set of an archive, or else its only one.
    let numbers = Source { classes: Some(2), ..source(numbers) };
    let sets = read(&numbers).unwrap();
    let arrays = [("x", bytes(3)), ("x_test", bytes(2)), ("y_test", y.clone())];
    assert_eq!(values(&read_test(&archive(&arrays, "a.npz"), &numbers, &sets).unwrap()), [0.2, 0.2]);
    assert_eq!(read_test(&numbers.path, &numbers, &sets).unwrap().len(), 1);
    let message = |arrays: &[(&str, Vec<u8>)]| {
        read_test(&archive(arrays, "a.npz"), &numbers, &sets).unwrap_err().to_string()
    };
    assert!(message(&[("x", bytes(3)), ("y", y.clone())]).contains("of shape 3 with 2 classes"));
    let floats = npy("<f4", "(1, 2)", &[0; 8]);
    assert!(
        message(&[("x", floats.clone()), ("y", y.clone())])
            .contains("those of the training records are bytes")
    );
    // Within one archive, too.
    let arrays = [("x", bytes(2)), ("y", y.clone()), ("x_test", floats), ("y_test", y)];
    let error = read(&Source { classes: Some(2), ..source(archive(&arrays, "a.npz")) }).unwrap_err();
    assert!(error.to_string().contains("array x_test"), "{error}");
}
