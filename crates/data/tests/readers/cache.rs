use std::fs;
use std::path::PathBuf;

use safetensors::{Dtype, SafeTensors};
use sordino_data::{
    Dataset, Encoding, ImageOptions, PredictionOptions, Source, Splits, convert, read, read_test,
    read_unlabelled,
};
use sordino_nn::{Inputs, Targets};

use crate::files::{Directory, classes, source, tokens, values};
use crate::npy::{floats, npy, npz};
use crate::{idx, images};

const SCHEMA: &str = "target = \"b\"\n[[columns]]\nname = \"a\"\ntype = \"number\"\nscale = 4.0\n[[columns]]\n\
                      name = \"b\"\ntype = \"category\"\nvalues = [\"x\", \"y\"]\n";

/// A source of each kind: a table, an archive with numbers to predict, images with a test set, arrays in files.
fn sources(directory: &Directory) -> Vec<Source> {
    let schema = Some(directory.write("schema.toml", SCHEMA));
    let table = Source { schema, ..source(directory.write("t.csv", "a,b\n1,x\n2.5,y\n-3,x\n")) };
    let x = npy("<f4", "(2, 2)", &floats(&[1.0, -0.0, 1e-40, 0.3]));
    let y = npy("<f4", "(2, 2)", &floats(&[0.5, 1.5, 2.5, 3.5]));
    let archive = npz(&[("x", x), ("y", y)], zip::CompressionMethod::Deflated);
    let archive = source(directory.write("t.npz", archive));
    for (set, pixels) in ["train", "t10k"].iter().zip([&[0, 255, 51, 7, 8, 102], &[1, 2, 3, 4, 5, 6]]) {
        fs::create_dir_all(directory.path().join("idx")).unwrap();
        directory.write(&format!("idx/{set}-images-idx3-ubyte"), idx::file(0x803, &[3, 1, 2], pixels));
        directory.write(&format!("idx/{set}-labels-idx1-ubyte"), idx::file(0x801, &[3], &[9, 0, 1]));
    }
    fs::create_dir_all(directory.path().join("npy")).unwrap();
    directory.write("npy/x.npy", npy("<i2", "(2, 1)", &[1, 2, 3, 4]));
    directory.write("npy/y.npy", npy("|u1", "(2,)", &[1, 0]));
    let arrays = Source { classes: Some(2), ..source(directory.path().join("npy")) };
    let plain = Source { classes: Some(3), ..source(directory.write("plain.csv", "a,b\n1,2\n0.5,0\n")) };
    let text = "target = 1\nheader = false\ndelimiter = \";\"\n[[columns]]\nnames = [\"p\", \"q\"]\ntype = \"number\"\n\
                center = 2.0\nscale = 0.3\n";
    let schema = Some(directory.write("numbers.toml", text));
    let number = Source { schema, ..source(directory.write("n.csv", "1;2\n0.5;0\n")) };
    for (name, pixel) in
        [("train/a/1.png", 7), ("train/b/1.png", 0), ("train/b/2.jpg", 255), ("test/b/1.png", 99)]
    {
        let picture = images::grey([pixel, 3, 51, 255]);
        let bytes = if name.ends_with("png") { images::png(picture) } else { images::jpeg(picture) };
        directory.write(&format!("pictures/{name}"), bytes);
    }
    let pictures = Source { images: images::options("3x2", 3), ..source(directory.path().join("pictures")) };
    vec![table, archive, source(directory.path().join("idx")), arrays, plain, number, pictures]
}

fn converted(directory: &Directory, source: &Source) -> (Splits, PathBuf) {
    let path = directory.path().join("t.sordino");
    fs::remove_file(&path).ok();
    let converted = convert(source, &path).unwrap();
    let sets = read(source).unwrap();
    let tests = sets.test.as_ref().map_or(0, Dataset::len);
    assert_eq!((converted.records, converted.test_records), (sets.train.len() as u64, tests as u64));
    assert_eq!(converted.shape, sets.train.shape());
    (sets, path)
}

