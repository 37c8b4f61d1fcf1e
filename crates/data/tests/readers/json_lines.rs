use sordino_data::{PredictionOptions, Source, read, read_test, read_unlabelled};
use sordino_nn::Shape;

use crate::files::{Directory, classes, gzip, numbers, source, values};

const SCHEMA: &str = "target = 'ill'\n[[columns]]\nname = 'age'\ntype = 'number'\nmissing = -1.0\n[[columns]]\n\
                      name = 'ward'\ntype = 'category'\nvalues = ['a', 'true']\n[[columns]]\nname = 'ill'\n\
                      type = 'category'\nvalues = ['0', '1']\n";

fn refused(text: impl AsRef<[u8]>) -> String {
    let directory = Directory::new();
    let schema = Some(directory.write("s.toml", SCHEMA));
    let error = read(&Source { schema, ..source(directory.write("t.jsonl", text)) }).unwrap_err();
    directory.message(&error)
}

#[test]
fn objects_are_read_by_the_schema_of_a_table() {
    let directory = Directory::new();
    let schema = Some(directory.write("s.toml", SCHEMA));
    // Keys in any order; strings, numbers, booleans and null; blank lines.
    let text = "\u{feff}{\"age\": 2.5, \"ward\": \"a\", \"ill\": 1}\n\n{\"ill\": \"0\", \"ward\": true, \"age\": null}\r\n";
    for (name, bytes) in [("t.jsonl", text.as_bytes().to_vec()), ("t.ndjson.gz", gzip(text))] {
        let source = Source { schema: schema.clone(), ..source(directory.write(name, bytes)) };
        let sets = read(&source).unwrap();
        assert_eq!(values(&sets.train), [2.5, 1.0, 0.0, -1.0, 0.0, 1.0]);
        assert_eq!(classes(&sets.train), [1, 0]);
        // The same table in another notation.
        let csv = directory.write("t.csv", "ward,age,ill\na,2.5,1\ntrue,,0\n");
        let test = read_test(&csv, &source, &sets).unwrap();
        assert_eq!((values(&test), classes(&test)), (values(&sets.train), classes(&sets.train)));
    }
}

#[test]
fn without_a_schema_keys_are_sorted_and_the_target_is_named() {
    let directory = Directory::new();
    let lines = ["{\"b\": 1, \"1\": 2, \"y\": 0}\n", "{\"y\": 1, \"1\": 3, \"b\": 4}\n"];
    // The result does not depend on which record comes first.
    let path = directory.write("t.jsonl", [lines[1], lines[0]].concat());
    let target = Some("y".to_owned());
    let sets = read(&Source { classes: Some(2), target: target.clone(), ..source(&path) }).unwrap();
    assert_eq!((values(&sets.train), classes(&sets.train)), (&[3.0, 4.0, 2.0, 1.0][..], &[1, 0][..]));
    let path = directory.write("t.jsonl", lines.concat());
    let sets = read(&Source { classes: Some(2), target, ..source(&path) }).unwrap();
    assert_eq!(sets.train.shape(), Shape::Features(2));
    assert_eq!((values(&sets.train), classes(&sets.train)), (&[2.0, 1.0, 3.0, 4.0][..], &[0, 1][..]));
    let error = read(&Source { classes: Some(2), ..source(&path) }).unwrap_err();
    assert!(error.to_string().starts_with("target must be declared for "), "{error}");
    let schema = directory.write("n.toml", "target = 'y'\n[[columns]]\nname = '1'\ntype = 'number'\n[[columns]]\n\
                                            name = 'b'\ntype = 'number'\n[[columns]]\nname = 'y'\ntype = 'number'\n");
    let sets = read(&Source { schema: Some(schema), ..source(&path) }).unwrap();
    assert_eq!(
        (values(&sets.train), numbers(&sets.train)),
        (&[2.0, 1.0, 3.0, 4.0][..], (&[0.0, 1.0][..], 1))
    );
}

#[test]
fn what_is_not_an_object_of_the_same_keys_is_refused_with_its_line() {
    let first = "{\"age\": 1, \"ward\": \"a\", \"ill\": 1}\n";
    for (second, expected) in [
        ("{\"age\": 1, \"ward\": \"a\"}", "t.jsonl, line 2: the key `ill` is missing"),
        ("{\"age\": 1, \"ward\": \"a\", \"ill\": 1, \"x\": 2}", "t.jsonl, line 2: the key `x` is unknown"),
        ("{\"age\": 1, \"age\": 1}", "the key `age` occurs twice"),
        ("{\"age\": [1], \"ward\": \"a\", \"ill\": 1}", "expected a string, a number, true, false or null"),
        ("{\"age\": {}, \"ward\": \"a\", \"ill\": 1}", "expected a string, a number, true, false or null"),
        ("[1, 2]", "t.jsonl, line 2, byte 0: invalid type: sequence, expected an object"),
        ("{\"age\": 1", "t.jsonl, line 2, byte 9: EOF while parsing an object"),
        ("{\"age\": 1} x", "trailing characters"),
        (
            "{\"age\": 1, \"ward\": \"c\", \"ill\": 1}",
            "line 2, column 3 (ward): must be one of `a`, `true`, got `c`",
        ),
        ("{\"age\": \"x\", \"ward\": \"a\", \"ill\": 1}", "column 1 (age): must be a finite number, got `x`"),
    ] {
        let message = refused(format!("{first}{second}\n"));
        assert!(message.contains(expected), "{second}: {message}");
    }
    assert_eq!(refused("{}\n"), "t.jsonl, line 1: the object has no keys");
    assert_eq!(refused("\n\n"), "t.jsonl: there are no records");
    assert!(refused("{\"age\": 1}\n").contains("has no column `ward`, which the schema describes"));
    assert!(refused("{\"age\": 1, \"x\": 2}\n").contains("the column `x` is not in the schema"));
    // Broken UTF-8.
    let message = refused(b"{\"age\": 1, \"ward\": \"\xff\", \"ill\": 1}\n");
    assert!(
        message.starts_with("t.jsonl, line 1, byte ") && message.contains("invalid unicode"),
        "{message}"
    );
}

#[test]
fn prediction_needs_no_target_and_takes_an_id() {
    let directory = Directory::new();
    let schema = Some(directory.write("s.toml", SCHEMA));
    let text = "{\"who\": \"p1\", \"age\": 1, \"ward\": \"a\"}\n{\"who\": \"p2\", \"age\": 2, \"ward\": \"?\"}\n\
                {\"who\": \"p3\", \"age\": 3, \"ward\": \"b\"}\n";
    let source = Source { schema, ..source(directory.write("t.jsonl", text)) };
    let reading = PredictionOptions { id: Some("who".to_owned()), ..PredictionOptions::default() };
    let rows = read_unlabelled(&source, &reading).unwrap();
    assert_eq!(rows.rows.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["p1", "p2", "p3"]);
    assert!(rows.rows[2].refused.is_some());
    assert_eq!(values(rows.records.as_ref().unwrap()), [1.0, 1.0, 0.0, 2.0, 0.0, 0.0]);
}
