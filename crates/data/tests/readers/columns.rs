//! Tables in memory are read as CSV files with the same fields.

use sordino_data::{DataError, Dataset, Fields, Schema, Source, TableColumn, read, read_unlabelled};

use crate::files::{Directory, classes, numbers, source, tokens, values};

const SCHEMA: &str = r#"
target = "income"
unit = "person"
[[columns]]
name = "age"
type = "number"
clip = [0, 100]
center = 40.0
scale = 20.0
missing = 0.25
[[columns]]
name = "weight"
type = "number"
missing = -1.0
[[columns]]
name = "colour"
type = "category"
values = ["red", "green"]
[[columns]]
name = "level"
type = "category"
values = ["1.0", "2.5", "True"]
[[columns]]
name = "note"
type = "ignore"
[[columns]]
name = "income"
type = "category"
values = ["low", "high"]
"#;

fn column(name: &str, fields: Fields) -> TableColumn {
    TableColumn { name: name.to_owned(), fields }
}

fn texts(texts: &[&str]) -> Fields {
    Fields::Texts(texts.iter().map(|text| (!text.is_empty()).then(|| (*text).to_owned())).collect())
}

fn listed(places: &[i64], texts: &[&str]) -> Fields {
    Fields::Listed { places: places.to_vec(), texts: texts.iter().map(|text| (*text).to_owned()).collect() }
}

fn table() -> Vec<TableColumn> {
    vec![
        column("note", texts(&["a, \"b\"\nc", "", "ü"])),
        column("income", listed(&[1, 0, 0], &["low", "high"])),
        column("weight", Fields::Singles(vec![0.1, f32::NAN, 1e-7])),
        column("colour", listed(&[1, -1, 0], &["red", "green"])),
        column("age", Fields::Integers(vec![60, -3, 1000])),
        column("level", Fields::Doubles(vec![1.0, f64::NAN, 2.5])),
        column("person", Fields::Integers(vec![7, 7, 8])),
    ]
}

/// The text of every field, by hand.
const CSV: &str = "note,income,weight,colour,age,level,person\n\
    \"a, \"\"b\"\"\nc\",high,0.1,green,60,1.0,7\n,low,,,-3,,7\nü,low,1e-7,red,1000,2.5,8\n";

fn schema(text: &str) -> Schema {
    Schema::parse("schema.toml", text).unwrap()
}

/// The same table as a file.
fn file(schema: &str, csv: &str) -> Result<Dataset, DataError> {
    let directory = Directory::new();
    let schema = Some(directory.write("schema.toml", schema));
    read(&Source { schema, ..source(directory.write("t.csv", csv)) }).map(|sets| sets.train)
}

#[test]
fn a_table_in_memory_has_the_values_of_its_csv_file() {
    let (memory, file) =
        (Dataset::from_columns(table(), schema(SCHEMA)).unwrap(), file(SCHEMA, CSV).unwrap());
    assert_eq!(values(&memory), values(&file));
    assert_eq!(values(&memory)[..7], [1.0, 0.1, 0.0, 1.0, 1.0, 0.0, 0.0]);
    assert_eq!(classes(&memory), [1, 0, 0]);
    assert_eq!((memory.classes(), memory.shape()), (file.classes(), file.shape()));
    assert_eq!(memory.encoding(), file.encoding());
    assert_eq!((memory.slots(), memory.unit()), (2, Some("person")));
}

#[test]
fn the_order_of_columns_does_not_matter() {
    let mut reversed = table();
    reversed.reverse();
    let (one, other) = (
        Dataset::from_columns(table(), schema(SCHEMA)).unwrap(),
        Dataset::from_columns(reversed, schema(SCHEMA)).unwrap(),
    );
    assert_eq!((values(&one), classes(&one)), (values(&other), classes(&other)));
}

#[test]
fn prediction_needs_neither_the_target_nor_ignored_columns() {
    let features =
        table().into_iter().filter(|c| !["note", "income", "person"].contains(&c.name.as_str())).collect();
    let records = Dataset::from_columns_unlabelled(features, schema(SCHEMA)).unwrap();
    assert_eq!(values(&records), values(&Dataset::from_columns(table(), schema(SCHEMA)).unwrap()));
    assert!(records.targets().is_none());
    // A target that is there is not read.
    let mut wrong = table();
    wrong[1].fields = texts(&["?", "unknown", ""]);
    assert_eq!(values(&Dataset::from_columns_unlabelled(wrong, schema(SCHEMA)).unwrap()), values(&records));
}

