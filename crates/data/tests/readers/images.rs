//! Folders of PNG and JPEG files, their conversion, and the normalisation of images of every format.

use std::io::Cursor;

use image::{DynamicImage, GrayImage, ImageFormat, RgbImage};
use sordino_data::{
    DataError, Encoding, ImageOptions, PredictionOptions, Source, Splits, read, read_test, read_unlabelled,
};
use sordino_nn::Shape;

use crate::files::{Directory, classes, source, unlabelled, values};
use crate::{idx, npy};

pub(crate) fn png(image: impl Into<DynamicImage>) -> Vec<u8> {
    encoded(image, ImageFormat::Png)
}

pub(crate) fn jpeg(image: impl Into<DynamicImage>) -> Vec<u8> {
    encoded(image, ImageFormat::Jpeg)
}

fn encoded(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    image.into().write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// A grey image of 2x2 pixels.
pub(crate) fn grey(pixels: [u8; 4]) -> GrayImage {
    GrayImage::from_raw(2, 2, pixels.to_vec()).unwrap()
}

/// One colour.
fn colour(width: u32, height: u32, rgb: [u8; 3]) -> RgbImage {
    RgbImage::from_pixel(width, height, image::Rgb(rgb))
}

pub(crate) fn options(size: &str, channels: usize) -> ImageOptions {
    ImageOptions { size: Some(size.parse().unwrap()), channels: Some(channels), ..ImageOptions::default() }
}

fn described(directory: &Directory, size: &str, channels: usize) -> Source {
    Source { images: options(size, channels), ..source(directory.path()) }
}

fn refused(directory: &Directory) -> String {
    directory.message(&read(&described(directory, "2", 1)).unwrap_err())
}

/// Two classes with three images, and files that are skipped.
fn pets() -> Directory {
    let directory = Directory::new();
    directory.write("dog/b.png", png(grey([0, 51, 102, 153])));
    directory.write("dog/a.PNG", png(grey([204, 255, 0, 51])));
    directory.write("cat/z.jpeg", jpeg(GrayImage::from_pixel(2, 2, image::Luma([51]))));
    directory.write("dog/.DS_Store", "x");
    directory.write("README", "about the data");
    directory
}

#[test]
fn folders_are_classes_and_pixels_are_exact() {
    let directory = pets();
    let Splits { train, test, schema } = read(&described(&directory, "2", 1)).unwrap();
    assert!(test.is_none() && schema.is_none());
    assert_eq!(train.shape(), Shape::Image { channels: 1, height: 2, width: 2 });
    assert_eq!(train.encoding(), Encoding::Bytes);
    // The names of folders and of files are sorted.
    assert_eq!(
        (train.classes(), classes(&train)),
        (&["cat".to_owned(), "dog".to_owned()][..], &[0, 1, 1][..])
    );
    assert_eq!(values(&train)[4..], [0.8, 1.0, 0.0, 0.2, 0.0, 0.2, 0.4, 0.6]);
    // JPEG of one colour is exact up to rounding.
    assert!(values(&train)[..4].iter().all(|value| (value - 0.2).abs() < 0.01));
}

#[test]
fn colour_comes_channel_by_channel_and_becomes_grey_by_luminance() {
    let directory = Directory::new();
    let mut image = colour(2, 1, [255, 51, 0]);
    image.put_pixel(1, 0, image::Rgb([0, 102, 204]));
    directory.write("a/x.png", png(image));
    directory.write("b/x.png", png(grey([51; 4])));
    let train = read(&described(&directory, "1x2", 3)).unwrap().train;
    assert_eq!(train.shape(), Shape::Image { channels: 3, height: 1, width: 2 });
    assert_eq!(values(&train)[..6], [1.0, 0.0, 0.2, 0.4, 0.0, 0.8]);
    // Grey has three equal channels.
    assert_eq!(values(&train)[6..], [0.2; 6]);
    let train = read(&described(&directory, "1x2", 1)).unwrap().train;
    // 0.2126 R + 0.7152 G + 0.0722 B.
    let expected = [(0.2126 * 255.0 + 0.7152 * 51.0) / 255.0, (0.7152 * 102.0 + 0.0722 * 204.0) / 255.0];
    for (value, expected) in values(&train).iter().zip(expected) {
        assert!((f64::from(*value) - expected).abs() < 1.01 / 255.0, "{value} {expected}");
    }
}

#[test]
fn sixteen_bits_and_transparency_are_read() {
    let directory = Directory::new();
    let deep = image::ImageBuffer::<image::Luma<u16>, _>::from_raw(2, 1, vec![0_u16, 65535]).unwrap();
    directory.write("a/deep.png", png(deep));
    let clear = image::RgbaImage::from_pixel(2, 1, image::Rgba([255, 255, 255, 0]));
    directory.write("b/clear.png", png(clear));
    let train = read(&described(&directory, "1x2", 1)).unwrap().train;
    assert_eq!(values(&train), [0.0, 1.0, 1.0, 1.0]);
}

#[test]
fn images_are_resized_to_the_public_size() {
    let directory = Directory::new();
    // Halves of a picture of 4x8 pixels: black and white.
    let halves = GrayImage::from_fn(8, 4, |x, _| image::Luma([if x < 4 { 0 } else { 255 }]));
    directory.write("a/halves.png", png(halves));
    directory.write("b/one.png", png(GrayImage::from_pixel(1, 1, image::Luma([102]))));
    let train = read(&described(&directory, "1x2", 1)).unwrap().train;
    let pixels = values(&train);
    // The triangle filter mixes a little across the border, the same on both sides.
    assert!(pixels[0] < 0.2 && (pixels[0] + pixels[1] - 1.0).abs() < 0.01, "{pixels:?}");
    assert_eq!(pixels[2..], [0.4, 0.4]);
}

#[test]
fn train_and_test_folders_are_two_sets() {
    let directory = Directory::new();
    for (name, pixel) in [("train/a/1.png", 0), ("train/b/1.png", 51), ("val/b/1.png", 102)] {
        directory.write(name, png(grey([pixel; 4])));
    }
    std::fs::create_dir(directory.path().join("train/c")).unwrap();
    let sets = read(&described(&directory, "2", 1)).unwrap();
    assert_eq!((sets.train.classes().len(), classes(&sets.train)), (3, &[0, 1][..]));
    // Without a test set, the validation set is the test set. Its classes are those of the training set.
    let test = sets.test.unwrap();
    assert_eq!((classes(&test), values(&test)[0], test.classes().len()), (&[1][..], 0.4, 3));
    directory.write("test/c/1.png", png(grey([153; 4])));
    let test = read(&described(&directory, "2", 1)).unwrap().test.unwrap();
    assert_eq!((classes(&test), values(&test)[0]), (&[2][..], 0.6));
    let rows = read_unlabelled(&described(&directory, "2", 1), &PredictionOptions::default()).unwrap();
    assert_eq!(rows.rows[0].id, "c/1.png");
    assert!(rows.part.unwrap().ends_with("/test"));

    directory.write("test/d/1.png", png(grey([153; 4])));
    assert_eq!(refused(&directory), "test/d: `d` is not one of the classes `a`, `b`, `c`");
}

#[test]
fn a_class_may_be_called_train() {
    let directory = Directory::new();
    for name in ["car/1.png", "train/1.png"] {
        directory.write(name, png(grey([0; 4])));
    }
    assert_eq!(read(&described(&directory, "2", 1)).unwrap().train.classes(), ["car", "train"]);
}

#[test]
fn size_and_channels_must_be_declared() {
    let directory = pets();
    let refused = |images: ImageOptions| {
        let error = read(&Source { images, ..source(directory.path()) }).unwrap_err();
        (error.to_string(), error.hint().to_owned())
    };
    let (message, hint) = refused(ImageOptions::default());
    assert!(message.starts_with("image size must be declared for the images of "), "{message}");
    assert!(hint.contains("{image_size=64}"), "{hint}");
    let (message, hint) = refused(ImageOptions { channels: None, ..options("2", 1) });
    assert!(message.starts_with("number of channels must be declared"), "{message}");
    assert!(hint.contains("{channels=3}"), "{hint}");
    assert_eq!(refused(options("2", 2)).0, "number of channels must be 1 or 3, got 2");
    // The number of folders is the number of classes.
    let error = read(&Source { classes: Some(3), ..described(&directory, "2", 1) }).unwrap_err();
    assert_eq!(error.to_string(), "number of classes must be 2 as there are folders, or left out, got 3");
    // Formats with a size of their own do not use them.
    let archive = directory.write("t.npz", "");
    let error = read(&Source { images: options("2", 1), ..source(archive) }).unwrap_err();
    assert_eq!(directory.message(&error), "image size must be left out for t.npz, got 2x2");
}

#[test]
fn bad_files_are_refused_by_name() {
    let whole = png(colour(40, 40, [1, 2, 3]));
    for (bytes, part) in [
        (whole[..whole.len() - 20].to_vec(), "the image cannot be read"),
        (whole[..20].to_vec(), "the image cannot be read"),
        (b"not a picture".to_vec(), "is neither a PNG nor a JPEG image"),
        (Vec::new(), "is neither a PNG nor a JPEG image"),
        (huge(), "the image is too large: at most 32768 pixels on each side"),
    ] {
        let directory = pets();
        directory.write("dog/bad.png", bytes);
        let message = refused(&directory);
        assert!(message.starts_with("dog/bad.png: ") && message.contains(part), "{message}");
    }
    let directory = pets();
    directory.write("cat/notes.txt", "x");
    assert_eq!(refused(&directory), "cat/notes.txt: is not a file whose name ends in .png, .jpg, .jpeg");
    let directory = pets();
    directory.write("cat/more/x.png", "x");
    assert!(refused(&directory).starts_with("cat/more: is not a file"));
    let directory = Directory::new();
    directory.write("only/x.png", png(grey([0; 4])));
    assert!(refused(&directory).contains("has 1 folders; 2 to 65536, one for each class, are permitted"));
    let directory = Directory::new();
    assert!(refused(&directory).ends_with("has no files of a known format"));
}

/// A PNG file whose header states 100000x100000 pixels.
fn huge() -> Vec<u8> {
    let mut bytes = png(grey([0; 4]));
    bytes[16..20].copy_from_slice(&100_000_u32.to_be_bytes());
    bytes[20..24].copy_from_slice(&100_000_u32.to_be_bytes());
    let mut crc = flate2::Crc::new();
    crc.update(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&crc.sum().to_be_bytes());
    bytes
}

#[test]
fn the_first_bad_file_is_reported() {
    let directory = pets();
    for name in ["dog/y.png", "dog/x.png", "dog/z.png"] {
        directory.write(name, "bad");
    }
    for _ in 0..20 {
        assert!(refused(&directory).starts_with("dog/x.png: "));
    }
}

#[test]
fn a_folder_without_classes_is_for_prediction() {
    let directory = Directory::new();
    directory.write("b.png", png(grey([0, 51, 102, 153])));
    directory.write("a.png", png(grey([255; 4])));
    let bad = directory.write("c.png", "bad");
    let error = read(&described(&directory, "2", 1)).unwrap_err();
    assert!(error.to_string().ends_with("the images have no classes"), "{error}");
    let rows = read_unlabelled(&described(&directory, "2", 1), &PredictionOptions::default()).unwrap();
    let ids: Vec<(&str, bool)> =
        rows.rows.iter().map(|row| (row.id.as_str(), row.refused.is_some())).collect();
    assert_eq!(ids, [("a.png", false), ("b.png", false), ("c.png", true)]);
    assert_eq!(values(&rows.records.unwrap()), [1.0, 1.0, 1.0, 1.0, 0.0, 0.2, 0.4, 0.6]);
    std::fs::remove_file(&bad).unwrap();
    let error = read_unlabelled(&source(&bad), &PredictionOptions::default()).unwrap_err();
    assert_eq!(directory.message(&error), "c.png: no such file or directory");

    // A model's input gives the shape. One file is enough.
    let reading = PredictionOptions {
        shape: Some(Shape::Image { channels: 3, height: 2, width: 2 }),
        encoding: Some(Encoding::Integers),
        ..PredictionOptions::default()
    };
    let one = read_unlabelled(&source(directory.path().join("b.png")), &reading).unwrap();
    assert_eq!(one.rows[0].id, "b.png");
    assert_eq!(values(&one.records.unwrap()), [0.0, 51.0, 102.0, 153.0].repeat(3));
}

#[test]
fn test_records_may_be_images_if_the_training_records_are_not() {
    let directory = Directory::new();
    let arrays = [("x", npy::npy("|u1", "(1, 2, 2)", &[1; 4])), ("y", npy::npy("|u1", "(1,)", &[1]))];
    let path = directory.write("t.npz", npy::npz(&arrays, zip::CompressionMethod::Stored));
    let images = ImageOptions { mean: Some(vec![0.5]), std: Some(vec![0.5]), ..ImageOptions::default() };
    let training = Source { classes: Some(2), images, ..source(path) };
    let sets = read(&training).unwrap();
    directory.write("test/1/a.png", png(grey([0, 255, 51, 0])));
    let test = read_test(&directory.path().join("test"), &training, &sets).unwrap();
    assert_eq!(classes(&test), [1]);
    near(values(&test), &[-1.0, 1.0, -0.6, -1.0]);
}

/// Checks values that were computed by hand.
fn near(values: &[f32], expected: &[f32]) {
    assert_eq!(values.len(), expected.len());
    assert!(values.iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-6), "{values:?} {expected:?}");
}

