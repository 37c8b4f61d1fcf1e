//! Folders of texts.

use sordino_data::{PredictionOptions, Source, read, read_test, read_unlabelled};
use sordino_nn::Shape;

use crate::files::{Directory, classes, source, starts, texts, unlabelled};

fn bytes(directory: &Directory) -> Source {
    Source { tokenizer: Some("bytes".to_owned()), ..source(directory.path()) }
}

/// The layout of aclImdb.
fn reviews(prefix: &str) -> Directory {
    let directory = Directory::new();
    for (name, text) in [
        ("train/pos/10_7.txt", "fine\nfilm"),
        ("train/pos/2_9.txt", "\u{feff}good"),
        ("train/neg/0_2.txt", ""),
        ("train/unsup/0_0.txt", "unlabelled"),
        ("train/labeledBow.feat", "0 1:1"),
        ("train/urls_pos.txt", "http"),
        ("train/pos/.hidden.txt", "hidden"),
        ("test/neg/0_1.txt", "bad"),
        ("test/pos/0_8.txt", "best"),
    ] {
        directory.write(&format!("{prefix}{name}"), text);
    }
    directory
}

#[test]
fn a_folder_for_each_class_is_read_in_the_order_of_names() {
    for prefix in ["", "aclImdb/"] {
        let directory = reviews(prefix);
        let sets = read(&bytes(&directory)).unwrap();
        assert_eq!(texts(&sets.train), ["|", "fine\nfilm", "good"]);
        assert_eq!(
            (sets.train.classes(), classes(&sets.train)),
            (&["neg", "pos"].map(str::to_owned)[..], &[0, 1, 1][..])
        );
        let test = sets.test.unwrap();
        assert_eq!((texts(&test), classes(&test)), (vec!["bad".to_owned(), "best".to_owned()], &[0, 1][..]));
        // The files, and the folders of two classes in two parts.
        assert_eq!(sordino_data::files(directory.path()).len(), 5 + 4);
    }
    // The default tokenizer.
    let shape = read(&source(reviews("").path())).unwrap().train.shape();
    assert_eq!(shape, Shape::Tokens { steps: 1024, vocabulary: 16384 });
}

#[test]
fn class_folders_need_no_train_and_test() {
    let directory = Directory::new();
    directory.write("b/1.txt", "x");
    directory.write("a/1.txt", "y");
    directory.write("README.md", "no text");
    let sets = read(&bytes(&directory)).unwrap();
    assert_eq!((texts(&sets.train), sets.test.is_none()), (vec!["y".to_owned(), "x".to_owned()], true));
    // The test records may be elsewhere, and their classes must be known.
    let other = Directory::new();
    other.write("b/2.txt", "z");
    let test = read_test(other.path(), &bytes(&directory), &sets).unwrap();
    assert_eq!((texts(&test), classes(&test)), (vec!["z".to_owned()], &[1][..]));
    other.write("c/2.txt", "z");
    let message = other.message(&read_test(other.path(), &bytes(&directory), &sets).unwrap_err());
    assert_eq!(message, "c/2.txt, column 2 (label): must be one of `a`, `b`, got `c`");
}

#[test]
fn a_file_for_each_class_has_a_text_on_each_line() {
    let directory = Directory::new();
    directory.write("Irish.txt", "Ó Néill\n\nBrady\n");
    directory.write("Arabic.txt", "Nahas\r\nDaher");
    directory.write("notes.md", "no names");
    let sets = read(&bytes(&directory)).unwrap();
    assert_eq!(texts(&sets.train), ["Nahas", "Daher", "Ó Néill", "Brady"]);
    assert_eq!(classes(&sets.train), [0, 0, 1, 1]);
    assert_eq!(sets.train.classes(), ["Arabic", "Irish"]);
    let shape = read(&source(directory.path())).unwrap().train.shape();
    assert_eq!(shape, Shape::Tokens { steps: 256, vocabulary: 292 });
    // With other files, the texts are not the records.
    directory.write("train-images-idx3-ubyte", "");
    let error = read(&source(directory.path())).unwrap_err();
    assert!(error.to_string().contains("idx1-ubyte"), "{error}");
}

