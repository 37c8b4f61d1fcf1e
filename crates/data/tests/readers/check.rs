use sordino_data::{Problems, Source, check};

use crate::files::{Directory, gzip, source};
use crate::images;
use crate::npy::{npy, npz};

const SCHEMA: &str = "target = \"b\"\n[[columns]]\nname = \"a\"\ntype = \"number\"\n[[columns]]\nname = \"b\"\n\
                      type = \"category\"\nvalues = [\"x\", \"y\"]\n";

fn checked(text: &str, schema: &str) -> (Problems, Vec<String>) {
    let directory = Directory::new();
    let schema = Some(directory.write("s.toml", schema));
    let problems = check(&Source { schema, ..source(directory.write("t.csv", text)) }).unwrap();
    let messages = problems.listed.iter().map(|problem| directory.message(problem)).collect();
    (problems, messages)
}

#[test]
fn every_problem_of_every_row_is_listed() {
    let (problems, messages) = checked("a,b\n1,x\none,z\n\n2\n3,y\n,y\n", SCHEMA);
    assert_eq!((problems.total, problems.records), (4, 5));
    let expected = [
        "t.csv, line 3, column 1 (a): must be a finite number, got `one`",
        "t.csv, line 3, column 2 (b): must be one of `x`, `y`, got `z`",
        "t.csv, line 5, column 2 (b): the record has 1 fields, expected 2",
        "t.csv, line 7, column 1 (a): must be a finite number, got ``",
    ];
    assert_eq!(messages, expected);
}

#[test]
fn every_problem_of_a_header_is_listed() {
    let (problems, messages) = checked("c,a,a,d\n1,2,3,4\n", SCHEMA);
    assert_eq!((problems.total, problems.records), (4, 0));
    let expected = [
        "t.csv, line 1, column 1: the column `c` is not in the schema",
        "t.csv, line 1, column 3: the column `a` occurs twice",
        "t.csv, line 1, column 4: the column `d` is not in the schema",
        "t.csv, line 1: the header has no column `b`, which the schema describes",
    ];
    assert_eq!(messages, expected);
}

#[test]
fn a_good_table_has_no_problems_and_a_bad_one_no_more_than_a_hundred_are_listed() {
    let (problems, _) = checked("b,a\nx,1\ny,2\n", SCHEMA);
    assert_eq!((problems.total, problems.records, problems.listed.len()), (0, 2, 0));
    let (problems, _) = checked(&format!("a,b\n{}", "?,?\n".repeat(300)), SCHEMA);
    assert_eq!((problems.total, problems.records, problems.listed.len()), (600, 300, 100));
}

#[test]
fn other_formats_have_their_first_problem() {
    let directory = Directory::new();
    let from = |value: f32, classes| {
        let x = npy("<f4", "(1, 1)", &value.to_le_bytes());
        let archive = npz(&[("x", x), ("y", npy("|u1", "(1,)", &[1]))], zip::CompressionMethod::Stored);
        Source { classes, ..source(directory.write("t.npz", archive)) }
    };
    assert_eq!(check(&from(f32::NAN, Some(2))).unwrap().total, 1);
    assert_eq!(check(&from(1.0, Some(2))).unwrap().records, 1);
    // A setting that is missing is not a problem of the file.
    assert!(check(&from(1.0, None)).is_err());
    assert_eq!(check(&source("mushroom")).unwrap().records, 8124);
}

#[test]
fn every_problem_of_texts_and_json_lines_is_listed() {
    let directory = Directory::new();
    directory.write("reviews/a/1.txt", b"\xff");
    directory.write("reviews/b/1.txt", "fine");
    directory.write("reviews/b/2.txt", b"\xfe");
    let messages = |source: &Source| -> Vec<String> {
        let problems = check(source).unwrap();
        problems.listed.iter().map(|problem| directory.message(problem)).collect()
    };
    let found = messages(&source(directory.path().join("reviews")));
    let expected = [
        "reviews/a/1.txt, column 1 (text): must be UTF-8",
        "reviews/b/2.txt, column 1 (text): must be UTF-8",
    ];
    assert!(found.iter().zip(expected).all(|(found, expected)| found.starts_with(expected)), "{found:?}");
    assert_eq!(found.len(), 2);

    // A line that is not an object is one problem of several.
    let lines =
        "{\"a\": \"one\", \"b\": \"x\"}\n{\"a\": 2, \"b\": \"z\"}\nnothing\n{\"a\": \"two\", \"b\": \"x\"}\n";
    let schema = Some(directory.write("s.toml", SCHEMA));
    let found = messages(&Source { schema, ..source(directory.write("t.jsonl", lines)) });
    assert_eq!(found.len(), 4, "{found:?}");
    assert_eq!(found[1], "t.jsonl, line 2, column 2 (b): must be one of `x`, `y`, got `z`");
    assert!(found[2].starts_with("t.jsonl, line 3, byte "), "{found:?}");
    assert_eq!(found[3], "t.jsonl, line 4, column 1 (a): must be a finite number, got `two`");
}

