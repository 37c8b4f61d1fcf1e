use sordino_data::{Source, read};

use crate::files::{Directory, source, unlabelled};

#[test]
fn the_format_must_be_known() {
    let directory = Directory::new();
    for name in ["t.tiff", "t", "csv", "t.gz"] {
        let error = read(&source(directory.write(name, "1,2\n"))).unwrap_err();
        assert_eq!(directory.message(&error), format!("{name}: the format is not clear from the name"));
        assert!(error.hint().contains(".csv") && error.hint().contains(".svmlight"));
    }
}

#[test]
fn files_that_are_not_there_are_named() {
    let directory = Directory::new();
    for name in ["t.csv", "t.npz", "t.npy", "t.svm.gz"] {
        let source =
            Source { features: name.contains("svm").then_some(1), ..source(directory.path().join(name)) };
        let error = unlabelled(&source).unwrap_err();
        assert!(directory.message(&error).starts_with(&format!("{name}: ")), "{error}");
        assert!(error.hint().contains("check the path"), "{error}");
    }
    let path = directory.write("t.csv", "1,2\n");
    let schema = Some(directory.path().join("absent.toml"));
    let error = read(&Source { schema, ..source(path) }).unwrap_err();
    assert!(directory.message(&error).starts_with("absent.toml: "), "{error}");
}

#[test]
fn unused_settings_are_refused() {
    let directory = Directory::new();
    let path = directory.write("t.npz", "");
    let error = read(&Source { target: Some("y".to_owned()), ..source(&path) }).unwrap_err();
    assert_eq!(directory.message(&error), "target must be left out for t.npz, got y");
    let error = read(&Source { features: Some(3), ..source(&path) }).unwrap_err();
    assert_eq!(directory.message(&error), "number of features must be left out for t.npz, got 3");
    directory.write("train-images-idx3-ubyte", "");
    let error = read(&Source { schema: Some("s.toml".into()), ..source(directory.path()) }).unwrap_err();
    assert!(error.to_string().starts_with("schema must be left out for "), "{error}");
}

#[test]
fn the_name_mushroom_is_the_embedded_data() {
    assert_eq!(read(&source("mushroom")).unwrap().train.len(), 8124);
    let error = read(&Source { classes: Some(3), ..source("mushroom") }).unwrap_err();
    assert!(error.to_string().starts_with("number of classes must be 2 as in the schema"), "{error}");
    assert!(unlabelled(&source("mushroom")).unwrap().targets().is_none());
}

#[test]
fn debug_shows_no_values() {
    let directory = Directory::new();
    let path = directory.write("t.csv", "4711,1\n4712,0\n");
    let shown = format!("{:?}", read(&Source { classes: Some(2), ..source(path) }).unwrap());
    assert!(shown.contains("records: 2") && !shown.contains("47"), "{shown}");
}
