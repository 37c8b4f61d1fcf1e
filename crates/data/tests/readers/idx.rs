use sordino_data::{Source, read};
use sordino_nn::Shape;

use crate::files::{Directory, classes, gzip, source, unlabelled, values};

const IMAGES: &str = "train-images-idx3-ubyte";
const LABELS: &str = "train-labels-idx1-ubyte";

/// An IDX file with these sizes.
pub(crate) fn file(magic: u32, sizes: &[u32], bytes: &[u8]) -> Vec<u8> {
    let numbers = [&[magic], sizes].concat();
    [numbers.iter().flat_map(|number| number.to_be_bytes()).collect(), bytes.to_vec()].concat()
}

/// Three images of 1x2 pixels and their labels.
fn images() -> Vec<u8> {
    file(0x803, &[3, 1, 2], &[0, 255, 51, 0, 0, 102])
}

fn labels() -> Vec<u8> {
    file(0x801, &[3], &[9, 0, 1])
}

fn refused(images: &[u8], labels: &[u8]) -> String {
    let directory = Directory::new();
    directory.write(IMAGES, images);
    directory.write(LABELS, labels);
    directory.message(&read(&source(directory.path())).unwrap_err())
}

#[test]
fn a_directory_has_a_training_and_a_test_set() {
    let directory = Directory::new();
    directory.write(IMAGES, images());
    directory.write(&format!("{LABELS}.gz"), gzip(labels()));
    let sets = read(&source(directory.path())).unwrap();
    assert!(sets.test.is_none());
    assert_eq!(sets.train.shape(), Shape::Image { channels: 1, height: 1, width: 2 });
    assert_eq!(values(&sets.train), [0.0, 1.0, 0.2, 0.0, 0.0, 0.4]);
    assert_eq!(classes(&sets.train), [9, 0, 1]);
    assert_eq!(sets.train.classes().len(), 10);
    assert_eq!(unlabelled(&source(directory.path())).unwrap().len(), 3);

    directory.write("t10k-images-idx3-ubyte.gz", gzip(file(0x803, &[1, 1, 2], &[255, 0])));
    directory.write("t10k-labels-idx1-ubyte", file(0x801, &[1], &[3]));
    let test = read(&source(directory.path())).unwrap().test.unwrap();
    assert_eq!((values(&test), classes(&test)), (&[1.0, 0.0][..], &[3][..]));
    assert_eq!(values(&unlabelled(&source(directory.path())).unwrap()), [1.0, 0.0]);

    directory.write("t10k-images-idx3-ubyte.gz", gzip(file(0x803, &[1, 2, 1], &[255, 0])));
    let error = read(&source(directory.path())).unwrap_err().to_string();
    assert!(error.ends_with("training images are 1x1x2, but test images are 1x2x1"), "{error}");
}

#[test]
fn labels_beyond_the_classes_are_refused() {
    assert_eq!(
        refused(&images(), &file(0x801, &[3], &[9, 10, 11])),
        format!("{LABELS}, byte 9: must be a class of 0 to 9, got 10")
    );
    let directory = Directory::new();
    directory.write(IMAGES, images());
    directory.write(LABELS, file(0x801, &[3], &[9, 10, 11]));
    let sets = read(&Source { classes: Some(12), ..source(directory.path()) }).unwrap();
    assert_eq!(classes(&sets.train), [9, 10, 11]);
}

#[test]
fn files_that_are_too_short_or_too_long_are_refused() {
    let whole = images();
    for length in [16, 17, 21] {
        let expected = format!("{IMAGES}, byte {length}: the file ends here, but its header states 22 bytes");
        assert_eq!(refused(&whole[..length], &labels()), expected);
        assert_eq!(refused(&gzip(&whole[..length]), &labels()), expected);
    }
    for length in [0, 3, 4, 15] {
        let expected = format!("{IMAGES}, byte {length}: the file ends here, within its header of 16 bytes");
        assert_eq!(refused(&whole[..length], &labels()), expected);
    }
    let expected = "byte 22: there are bytes beyond the last value that the header states";
    assert_eq!(refused(&[whole, vec![0]].concat(), &labels()), format!("{IMAGES}, {expected}"));
}

#[test]
fn headers_that_promise_too_much_are_refused_without_allocation() {
    let message = refused(&file(0x803, &[u32::MAX, u32::MAX, u32::MAX], &[]), &labels());
    assert!(message.starts_with(&format!("{IMAGES}, byte 4 (4294967295 images")), "{message}");
    // Within the limit of values, but not in the file.
    let message = refused(&file(0x803, &[1 << 21, 32, 32], &[1]), &labels());
    assert_eq!(
        message,
        format!("{IMAGES}, byte 17: the file ends here, but its header states 2147483664 bytes")
    );
    let message = refused(&file(0x803, &[3, 0, 2], &[]), &labels());
    assert_eq!(message, format!("{IMAGES}, byte 8: images of 0x2 pixels; both must be at least 1"));
    let message = refused(&file(0x803, &[0, 1, 2], &[]), &file(0x801, &[0], &[]));
    assert_eq!(message, format!("{IMAGES}: there are no records"));
}

#[test]
fn exchanged_and_unequal_files_are_refused() {
    assert_eq!(
        refused(&labels(), &images()),
        format!(
            "{IMAGES}, byte 0: the file begins with 0x00000801; IDX files of images begin with 0x00000803"
        )
    );
    let message = refused(&images(), &file(0x801, &[2], &[1, 1]));
    assert_eq!(message, format!("{LABELS}, byte 4: 2 labels, but {IMAGES} has 3 images"));
    let directory = Directory::new();
    directory.write(IMAGES, images());
    let error = read(&source(directory.path())).unwrap_err();
    assert!(error.to_string().ends_with(&format!("has neither {LABELS} nor {LABELS}.gz")), "{error}");
}
