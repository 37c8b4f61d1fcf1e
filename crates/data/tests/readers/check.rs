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