#[test]
fn numbers_and_texts_are_labels_and_records_too() {
    let text = "target = 'stars'\ncolumns = [{ name = 'review', type = 'text', tokenizer = 'bytes', max_length = 8 }, \
                { name = 'stars', type = 'number', scale = 5.0 }]";
    let columns =
        vec![column("stars", Fields::Doubles(vec![5.0, 2.5])), column("review", texts(&["good, \"q\"", ""]))];
    let memory = Dataset::from_columns(columns, schema(text)).unwrap();
    let file = file(text, "stars,review\n5.0,\"good, \"\"q\"\"\"\n2.5,\"\"\n").unwrap();
    assert_eq!((tokens(&memory), numbers(&memory)), (tokens(&file), numbers(&file)));
    assert_eq!((numbers(&memory).0, memory.shape()), (&[1.0_f32, 0.5][..], file.shape()));
}

/// The message of a refused table without its place, in memory and as a file.
fn refused(change: impl Fn(&mut Vec<TableColumn>), from: &str, to: &str) -> [(String, String); 2] {
    let mut columns = table();
    change(&mut columns);
    assert!(CSV.contains(from));
    let after = |message: String| {
        let place = message.find(", column").or_else(|| message.find(": ")).unwrap();
        message[place..].to_owned()
    };
    let found = [
        Dataset::from_columns(columns, schema(SCHEMA)).unwrap_err(),
        file(SCHEMA, &CSV.replacen(from, to, 1)).unwrap_err(),
    ];
    found.map(|error| (after(error.to_string()), error.hint().to_owned()))
}

#[test]
fn what_a_file_refuses_is_refused_in_memory() {
    for [memory, file] in [
        refused(|table| table[3].fields = listed(&[0, 1, 2], &["green", "", "blue"]), "red", "blue"),
        refused(|table| table[4].fields = texts(&["60", "old", "1000"]), "-3", "old"),
        refused(|table| table[4].fields = Fields::Doubles(vec![60.0, f64::INFINITY, 1.0]), "-3", "inf"),
        refused(|table| table[1].fields = listed(&[1, -1, 0], &["low", "high"]), ",low", ","),
        refused(|table| table[1].name = "salary".to_owned(), "income", "salary"),
        refused(|table| table[1].name = "age".to_owned(), "income", "age"),
        refused(|table| table[6].fields = texts(&["7", "", "8"]), "-3,,7", "-3,,"),
    ] {
        assert_eq!(memory, file);
    }
    let mut columns = table();
    columns[3].fields = texts(&["green", "red", "blue"]);
    let message = Dataset::from_columns(columns.clone(), schema(SCHEMA)).unwrap_err().to_string();
    assert_eq!(message, "the table, row 3, column 4 (colour): must be one of `red`, `green`, got `blue`");
    let message = Dataset::from_columns_unlabelled(columns, schema(SCHEMA)).unwrap_err().to_string();
    assert_eq!(message, "the table, row 3, column 4 (colour): must be one of `red`, `green`, got `blue`");
}

#[test]
fn tables_without_rows_or_with_ragged_columns_are_refused() {
    let empty: Vec<TableColumn> = table().iter().map(|c| column(&c.name, Fields::Integers(vec![]))).collect();
    for columns in [empty, Vec::new()] {
        assert!(Dataset::from_columns(columns.clone(), schema(SCHEMA)).is_err());
        assert!(Dataset::from_columns_unlabelled(columns, schema(SCHEMA)).is_err());
    }
    let mut ragged = table();
    ragged[2].fields = Fields::Integers(vec![1, 2]);
    let message = Dataset::from_columns(ragged, schema(SCHEMA)).unwrap_err().to_string();
    assert_eq!(message, "the table: column `weight` has 2 rows, expected 3");
}

#[test]
fn a_file_without_its_target_predicts_the_same_records() {
    let directory = Directory::new();
    let schema_file = Some(directory.write("schema.toml", SCHEMA));
    let path = directory.write("t.csv", CSV);
    let file = read_unlabelled(&Source { schema: schema_file, ..source(path) }, &Default::default()).unwrap();
    let memory = Dataset::from_columns_unlabelled(table(), schema(SCHEMA)).unwrap();
    assert_eq!(values(&memory), values(&file.records.unwrap()));
}

#[test]
fn the_target_of_a_schema_has_a_name_and_classes() {
    let schema = schema(SCHEMA);
    assert_eq!(schema.target_name(), Some("income"));
    assert_eq!(schema.target_classes().unwrap(), ["low", "high"]);
}
