//! Units of privacy: persons with several records.

use crate::place::Place;

/// 300 patients with 1 to 5 visits each. The label follows from the first number.
fn visits(place: &Place) {
    let mut table = "patient,a,b,ill\n".to_owned();
    for patient in 0..300_u32 {
        for visit in 0..1 + patient * 7 % 5 {
            let a = (patient * 37 + visit * 11) % 101;
            table += &format!("p{patient},{},{},{}\n", f64::from(a) / 50.0 - 1.0, visit, u32::from(a > 50));
        }
    }
    place.write("visits.csv", &table);
}

const TRAIN: &str = "train --data visits.csv --classes 2 --steps 20 --batch-size 20";

#[test]
fn the_statement_the_ledger_and_json_name_the_unit() {
    let place = Place::new("units-statement");
    visits(&place);
    let text = place.text(&format!("{TRAIN} --unit patient --out run"));
    assert!(
        text.contains("protects     all records of one patient, up to 20, relation add/remove"),
        "{text}"
    );
    assert!(text.contains("on 240 units (patient) of"), "{text}");
    let shown = place.json("show run");
    assert_eq!((shown["training_records"].as_u64(), shown["test_records"].as_u64()), (Some(240), Some(60)));
    assert_eq!((shown["unit"].as_str(), shown["records_per_unit"].as_u64()), (Some("patient"), Some(20)));
    assert!(place.read("run/ledger").contains("records_per_unit = 20"));
    let config = place.read("run/config.toml");
    assert!(config.contains("unit = \"patient\"") && config.contains("unit_gradient = \"mean\""), "{config}");
    // The column of the unit is not a feature, and records to predict need none.
    place.write("new.csv", "a,b\n0.9,1\n-0.9,1\n");
    assert_eq!(place.text_with_notes("predict --run run --data new.csv").lines().count(), 3);
    // Without a unit, nothing about units is said.
    place.write("plain.csv", &place.read("visits.csv").replace('p', ""));
    let plain = place.text("train --data plain.csv --classes 2 --steps 2 --out plain");
    assert!(plain.contains("protects     one training record"), "{plain}");
    assert!(place.json("show plain").get("unit").is_none());
}

#[test]
fn every_algorithm_trains_on_units() {
    let place = Place::new("units-algorithms");
    visits(&place);
    for algorithm in place.json("algorithms").as_array().unwrap() {
        let name = algorithm["name"].as_str().unwrap();
        let run = format!("{TRAIN} --unit patient --records-per-unit 3 --algorithm {name} --out {name}");
        let text = place.text_with_notes(&run);
        match algorithm["promise"].as_str() {
            Some("sound") => assert!(text.contains("all records of one patient, up to 3"), "{name}: {text}"),
            _ => assert!(text.contains("NOT PRIVATE"), "{name}: {text}"),
        }
    }
}

#[test]
fn settings_of_units_are_checked() {
    let place = Place::new("units-refused");
    visits(&place);
    let refusal = |flags: &str| place.refusal(&format!("{TRAIN} {flags} --out run"));
    assert!(refusal("--unit person").contains("the unit `person` is not one of the 4 columns"));
    assert!(refusal("--unit patient --records-per-unit 0").contains("1 to 65536, got 0"));
    place.write("plain.csv", &place.read("visits.csv").replace('p', ""));
    let plain = |flags: &str| place.refusal(&format!("train --data plain.csv --classes 2 {flags} --out run"));
    assert!(plain("--records-per-unit 3").contains("records_per_unit needs a unit of privacy"));
    assert!(plain("--unit-gradient sum").contains("unit_gradient needs a unit of privacy"));
    assert!(plain("--augment flip").contains("augment is for images"));
    assert!(!place.has("run"));
}

#[test]
fn a_unit_must_not_be_on_both_sides_of_the_split() {
    let place = Place::new("units-split");
    visits(&place);
    place.write("same.csv", "patient,a,b,ill\nnew,0.5,0,1\np7,0.5,0,1\n");
    place.write("other.csv", "patient,a,b,ill\nnew,0.5,0,1\nolder,0.5,0,0\n");
    let shared = place.refusal(&format!("{TRAIN} --unit patient --test-data same.csv --out run"));
    assert!(shared.contains("a patient has records in the training set and in the test set"), "{shared}");
    place.text_with_notes(&format!("{TRAIN} --unit patient --test-data other.csv --out run"));
    // The rows of a unit are not known without the data.
    place.text_with_notes(&format!("{TRAIN} --unit patient --out held"));
    assert!(place.refusal("show held --held-back").contains("held back whole units (patient)"));
}