#[test]
fn images_of_every_format_are_normalised() -> Result<(), DataError> {
    let directory = Directory::new();
    let images = ImageOptions { mean: Some(vec![0.2]), std: Some(vec![0.5]), ..ImageOptions::default() };
    // (x / 255 - 0.2) / 0.5.
    let expected = [-0.4, 0.0, 0.4, 1.6];
    let pixels = [0, 51, 102, 255];

    directory.write("idx/train-images-idx3-ubyte", idx::file(0x803, &[1, 2, 2], &pixels));
    directory.write("idx/train-labels-idx1-ubyte", idx::file(0x801, &[1], &[3]));
    let idx = Source { images: images.clone(), ..source(directory.path().join("idx")) };
    near(values(&read(&idx)?.train), &expected);
    near(values(&unlabelled(&idx)?), &expected);

    let floats = [0.0_f32, 0.2, 0.4, 1.0].map(f32::to_le_bytes).concat();
    for (name, x) in [
        ("bytes.npz", npy::npy("|u1", "(1, 2, 2)", &pixels)),
        ("floats.npz", npy::npy("<f4", "(1, 2, 2)", &floats)),
    ] {
        let arrays = [("x", x), ("y", npy::npy("|u1", "(1,)", &[1]))];
        let path = directory.write(name, npy::npz(&arrays, zip::CompressionMethod::Stored));
        let archive = Source { images: images.clone(), classes: Some(2), ..source(path) };
        near(values(&read(&archive)?.train), &expected);
    }

    for name in ["png/a/x.png", "png/b/x.png"] {
        directory.write(name, png(grey(pixels)));
    }
    let images = ImageOptions { mean: images.mean, std: images.std, ..options("2", 1) };
    let folder = Source { images, ..source(directory.path().join("png")) };
    near(values(&read(&folder)?.train), &expected.repeat(2));

    let images =
        ImageOptions { mean: Some(vec![0.2, 0.4, 0.6]), std: Some(vec![1.0, 2.0, 4.0]), ..options("1", 3) };
    directory.write("colour/a/x.png", png(colour(1, 1, [255, 255, 255])));
    directory.write("colour/b/x.png", png(colour(1, 1, [51, 102, 153])));
    let folder = Source { images, ..source(directory.path().join("colour")) };
    near(values(&read(&folder)?.train), &[0.8, 0.3, 0.1, 0.0, 0.0, 0.0]);
    Ok(())
}

