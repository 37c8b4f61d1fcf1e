//! `predict`, and which records a run was tested on.

use std::{
    fs,
    io::{Cursor, Write},
};

use crate::place::Place;

const SCHEMA: &str = "target = 'ill'\n[[columns]]\nname = 'age'\ntype = 'number'\ncenter = 50.0\nscale = 20.0\n\
    [[columns]]\nname = 'ward'\ntype = 'category'\nvalues = ['a', 'b']\n\
    [[columns]]\nname = 'ill'\ntype = 'category'\nvalues = ['no', 'yes']\n";

/// A table with this many rows.
fn rows(count: usize) -> String {
    let row = |i: usize| {
        let ill = if i % 100 > 50 { "yes" } else { "no" };
        format!("{},{},{ill}\n", i % 100, ["a", "b"][i % 2])
    };
    format!("age,ward,ill\n{}", (0..count).map(row).collect::<String>())
}

/// A run on a table.
fn trained(name: &str, flags: &str) -> Place {
    let place = Place::new(name);
    place.write("schema.toml", SCHEMA);
    place.write("train.csv", &rows(400));
    let flags = format!("--batch-size 100 --delta 1e-4 --epsilon 8 --steps 50 --seed 1 --out run {flags}");
    place.text(&format!("train --data train.csv --schema schema.toml {flags}"));
    place
}

/// An array of numbers as NumPy writes it.
fn npy(descr: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), bytes].concat()
}