fn same(stored: &Dataset, memory: &Dataset) {
    assert!(matches!(stored.inputs(), Inputs::Stored(_)));
    let bits = |data: &Dataset| values(data).iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(stored), bits(memory));
    match (stored.targets().unwrap(), memory.targets().unwrap()) {
        (Targets::Classes(stored), Targets::Classes(memory)) => assert_eq!(stored, memory),
        (Targets::Values { values: stored, width: a }, Targets::Values { values: memory, width: b }) => {
            assert_eq!((stored, a), (memory, b));
        }
        _ => panic!("labels of two kinds"),
    }
    assert_eq!((stored.shape(), stored.encoding()), (memory.shape(), memory.encoding()));
    assert_eq!((stored.classes(), stored.scales()), (memory.classes(), memory.scales()));
}

#[test]
fn a_converted_source_has_the_same_records_labels_and_facts() {
    let directory = Directory::new();
    for from in sources(&directory) {
        let (memory, path) = converted(&directory, &from);
        let stored = read(&source(&path)).unwrap();
        same(&stored.train, &memory.train);
        assert_eq!(stored.test.is_some(), memory.test.is_some());
        if let (Some(stored), Some(memory)) = (&stored.test, &memory.test) {
            same(stored, memory);
        }
        assert_eq!(stored.schema, memory.schema);
        // What was converted can be converted again, to the same bytes.
        let again = directory.path().join("again.sordino");
        convert(&source(&path), &again).unwrap();
        assert!(fs::read(&again).unwrap() == fs::read(&path).unwrap());
        fs::remove_file(again).unwrap();
    }
}

#[test]
fn the_reference_reader_of_the_layout_reads_the_arrays() {
    let directory = Directory::new();
    let (_, path) = converted(&directory, &sources(&directory)[2]);
    let bytes = fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut names = tensors.names();
    names.sort_unstable();
    assert_eq!(names, ["labels", "test_labels", "test_values", "values"]);
    let pixels = tensors.tensor("values").unwrap();
    assert_eq!((pixels.dtype(), pixels.shape()), (Dtype::U8, &[3, 1, 1, 2][..]));
    assert_eq!(pixels.data(), [0, 255, 51, 7, 8, 102]);
    let labels = tensors.tensor("test_labels").unwrap();
    assert_eq!((labels.dtype(), labels.shape(), labels.data()[0]), (Dtype::I32, &[3][..], 9));
}

#[test]
fn every_truncation_and_every_addition_is_refused() {
    let directory = Directory::new();
    for from in sources(&directory) {
        let (_, path) = converted(&directory, &from);
        let good = fs::read(&path).unwrap();
        let ends = (0..good.len()).filter(|end| *end < 64 || end % 37 == 0 || end + 64 > good.len());
        for end in ends {
            fs::write(&path, &good[..end]).unwrap();
            let error = directory.message(&read(&source(&path)).unwrap_err());
            assert!(error.starts_with("t.sordino, byte "), "{end}: {error}");
        }
        fs::write(&path, [&good[..], b"!"].concat()).unwrap();
        let error = directory.message(&read(&source(&path)).unwrap_err());
        assert_eq!(
            error,
            format!(
                "t.sordino, byte {}: there are bytes beyond the last value that the header states",
                good.len()
            )
        );
    }
}

/// Bytes of the header, and every byte of the data, are damaged in turn: the file is refused, or it is read and the rest of it is as before.
#[test]
fn every_damaged_byte_gives_an_error_or_other_values() {
    let directory = Directory::new();
    for from in sources(&directory) {
        let (memory, path) = converted(&directory, &from);
        let good = fs::read(&path).unwrap();
        let data = 8 + u64::from_le_bytes(good[..8].try_into().unwrap()) as usize;
        let text = String::from_utf8_lossy(&good[8..data]).trim_end().len();
        for place in (0..16).chain((16..16 + text).step_by(5)).chain(data..good.len()) {
            for byte in [0xff, good[place] ^ 1] {
                let mut bytes = good.clone();
                bytes[place] = byte;
                fs::write(&path, &bytes).unwrap();
                match read(&source(&path)) {
                    Ok(sets) => assert_eq!(sets.train.len(), memory.train.len(), "byte {place}"),
                    Err(error) => assert!(directory.message(&error).starts_with("t.sordino"), "{error}"),
                }
            }
        }
    }
}

