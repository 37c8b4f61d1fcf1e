//! The binary files of CIFAR-10 and CIFAR-100.

use sordino_data::{Encoding, PredictionOptions, Source, read, read_test, read_unlabelled};
use sordino_nn::Shape;

use crate::files::{Directory, classes, gzip, source, unlabelled, values};

/// A record: labels, then 1024 bytes of red, of green and of blue.
fn record(labels: &[u8], rgb: [u8; 3]) -> Vec<u8> {
    [labels.to_vec(), rgb.into_iter().flat_map(|byte| [byte; 1024]).collect()].concat()
}

/// Five training files with one image each, in a folder.
fn cifar10(folder: &str) -> Directory {
    let directory = Directory::new();
    for number in 1..=5 {
        directory
            .write(&format!("{folder}data_batch_{number}.bin"), record(&[number], [51 * number, 0, 255]));
    }
    directory
}

#[test]
fn cifar10_has_five_training_files_and_a_test_file() {
    for folder in ["", "cifar-10-batches-bin/"] {
        let directory = cifar10(folder);
        let sets = read(&source(directory.path())).unwrap();
        assert_eq!(sets.train.shape(), Shape::Image { channels: 3, height: 32, width: 32 });
        assert_eq!((classes(&sets.train), sets.train.classes()[9].as_str()), (&[1, 2, 3, 4, 5][..], "9"));
        let second = &values(&sets.train)[3072..6144];
        assert!(second[..1024].iter().all(|&red| red == 0.4));
        assert!(second[1024..2048].iter().all(|&green| green == 0.0));
        assert!(second[2048..].iter().all(|&blue| blue == 1.0));
        assert!(sets.test.is_none());
        assert_eq!(unlabelled(&source(directory.path())).unwrap().len(), 5);

        let test = [record(&[0], [51, 51, 51]), record(&[9], [0, 0, 0])].concat();
        directory.write(&format!("{folder}test_batch.bin.gz"), gzip(test));
        let test = read(&source(directory.path())).unwrap().test.unwrap();
        assert_eq!((classes(&test), values(&test)[0]), (&[0, 9][..], 0.2));
        let again = read_test(directory.path(), &source(directory.path()), &sets).unwrap();
        assert_eq!(values(&again), values(&test));
        let rows = read_unlabelled(
            &source(directory.path()),
            &PredictionOptions { encoding: Some(Encoding::Integers), ..PredictionOptions::default() },
        )
        .unwrap();
        assert!(rows.part.unwrap().ends_with("test_batch.bin.gz"));
        assert_eq!(values(&rows.records.unwrap())[0], 51.0);
    }
}

#[test]
fn cifar100_has_fine_classes() {
    let directory = Directory::new();
    directory.write("train.bin", [record(&[3, 99], [0; 3]), record(&[19, 0], [255; 3])].concat());
    directory.write("test.bin", record(&[0, 42], [0; 3]));
    let sets = read(&source(directory.path())).unwrap();
    assert_eq!((classes(&sets.train), sets.train.classes().len()), (&[99, 0][..], 100));
    assert_eq!(classes(&sets.test.unwrap()), [42]);
}

#[test]
fn names_of_classes_come_from_the_archive() {
    let directory = cifar10("");
    directory.write("batches.meta.txt", "plane\ncar\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n");
    let train = read(&source(directory.path())).unwrap().train;
    assert_eq!((train.classes()[0].as_str(), train.classes()[9].as_str()), ("plane", "truck"));
    directory.write("batches.meta.txt", "plane\ncar\n");
    let error = read(&source(directory.path())).unwrap_err();
    assert_eq!(directory.message(&error), "batches.meta.txt: has 2 different names, expected 10");
}

#[test]
fn damaged_files_are_refused() {
    let refused = |name: &str, bytes: Vec<u8>| {
        let directory = cifar10("");
        directory.write(name, bytes);
        directory.message(&read(&source(directory.path())).unwrap_err())
    };
    let two = [record(&[1], [0; 3]), record(&[1], [0; 3])[..100].to_vec()].concat();
    let message = refused("data_batch_3.bin", two);
    assert_eq!(
        message,
        "data_batch_3.bin, record 2: the file ends within the record, after 100 of 3073 bytes"
    );
    let message = refused("data_batch_2.bin", record(&[10], [0; 3]));
    assert_eq!(message, "data_batch_2.bin, record 1: must be a class of 0 to 9, got 10");
    let directory = cifar10("");
    std::fs::remove_file(directory.path().join("data_batch_4.bin")).unwrap();
    let error = read(&source(directory.path())).unwrap_err();
    assert!(error.to_string().ends_with("has no file data_batch_4.bin"), "{error}");
    let error = read(&Source { classes: Some(100), ..source(cifar10("").path()) }).unwrap_err();
    assert_eq!(error.to_string(), "number of classes must be 10 as in CIFAR-10, or left out, got 100");
}
