use sordino_data::{Problems, Source, check};

use crate::files::{Directory, source};
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

    // A line that is not an object ends the check; what was found before is kept.
    let lines =
        "{\"a\": \"one\", \"b\": \"x\"}\n{\"a\": 2, \"b\": \"z\"}\nnothing\n{\"a\": \"two\", \"b\": \"x\"}\n";
    let schema = Some(directory.write("s.toml", SCHEMA));
    let found = messages(&Source { schema, ..source(directory.write("t.jsonl", lines)) });
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(found[1], "t.jsonl, line 2, column 2 (b): must be one of `x`, `y`, got `z`");
    assert!(found[2].starts_with("t.jsonl, line 3, byte "), "{found:?}");
}
