use sordino_data::{DataError, Dataset, Source, read};
use sordino_nn::Shape;

use crate::files::{Directory, classes, gzip, numbers, source, unlabelled, values};

const SCHEMA: &str = r#"
target = "income"
[[columns]]
name = "age"
type = "number"
clip = [0, 100]
center = 40.0
scale = 20.0
missing = 0.25
[[columns]]
name = "colour"
type = "category"
values = ["red", "green"]
[[columns]]
name = "id"
type = "ignore"
[[columns]]
name = "income"
type = "category"
values = ["low", "high"]
"#;

const TABLE: &str = "age,colour,id,income\n60,red,1,high\n?,green,\"a, \"\"b\"\"\nc\",low\n 1e3 ,\"\",,low\n";

const FEATURES: [f32; 9] = [1.0, 1.0, 0.0, 0.25, 0.0, 1.0, 3.0, 0.0, 0.0];

/// Reads a table by its schema.
fn table(directory: &Directory, schema: &str, text: impl AsRef<[u8]>) -> Result<Dataset, DataError> {
    let schema = Some(directory.write("schema.toml", schema));
    let path = directory.write("t.csv", text);
    read(&Source { schema, ..source(path) }).map(|sets| sets.train)
}

fn refused(schema: &str, text: &str) -> String {
    let directory = Directory::new();
    directory.message(&table(&directory, schema, text).unwrap_err())
}

#[test]
fn a_table_is_read_by_its_schema() {
    let directory = Directory::new();
    for bytes in [TABLE.as_bytes().to_vec(), gzip(TABLE), TABLE.replace('\n', "\r\n").into_bytes()] {
        let table = table(&directory, SCHEMA, bytes).unwrap();
        assert_eq!(table.shape(), Shape::Features(3));
        assert_eq!(values(&table), FEATURES);
        assert_eq!(classes(&table), [1, 0, 0]);
        assert_eq!(table.classes(), ["low", "high"]);
        assert!(table.is_classification());
    }
}

#[test]
fn features_keep_the_order_of_the_schema() {
    let directory = Directory::new();
    let text = "\u{feff}income, colour ,age,id\nhigh,red,60,1\nlow,green,?,2\nlow,,1000,3\n";
    let table = table(&directory, SCHEMA, text).unwrap();
    assert_eq!(values(&table), FEATURES);
    assert_eq!(classes(&table), [1, 0, 0]);
}

#[test]
fn delimiter_header_and_missing_values_follow_the_schema() {
    let directory = Directory::new();
    let schema = SCHEMA.replace(
        "target = \"income\"",
        "target = 4\nheader = false\ndelimiter = \";\"\nmissing = [\"none\"]",
    );
    let table = table(&directory, &schema, "60;red;1;high\nnone;green;;low\n100;none;;low\n").unwrap();
    assert_eq!(values(&table), FEATURES);
    assert_eq!(classes(&table), [1, 0, 0]);
}

#[test]
fn a_bad_value_is_named_by_line_and_column() {
    assert_eq!(
        refused(SCHEMA, "age,colour,id,income\n60,red,1,high\nold,red,1,high\n"),
        "t.csv, line 3, column 1 (age): must be a finite number, got `old`"
    );
    for bad in ["nan", "inf", "-Infinity", ""] {
        let schema = SCHEMA.replace("missing = 0.25", "");
        let text = format!("age,colour,id,income\n{bad},red,1,high\n");
        let expected = format!("t.csv, line 2, column 1 (age): must be a finite number, got `{bad}`");
        assert_eq!(refused(&schema, &text), expected);
    }
    assert_eq!(
        refused(SCHEMA, "colour,age,id,income\nblue,old,1,high\n"),
        "t.csv, line 2, column 1 (colour): must be one of `red`, `green`, got `blue`"
    );
    let schema = SCHEMA.replace("clip = [0, 100]", "scale = 1e-30").replace("scale = 20.0", "");
    assert_eq!(
        refused(&schema, "age,colour,id,income\n1e30,red,1,high\n"),
        "t.csv, line 2, column 1 (age): must be a finite number, got `1e30`"
    );
    for bad in ["medium", "?", ""] {
        assert_eq!(
            refused(SCHEMA, &format!("age,colour,id,income\n1,red,1,{bad}\n")),
            format!("t.csv, line 2, column 4 (income): must be one of `low`, `high`, got `{bad}`")
        );
    }
}

