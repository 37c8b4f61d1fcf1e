use sordino_data::{DataError, Dataset, Source, read};
use sordino_nn::Shape;

use crate::files::{Directory, classes, gzip, source, unlabelled, values};

fn lines(
    directory: &Directory,
    text: impl AsRef<[u8]>,
    classes: Option<usize>,
) -> Result<Dataset, DataError> {
    let path = directory.write("t.svm", text);
    read(&Source { features: Some(3), classes, ..source(path) }).map(|sets| sets.train)
}

fn refused(text: &str, classes: Option<usize>) -> String {
    let directory = Directory::new();
    directory.message(&lines(&directory, text, classes).unwrap_err())
}

#[test]
fn lines_become_records() {
    let directory = Directory::new();
    let text = "# a comment\n+1 1:0.5 3:-2 # another\n\n-1\t2:1e1 \r\n1";
    for bytes in [text.as_bytes().to_vec(), gzip(text)] {
        let set = lines(&directory, bytes, None).unwrap();
        assert_eq!(set.shape(), Shape::Features(3));
        assert_eq!(values(&set), [0.5, 0.0, -2.0, 0.0, 10.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(classes(&set), [1, 0, 1]);
        assert_eq!(set.classes(), ["0", "1"]);
    }
    assert_eq!(classes(&lines(&directory, "0\n1\n", Some(2)).unwrap()), [0, 1]);
    assert_eq!(classes(&lines(&directory, "3\n0\n2.0\n", Some(4)).unwrap()), [3, 0, 2]);
}

#[test]
fn labels_outside_of_the_classes_are_refused() {
    let bad = |place: &str, permitted: &str, got: &str| {
        format!("t.svm, line {place}, column 1 (label): must be {permitted}, got `{got}`")
    };
    assert_eq!(refused("1\n2\n", None), bad("2", "-1 or 1, or 0 or 1", "2"));
    assert_eq!(refused("0.5\n", None), bad("1", "-1 or 1, or 0 or 1", "0.5"));
    assert_eq!(refused("nan\n", None), bad("1", "-1 or 1, or 0 or 1", "nan"));
    assert_eq!(refused("1:2\n", None), bad("1", "-1 or 1, or 0 or 1", "1:2"));
    assert_eq!(refused("1\n-1\n0\n", None), bad("3", "-1 or 1, as in earlier lines", "0"));
    assert_eq!(refused("1\n0\n-1\n", None), bad("3", "0 or 1, as in earlier lines", "-1"));
    assert_eq!(refused("-1\n", Some(3)), bad("1", "a class of 0 to 2", "-1"));
    assert_eq!(refused("0\n3\n", Some(3)), bad("2", "a class of 0 to 2", "3"));
}

#[test]
fn pairs_that_do_not_fit_are_refused() {
    let bad = |column: u32, permitted: &str, got: &str| {
        format!("t.svm, line 2, column {column}: must be {permitted}, got `{got}`")
    };
    let second = |line: &str| refused(&format!("1\n{line}\n"), None);
    assert_eq!(second("1 2"), bad(2, "index:value", "2"));
    assert_eq!(second("1 0:1"), bad(2, "index:value with an index from 1", "0:1"));
    assert_eq!(second("1 4:1"), bad(2, "index:value with an index of 1 to 3", "4:1"));
    assert_eq!(second("1 2:1 1:1"), bad(3, "index:value with an index above 2", "1:1"));
    assert_eq!(second("1 2:1 2:1"), bad(3, "index:value with an index above 2", "2:1"));
    assert_eq!(second("1 qid:1"), bad(2, "index:value with an integer as index", "qid:1"));
    for value in ["x", "nan", "inf", "1e39", ""] {
        let expected = bad(2, "index:value with a finite number", &format!("1:{value}"));
        assert_eq!(second(&format!("1 1:{value}")), expected);
    }
}

#[test]
fn features_are_declared() {
    let directory = Directory::new();
    let path = directory.write("t.libsvm", "1 1:1\n");
    let error = read(&source(&path)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "number of features must be declared for SVMLight, as 1 to 2147483648, got none"
    );
    assert!(error.hint().contains("public"));
    assert!(read(&Source { features: Some(0), ..source(&path) }).is_err());
    let error = read(&Source { features: Some(usize::MAX), ..source(&path) }).unwrap_err();
    assert!(error.to_string().contains("got 18446744073709551615"), "{error}");
    assert_eq!(refused("# nothing\n\n", None), "t.svm: there are no records");
}

#[test]
fn prediction_needs_no_labels() {
    let directory = Directory::new();
    let path = directory.write("t.svmlight", "1:1 3:2\n7 2:3\nnone 1:4\n");
    let set = unlabelled(&Source { features: Some(3), ..source(path) }).unwrap();
    assert!(set.targets().is_none());
    assert_eq!(values(&set), [1.0, 0.0, 2.0, 0.0, 3.0, 0.0, 4.0, 0.0, 0.0]);
}
