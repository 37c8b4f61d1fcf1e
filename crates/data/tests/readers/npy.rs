use std::io::{Cursor, Write};

use sordino_data::{DataError, Source, Splits, read};
use sordino_nn::Shape;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::files::{Directory, classes, gzip, numbers, source, unlabelled, values};

/// An NPY file.
pub(crate) fn npy(descr: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}          \n");
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), bytes].concat()
}

pub(crate) fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub(crate) fn longs(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub(crate) fn npz(arrays: &[(&str, Vec<u8>)], method: zip::CompressionMethod) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in arrays {
        // NumPy writes large sizes for all files.
        let options = SimpleFileOptions::default().compression_method(method).large_file(true);
        writer.start_file(format!("{name}.npy"), options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn x() -> Vec<u8> {
    npy("<f4", "(2, 2)", &floats(&[1.0, 2.0, 3.0, 4.5]))
}

fn y() -> Vec<u8> {
    npy("<i8", "(2,)", &longs(&[2, 0]))
}

fn sets(
    directory: &Directory,
    arrays: &[(&str, Vec<u8>)],
    classes: Option<usize>,
) -> Result<Splits, DataError> {
    let path = directory.write("t.npz", npz(arrays, zip::CompressionMethod::Deflated));
    read(&Source { classes, ..source(path) })
}

fn refused(arrays: &[(&str, Vec<u8>)], classes: Option<usize>) -> String {
    let directory = Directory::new();
    directory.message(&sets(&directory, arrays, classes).unwrap_err())
}

#[test]
fn archives_have_a_training_and_perhaps_a_test_set() {
    let directory = Directory::new();
    for method in [zip::CompressionMethod::Stored, zip::CompressionMethod::Deflated] {
        let arrays = [("x", x()), ("y", y()), ("x_test", x()), ("y_test", y()), ("other", vec![1])];
        let path = directory.write("t.npz", npz(&arrays, method));
        let sets = read(&Source { classes: Some(3), ..source(path) }).unwrap();
        for set in [sets.train, sets.test.unwrap()] {
            assert_eq!(set.shape(), Shape::Features(2));
            assert_eq!(values(&set), [1.0, 2.0, 3.0, 4.5]);
            assert_eq!(classes(&set), [2, 0]);
        }
    }
    let train =
        sets(&directory, &[("x", x()), ("y", npy("<f4", "(2, 2)", &floats(&[0.5; 4])))], None).unwrap().train;
    assert_eq!(numbers(&train), (&[0.5; 4][..], 2));
    let train = sets(&directory, &[("x", x()), ("y", npy("|u1", "(2, 1)", &[1, 0]))], Some(2)).unwrap().train;
    assert_eq!(classes(&train), [1, 0]);
}

#[test]
fn shapes_tell_features_from_images_and_bytes_are_scaled() {
    let directory = Directory::new();
    let array = |descr, shape, bytes: &[u8]| {
        unlabelled(&source(directory.write("t.npy", npy(descr, shape, bytes)))).unwrap()
    };
    let bytes = [0, 51, 102, 255];
    let image = |channels, height, width| Shape::Image { channels, height, width };
    for (shape, expected) in
        [("(2, 2)", Shape::Features(2)), ("(1, 2, 2)", image(1, 2, 2)), ("(1, 2, 1, 2)", image(2, 1, 2))]
    {
        let set = array("|u1", shape, &bytes);
        assert_eq!(set.shape(), expected);
        assert_eq!(values(&set), [0.0, 0.2, 0.4, 1.0]);
    }
    assert_eq!(values(&array("|i1", "(2, 2)", &bytes)), [0.0, 51.0, 102.0, -1.0]);
    assert_eq!(values(&array(">f8", "(1, 1)", &1.5_f64.to_be_bytes())), [1.5]);
}

#[test]
fn prediction_reads_x_only() {
    let directory = Directory::new();
    let path = directory.write("t.npz", npz(&[("x", x())], zip::CompressionMethod::Stored));
    let set = unlabelled(&source(path)).unwrap();
    assert!(set.targets().is_none());
    assert_eq!(values(&set), [1.0, 2.0, 3.0, 4.5]);
    let path = directory.write("t.npy.gz", gzip(x()));
    assert_eq!(values(&unlabelled(&source(&path)).unwrap()), values(&set));
    let message = directory.message(&read(&source(path)).unwrap_err());
    assert_eq!(message, "t.npy.gz: an NPY file has no labels");
}

#[test]
fn values_that_are_not_finite_are_named_by_record() {
    for (bad, shown) in [(f32::NAN, "NaN"), (f32::NEG_INFINITY, "-inf")] {
        let x = npy("<f4", "(2, 2)", &floats(&[1.0, 2.0, 3.0, bad]));
        assert_eq!(
            refused(&[("x", x), ("y", y())], Some(3)),
            format!(
                "t.npz, array x, record 2, value 2: must be a finite number in single precision, got {shown}"
            )
        );
    }
    let x = [("x", npy("<f8", "(1, 1)", &1e39_f64.to_le_bytes())), ("y", y())];
    assert!(refused(&x, Some(3)).contains("record 1, value 1: must be a finite number in single precision"));
    let y = npy("<f4", "(2,)", &floats(&[0.0, f32::NAN]));
    assert!(refused(&[("x", self::x()), ("y", y)], None).starts_with("t.npz, array y, record 2, value 1: "));
}

#[test]
fn classes_are_declared() {
    assert_eq!(
        refused(&[("x", x()), ("y", y())], None),
        "number of classes must be declared for labels that are integers, got none"
    );
    assert_eq!(
        refused(&[("x", x()), ("y", y())], Some(2)),
        "t.npz, array y, record 1: must be a class of 0 to 1, got 2"
    );
    let negative = npy("<i8", "(2,)", &longs(&[0, -1]));
    assert_eq!(
        refused(&[("x", x()), ("y", negative)], Some(2)),
        "t.npz, array y, record 2: must be a class of 0 to 1, got -1"
    );
    assert_eq!(
        refused(&[("x", x()), ("y", npy("<f4", "(2,)", &floats(&[0.0, 1.0])))], Some(2)),
        "number of classes must be left out for labels that are floats, got 2"
    );
}

#[test]
fn arrays_that_do_not_fit_are_refused() {
    assert_eq!(refused(&[("y", y()), ("z", y())], Some(3)), "t.npz: has no array `x`, only `y.npy z.npy`");
    assert_eq!(refused(&[("x", x())], Some(3)), "t.npz: has no array `y`, only `x.npy`");
    let message = refused(&[("x", x()), ("y", y()), ("x_test", x())], Some(3));
    assert!(message.starts_with("t.npz: has no array `y_test`"), "{message}");
    let one = npy("<i8", "(1,)", &longs(&[0]));
    assert_eq!(refused(&[("x", x()), ("y", one.clone())], Some(3)), "t.npz, array y: 1 labels for 2 records");
    assert_eq!(refused(&[("x", y()), ("y", y())], Some(3)), "t.npz, array x: the shape [2] has 1 dimensions");
    let wide = npy("<i8", "(2, 2)", &longs(&[0; 4]));
    assert_eq!(refused(&[("x", x()), ("y", wide)], Some(3)), "t.npz, array y: labels of the shape [2, 2]");
    let narrow = npy("<f4", "(1, 1)", &floats(&[1.0]));
    assert_eq!(
        refused(&[("x", x()), ("y", y()), ("x_test", narrow), ("y_test", one)], Some(3)),
        "t.npz: records of x are 2, but records of x_test are 1"
    );
}

#[test]
fn damaged_arrays_are_refused() {
    let directory = Directory::new();
    let array =
        |bytes: &[u8]| directory.message(&unlabelled(&source(directory.write("t.npy", bytes))).unwrap_err());
    let whole = x();
    let end = whole.len();
    assert_eq!(
        array(&whole[..end - 1]),
        format!("t.npy, byte {}: the file ends here, but its header states {end} bytes", end - 1)
    );
    for length in [0, 5, 9, 10, 30] {
        let expected = format!("t.npy, byte {length}: the file ends here, within its header");
        assert_eq!(array(&whole[..length]), expected);
    }
    assert!(array(&[&whole[..], b"x"].concat()).contains("bytes beyond the last value"));
    assert_eq!(array(b"PK\x03\x04 something else"), "t.npy, byte 0: is not an NPY file");
    assert_eq!(array(&npy("|O", "(1, 1)", &[0; 8])), "t.npy, byte 10: the type `|O` is not supported");
    assert!(array(&npy("<f4", "(-1, 1)", &[])).starts_with("t.npy, byte 10: the header is not of the form"));
    let fortran: Vec<u8> = {
        let header = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }\n";
        let length = (header.len() as u16).to_le_bytes();
        [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &floats(&[0.0; 4])].concat()
    };
    assert!(array(&fortran).contains("Fortran order"));
    assert_eq!(
        array(b"\x93NUMPY\x09\x00\x00\x00"),
        "t.npy, byte 6: version 9 of the NPY format is not supported; 1 to 3 are"
    );
    assert!(array(b"\x93NUMPY\x02\x00\xff\xff\xff\xff").contains("a header of 4294967295 bytes"));
    for depth in [18, 30_000] {
        let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(array(&npy("<f4", &nested, &[])).contains("the header is not of the form"));
    }
    assert_eq!(array(&npy("<f4", "(0, 3)", &[])), "t.npy: there are no records");
    assert!(array(&npy("<f4", "(3, 0)", &[])).contains("leaves no values"));
    for shape in [
        "(0, 9999999999999, 9999999999999)",
        "(4294967296, 4294967296)",
        "(9999999999999, 9999999999999)",
        "(2147483649, 1)",
    ] {
        let empty = npy("<f4", shape, &[]);
        assert!(array(&gzip(&empty)).contains("more than 2147483648 values"));
        // An array that is not compressed stays in its file; only a record has a largest size.
        let expected = if shape == "(2147483649, 1)" { "the file ends here" } else { "more than" };
        assert!(array(&empty).contains(expected));
    }
}

#[test]
fn damaged_archives_are_refused() {
    let directory = Directory::new();
    let mut bytes = npz(&[("x", x()), ("y", y())], zip::CompressionMethod::Stored);
    // A value of x, so that its checksum is wrong.
    let place = bytes.windows(4).position(|window| window == 4.5_f32.to_le_bytes()).unwrap();
    bytes[place] ^= 1;
    let error = read(&Source { classes: Some(3), ..source(directory.write("t.npz", &bytes)) }).unwrap_err();
    assert!(error.to_string().to_lowercase().contains("checksum"), "{error}");
    let error = read(&source(directory.write("t.npz", &bytes[..100]))).unwrap_err();
    assert!(error.hint().contains("numpy.savez"), "{error}");
}

#[test]
fn the_names_of_medmnist_and_keras_are_known() {
    let directory = Directory::new();
    let images = |pixel: u8, count: usize| {
        npy("|u1", &format!("({count}, 8, 8, 3)"), &[pixel, 102, 204].repeat(count * 64))
    };
    // Labels of MedMNIST have two axes.
    let labels = |classes: &[u8]| npy("|u1", &format!("({}, 1)", classes.len()), classes);
    let mut arrays = vec![
        ("train_images", images(0, 2)),
        ("train_labels", labels(&[1, 0])),
        ("val_images", images(51, 1)),
        ("val_labels", labels(&[1])),
    ];
    let validated = sets(&directory, &arrays, Some(2)).unwrap();
    assert_eq!(validated.train.shape(), Shape::Image { channels: 3, height: 8, width: 8 });
    // Channels come first in a record.
    assert_eq!(values(&validated.train)[..192], [vec![0.0; 64], vec![0.4; 64], vec![0.8; 64]].concat());
    assert_eq!(classes(&validated.train), [1, 0]);
    assert_eq!(values(&validated.test.unwrap())[0], 0.2);
    arrays.extend([("test_images", images(255, 3)), ("test_labels", labels(&[0, 0, 1]))]);
    let sets = sets(&directory, &arrays, Some(2)).unwrap();
    assert_eq!((values(sets.test.as_ref().unwrap())[0], sets.test.unwrap().len()), (1.0, 3));
    assert_eq!(unlabelled(&source(directory.path().join("t.npz"))).unwrap().len(), 3);

    let keras = [("x_train", x()), ("y_train", y()), ("x_test", x()), ("y_test", y())];
    let path = directory.write("keras.npz", npz(&keras, zip::CompressionMethod::Stored));
    let keras = read(&Source { classes: Some(3), ..source(path) }).unwrap();
    assert_eq!((keras.train.len(), keras.test.unwrap().len()), (2, 2));
}

#[test]
fn arrays_in_half_precision_are_read() {
    let directory = Directory::new();
    // 1, -2, 0.5 and 65504.
    let halves = npy("<f2", "(2, 2)", &[0x00, 0x3c, 0x00, 0xc0, 0x00, 0x38, 0xff, 0x7b]);
    let sets = sets(&directory, &[("x", halves), ("y", y())], Some(3)).unwrap();
    assert_eq!(values(&sets.train), [1.0, -2.0, 0.5, 65504.0]);
}

#[test]
fn zip_bombs_are_refused_before_they_are_unpacked() {
    // 1 MB of zeros behind a header that promises four numbers.
    let mut bomb = x();
    bomb.resize(1 << 20, 0);
    let message = refused(&[("x", bomb), ("y", y())], Some(3));
    assert!(
        message.starts_with(
            "t.npz, array x: the archive has 1048576 bytes for this array, but its header states"
        ),
        "{message}"
    );
    // 257 MiB of zeros, as promised, in a quarter of a megabyte.
    let mut bomb = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    bomb.start_file("x.npy", options.large_file(true)).unwrap();
    bomb.write_all(&npy("|u1", "(1, 269484032)", &[])).unwrap();
    let zeros = vec![0; 1 << 20];
    for _ in 0..257 {
        bomb.write_all(&zeros).unwrap();
    }
    let bomb = bomb.finish().unwrap().into_inner();
    assert!(bomb.len() < 1 << 20);
    let directory = Directory::new();
    let error = unlabelled(&source(directory.write("t.npz", bomb))).unwrap_err();
    let message = directory.message(&error);
    assert!(message.contains("array x: ") && message.contains("more than 500 times as many"), "{message}");
    assert!(error.hint().contains("zip bomb"));
}
