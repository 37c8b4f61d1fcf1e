use std::fs;

use sordino_data::{Source, convert, overview};

use crate::files::{Directory, gzip, source};
use crate::images::{grey, png};
use crate::npy::{npy, npz};

fn shown(source: &Source) -> Vec<String> {
    let parts = overview(source).unwrap().parts;
    parts.into_iter().map(|part| format!("{}: {}", part.name, part.content)).collect()
}

#[test]
fn arrays_and_tables_are_described_by_their_headers() {
    let directory = Directory::new();
    let (x, y) = (npy("<f4", "(2, 1)", &[0; 8]), npy("|u1", "(2,)", &[0, 1]));
    let archive = npz(&[("x", x.clone()), ("y", y.clone())], zip::CompressionMethod::Deflated);
    let expected = ["x: float32 [2, 1]", "y: uint8 [2]"];
    assert_eq!(shown(&source(directory.write("t.npz", archive))), expected);
    assert_eq!(shown(&source(directory.write("t.npy", gzip(&x)))), ["t.npy: float32 [2, 1]"]);
    let folder = directory.path().join("f");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("x.npy"), x).unwrap();
    fs::write(folder.join("y.npy"), y).unwrap();
    let from = Source { classes: Some(2), ..source(&folder) };
    assert_eq!(shown(&from), ["x.npy: float32 [2, 1]", "y.npy: uint8 [2]"]);
    let cache = directory.path().join("t.sordino");
    convert(&from, &cache).unwrap();
    let expected = ["training records: 2 of shape 1, stored as floats, which are not scaled; 2 classes"];
    assert_eq!(shown(&source(cache)), expected);
    let table = source(directory.write("t.csv", "a,b\n1,secret\n2,secret\n"));
    assert_eq!(shown(&table), ["records: 2", "columns: 2", "column 1: a", "column 2: b"]);
    let table = source(directory.write("t.csv", "1,secret\n2,secret\n"));
    assert_eq!(shown(&table), ["records: 2", "columns: 2"]);
}

#[test]
fn other_sources_are_read_and_counted() {
    let expected =
        ["training records: 8124 of shape 126, stored as text (a table, texts or SVMLight); 2 classes"];
    assert_eq!(shown(&source("mushroom")), expected);
    assert!(overview(&source("none.csv")).is_err());
}

#[test]
fn images_are_counted_and_texts_are_described_without_settings() {
    let directory = Directory::new();
    for name in ["pets/train/cat/1.png", "pets/train/dog/1.png", "pets/test/dog/2.png"] {
        directory.write(name, png(grey([0; 4])));
    }
    let pets = source(directory.path().join("pets"));
    let expected = ["training records: 2 images; 2 classes", "test records: 1 images; 2 classes"];
    assert_eq!(shown(&pets), expected);
    for name in ["names/Irish.txt", "names/Arabic.txt"] {
        directory.write(name, "a\nb\n");
    }
    let shown_names = shown(&source(directory.path().join("names")));
    assert!(
        shown_names[0].starts_with("training records: 4 of shape 256 tokens of 292, "),
        "{shown_names:?}"
    );
    let lines = source(directory.write("t.jsonl", "{\"a\": \"secret\", \"b\": 1}\n"));
    assert_eq!(shown(&lines), ["records: 1", "columns: 2", "column 1: a", "column 2: b"]);
}
