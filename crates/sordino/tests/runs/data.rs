//! `data`, and runs on records that stay in their files.

use std::fs;

use crate::place::Place;
#[cfg(unix)]
use crate::place::interrupted;

/// An NPY file.
fn npy(descr: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), bytes].concat()
}

/// A folder of 300 images of 8x8 pixels: dark ones of class 0 and bright ones of class 1.
fn images(place: &Place) {
    let pixels: Vec<u8> = (0..300 * 64_u32).map(|i| (i * 37 % 100 + 120 * (i / 64 % 2)) as u8).collect();
    let classes: Vec<u8> = (0..300_u32).map(|i| (i % 2) as u8).collect();
    fs::create_dir(place.0.join("images")).unwrap();
    fs::write(place.0.join("images/x.npy"), npy("|u1", "(300, 8, 8)", &pixels)).unwrap();
    fs::write(place.0.join("images/y.npy"), npy("|u1", "(300,)", &classes)).unwrap();
}

/// The weights of a run, without the notes in their header.
fn weights(place: &Place, run: &str) -> Vec<u8> {
    let bytes = fs::read(place.0.join(run).join("model.safetensors")).unwrap();
    bytes[8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize..].to_vec()
}

#[test]
fn a_run_on_records_in_a_file_is_the_run_on_the_same_records_in_memory() {
    let place = Place::new("data-same");
    place.text("train --seed 7 --steps 30 --out memory");
    let text = place.text("data convert mushroom --out m.sordino");
    assert!(text.contains("8,124 records of shape 126") && text.contains("as private as the data"), "{text}");
    place.text("train --data m.sordino --seed 7 --steps 30 --out file");
    assert!(weights(&place, "memory") == weights(&place, "file"));
    assert_eq!(place.json("show memory")["test_accuracy"], place.json("show file")["test_accuracy"]);
    // The run has the schema of the table, so that a table can be predicted.
    place.write("one.csv", &one_mushroom(&place.read("file/schema.toml")));
    let predicted = place.text_with_notes("predict --run file --data one.csv");
    assert_eq!(predicted.lines().count(), 2);
    assert_eq!(predicted, place.text_with_notes("predict --run memory --data one.csv"));
    let all = place.text_with_notes("predict --run file --data m.sordino");
    assert_eq!(all.lines().count(), 8125);
}

/// A table with one record: the first value of every column.
fn one_mushroom(schema: &str) -> String {
    let lines = |key: &str| {
        let values =
            schema.lines().filter_map(|line| line.strip_prefix(key)?.split('"').nth(1)).map(str::to_owned);
        values.collect::<Vec<_>>()
    };
    let (names, mut values) = (lines("name ="), lines("values ="));
    // The target may be absent, and the table has no header.
    let target = names.iter().position(|name| *name == lines("target =")[0]).unwrap();
    values.remove(target);
    values.join(",") + "\n"
}

#[test]
fn a_folder_of_arrays_is_trained_on_and_predicted_where_it_lies() {
    let place = Place::new("data-folder");
    images(&place);
    let settings =
        "--data images --classes 2 --model logistic --epsilon 3 --steps 60 --batch-size 60 --seed 1";
    let answer = place.json(&format!("train {settings} --out run"));
    assert!(answer["test_accuracy"].as_f64().unwrap() > 0.9, "{answer}");
    assert_eq!(place.text("show run --held-back").lines().count(), 60);
    let predictions = place.text_with_notes("predict --run run --data images/x.npy");
    assert_eq!(predictions.lines().count(), 301);
    assert_eq!(predictions, place.text_with_notes("predict --run run --data images"));
    assert_eq!(place.text("data show images"), "x.npy  uint8 [300, 8, 8]\ny.npy  uint8 [300]\n");
}

#[cfg(unix)]
#[test]
fn a_run_on_records_in_a_file_is_resumed_unless_the_file_changed() {
    let place = Place::new("data-resume");
    place.text("data convert mushroom --out m.sordino");
    interrupted(&place, 30_000, "--data m.sordino --accountant rdp");
    let path = place.0.join("m.sordino");
    let (bytes, modified) = (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().modified().unwrap());
    let reset = || fs::File::options().append(true).open(&path).unwrap().set_modified(modified).unwrap();
    fs::write(&path, &bytes).unwrap();
    assert!(place.refusal("train --resume run").contains("was changed after the run began"));
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    reset();
    assert!(place.refusal("train --resume run").contains("the file ends here"));
    fs::write(&path, &bytes).unwrap();
    reset();
    let resumed: serde_json::Value =
        serde_json::from_str(&place.text_with_notes("train --resume run --json")).unwrap();
    assert_eq!((&resumed["finished"], &resumed["steps"]), (&true.into(), &30_000.into()));
}

#[test]
fn a_draft_is_filled_in_checked_and_trained_on() {
    let place = Place::new("data-draft");
    let rows: String = (0..200).map(|i| format!("{},{}\n", i, if i < 100 { "no" } else { "yes" })).collect();
    place.write("t.csv", &format!("age,ill\n{rows}"));
    assert!(place.text("data draft t.csv --out s.toml").contains("fill in every gap"));
    assert!(place.refusal("data draft t.csv --out s.toml").contains("cannot be written"));
    let message = place.refusal("train --data t.csv --schema s.toml");
    assert!(message.contains("line 4: `target` is not filled in"), "{message}");
    assert!(message.contains("knowledge of the subject"), "{message}");
    let draft = place.text("data draft t.csv --sample t.csv");
    let lines = draft.lines().map(|line| match line.split(" = ").next().unwrap() {
        "target" => "target = \"ill\"".to_owned(),
        "clip" => "clip = [0, 200]".to_owned(),
        "center" => "center = 100".to_owned(),
        "scale" => "scale = 100".to_owned(),
        "values" => "values = [\"no\", \"yes\"]".to_owned(),
        _ => line.to_owned(),
    });
    place.write("s.toml", &lines.map(|line| line + "\n").collect::<String>());
    assert_eq!(place.text("data check t.csv --schema s.toml"), "200 records, no problems\n");
    place.text("train --data t.csv --schema s.toml --steps 5");
}

#[test]
fn a_check_lists_every_problem_and_fails() {
    let place = Place::new("data-check");
    place.write("t.csv", "a,b\n1,x\none,z\n2,y\n,x\n");
    place.write(
        "s.toml",
        "target = \"b\"\n[[columns]]\nname = \"a\"\ntype = \"number\"\n[[columns]]\nname = \"b\"\n\
         type = \"category\"\nvalues = [\"x\", \"y\"]\n",
    );
    let message = place.refusal("data check t.csv --schema s.toml");
    for part in ["line 3, column 1 (a)", "line 3, column 2 (b)", "line 5, column 1 (a)", "error: 3 problems"]
    {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(message.matches("\nhint: ").count(), 3, "{message}");
    let output = place.run("data check t.csv --schema s.toml --json");
    assert_eq!(output.status.code(), Some(2));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["problems"], &answer["records"]), (&3.into(), &4.into()));
}

#[test]
fn bad_input_of_the_data_commands_is_refused() {
    let place = Place::new("data-bad");
    for (command, part) in [
        ("data show none.csv", "No such file"),
        ("data convert mushroom --out m.bin", "ends in .sordino"),
        ("data convert mushroom --out no/m.sordino", "cannot be written"),
        ("data draft none.csv", "No such file"),
        ("data check mushroom --classes 3", "number of classes"),
    ] {
        let message = place.refusal(command);
        assert!(message.contains(part) && message.contains("\nhint: "), "{command}: {message}");
    }
}
