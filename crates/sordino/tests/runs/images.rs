//! Runs on images: folders of PNG files, their public size and normalisation, and prediction.

use std::fs;

use image::GrayImage;

use crate::place::Place;
#[cfg(unix)]
use crate::place::interrupted;

/// Writes a picture of 8x8 pixels: bright on the left for class 0, on the right for class 1.
fn picture(place: &Place, name: &str, number: usize, class: usize) {
    let path = place.0.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let pixel = |x: u32, y: u32| {
        let bright = (x < 4) == (class == 0);
        image::Luma([if bright { 200 } else { 20 } + (number as u32 * 7 + y) as u8 % 40])
    };
    GrayImage::from_fn(8, 8, pixel).save(path).unwrap();
}

/// Folders of training and test images.
fn shapes(name: &str) -> Place {
    let place = Place::new(name);
    for number in 0..60 {
        let class = number % 2;
        picture(&place, &format!("shapes/train/{}/{number}.png", ["left", "right"][class]), number, class);
    }
    for number in 0..10 {
        let class = number % 2;
        picture(&place, &format!("shapes/test/{}/{number}.png", ["left", "right"][class]), number, class);
        picture(&place, &format!("new/{number}.png"), number, class);
    }
    place
}

const FLAGS: &str = "--steps 40 --batch-size 30 --epsilon 20 --delta 1e-3 --seed 1 --model logistic";
const IMAGES: &str = "--data shapes --image-size 8 --channels 1 --mean 0.5 --std 0.25";

#[test]
fn a_run_on_folders_of_images_learns_and_predicts_other_images() {
    let place = shapes("images");
    let answer = place.json(&format!("train {IMAGES} {FLAGS} --out run"));
    assert_eq!((&answer["training_records"], &answer["test_records"]), (&60.into(), &10.into()));
    assert!(answer["test_accuracy"].as_f64().unwrap() > 0.9, "{answer}");
    let settings = place.read("run/config.toml");
    for line in ["image_size = \"8x8\"", "channels = 1", "mean = [0.5]", "std = [0.25]"] {
        assert!(settings.contains(line), "{settings}");
    }
    let predicted = place.text_with_notes("predict --run run --data new");
    assert!(predicted.starts_with("id,prediction,probability_left,probability_right\n"), "{predicted}");
    for (number, line) in predicted.lines().skip(1).enumerate() {
        let class = ["left", "right"][number % 2];
        assert!(line.starts_with(&format!("{number}.png,{class},")), "{line}");
    }
    // One file gives the same line.
    let one = place.text_with_notes("predict --run run --data new/3.png");
    assert_eq!(one.lines().nth(1), predicted.lines().nth(4));
    // A run can be repeated from its settings.
    place.text("train --config run/config.toml --out again");
}

#[test]
fn normalisation_is_part_of_the_model() {
    let place = shapes("normalised");
    place.text(&format!("train {IMAGES} {FLAGS} --out run"));
    let with = place.text_with_notes("predict --run run --data new/0.png");
    // Without the constants the same weights give something else, and the ledger notices the change.
    let settings = place.read("run/config.toml").replace("mean = [0.5]\n", "");
    place.write("run/config.toml", &settings);
    let message = place.refusal("predict --run run --data new/0.png");
    assert!(message.contains("differ from those in the ledger"), "{message}");
    place.text(&format!("train {} {FLAGS} --out plain", IMAGES.replace("--mean 0.5 --std 0.25", "")));
    assert_ne!(place.text_with_notes("predict --run plain --data new/0.png"), with);
}

#[test]
fn images_need_a_public_size_and_must_be_whole() {
    let place = shapes("refused");
    for (flags, part, hint) in [
        ("--data shapes", "image size must be declared for the images of", "--image-size 64"),
        ("--data shapes --image-size 8", "number of channels must be declared", "--channels 1"),
        (
            "--data shapes --image-size 8 --channels 2",
            "number of channels must be 1 or 3, got 2",
            "--channels 3",
        ),
        (
            "--data shapes --image-size 0x8 --channels 1",
            "image size must be a height and a width from 1",
            "64x48",
        ),
        (
            "--data shapes --image-size 8 --channels 1 --std 0",
            "std must be finite and above 0, got 0",
            "--std",
        ),
        (
            "--data shapes --image-size 8 --channels 1 --mean 1,2",
            "mean must be 1 number, got 2 numbers",
            "--mean",
        ),
        ("--data new --image-size 8 --channels 1", "the images have no classes", "for prediction"),
        ("--image-size 8", "image size must be left out for mushroom", "--image-size"),
    ] {
        let message = place.refusal(&format!("train {flags} {FLAGS} --out run"));
        assert!(message.contains(part) && message.contains(hint), "{flags}: {message}");
        assert!(!place.has("run"));
    }
    let whole = fs::read(place.0.join("shapes/train/left/0.png")).unwrap();
    fs::write(place.0.join("shapes/train/left/0.png"), &whole[..whole.len() / 2]).unwrap();
    let message = place.refusal(&format!("train {IMAGES} {FLAGS} --out run"));
    assert!(message.contains("shapes/train/left/0.png: the image cannot be read"), "{message}");
    assert!(!place.has("run"));
}

#[cfg(unix)]
#[test]
fn a_run_is_not_resumed_with_another_image() {
    let place = shapes("another-image");
    let flags = "--data shapes --image-size 8 --channels 1 --model logistic --batch-size 30 --accountant rdp";
    interrupted(&place, 60_000, flags);
    picture(&place, "shapes/train/left/more.png", 1, 0);
    let message = place.refusal("train --resume run");
    assert!(message.contains("shapes was changed after the run began"), "{message}");
}
