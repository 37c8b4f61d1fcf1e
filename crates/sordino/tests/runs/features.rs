//! Runs on fixed features of images.

use std::fs;

use crate::place::Place;
#[cfg(unix)]
use crate::place::interrupted;

/// An NPY file.
fn npy(descr: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), bytes].concat()
}

/// Images of 12x16 pixels with horizontal or vertical stripes, in bytes or in half precision.
fn stripes(place: &Place, name: &str, half: bool) {
    let is_bright = |at: u32| {
        let (image, row, column) = (at / 192, at / 16 % 12, at % 16);
        let across = if image % 2 == 0 { row } else { column };
        (across + image / 2) % 4 < 2
    };
    let pixels: Vec<u8> = match half {
        // 1 in half precision.
        true => (0..400 * 192).flat_map(|at| [0, if is_bright(at) { 0x3c } else { 0 }]).collect(),
        false => (0..400 * 192).map(|at| if is_bright(at) { 255 } else { 0 }).collect(),
    };
    let classes: Vec<u8> = (0..400_u32).map(|image| (image % 2) as u8).collect();
    fs::create_dir(place.0.join(name)).unwrap();
    let descr = if half { "<f2" } else { "|u1" };
    fs::write(place.0.join(name).join("x.npy"), npy(descr, "(400, 12, 16)", &pixels)).unwrap();
    fs::write(place.0.join(name).join("y.npy"), npy("|u1", "(400,)", &classes)).unwrap();
}

const TRAIN: &str =
    "train --classes 2 --features scattering --epsilon 8 --steps 40 --batch-size 160 --test-set public";

#[test]
fn a_model_is_trained_on_features_and_predicts_images() {
    let place = Place::new("features");
    stripes(&place, "bytes", false);
    stripes(&place, "halves", true);
    let text = place.text(&format!("{TRAIN} --data bytes --out run"));
    assert!(text.contains("This logistic model satisfies ("), "{text}");
    assert!(place.json("show run")["test_accuracy"].as_f64().unwrap() > 0.95);
    let settings =
        "features = \"scattering,colours=plain,mirror=false,whiten=0,smooth=0,normalise=groups,version=1\"";
    assert!(place.read("run/config.toml").contains(settings), "{}", place.read("run/config.toml"));
    let predicted = place.text_with_notes("predict --run run --data bytes/x.npy");
    assert_eq!(predicted.lines().count(), 401);
    // Numbers in half precision are not scaled, unlike bytes.
    let refused = place.refusal("predict --run run --data halves/x.npy");
    assert!(refused.contains("the values are floats"), "{refused}");
    place.text(&format!("{TRAIN} --data halves --out halves-run"));
    assert!(place.json("show halves-run")["test_accuracy"].as_f64().unwrap() > 0.95);
    // Default options may change in later versions, so the settings of a run contain all of them.
    place.text("train --config run/config.toml --out again");
    place.text(&format!("{TRAIN} --data halves --model mlp --hidden 4 --out network"));
}

#[cfg(unix)]
#[test]
fn a_run_on_features_is_resumed() {
    let place = Place::new("features-resumed");
    stripes(&place, "bytes", false);
    interrupted(&place, 4000, "--data bytes --classes 2 --features scattering --batch-size 160");
    let text = place.text_with_notes("train --resume run");
    assert!(text.contains("This logistic model"), "{text}");
}

#[test]
fn what_cannot_be_combined_with_features_is_refused() {
    let place = Place::new("features-refused");
    stripes(&place, "bytes", false);
    for (flags, problem, hint) in [
        (
            "--features wavelets",
            "features must be one of scattering, none, got wavelets",
            "--features scattering",
        ),
        ("--features 117", "got 117", "--feature-count"),
        ("--features scattering,version=2", "version of scattering must be 1, got 2", "leave out version"),
        ("--features scattering,whiten=7", "whiten must be from 0 to 1, got 7", "0.25"),
        ("--features scattering,colours=opponent", "need 3 channels", "leave out colours"),
        ("--features scattering --augment flip", "augment changes pixels", "mirror=true"),
        ("--features scattering --encoder bytes", "exclude each other", "leave out one"),
    ] {
        let message = place.refusal(&format!("train --data bytes --classes 2 {flags}"));
        assert!(message.contains(problem) && message.contains(hint), "{flags}: {message}");
    }
    let message = place.refusal("train --features scattering");
    assert!(message.contains("scattering reads images"), "{message}");
}