/// Writes an archive of bytes `x` of this shape and classes `y`.
pub(crate) fn archive(place: &Place, name: &str, shape: &[usize], classes: usize) {
    let (count, values) = (shape[0], shape.iter().product::<usize>());
    let width = values / count;
    let class = |record: usize| record % classes;
    let x: Vec<u8> =
        (0..values).map(|at| if at % width % classes == class(at / width) { 200 } else { 20 }).collect();
    let y: Vec<u8> = (0..count).map(|record| class(record) as u8).collect();
    let shape: Vec<String> = shape.iter().map(ToString::to_string).collect();
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let arrays = [
        ("x.npy", npy("|u1", &format!("({})", shape.join(", ")), &x)),
        ("y.npy", npy("|u1", &format!("({count},)"), &y)),
    ];
    for (array, bytes) in arrays {
        writer.start_file(array, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(&bytes).unwrap();
    }
    fs::write(place.0.join(name), writer.finish().unwrap().into_inner()).unwrap();
}

#[test]
fn every_class_has_its_probability_in_full() {
    let place = trained("probabilities", "");
    let ages: String = (0..50).map(|i| format!("{},a\n", 50.0 + f64::from(i) * 1e-3)).collect();
    place.write("new.csv", &format!("age,ward\n{ages}"));
    let predicted = place.text_with_notes("predict --run run --data new.csv");
    let mut lines = predicted.lines();
    assert_eq!(lines.next(), Some("id,prediction,probability_no,probability_yes"));
    let mut last = 0.0;
    for (number, line) in (1..).zip(lines) {
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!(fields[0], number.to_string());
        let (no, yes): (f64, f64) = (fields[2].parse().unwrap(), fields[3].parse().unwrap());
        assert!((no + yes - 1.0).abs() < 1e-15, "{line}");
        assert_eq!(fields[1], if yes > no { "yes" } else { "no" });
        // The ranking of rows that are nearly alike is kept.
        assert!(yes > last, "{line}");
        last = yes;
    }
    // Values can be read back bit by bit: with at most 17 digits, and with fewer where fewer are enough.
    assert!(
        predicted.lines().skip(1).any(|line| line.rsplit(',').next().unwrap().len() >= 18),
        "{predicted}"
    );
}

#[test]
fn rows_have_the_ids_of_a_column() {
    let place = trained("ids", "");
    place.write("new.csv", "customer,age,ward\n\"x, 1\",95,a\ny,3,b\n");
    let predicted = place.text_with_notes("predict --run run --data new.csv --id customer");
    assert!(predicted.contains("\n\"x, 1\",yes,") && predicted.contains("\ny,no,"), "{predicted}");
    let message = place.refusal("predict --run run --data new.csv --id nosuch");
    assert!(
        message.contains("`nosuch` is not one of the 3 columns") && message.contains("`customer`"),
        "{message}"
    );
    let message = place.refusal("predict --run run --data new.csv");
    assert!(message.contains("`customer` is not in the schema") && message.contains("--id"), "{message}");
}

#[test]
fn rows_that_cannot_be_read_have_empty_predictions() {
    let place = trained("rows", "");
    place.write("new.csv", "ward,age\na,95\nc,95\nb,old\nb,3\n");
    let output = place.run("predict --run run --data new.csv");
    assert_eq!(output.status.code(), Some(1));
    let (text, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with("1,yes,") && lines[4].starts_with("4,no,"), "{text}");
    assert_eq!(lines[2..4], ["2,,,", "3,,,"]);
    for part in [
        "error: new.csv, line 3, column 1 (ward): must be one of `a`, `b`, got `c`\n",
        "error: new.csv, line 4, column 2 (age): must be a finite number, got `old`\n",
        "error: 2 of 4 rows could not be read",
        "\n\nhint: ",
        "--ignore-unknown",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Unknown categories can be ignored.
    place.write("new.csv", "ward,age\na,95\nc,95\nd,3\n");
    let output = place.run("predict --run run --data new.csv --ignore-unknown");
    assert!(output.status.success());
    assert!(!String::from_utf8(output.stdout).unwrap().contains(",,"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("categories that the schema does not list were read as all zeros: 2 in ward"),
        "{said}"
    );
    // No row can be read.
    place.write("new.csv", "ward,age\nc,95\n");
    let output = place.run("predict --run run --data new.csv");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"id,prediction,probability_no,probability_yes\n1,,,\n");
}

#[test]
fn a_model_trained_on_a_table_refuses_other_formats() {
    let place = trained("table", "");
    archive(&place, "images.npz", &[10, 28, 28], 2);
    let message = place.refusal("predict --run run --data images.npz");
    assert!(message.contains("images.npz: is not a table") && !message.contains("schema"), "{message}");
}

#[test]
fn the_default_model_takes_images_of_any_size_with_any_classes() {
    let place = Place::new("images");
    for (name, shape, classes, model) in [
        ("a", &[60, 28, 28][..], 2, "logistic"),
        ("b", &[60, 20, 30, 1], 3, "mnist-cnn"),
        ("c", &[60, 8, 8], 10, "mlp"),
    ] {
        archive(&place, &format!("{name}.npz"), shape, classes);
        let flags = format!("--classes {classes} --steps 2 --batch-size 20 --delta 1e-3 --out {name}");
        let said = place.text(&format!("train --data {name}.npz {flags}"));
        assert!(said.starts_with(&format!("This {model} model satisfies")), "{said}");
        let predicted = place.text_with_notes(&format!("predict --run {name} --data {name}.npz"));
        assert_eq!(predicted.lines().count(), 61);
        assert_eq!(predicted.lines().next().unwrap().split(',').count(), 2 + classes);
    }
    let message = place.refusal("train --data c.npz --classes 10 --model lenet5 --delta 1e-3");
    assert!(
        message.contains("lenet5 does not fit images of 1x8x8") && message.contains("--model mlp"),
        "{message}"
    );
}

#[test]
fn a_run_keeps_the_encoding_that_it_was_trained_on() {
    let place = Place::new("encoding");
    archive(&place, "bytes.npz", &[60, 8, 8], 2);
    place.text("train --data bytes.npz --classes 2 --steps 2 --batch-size 20 --delta 1e-3 --out run");
    let output = place.run("predict --run run --data bytes.npz");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("note: the predictions are for the array x of bytes.npz"), "{said}");
    // The same pixels of the first record in other types.
    let pixels: Vec<u8> = (0..64).map(|at| if at % 2 == 0 { 200 } else { 20 }).collect();
    let shorts: Vec<u8> = pixels.iter().flat_map(|&pixel| [pixel, 0]).collect();
    let floats: Vec<u8> = pixels.iter().flat_map(|&pixel| f32::from(pixel).to_le_bytes()).collect();
    for (name, descr, bytes) in [("b", "|u1", &pixels), ("s", "<i2", &shorts), ("f", "<f4", &floats)] {
        fs::write(place.0.join(format!("{name}.npy")), npy(descr, "(1, 8, 8)", bytes)).unwrap();
    }
    let predicted = place.text("predict --run run --data b.npy");
    let all = String::from_utf8(output.stdout).unwrap();
    assert_eq!(all.lines().nth(1), predicted.lines().nth(1));
    assert_eq!(place.text("predict --run run --data s.npy"), predicted);
    let message = place.refusal("predict --run run --data f.npy");
    assert!(
        message.contains("the values are floats") && message.contains("astype(numpy.uint8)"),
        "{message}"
    );
}

#[test]
fn a_test_file_of_its_own_is_read_by_the_same_schema() {
    let place = Place::new("test-data");
    place.write("schema.toml", SCHEMA);
    place.write("train.csv", &rows(400));
    place.write("test.csv", &rows(100));
    let data = "train --data train.csv --schema schema.toml --test-data test.csv --epsilon 8 --delta 1e-4";
    let answer = place.json(&format!("{data} --batch-size 100 --seed 1 --out run"));
    assert_eq!(answer["training_records"], 400);
    assert!(answer["test_accuracy"].as_f64().unwrap() > 0.8, "{answer}");
    let output = place.run("show run --held-back");
    assert!(
        output.stdout.is_empty()
            && String::from_utf8(output.stderr).unwrap().contains("no row was held back")
    );
    assert!(place.json("show run --held-back")["held_back"].as_array().unwrap().is_empty());
    // A run can be repeated from its own settings in any folder; flags override the settings.
    place.text("train --config run/config.toml --out again");
    place.text("train --config run/config.toml --test-fraction 0.1 --out split");
    assert_eq!(place.json("show split")["training_records"], 360);
    for (flags, part) in [
        ("--test-fraction 0.1", "test_fraction is 0.1, but there is a test set"),
        ("--split-seed 1", "split_seed is 1"),
        ("--test-data nosuch.csv", "nosuch.csv"),
        ("--test-data ./train.csv", "which is the training data itself"),
    ] {
        let data = if flags.contains("--test-data") {
            data.replace("--test-data test.csv", "")
        } else {
            data.to_owned()
        };
        let message = place.refusal(&format!("{data} {flags}"));
        assert!(message.contains(part), "{flags}: {message}");
    }
    place.write("test.csv", "age,ward,ill\n1,z,no\n");
    let message = place.refusal(data);
    assert!(message.contains("test.csv, line 2, column 2 (ward)"), "{message}");
}

#[test]
fn the_rows_that_were_held_back_can_be_listed() {
    let place = trained("held-back", "--test-fraction 0.1 --split-seed 3");
    let listed: Vec<usize> =
        place.text("show run --held-back").lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(listed.len(), 40);
    assert!(listed.is_sorted() && listed[0] >= 1 && listed[39] <= 400);
    let answer = place.json("show run --held-back");
    assert_eq!((&answer["rows"], answer["held_back"].as_array().unwrap().len()), (&400.into(), 40));
    assert_eq!(answer["held_back"][0], listed[0]);
    // Training on all other rows and testing on these gives the same accuracy, because the seed is the same.
    let text = rows(400);
    let (header, rows) = text.split_once('\n').unwrap();
    let part = |held_back: bool| {
        let rows = rows.lines().enumerate().filter(|(row, _)| listed.contains(&(row + 1)) == held_back);
        rows.fold(format!("{header}\n"), |text, (_, row)| text + row + "\n")
    };
    place.write("rest.csv", &part(false));
    place.write("held-back.csv", &part(true));
    let flags = "--schema schema.toml --seed 1 --batch-size 100 --delta 1e-4 --epsilon 8 --steps 7";
    place.text(&format!("train --data train.csv --test-fraction 0.1 --split-seed 3 {flags} --out whole"));
    place.text(&format!("train --data rest.csv --test-data held-back.csv {flags} --out parts"));
    let accuracy = |run: &str| place.json(&format!("show {run}"))["test_accuracy"].as_f64().unwrap();
    assert_eq!(accuracy("whole"), accuracy("parts"));
    let predict = |run: &str| place.text_with_notes(&format!("predict --run {run} --data train.csv"));
    assert_eq!(predict("whole"), predict("parts"));
}

#[test]
fn new_mushrooms_are_predicted_from_a_table() {
    let place = Place::new("mushrooms");
    place.text("train --steps 20 --out run");
    place.write("new.data", "p,x,s,n,t,p,f,c,n,k,e,e,s,s,w,w,p,w,o,p,k,s,u\n");
    let predicted = place.text("predict --run run --data new.data");
    assert!(predicted.starts_with("id,prediction,probability_e,probability_p\n1,"), "{predicted}");
}
