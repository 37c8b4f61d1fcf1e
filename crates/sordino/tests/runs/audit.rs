//! `sordino audit`: attacks on runs.

use serde_json::Value;

use crate::place::Place;

/// A small audit with a fixed seed.
const SMALL: &str = "--steps 60 --canaries 200 --audit-steps 60 --seed 1";

#[test]
fn a_sound_run_passes_and_its_step_bound_is_close_to_its_epsilon() {
    let place = Place::new("audit-sound");
    let audit = place.json(&format!("audit --epsilon 4 {SMALL} --out audit.json"));
    let epsilon = audit["claim"]["epsilon"].as_f64().unwrap();
    assert!((3.9..=4.0).contains(&epsilon) && audit["claim"]["proved"] == true, "{audit}");
    let step = &audit["attacks"][0];
    assert_eq!((&step["observation"], &step["confidence"]), (&Value::from("step"), &Value::from(0.999)));
    let bound = step["lower_bound"].as_f64().unwrap();
    assert!(bound > 0.8 * epsilon && bound <= epsilon, "{bound} of {epsilon}");
    let checks = audit["checks"].as_array().unwrap();
    assert!(checks.len() > 15, "{audit}");
    for check in checks {
        let value = |key: &str| check[key].as_f64().unwrap();
        assert!(value("low") <= value("measured") && value("measured") <= value("high"), "{check}");
    }
    // A fixed seed gives the same audit.
    let mut stored: Value = serde_json::from_str(&place.read("audit.json")).unwrap();
    let mut again = place.json(&format!("audit --epsilon 4 {SMALL}"));
    for audit in [&mut stored, &mut again] {
        audit["seconds"] = Value::Null;
    }
    assert_eq!(stored, again);
}

#[test]
fn the_text_states_the_epsilon_the_tests_and_the_verdict() {
    let place = Place::new("audit-text");
    let text = place.text(&format!("audit {SMALL}"));
    for part in [
        "audit of dp-sgd on mushroom: epsilon 0.9",
        "every release, and batches",
        "jump of a canary of norm 10 C",
        "No evidence against epsilon",
        "beside 1625 public test records",
        "did not use private records",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("FAILED"), "{text}");
}

/// The claims of papers that are false are refuted, with exit code 1.
#[test]
fn false_claims_are_refuted() {
    let place = Place::new("audit-published");
    for algorithm in ["dice-published", "dp-c4-published", "dp-c4-plus-published"] {
        let output = place.run(&format!(
            "audit --algorithm {algorithm} --epsilon 2 --steps 400 --canaries 20 --seed 1 --optimizer sgd --learning-rate 20 --schedule linear --average 0 --json"
        ));
        assert_eq!(output.status.code(), Some(1), "{algorithm}");
        let audit: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&audit["claim"]["epsilon"], &audit["claim"]["proved"]),
            (&Value::from(2.0), &Value::from(false))
        );
        let bounds = audit["attacks"].as_array().unwrap().iter();
        let best = bounds.map(|attack| attack["lower_bound"].as_f64().unwrap()).fold(0.0, f64::max);
        assert!(best > 2.0, "{algorithm}: {best}");
    }
}

#[test]
fn the_settings_of_a_run_can_be_audited() {
    let place = Place::new("audit-run");
    place.text_with_notes("train --algorithm dc-sgd-p --steps 60 --epsilon 3 --out run");
    let audit = place.json("audit --run run --canaries 100");
    assert_eq!(audit["algorithm"], "dc-sgd-p");
    let names: Vec<&str> =
        audit["checks"].as_array().unwrap().iter().map(|check| check["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"noise variance of the counts (without records)"), "{names:?}");
    assert!(audit["attacks"][0]["lower_bound"].as_f64().unwrap() > 2.0, "{audit}");
}

#[test]
fn records_of_other_forms_are_audited() {
    let place = Place::new("audit-forms");
    let rows: String = (0..80).map(|i| format!("{},{}\n", i % 7, f64::from(i) / 80.0)).collect();
    place.write("numbers.csv", &format!("x,y\n{rows}"));
    place.write(
        "numbers.toml",
        "target = 'y'\n[[columns]]\nname = 'x'\ntype = 'number'\nscale = 7\n[[columns]]\nname = 'y'\ntype = 'number'\n",
    );
    let text = place.text(
        "audit --data numbers.csv --schema numbers.toml --epsilon 8 --steps 20 --batch-size 16 --test-fraction 0 --canaries 20 --seed 1",
    );
    assert!(text.contains("synthetic records"), "{text}");
}

#[test]
fn what_cannot_be_audited_is_refused() {
    let place = Place::new("audit-refused");
    assert!(place.refusal("audit --algorithm none").contains("has no epsilon"));
    assert!(place.refusal("audit --confidence 95").contains("0.95"));
    assert!(place.refusal("audit --canaries 1").contains("between 10 and 100000"));
    assert!(place.refusal("audit --run nowhere").contains("nowhere"));
    place.write("data.csv", "");
    assert!(place.refusal("audit --out data.csv").contains("data.csv exists already"));
    assert!(place.refusal("audit --out nowhere/a.json").contains("nowhere"));
    // The training records of a run never become test records of its audit.
    place.text_with_notes("train --steps 20 --out run");
    assert!(place.refusal("audit --run run --split-seed 5").contains("a run keeps its settings"));
    place.text_with_notes("train --steps 20 --seed 1 --out seeded");
    assert!(place.refusal("audit --run seeded").contains("NOT PRIVATE"));
}