#[test]
fn only_images_are_normalised() {
    let directory = Directory::new();
    let images = ImageOptions { mean: Some(vec![0.2]), ..ImageOptions::default() };
    let table = Source { images, classes: Some(2), ..source(directory.write("t.csv", "1,0\n2,1\n")) };
    let error = read(&table).unwrap_err();
    assert!(error.to_string().contains("the records are 1, not images"), "{error}");
    // A standard deviation so small that a value is no longer finite.
    let images = ImageOptions { std: Some(vec![1e-300]), ..options("2", 1) };
    let error = read(&Source { images, ..source(pets().path()) }).unwrap_err();
    assert!(error.to_string().contains("finite after normalisation"), "{error}");
}

#[test]
fn files_of_a_source_are_those_whose_change_changes_it() {
    let directory = pets();
    let names = |directory: &Directory| -> Vec<String> {
        let relative =
            |path: std::path::PathBuf| path.strip_prefix(directory.path()).unwrap().display().to_string();
        sordino_data::files(directory.path()).into_iter().map(relative).collect()
    };
    assert_eq!(names(&directory), ["cat", "cat/z.jpeg", "dog", "dog/a.PNG", "dog/b.png"]);
    let directory = Directory::new();
    for name in
        ["train-images-idx3-ubyte", "t.parquet", "train.bin", "notes.md", ".hidden.png", "run/config.toml"]
    {
        directory.write(name, "x");
    }
    assert_eq!(names(&directory), ["t.parquet", "train-images-idx3-ubyte", "train.bin"]);
    let file = directory.path().join("t.csv");
    assert_eq!(sordino_data::files(&file), [file]);
}

#[test]
fn debug_shows_no_pixels() {
    let shown = format!("{:?}", read(&described(&pets(), "2", 1)).unwrap().train);
    assert!(shown.contains("records: 3") && !shown.contains("0.8"), "{shown}");
}
