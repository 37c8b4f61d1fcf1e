use std::fs;

use sordino_data::{DataError, ImageOptions, Source, Splits, read, read_test, read_unlabelled};
use sordino_nn::{Inputs, Shape};

use crate::files::{Directory, classes, gzip, numbers, source, unlabelled, values};
use crate::npy::{floats, longs, npy, npz};

type Arrays<'a> = [(&'a str, Vec<u8>)];

fn folder(arrays: &Arrays<'_>) -> Directory {
    let directory = Directory::new();
    for (name, bytes) in arrays {
        directory.write(&format!("{name}.npy"), bytes);
    }
    directory
}

fn sets(directory: &Directory, count: Option<usize>) -> Result<Splits, DataError> {
    read(&Source { classes: count, ..source(directory.path()) })
}

fn refused(arrays: &Arrays<'_>, count: Option<usize>) -> String {
    let directory = folder(arrays);
    directory.message(&sets(&directory, count).unwrap_err())
}

/// Arrays of every kind, with the number of their records.
fn arrays() -> Vec<(Vec<u8>, usize)> {
    let some: Vec<u8> = (0..=255).cycle().step_by(7).take(5 * 192).collect();
    let many: Vec<f32> = (0..2 * 5000).map(|i| i as f32 * 0.37 - 9.0).collect();
    vec![
        (npy("<f4", "(3, 2)", &floats(&[1.0, -0.0, f32::MIN_POSITIVE, 1e-40, 3e38, -7.25])), 3),
        (npy(">f4", "(1, 2)", &[1.5_f32, -2.25].map(f32::to_be_bytes).concat()), 1),
        (npy("<f8", "(2, 1)", &[0.1_f64, -1e-3].map(f64::to_le_bytes).concat()), 2),
        (npy("|u1", "(15, 8, 8)", &some), 15),
        (npy("|u1", "(5, 3, 8, 8)", &some), 5),
        // The channels come last.
        (npy("|u1", "(5, 8, 8, 3)", &some), 5),
        (npy("<i2", "(240, 2)", &some), 240),
        (npy("|b1", "(2, 2)", &[0, 1, 1, 0]), 2),
        // Long records.
        (npy("<f4", "(2, 5000)", &floats(&many)), 2),
    ]
}

fn labels(count: usize) -> Vec<u8> {
    npy("<i8", &format!("({count},)"), &longs(&(0..count as i64).map(|i| i % 3).collect::<Vec<_>>()))
}

#[test]
fn records_in_a_file_are_those_of_an_archive_in_memory() {
    for (x, count) in arrays() {
        let all = [("x", x.clone()), ("y", labels(count)), ("x_test", x), ("y_test", labels(count))];
        let directory = folder(&all);
        let path = directory.write("t.npz", npz(&all, zip::CompressionMethod::Deflated));
        let memory = read(&Source { classes: Some(3), ..source(path) }).unwrap();
        let stored = sets(&directory, Some(3)).unwrap();
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        for (stored, memory) in [(stored.train, memory.train), (stored.test.unwrap(), memory.test.unwrap())] {
            assert!(matches!(stored.inputs(), Inputs::Stored(_)));
            assert_eq!(bits(values(&stored)), bits(values(&memory)));
            assert_eq!(classes(&stored), classes(&memory));
            assert_eq!((stored.shape(), stored.encoding()), (memory.shape(), memory.encoding()));
            assert_eq!(stored.classes(), memory.classes());
        }
    }
}

#[test]
fn numbers_to_predict_are_read_with_the_records() {
    let y = npy("<f4", "(3, 2)", &floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    let directory = folder(&[("x", arrays()[0].0.clone()), ("y", y)]);
    let train = sets(&directory, None).unwrap().train;
    assert_eq!(numbers(&train), (&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0][..], 2));
}

#[test]
fn a_split_of_a_file_is_the_split_of_the_same_records_in_memory() {
    let x = npy("|u1", "(40, 2)", &(0..80).collect::<Vec<u8>>());
    let all = [("x", x), ("y", labels(40))];
    let directory = folder(&all);
    let path = directory.write("t.npz", npz(&all, zip::CompressionMethod::Stored));
    let memory = read(&Source { classes: Some(3), ..source(path) }).unwrap().train.split(0.3, 5).unwrap();
    let stored = sets(&directory, Some(3)).unwrap().train.split(0.3, 5).unwrap();
    for (stored, memory) in [(&stored.0, &memory.0), (stored.1.as_ref().unwrap(), memory.1.as_ref().unwrap())]
    {
        assert!(matches!(stored.inputs(), Inputs::Stored(_)));
        assert_eq!(values(stored), values(memory));
        assert_eq!(classes(stored), classes(memory));
    }
    // A part of a part.
    let (again, memory) = (stored.0.split(0.5, 1).unwrap(), memory.0.split(0.5, 1).unwrap());
    assert_eq!(values(&again.0), values(&memory.0));
    assert_eq!(values(&again.1.unwrap()), values(&memory.1.unwrap()));
}

#[test]
fn a_file_of_every_other_length_is_refused() {
    let good = npy("<f4", "(3, 2)", &floats(&[1.0; 6]));
    for length in 0..good.len() {
        let error = refused(&[("x", good[..length].to_vec()), ("y", labels(3))], Some(3));
        assert!(error.starts_with("x.npy, byte "), "{error}");
    }
    let error = refused(&[("x", good[..good.len() - 1].to_vec()), ("y", labels(3))], Some(3));
    assert!(error.contains("the file ends here, but its header states"), "{error}");
    let error = refused(&[("x", [&good[..], b"!"].concat()), ("y", labels(3))], Some(3));
    assert!(error.contains("beyond the last value"), "{error}");
    // A header that promises more than any file has.
    let huge = npy("<f4", "(9999999999999, 9999999)", &[0; 8]);
    assert!(refused(&[("x", huge), ("y", labels(3))], Some(3)).starts_with("x.npy, byte "));
}