#[test]
fn blank_lines_and_lines_within_quotes_count() {
    assert_eq!(
        refused(SCHEMA, "age,colour,id,income\n\n\n1,red,\"a\nb\",low\n\r\nx,red,1,low\n"),
        "t.csv, line 7, column 1 (age): must be a finite number, got `x`"
    );
    // A byte order mark is not part of the first name.
    let schema =
        format!("header = false\n{SCHEMA}").replace("values = [\"low\", \"high\"]", "values = [\"\", \"1\"]");
    assert_eq!(
        refused(&schema, "\u{feff}1,,,\n2,,,\n3,,,\n\n4,x,,\n"),
        "t.csv, line 5, column 2 (colour): must be one of `red`, `green`, got `x`"
    );
    // Longer than any buffer.
    assert_eq!(
        refused(&schema, &("1,,,\n\r\n".repeat(50_000) + "1,x,,\n")),
        "t.csv, line 100001, column 2 (colour): must be one of `red`, `green`, got `x`"
    );
    assert_eq!(
        refused(SCHEMA, "age,colour,id,income\r\n1,red,1,low\r\nx,red,1,low\r\n"),
        "t.csv, line 3, column 1 (age): must be a finite number, got `x`"
    );
}

#[test]
fn only_40_characters_of_a_bad_value_are_shown() {
    let message = refused(SCHEMA, &format!("age,colour,id,income\n{},red,1,high\n", "secret ".repeat(100)));
    assert!(message.ends_with("got `secret secret secret secret secret secre...`"), "{message}");
}