#[test]
fn a_run_on_units_is_resumed_with_its_units() {
    let place = Place::new("units-resumed");
    visits(&place);
    let output = crate::place::interrupted_at(
        &place,
        "train --data visits.csv --classes 2 --unit patient --steps 25000 --noise-multiplier 50 --out run",
        "run/checkpoint.safetensors",
        std::time::Duration::from_millis(50),
    );
    assert!(!output.status.success() || place.json("show run")["finished"] == false);
    assert!(place.json("show run")["steps"].as_u64() < Some(25_000));
    let refused = place.refusal("train --resume run --records-per-unit 2");
    assert!(refused.contains("settings"), "{refused}");
    let text = place.text_with_notes("train --resume run");
    assert!(text.contains("all records of one patient, up to 20") && text.contains("resumed once"), "{text}");
}

#[test]
fn a_run_with_a_schema_is_resumed_with_its_units() {
    let place = Place::new("units-schema");
    visits(&place);
    let columns = |name: &str| format!("[[columns]]\nname = \"{name}\"\ntype = \"number\"\n");
    let schema = format!(
        "target = \"ill\"\nunit = \"patient\"\n{}{}[[columns]]\nname = \"ill\"\ntype = \"category\"\nvalues = [\"0\", \"1\"]\n",
        columns("a"),
        columns("b")
    );
    place.write("visits.toml", &schema);
    crate::place::interrupted_at(
        &place,
        "train --data visits.csv --schema visits.toml --steps 25000 --noise-multiplier 50 --out run",
        "run/checkpoint.safetensors",
        std::time::Duration::from_millis(50),
    );
    assert!(place.json("show run")["steps"].as_u64() < Some(25_000));
    let text = place.text_with_notes("train --resume run");
    assert!(text.contains("all records of one patient, up to 20") && text.contains("resumed once"), "{text}");
}

#[test]
fn runs_with_different_units_have_no_total() {
    let place = Place::new("units-totals");
    visits(&place);
    place.write("visits.toml", "target = \"ill\"\nothers = \"ignore\"\n[[columns]]\nname = \"a\"\ntype = \"number\"\n[[columns]]\nname = \"ill\"\ntype = \"category\"\nvalues = [\"0\", \"1\"]\n");
    let train = "train --data visits.csv --schema visits.toml --steps 20 --batch-size 20";
    place.text_with_notes(&format!("{train} --unit patient --out runs/1"));
    let same = place.text_with_notes(&format!("{train} --unit patient --out runs/2"));
    assert!(same.contains("used by 2 runs"), "{same}");
    let other = place.text_with_notes(&format!("{train} --out runs/3"));
    assert!(other.contains("is NOT KNOWN: these runs have different units of privacy"), "{other}");
    assert!(place.json("show runs/1")["epsilon_of_all"].is_null());
}

#[test]
fn views_of_images_do_not_change_the_price() {
    let place = Place::new("units-views");
    let pixels: Vec<u8> = (0..120 * 64_u32).map(|i| (i * 37 % 100 + 120 * (i / 64 % 2)) as u8).collect();
    let classes: Vec<u8> = (0..120_u32).map(|i| (i % 2) as u8).collect();
    let npy = |shape: &str, bytes: &[u8]| {
        let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}\n");
        [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), bytes].concat()
    };
    std::fs::create_dir(place.0.join("images")).unwrap();
    std::fs::write(place.0.join("images/x.npy"), npy("(120, 8, 8)", &pixels)).unwrap();
    std::fs::write(place.0.join("images/y.npy"), npy("(120,)", &classes)).unwrap();
    let train = "train --data images --classes 2 --model mlp --steps 10 --batch-size 30 --noise-multiplier 2";
    place.text_with_notes(&format!("{train} --out plain"));
    place.text_with_notes(&format!("{train} --augment flip,crop=2,copies=3 --out views"));
    assert_eq!(place.json("show plain")["epsilon"], place.json("show views")["epsilon"]);
    assert!(place.read("views/config.toml").contains("augment = \"flip,crop=2,copies=3\""));
}