#[test]
fn what_does_not_fit_is_refused_with_its_place() {
    let good = arrays()[0].0.clone();
    let bad = npy("<f4", "(3, 2)", &floats(&[1.0, 2.0, 3.0, f32::NAN, 5.0, f32::INFINITY]));
    assert_eq!(
        refused(&[("x", bad), ("y", labels(3))], Some(3)),
        "x.npy, record 2, value 2: must be a finite number in single precision, got NaN"
    );
    let bad = npy("<f8", "(2, 1)", &[0.5_f64, 1e300].map(f64::to_le_bytes).concat());
    let error = refused(&[("x", bad), ("y", labels(2))], Some(3));
    assert!(error.starts_with("x.npy, record 2, value 1: must be a finite number"), "{error}");
    assert_eq!(refused(&[("x", good.clone()), ("y", labels(4))], Some(3)), "y.npy: 4 labels for 3 records");
    let error = refused(&[("x", good.clone()), ("y", labels(3))], Some(2));
    assert!(error.starts_with("y.npy, record 3: must be a class of 0 to 1"), "{error}");
    assert!(refused(&[("x", good.clone()), ("y", labels(3))], None).starts_with("number of classes"));
    assert!(refused(&[("x", good.clone())], Some(3)).starts_with("y.npy: No such file"));
    let empty = npy("<f4", "(0, 2)", &[]);
    assert_eq!(refused(&[("x", empty), ("y", labels(0))], Some(3)), "x.npy: there are no records");
    let test = [("x_test", arrays()[2].0.clone()), ("y_test", labels(2))];
    let all = [&[("x", good), ("y", labels(3))][..], &test].concat();
    assert!(refused(&all, Some(3)).contains("records of x.npy are 2, but records of x_test.npy are 1"));
}

#[test]
fn rows_that_cannot_be_read_are_kept_apart_in_prediction() {
    let directory = Directory::new();
    let x = npy("<f4", "(3, 2)", &floats(&[1.0, f32::NAN, 3.0, 4.0, f32::NAN, 6.0]));
    for path in [directory.write("t.npy", &x), directory.write("t.npy.gz", gzip(&x))] {
        let rows = read_unlabelled(&source(path), &Default::default()).unwrap();
        assert_eq!(values(rows.records.as_ref().unwrap()), [3.0, 4.0]);
        let refused: Vec<bool> = rows.rows.iter().map(|row| row.refused.is_some()).collect();
        assert_eq!(refused, [true, false, true]);
    }
    let directory = folder(&[("x", arrays()[0].0.clone())]);
    assert_eq!(unlabelled(&source(directory.path())).unwrap().shape(), Shape::Features(2));
}

#[test]
fn test_records_come_from_another_folder() {
    let all = [("x", arrays()[0].0.clone()), ("y", labels(3))];
    let directory = folder(&all);
    let sets = sets(&directory, Some(3)).unwrap();
    let other = folder(&[&all[..], &[("x_test", all[0].1.clone()), ("y_test", all[1].1.clone())]].concat());
    let from = Source { classes: Some(3), ..source(directory.path()) };
    assert_eq!(read_test(other.path(), &from, &sets).unwrap().len(), 3);
}

#[test]
fn a_file_that_shrinks_later_gives_an_error_and_not_a_crash() {
    let directory = folder(&[("x", arrays()[8].0.clone()), ("y", labels(2))]);
    let train = sets(&directory, Some(3)).unwrap().train;
    fs::OpenOptions::new().write(true).open(directory.path().join("x.npy")).unwrap().set_len(20_500).unwrap();
    let Inputs::Stored(store) = train.inputs() else { panic!("stored") };
    let mut record = vec![0.0; 5000];
    store.read_values(0, &mut record).unwrap();
    let error = store.read_values(1, &mut record).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    assert_eq!(format!("{store:?}"), "StoredRecords { records: 2, shape: Features(5000), .. }");
}

#[test]
fn images_in_files_are_normalised_like_images_in_memory() {
    let pixels: Vec<u8> = (0..2 * 3 * 64).map(|i| (i * 7) as u8).collect();
    for (x, last) in [("(2, 3, 8, 8)", false), ("(2, 8, 8, 3)", true)] {
        let (x, y) = (npy("|u1", x, &pixels), npy("|u1", "(2,)", &[0, 1]));
        let directory = folder(&[("x", x.clone()), ("y", y.clone())]);
        let archive = directory.write("t.npz", npz(&[("x", x), ("y", y)], zip::CompressionMethod::Stored));
        let images = ImageOptions {
            mean: Some(vec![0.5, 0.25, 0.0]),
            std: Some(vec![0.5, 0.25, 0.125]),
            ..ImageOptions::default()
        };
        let described = |path| Source { classes: Some(2), images: images.clone(), ..source(path) };
        let stored = read(&described(directory.path().to_owned())).unwrap().train;
        let memory = read(&described(archive)).unwrap().train;
        assert!(matches!(stored.inputs(), Inputs::Stored(_)));
        assert_eq!(values(&stored), values(&memory), "channels last: {last}");
        let tiny = ImageOptions { std: Some(vec![1e-300]), ..ImageOptions::default() };
        let tiny = Source { classes: Some(2), images: tiny, ..source(directory.path()) };
        let message = directory.message(&read(&tiny).unwrap_err());
        assert!(message.ends_with("x.npy, record 1: a value is not finite after normalisation"), "{message}");
    }
}
