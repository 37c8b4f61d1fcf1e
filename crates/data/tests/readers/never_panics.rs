//! Any bytes, and any damage to good files, give a data set or an error, never a panic.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestRunner};
use sordino_data::{Schema, Source, read};

use crate::files::{Directory, gzip, source, unlabelled};
use crate::{idx, images, npy};

const SCHEMA: &str = "target = \"b\"\n[[columns]]\nname = \"a\"\ntype = \"number\"\n[[columns]]\nname = \"b\"\n\
                      type = \"category\"\nvalues = [\"x\", \"y\"]\n";

/// A good file of each format, by its name.
fn good() -> Vec<(&'static str, Vec<u8>)> {
    let x = npy::npy("<f4", "(2, 1)", &[0; 8]);
    let y = npy::npy("|u1", "(2,)", &[0, 1]);
    let archive = npy::npz(&[("x", x.clone()), ("y", y)], zip::CompressionMethod::Deflated);
    let picture = images::grey([0, 100, 200, 255]);
    let mut files = vec![
        ("pictures/a/x.png", images::png(picture.clone())),
        ("pictures/b/x.jpg", images::jpeg(picture)),
        ("cifar/train.bin", vec![1; 3074]),
        ("plain.csv", b"a,b\n1,0\n2,1\n".to_vec()),
        ("described.csv", b"a,b\n1,x\n2,\"y\"\n".to_vec()),
        ("t.jsonl", b"{\"a\": \"hi\", \"b\": 0}\n{\"b\": 1, \"a\": null}\n".to_vec()),
        ("t.svm", b"1 1:2 3:4\n0 2:1 # c\n".to_vec()),
        ("zipped.svm", gzip("1 1:2\n0\n")),
        ("t.npy", x),
        ("t.npz", archive),
        ("train-images-idx3-ubyte", idx::file(0x803, &[2, 1, 2], &[1, 2, 3, 4])),
        ("train-labels-idx1-ubyte", idx::file(0x801, &[2], &[1, 2])),
    ];
    files.extend(parquet_files());
    files
}

#[cfg(feature = "parquet")]
fn parquet_files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("images.parquet", crate::parquet::images(&[Some(3), None], &[0, 1], None)),
        ("table.parquet", crate::parquet::table(parquet::basic::Compression::SNAPPY)),
        ("plain.parquet", crate::parquet::table(parquet::basic::Compression::UNCOMPRESSED)),
    ]
}

#[cfg(not(feature = "parquet"))]
fn parquet_files() -> Vec<(&'static str, Vec<u8>)> {
    Vec::new()
}

fn try_everything(directory: &Directory, name: &str, bytes: &[u8]) {
    let path = directory.write(name, bytes);
    let sources = match name {
        "plain.csv" => vec![source(&path), Source { classes: Some(2), ..source(&path) }],
        "described.csv" => {
            vec![Source { schema: Some(directory.path().join("schema.toml")), ..source(&path) }]
        }
        "t.jsonl" => {
            let texts = Source { tokenizer: Some("bytes".to_owned()), classes: Some(2), ..source(&path) };
            let target = Some("b".to_owned());
            vec![
                Source { classes: Some(2), target: target.clone(), ..source(&path) },
                Source { target, ..texts },
            ]
        }
        "t.svm" | "zipped.svm" => vec![Source { features: Some(3), ..source(&path) }],
        "table.parquet" | "plain.parquet" => {
            vec![Source { schema: Some(directory.path().join("columns.toml")), ..source(&path) }]
        }
        "images.parquet" => {
            vec![Source { classes: Some(2), images: images::options("2", 1), ..source(&path) }]
        }
        "pictures/a/x.png" | "pictures/b/x.jpg" => {
            let folder = directory.path().join("pictures");
            vec![Source { images: images::options("3", 3), ..source(folder) }]
        }
        "cifar/train.bin" => vec![source(directory.path().join("cifar"))],
        "t.npy" | "t.npz" => vec![Source { classes: Some(2), ..source(&path) }],
        _ => vec![source(directory.path())],
    };
    for source in sources {
        for set in [read(&source).map(|sets| sets.train), unlabelled(&source)].into_iter().flatten() {
            assert!(!set.is_empty() && set.len() * set.shape().len() > 0);
        }
    }
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config {
        cases,
        failure_persistence: None,
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(20),
        ..Config::default()
    })
}

fn directory() -> Directory {
    let directory = Directory::new();
    directory.write("schema.toml", SCHEMA);
    #[cfg(feature = "parquet")]
    directory.write("columns.toml", crate::parquet::SCHEMA);
    for (name, bytes) in good() {
        directory.write(name, bytes);
    }
    directory
}

#[test]
fn good_files_are_read() {
    let directory = directory();
    for name in ["t.npy", "t.npz", "t.svm"] {
        let features = name.contains("svm").then_some(3);
        assert_eq!(unlabelled(&Source { features, ..source(directory.path().join(name)) }).unwrap().len(), 2);
    }
    assert_eq!(read(&source(directory.path())).unwrap().train.len(), 2);
}

#[test]
fn any_bytes_give_records_or_an_error() {
    let directory = directory();
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        prop::collection::vec(prop::sample::select(b"019.,:;-+einfx\"\n\r\t #?".to_vec()), 0..200),
    ];
    let begins =
        prop::sample::select(vec![&b""[..], b"\x1f\x8b\x08\x00", b"\x93NUMPY\x01\x00", b"PK\x03\x04", b"1,"]);
    let survived = runner(100).run(&(begins, bytes), |(begin, bytes)| {
        for (name, good) in good() {
            try_everything(&directory, name, &[begin, &bytes].concat());
            directory.write(name, good);
        }
        Ok(())
    });
    survived.unwrap();
}

#[test]
fn damaged_files_give_records_or_an_error() {
    let directory = directory();
    let damage = (any::<prop::sample::Index>(), any::<u8>(), any::<prop::sample::Index>(), any::<bool>());
    let survived = runner(200).run(&damage, |(place, byte, end, cut)| {
        for (name, good) in good() {
            let mut bytes = good.clone();
            let place = place.index(bytes.len());
            bytes[place] = byte;
            if cut {
                bytes.truncate(end.index(bytes.len() + 1));
            }
            try_everything(&directory, name, &bytes);
            directory.write(name, good);
        }
        Ok(())
    });
    survived.unwrap();
}

#[test]
fn damaged_schemas_give_a_schema_or_an_error() {
    let damage = (any::<prop::sample::Index>(), any::<char>());
    let survived = runner(300).run(&damage, |(place, character)| {
        let mut text: Vec<char> = SCHEMA.chars().collect();
        let place = place.index(text.len());
        text[place] = character;
        if let Ok(schema) = Schema::parse("s.toml", &text.into_iter().collect::<String>()) {
            assert!(schema.features() > 0);
        }
        Ok(())
    });
    survived.unwrap();
}