#[test]
fn every_unreadable_line_of_texts_is_listed_and_a_damaged_file_does_not_hide_the_next() {
    let directory = Directory::new();
    directory.write("names/a.txt", [b"one\n\xff\n", "two\n".as_bytes(), b"\xfe\n"].concat());
    // A truncated gzip file.
    let packed = gzip("three\n".repeat(1000));
    directory.write("names/b.txt", &packed[..packed.len() / 2]);
    directory.write("names/c.txt", b"\xff\n");
    let problems = check(&source(directory.path().join("names"))).unwrap();
    let found: Vec<String> = problems.listed.iter().map(|problem| directory.message(problem)).collect();
    let places = ["names/a.txt, line 2, ", "names/a.txt, line 4, ", "names/b.txt: ", "names/c.txt, line 1, "];
    assert_eq!(found.len(), places.len(), "{found:?}");
    assert!(found.iter().zip(places).all(|(found, place)| found.starts_with(place)), "{found:?}");
}

#[test]
fn every_problem_of_a_folder_of_images_is_listed() {
    let directory = Directory::new();
    let picture = images::png(images::grey([0, 100, 200, 255]));
    directory.write("train/cat/1.png", &picture[..picture.len() / 2]);
    directory.write("train/cat/2.png", &picture);
    directory.write("train/cat/notes.doc", "x");
    directory.write("train/dog/1.png", "no picture");
    directory.write("train/dog/2.jpg", "");
    directory.write("test/cat/1.png", &picture);
    directory.write("test/cow/1.png", &picture);
    directory.write("test/dog/1.png", &picture[..20]);
    let problems = check(&Source { images: images::options("2", 1), ..source(directory.path()) }).unwrap();
    let found: Vec<String> = problems.listed.iter().map(|problem| directory.message(problem)).collect();
    let expected = [
        "train/cat/notes.doc: is not a file whose name ends in .png, .jpg, .jpeg",
        "test/cow: `cow` is not one of the classes `cat`, `dog`",
        "train/cat/1.png: the image cannot be read",
        "train/dog/1.png: is neither a PNG nor a JPEG image",
        "train/dog/2.jpg: is neither a PNG nor a JPEG image",
        "test/dog/1.png: the image cannot be read",
    ];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    assert!(found.iter().zip(expected).all(|(found, expected)| found.starts_with(expected)), "{found:?}");
    assert_eq!(problems.records, 6);
}

#[test]
fn at_most_a_hundred_bad_images_are_listed() {
    let directory = Directory::new();
    for number in 0..300 {
        directory.write(&format!("{}/{number:03}.png", ["a", "b"][number % 2]), "no picture");
    }
    let problems = check(&Source { images: images::options("2", 1), ..source(directory.path()) }).unwrap();
    assert_eq!((problems.total, problems.records, problems.listed.len()), (300, 300, 100));
}

#[cfg(feature = "parquet")]
#[test]
fn every_problem_of_images_in_parquet_is_listed() {
    let directory = Directory::new();
    let bytes = crate::parquet::images(&[Some(3), None, Some(4), None], &[0, 1, 7, 9], None);
    let path = directory.write("train.parquet", bytes);
    let of = Source { classes: Some(2), images: images::options("2", 1), ..source(path) };
    let problems = check(&of).unwrap();
    let found: Vec<String> = problems.listed.iter().map(|problem| directory.message(problem)).collect();
    let expected = [
        "train.parquet, row 2: the image has no bytes",
        "train.parquet, row 3: must be a class of 0 to 1, got 7",
        "train.parquet, row 4: the image has no bytes",
        "train.parquet, row 4: must be a class of 0 to 1, got 9",
    ];
    // The file has these rows twice.
    assert_eq!((found.len(), &found[..4]), (8, &expected.map(str::to_owned)[..]));
}