#[test]
fn unknown_values_are_ignored_if_the_schema_says_so() {
    let directory = Directory::new();
    let schema =
        SCHEMA.replace("values = [\"red\", \"green\"]", "values = [\"red\", \"?\"]\nunknown = \"ignore\"");
    let table = table(&directory, &schema, "age,colour,id,income\n40,blue,1,low\n40,?,1,low\n").unwrap();
    assert_eq!(values(&table), [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
}

#[test]
fn records_of_another_length_are_refused() {
    assert_eq!(
        refused(SCHEMA, "age,colour,id,income\n60,red,1,high\n60,red,1\n"),
        "t.csv, line 3, column 4 (income): the record has 3 fields, expected 4"
    );
    assert_eq!(
        refused(SCHEMA, "age,colour,id,income\n60,red,1,high,2\n"),
        "t.csv, line 2, column 5: the record has 5 fields, expected 4"
    );
}

#[test]
fn headers_that_do_not_fit_are_refused() {
    assert_eq!(
        refused(SCHEMA, "age,colour,id,salary\n"),
        "t.csv, line 1, column 4: the column `salary` is not in the schema"
    );
    assert_eq!(refused(SCHEMA, "\n\nage,age,id\n"), "t.csv, line 3, column 2: the column `age` occurs twice");
    assert_eq!(
        refused(SCHEMA, "age,colour,income\n"),
        "t.csv, line 1: the header has no column `id`, which the schema describes"
    );
}

#[test]
fn no_records_are_refused() {
    assert_eq!(refused(SCHEMA, ""), "t.csv: there are no records");
    assert_eq!(refused(SCHEMA, "age,colour,id,income\n"), "t.csv: there are no records");
}

#[test]
fn a_truncated_gzip_is_refused() {
    let directory = Directory::new();
    let bytes = gzip(TABLE);
    let error = table(&directory, SCHEMA, &bytes[..bytes.len() - 12]).unwrap_err();
    assert!(error.hint().contains("truncated"), "{error}");
}

#[test]
fn a_target_that_is_a_number_is_scaled() {
    let directory = Directory::new();
    let schema = SCHEMA.replace("target = \"income\"", "target = \"age\"").replace("missing = 0.25", "");
    let table = table(&directory, &schema, "age,colour,id,income\n60,red,1,high\n").unwrap();
    assert_eq!(numbers(&table), (&[1.0][..], 1));
    assert_eq!(values(&table), [1.0, 0.0, 0.0, 1.0]);
    assert!(!table.is_classification() && table.classes().is_empty());
    assert_eq!(
        refused(&schema, "age,colour,id,income\n?,red,1,high\n"),
        "t.csv, line 2, column 1 (age): must be a finite number, got `?`"
    );
}

#[test]
fn the_source_may_name_another_target() {
    let directory = Directory::new();
    let schema = Some(directory.write("schema.toml", SCHEMA));
    let path = directory.write("t.csv", TABLE.replace(",\"\",", ",red,"));
    let named = |target: &str, classes| {
        read(&Source { schema: schema.clone(), target: Some(target.to_owned()), classes, ..source(&path) })
    };
    assert_eq!(classes(&named("colour", None).unwrap().train), [0, 1, 0]);
    assert_eq!(named("colour", Some(2)).unwrap().train.shape(), Shape::Features(3));
    assert_eq!(
        named("colour", Some(3)).unwrap_err().to_string(),
        "number of classes must be 2 as in the schema, or left out, got 3"
    );
    let message = directory.message(&named("wealth", None).unwrap_err());
    assert_eq!(message, "t.csv: the target `wealth` is not one of the 4 columns");
    assert_eq!(directory.message(&named("id", None).unwrap_err()), "t.csv: the target `id` is ignored");
}

#[test]
fn a_table_of_numbers_needs_no_schema() {
    let directory = Directory::new();
    for (name, text) in [
        ("a.csv", "a,b,c\n1,2,0\n3,4.5,1\n"),
        ("b.tsv", "1\t2\t0\n3\t4.5\t1\n"),
        ("c.data", "1,2,0\n3,4.5,1"),
    ] {
        let path = directory.write(name, text);
        let table = read(&Source { classes: Some(3), ..source(&path) }).unwrap().train;
        assert_eq!(values(&table), [1.0, 2.0, 3.0, 4.5]);
        assert_eq!(classes(&table), [0, 1]);
        assert_eq!(table.classes(), ["0", "1", "2"]);
        // Whether the target is a class or a number is not guessed.
        let message = directory.message(&read(&source(&path)).unwrap_err());
        assert_eq!(message, "number of classes must be declared for a table without a schema, got none");
    }
    let path = directory.write("d.csv.gz", gzip("a,b\n1,2\n"));
    let sets = read(&Source { target: Some("a".to_owned()), classes: Some(2), ..source(&path) }).unwrap();
    assert_eq!((values(&sets.train), classes(&sets.train)), (&[2.0][..], &[1][..]));
    // The schema that was made of the header reads the table in any order.
    let schema = directory.write("made.toml", toml::to_string(&sets.schema.unwrap()).unwrap());
    let path = directory.write("e.csv", "b,a\n2,1\n");
    let table = read(&Source { schema: Some(schema), ..source(&path) }).unwrap().train;
    assert_eq!((values(&table), classes(&table)), (&[2.0][..], &[1][..]));
}

#[test]
fn without_a_schema_no_vocabulary_is_derived() {
    let directory = Directory::new();
    let plain = |text: &str, classes| {
        let path = directory.write("t.csv", text);
        let error = read(&Source { classes, ..source(path) }).unwrap_err();
        (directory.message(&error), error.hint().to_owned())
    };
    let (message, hint) = plain("a,b,c\n1,red,0\n", Some(2));
    assert_eq!(message, "t.csv, line 2, column 2 (b): must be a finite number, got `red`");
    assert!(hint.contains("vocabulary is public and never derived from the records"), "{hint}");
    let (message, hint) = plain("a,b,c\n1,2,0\n1,2,2\n", Some(2));
    assert_eq!(message, "t.csv, line 3, column 3 (c): must be one of `0`, `1`, got `2`");
    assert!(hint.contains("never derived from the records"), "{hint}");
    // A record with a bad value is not taken for a header.
    let (message, _) = plain("1,x,0\n1,2,0\n", Some(2));
    assert_eq!(message, "t.csv, line 1, column 2 (2): must be a finite number, got `x`");
    let (message, _) = plain("a,NA\n1,0\n", Some(2));
    assert!(message.starts_with("t.csv, line 1: is neither a header"), "{message}");
    let (message, _) = plain("a,a\n1,2\n", Some(2));
    assert_eq!(message, "t.csv: the name `a` is used by two columns");
    let (message, _) = plain("a,b\n1,2\n", Some(1));
    assert_eq!(message, "number of classes must be 2 to 65536, got 1");
    let (message, _) = plain("a\n1\n", Some(2));
    assert_eq!(message, "t.csv: the columns become 0 features; at least 1 is needed");
}

#[test]
fn prediction_needs_no_target() {
    let directory = Directory::new();
    let schema = Some(directory.write("schema.toml", SCHEMA));
    let without_header = Some(directory.write("h.toml", format!("header = false\n{SCHEMA}")));
    for (schema, text) in [
        (&schema, "age,colour,id,income\n60,red,1,?\n"),
        (&schema, "id,colour,age\n1,red,60\n"),
        (&without_header, "60,red,1,\n"),
        (&without_header, "60,red,1\n"),
    ] {
        let source = Source { schema: schema.clone(), ..source(directory.write("t.csv", text)) };
        let table = unlabelled(&source).unwrap();
        assert_eq!(values(&table), [1.0, 1.0, 0.0]);
        assert!(table.targets().is_none() && !table.is_classification());
    }
    // Ignored columns may be absent, columns that are read may not.
    let path = directory.write("t.csv", "age,colour\n60,red\n");
    let table = unlabelled(&Source { schema: schema.clone(), ..source(path) }).unwrap();
    assert_eq!(values(&table), [1.0, 1.0, 0.0]);
    let source = Source { schema, ..source(directory.write("t.csv", "age,income\n60,1\n")) };
    let message = directory.message(&unlabelled(&source).unwrap_err());
    assert_eq!(message, "t.csv, line 1: the header has no column `colour`, which the schema describes");
}

#[test]
fn prediction_without_schema_goes_by_the_number_of_features() {
    let directory = Directory::new();
    let path = directory.write("t.csv", "a,b,c\n1,2,3\n");
    let table = |features, target: Option<&str>| {
        let target = target.map(str::to_owned);
        let table = unlabelled(&Source { features, target, classes: Some(2), ..source(&path) });
        table.map(|table| values(&table).to_vec())
    };
    assert_eq!(table(None, None).unwrap(), [1.0, 2.0, 3.0]);
    assert_eq!(table(Some(3), None).unwrap(), [1.0, 2.0, 3.0]);
    assert_eq!(table(Some(3), Some("b")).unwrap(), [1.0, 2.0, 3.0]);
    assert_eq!(table(Some(2), None).unwrap(), [1.0, 2.0]);
    assert_eq!(table(Some(2), Some("b")).unwrap(), [1.0, 3.0]);
    assert_eq!(table(None, Some("b")).unwrap(), [1.0, 3.0]);
    assert_eq!(table(None, Some("absent")).unwrap(), [1.0, 2.0, 3.0]);
    let message = directory.message(&table(Some(7), None).unwrap_err());
    assert_eq!(message, "t.csv, line 1: 3 columns are features, expected 7");
}

#[test]
fn columns_that_are_not_described_are_ignored_if_the_schema_says_so() {
    let directory = Directory::new();
    let schema = "others = \"ignore\"\ntarget = \"b\"\n[[columns]]\nnames = [\"a\", \"c\"]\ntype = \"number\"\n\
                  [[columns]]\nname = \"b\"\ntype = \"category\"\nvalues = [\"x\", \"y\"]\n";
    let schema = Some(directory.write("s.toml", schema));
    let table = directory.write("t.csv", "z,c,b,z,a\n,3,y,what,1\n7,4,x,,2\n");
    let from = Source { schema, ..source(table) };
    let sets = read(&from).unwrap();
    assert_eq!(values(&sets.train), [1.0, 3.0, 2.0, 4.0]);
    assert_eq!(classes(&sets.train), [1, 0]);
    assert_eq!(values(&unlabelled(&from).unwrap()), [1.0, 3.0, 2.0, 4.0]);
}
