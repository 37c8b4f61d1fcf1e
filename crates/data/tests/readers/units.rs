//! The unit of privacy, in every format that can state it.

use sordino_data::{Dataset, Source, convert, read, read_test};

use crate::files::{Directory, source, unlabelled};
use crate::npy::{floats, longs, npy, npz};

const TABLE: &str = "patient,age,ill\nanna,1,0\nben,2,1\nanna,3,0\ncleo,4,1\nben,5,1\n";

const SCHEMA: &str = r#"
target = "ill"
unit = "patient"
[[columns]]
name = "age"
type = "number"
[[columns]]
name = "ill"
type = "category"
values = ["0", "1"]
"#;

/// The records of each unit.
fn members(data: &Dataset) -> Vec<Vec<usize>> {
    let units = data.units().unwrap();
    (0..units.len()).map(|unit| units.members(unit).to_vec()).collect()
}

fn expected() -> [Vec<usize>; 3] {
    [vec![0, 2], vec![1, 4], vec![3]]
}

#[test]
fn a_schema_or_the_source_names_the_column_of_the_unit() {
    let directory = Directory::new();
    let path = directory.write("t.csv", TABLE);
    let schema = Some(directory.write("s.toml", SCHEMA));
    let without = Some(directory.write("w.toml", SCHEMA.replace("unit = \"patient\"\n", "")));
    let unit = Some("patient".to_owned());
    let by_number = Some("1".to_owned());
    for source in [
        Source { schema: schema.clone(), ..source(&path) },
        Source { schema: without.clone(), unit: unit.clone(), ..source(&path) },
        Source { classes: Some(2), unit, ..source(&path) },
        Source { classes: Some(2), unit: by_number, ..source(&path) },
    ] {
        let sets = read(&source).unwrap();
        assert_eq!((sets.train.unit(), members(&sets.train)), (Some("patient"), expected().to_vec()));
        assert_eq!(sets.train.shape().len(), 1, "the column of the unit is not a feature");
        // The schema that a run stores reads the same units, and records to predict need no unit.
        let text = toml::to_string(sets.schema.as_ref().unwrap()).unwrap();
        let stored = Some(directory.write("stored.toml", &text));
        // A resumed run reads the stored schema, and names the unit again. The text of the schema does not change.
        for unit in [None, Some("patient".to_owned())] {
            let again = Source { schema: stored.clone(), unit, ..crate::files::source(&path) };
            let again = read(&again).unwrap();
            assert_eq!(members(&again.train), expected());
            assert_eq!(toml::to_string(again.schema.as_ref().unwrap()).unwrap(), text);
        }
        for text in ["age\n7\n", "patient,age\n,7\n"] {
            let new = directory.write("new.csv", text);
            assert_eq!(
                unlabelled(&Source { schema: stored.clone(), ..crate::files::source(new) }).unwrap().len(),
                1
            );
        }
    }
    // Without a unit, the column is not described.
    assert!(read(&Source { schema: without, ..source(&path) }).is_err());
}

#[test]
fn the_unit_can_also_be_a_feature() {
    let directory = Directory::new();
    let path = directory.write("t.csv", TABLE);
    let schema = directory.write("s.toml", SCHEMA.replace("\"patient\"", "\"age\"") + IGNORED);
    let train = read(&Source { schema: Some(schema), ..source(&path) }).unwrap().train;
    assert_eq!((train.slots(), train.shape().len()), (5, 1));
}

const IGNORED: &str = "[[columns]]\nname = \"patient\"\ntype = \"ignore\"\n";

#[test]
fn a_missing_unit_is_refused_with_its_place() {
    let directory = Directory::new();
    let schema = Some(directory.write("s.toml", SCHEMA));
    let message = |text: &str| {
        let path = directory.write("t.csv", text);
        directory.message(&read(&Source { schema: schema.clone(), ..source(path) }).unwrap_err())
    };
    assert_eq!(
        message("patient,age,ill\nanna,1,0\n ,2,1\n"),
        "t.csv, line 3, column 1 (patient): must be the id of a unit, got ` `"
    );
    assert!(message("age,ill\n1,0\n").contains("the header has no column `patient`"));
}