#[test]
fn a_damaged_label_and_a_damaged_value_are_refused_with_their_place() {
    let directory = Directory::new();
    let refused = |from: &Source, from_end: usize, damage: &[u8]| {
        let (_, path) = converted(&directory, from);
        let mut bytes = fs::read(&path).unwrap();
        let start = bytes.len() - from_end;
        bytes[start..start + damage.len()].copy_from_slice(damage);
        fs::write(&path, bytes).unwrap();
        directory.message(&read(&source(&path)).unwrap_err())
    };
    let [table, archive, ..] = &sources(&directory)[..] else { panic!("sources") };
    assert_eq!(
        refused(table, 4, &[2, 0, 0, 0]),
        "t.sordino, array labels, value 3: must be a class of 0 to 1, got 2"
    );
    let nan = f32::NAN.to_le_bytes();
    assert_eq!(
        refused(table, 12 + 8, &nan),
        "t.sordino, array values, record 2, value 1: must be a finite number in single precision, got NaN"
    );
    assert_eq!(
        refused(archive, 4, &nan),
        "t.sordino, array labels, value 4: must be a finite number, got NaN"
    );
}

#[test]
fn other_files_and_later_versions_are_refused() {
    let directory = Directory::new();
    let refused = |text: &str| {
        let bytes = [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
        let path = directory.write("o.sordino", bytes);
        directory.message(&read(&source(path)).unwrap_err())
    };
    assert!(refused("{}").starts_with("o.sordino, byte 8: the header cannot be read"));
    assert_eq!(refused("{\"__metadata__\":{}}"), "o.sordino, byte 8: is not a file of records");
    assert_eq!(
        refused("{\"__metadata__\":{\"format\":\"sordino-records\",\"version\":\"2\"}}"),
        "o.sordino, byte 8: version `2` of the format is not supported; 1 is"
    );
    let facts = |facts: &str| {
        let facts = facts.replace('"', "\\\"");
        refused(&format!(
            "{{\"__metadata__\":{{\"format\":\"sordino-records\",\"version\":\"1\",\"facts\":\"{facts}\"}}}}"
        ))
    };
    let some = |shape: &str, classes: &str| {
        facts(&format!(
            "{{\"shape\":{shape},\"encoding\":\"floats\",\"classes\":{classes},\"scales\":[],\"schema\":null}}"
        ))
    };
    assert!(facts("{}").contains("the public facts: missing field `shape`"));
    assert!(some("{\"features\":0}", "[\"a\",\"b\"]").contains("the public facts"));
    assert!(some("{\"features\":2}", "[\"a\",\"b\"]").contains("there is no array labels"));
    assert!(some("{\"features\":2}", "[]").contains("neither classes nor scales"));
    let huge = "{\"image\":[4294967296,4294967296,4294967296]}";
    assert!(some(huge, "[\"a\",\"b\"]").contains("too large or empty"));
}

#[test]
fn the_schema_of_a_table_travels_with_its_records() {
    let directory = Directory::new();
    let table = &sources(&directory)[0];
    let (sets, path) = converted(&directory, table);
    // The schema that the records were read by may be given again, as in a resumed run; another one may not.
    let given = Source { schema: table.schema.clone(), ..source(&path) };
    assert_eq!(read(&given).unwrap().train.len(), 3);
    let other = Some(directory.write("other.toml", SCHEMA.replace("4.0", "5.0")));
    let error = directory.message(&read(&Source { schema: other, ..source(&path) }).unwrap_err());
    assert_eq!(error, "t.sordino: the records were read by another schema");
    // Test records and records to predict may come from a table and from a file of records.
    let stored = read(&source(&path)).unwrap();
    assert_eq!(values(&read_test(&table.path, &source(&path), &stored).unwrap()), values(&sets.train));
    assert_eq!(values(&read_test(&path, table, &sets).unwrap()), values(&sets.train));
    let options = PredictionOptions { encoding: Some(Encoding::Text), ..PredictionOptions::default() };
    let rows = read_unlabelled(&given, &options).unwrap();
    assert_eq!(values(rows.records.as_ref().unwrap()), values(&sets.train));
    assert!(rows.part.unwrap().starts_with("the training records of "));
}

#[test]
fn settings_that_contradict_the_file_are_refused() {
    let directory = Directory::new();
    let (_, path) = converted(&directory, &sources(&directory)[2]);
    assert_eq!(classes(&read(&Source { classes: Some(10), ..source(&path) }).unwrap().train), [9, 0, 1]);
    let refused = |source: Source| directory.message(&read(&source).unwrap_err());
    let error = refused(Source { classes: Some(9), ..source(&path) });
    assert!(error.starts_with("number of classes must be 10 as in"), "{error}");
    assert!(refused(Source { features: Some(2), ..source(&path) }).starts_with("number of features"));
    assert!(refused(Source { target: Some("b".to_owned()), ..source(&path) }).starts_with("target"));
}

#[test]
fn bytes_and_integers_are_converted_into_each_other() {
    let directory = Directory::new();
    let all = sources(&directory);
    let wanted = |path: &PathBuf, encoding| {
        let options = PredictionOptions { encoding: Some(encoding), ..PredictionOptions::default() };
        read_unlabelled(&source(path), &options).map(|rows| values(&rows.records.unwrap()).to_vec())
    };
    let (_, bytes) = converted(&directory, &all[2]);
    assert_eq!(wanted(&bytes, Encoding::Bytes).unwrap()[..3], [0.0, 1.0, 0.2]);
    assert_eq!(wanted(&bytes, Encoding::Integers).unwrap()[..3], [0.0, 255.0, 51.0]);
    assert!(wanted(&bytes, Encoding::Floats).is_err());
    let (_, integers) = converted(&directory, &all[3]);
    assert_eq!(wanted(&integers, Encoding::Integers).unwrap(), [513.0, 1027.0]);
    let error = wanted(&integers, Encoding::Bytes).unwrap_err().to_string();
    assert!(error.contains("must be an integer from 0 to 255"), "{error}");
}

#[test]
fn a_file_is_written_completely_or_not_at_all() {
    let directory = Directory::new();
    let from = &sources(&directory)[0];
    let refused = |from: &Source, name: &str| {
        directory.message(&convert(from, &directory.path().join(name)).unwrap_err())
    };
    let files = || fs::read_dir(directory.path()).unwrap().count();
    let before = files();
    assert_eq!(refused(from, "t.bin"), "t.bin: the name of a file of records ends in .sordino");
    assert!(refused(from, "none/t.sordino").starts_with("none/t.sordino: cannot be written"));
    let bad = Source { path: directory.write("t.csv", "a,b\n1,x\n2.5,z\n"), ..from.clone() };
    assert!(refused(&bad, "t.sordino").starts_with("t.csv, line 3"));
    let pictures = &sources(&directory)[6];
    directory.write("pictures/train/b/3.png", "no picture");
    assert!(refused(pictures, "t.sordino").starts_with("pictures/train/b/3.png: is neither"));
    assert_eq!(files(), before);
    let (_, path) = converted(&directory, &sources(&directory)[0]);
    assert_eq!(refused(from, "t.sordino"), "t.sordino: exists already");
    assert_eq!(files(), before + 1);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn texts_are_converted_to_their_tokens() {
    let directory = Directory::new();
    for (name, text) in [("train/neg/1.txt", "bad"), ("train/pos/1.txt", "good"), ("test/pos/1.txt", "é")] {
        directory.write(&format!("reviews/{name}"), text);
    }
    let folder = Source { tokenizer: Some("bytes".to_owned()), ..source(directory.path().join("reviews")) };
    let lines = "{\"text\": \"a\", \"y\": 1}\n{\"text\": \"\", \"y\": 0}\n";
    let lines = source(directory.write("t.jsonl", lines));
    let lines =
        Source { classes: Some(2), max_length: Some(8), tokenizer: Some("bytes".to_owned()), ..lines };
    let lines = Source { target: Some("y".to_owned()), ..lines };
    for source in [folder, lines] {
        let (memory, path) = converted(&directory, &source);
        let stored = read(&Source { path, ..Source::default() }).unwrap();
        assert!(matches!(stored.train.inputs(), Inputs::Stored(_)));
        assert_eq!(tokens(&stored.train), tokens(&memory.train));
        assert_eq!(classes(&stored.train), classes(&memory.train));
        assert_eq!(stored.test.as_ref().map(tokens), memory.test.as_ref().map(tokens));
        assert_eq!((stored.train.shape(), stored.schema), (memory.train.shape(), memory.schema));
    }
}

#[test]
fn language_models_and_normalisation_are_not_converted() {
    let directory = Directory::new();
    let out = directory.path().join("t.sordino");
    let schema =
        "target = 'ref'\n[[columns]]\nname = 'ref'\ntype = 'text'\n[[columns]]\nname = 'mr'\ntype = 'text'\n";
    let schema = Some(directory.write("s.toml", schema));
    let table = Source { schema, ..source(directory.write("t.csv", "mr,ref\na,b\n")) };
    let message = directory.message(&convert(&table, &out).unwrap_err());
    assert_eq!(message, "t.sordino: records for language models cannot be converted");
    let images = ImageOptions { mean: Some(vec![0.5]), ..ImageOptions::default() };
    let images = Source { images, ..source(directory.path()) };
    let mushroom = Source { path: "mushroom".into(), ..images };
    let message = convert(&mushroom, &out).unwrap_err().to_string();
    assert_eq!(message, "mean must be left out for a conversion, got [0.5]");
    assert!(!out.exists());
}

#[cfg(feature = "tokenizers")]
#[test]
fn a_file_of_tokens_is_read_with_a_copy_of_its_tokenizer() {
    let directory = Directory::new();
    let fixture = include_str!("../fixtures/wordpiece.json");
    let schema = "target = 'y'\n[[columns]]\nname = 'text'\ntype = 'text'\ntokenizer = 'my.json'\n[[columns]]\n\
                  name = 'y'\ntype = 'category'\nvalues = ['0', '1']\n";
    directory.write("my.json", fixture);
    let table = Source {
        schema: Some(directory.write("s.toml", schema)),
        ..source(directory.write("t.csv", "text,y\na good film,1\nunhelpful,0\n"))
    };
    let (_, path) = converted(&directory, &table);
    let copy = |text: &str| {
        directory.write("run/tokenizer.json", text);
        let schema = directory.write("run/s.toml", schema.replace("my.json", "tokenizer.json"));
        let stated = schema_with_length(&schema);
        read(&Source { schema: Some(stated), ..source(&path) })
    };
    let other = fixture.replace("\"good\"", "\"evil\"");
    assert!(copy(fixture).is_ok());
    let refused = |error: sordino_data::DataError| {
        assert!(error.to_string().contains("were read by another schema"), "{error}");
    };
    refused(copy(&other).unwrap_err());
    // The file of records can be read without its tokenizer, and still states the hash.
    fs::remove_file(directory.path().join("my.json")).unwrap();
    assert!(copy(fixture).is_ok());
    refused(copy(&other).unwrap_err());
    assert!(read(&source(&path)).is_ok());
    // A tokenizer that was changed after the conversion.
    directory.write("my.json", &other);
    let message = directory.message(&read(&source(&path)).unwrap_err());
    assert!(message.starts_with("my.json: is a different tokenizer: its SHA-256 hash is "), "{message}");
    // The hash is kept when the file is converted again.
    directory.write("my.json", fixture);
    let again = directory.path().join("again.sordino");
    convert(&source(&path), &again).unwrap();
    directory.write("my.json", &other);
    assert!(read(&source(&again)).is_err());
}

/// A converted schema states the maximum length.
#[cfg(feature = "tokenizers")]
fn schema_with_length(schema: &std::path::Path) -> PathBuf {
    let text = fs::read_to_string(schema).unwrap();
    let text = text.replace("tokenizer.json'", "tokenizer.json'\nmax_length = 256");
    let path = schema.with_file_name("stated.toml");
    fs::write(&path, text).unwrap();
    path
}