#[test]
fn glue_and_e2e_folders_are_recognised() {
    let sst2 = Directory::new();
    sst2.write("train.tsv", "sentence\tlabel\nan \"odd quote \t1\n");
    sst2.write("dev.tsv", "sentence\tlabel\nbad \t0\n");
    sst2.write("test.tsv", "index\tsentence\n0\tunknown\n");
    let sets = read(&bytes(&sst2)).unwrap();
    let test = sets.test.as_ref().unwrap();
    assert_eq!(
        (texts(&sets.train), texts(test)),
        (vec!["an \"odd quote ".to_owned()], vec!["bad ".to_owned()])
    );
    assert_eq!((classes(&sets.train), classes(test)), (&[1][..], &[0][..]));

    let qnli = Directory::new();
    qnli.write("train.tsv", "index\tquestion\tsentence\tlabel\n0\twhy?\t\"so\tnot_entailment\n");
    let sets = read(&bytes(&qnli)).unwrap();
    assert_eq!((texts(&sets.train), classes(&sets.train)), (vec!["why?|\"so".to_owned()], &[1][..]));
    assert!(sets.test.is_none());

    let e2e = Directory::new();
    e2e.write("trainset.csv", "mr,ref\n\"name[A], area[b]\",A is in b.\n");
    e2e.write("devset.csv", "mr,ref\nname[C],C.\n");
    let sets = read(&source(e2e.path())).unwrap();
    assert_eq!(texts(&sets.train), ["name[A], area[b]|A is in b.|"]);
    assert_eq!(starts(&sets.train), [17]);
    assert_eq!(starts(&sets.test.unwrap()), [8]);

    let other = Directory::new();
    other.write("train.tsv", "a\tb\n");
    let error = read(&bytes(&other)).unwrap_err();
    assert!(
        other.message(&error).starts_with("train.tsv, line 1: the columns are not those of SST-2"),
        "{error}"
    );
}

#[test]
fn a_folder_is_predicted_with_the_names_of_its_files() {
    let directory = reviews("");
    let rows = read_unlabelled(&bytes(&directory), &PredictionOptions::default()).unwrap();
    assert_eq!(
        rows.rows.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(),
        ["test/neg/0_1.txt", "test/pos/0_8.txt"]
    );
    assert!(rows.part.unwrap().starts_with("the test records in "));
    // By the schema of a run, whose classes need not occur.
    let schema = "target = 'stars'\n[[columns]]\nname = 'review'\ntype = 'text'\ntokenizer = 'bytes'\n[[columns]]\n\
                  name = 'stars'\ntype = 'number'\n";
    let schema = Some(directory.write("s.toml", schema));
    let rows = unlabelled(&Source { schema, ..source(directory.path()) }).unwrap();
    assert_eq!(texts(&rows), ["bad", "best"]);
}

#[test]
fn bad_folders_are_refused_with_the_file() {
    let directory = Directory::new();
    directory.write("a/1.txt", "x");
    let error = read(&bytes(&directory)).unwrap_err();
    assert!(error.to_string().contains("must have 2 to 65536 classes, got 1"), "{error}");
    directory.write("b/1.txt", b"fine\nnot \xff fine\n");
    let message = directory.message(&read(&bytes(&directory)).unwrap_err());
    assert!(
        message.starts_with("b/1.txt, column 1 (text): must be UTF-8 (line 2 of the text is not)"),
        "{message}"
    );

    let names = Directory::new();
    names.write("a.txt", "x\n");
    names.write("b.txt", b"y\n\xff\n");
    let message = names.message(&read(&bytes(&names)).unwrap_err());
    assert!(message.starts_with("b.txt, line 2, column 1 (text): must be UTF-8, got "), "{message}");
    names.write("b.txt", "");
    names.write("a.txt", "\n");
    assert!(names.message(&read(&bytes(&names)).unwrap_err()).ends_with("there are no records"));

    let empty = Directory::new();
    let error = read(&bytes(&empty)).unwrap_err();
    assert!(error.to_string().contains("has no files of a known format"), "{error}");
    assert!(read(&source(empty.path())).is_err());

    let file = std::fs::File::create(directory.path().join("b/1.txt")).unwrap();
    file.set_len((64 << 20) + 1).unwrap();
    let message = directory.message(&read(&bytes(&directory)).unwrap_err());
    assert_eq!(message, "b/1.txt: is longer than 64 MiB");
}