#[test]
fn a_unit_that_is_no_column_or_the_target_is_refused() {
    let directory = Directory::new();
    let path = directory.write("t.csv", TABLE);
    let message = |unit: &str, schema: Option<&str>| {
        let schema = schema.map(|text| directory.write("s.toml", text));
        let classes = schema.is_none().then_some(2);
        let source = Source { unit: Some(unit.to_owned()), schema, classes, ..source(&path) };
        directory.message(&read(&source).unwrap_err())
    };
    assert_eq!(message("person", None), "t.csv: the unit `person` is not one of the 3 columns");
    assert_eq!(message("ill", Some(SCHEMA)), "the unit: the unit `ill` is also the target");
    let headless = "header = false\n".to_owned() + &SCHEMA.replace("unit = \"patient\"\n", "");
    assert!(message("person", Some(&headless)).contains("is not one of the 2 columns"));
}

#[test]
fn arrays_have_the_unit_of_each_record_beside_them() {
    let x = || npy("<f4", "(5, 1)", &floats(&[1.0, 2.0, 3.0, 4.0, 5.0]));
    let y = || npy("<i8", "(5,)", &longs(&[0, 1, 0, 1, 1]));
    let ids = |ids: &[i64]| npy("<i8", &format!("({},)", ids.len()), &longs(ids));
    let all = [
        ("x", x()),
        ("y", y()),
        ("patient", ids(&[17, -3, 17, 5, -3])),
        ("x_test", x()),
        ("y_test", y()),
        ("patient_test", ids(&[17, 2, 2, 4, 4])),
    ];
    let directory = Directory::new();
    let archive = directory.write("t.npz", npz(&all, zip::CompressionMethod::Stored));
    for (name, bytes) in &all {
        directory.write(&format!("f/{name}.npy"), bytes);
    }
    let of = |path| Source { classes: Some(2), unit: Some("patient".to_owned()), ..source(path) };
    for path in [archive, directory.path().join("f")] {
        let sets = read(&of(path.clone())).unwrap();
        assert_eq!(members(&sets.train), expected());
        let test = sets.test.as_ref().unwrap();
        assert_eq!(members(test), [vec![0], vec![1, 2], vec![3, 4]]);
        assert!(sets.train.shares_units_with(test), "17 is in both");
        assert_eq!(read_test(&path, &of(path.clone()), &sets).unwrap().slots(), 3);
        assert!(read(&Source { unit: Some("person".to_owned()), ..of(path) }).is_err());
    }
    // A table and an array with the same ids have the same units.
    let table = directory.write("t.csv", "patient,age,ill\n17,1,0\n");
    let table = read(&of(table)).unwrap().train;
    let archive = read(&of(directory.path().join("f"))).unwrap().train;
    assert!(table.shares_units_with(&archive));
    for bad in [ids(&[1, 2]), npy("<f4", "(5,)", &floats(&[1.0; 5]))] {
        directory.write("f/patient.npy", bad);
        let error = read(&of(directory.path().join("f"))).unwrap_err();
        assert!(directory.message(&error).contains("expected 5 integers"), "{error}");
    }
}

#[test]
fn a_converted_file_keeps_its_units() {
    let directory = Directory::new();
    let path = directory.write("t.csv", TABLE);
    let schema = Some(directory.write("s.toml", SCHEMA));
    let converted = directory.path().join("t.sordino");
    convert(&Source { schema: schema.clone(), ..source(&path) }, &converted).unwrap();
    let train = read(&source(&converted)).unwrap().train;
    assert_eq!((train.unit(), members(&train)), (Some("patient"), expected().to_vec()));
    let table = read(&Source { schema, ..source(&path) }).unwrap().train;
    assert!(train.shares_units_with(&table));
    // And once more, from a file of records.
    let again = directory.path().join("again.sordino");
    convert(&source(&converted), &again).unwrap();
    assert_eq!(members(&read(&source(&again)).unwrap().train), expected());
    assert_eq!(unlabelled(&source(&converted)).unwrap().unit(), None);
}

#[test]
fn a_format_without_units_refuses_them() {
    let directory = Directory::new();
    let path = directory.write("t.svm", "+1 1:2\n-1 1:3\n");
    let source = Source { features: Some(1), unit: Some("1".to_owned()), ..source(path) };
    assert_eq!(directory.message(&read(&source).unwrap_err()), "unit must be left out for t.svm, got 1");
}
