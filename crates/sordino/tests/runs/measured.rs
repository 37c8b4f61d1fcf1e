//! What is measured on test records: with noise by default, exactly if they are public, and always with an interval.

use super::place::Place;

/// A table of 4,000 rows whose label is 1 in a few of them. `x` says which, but not always: one label in `flipped` is wrong.
fn table(place: &Place, share: f64, flipped: u32) {
    let row = |i: u32| {
        let rank = f64::from(i.wrapping_mul(2_654_435_761) >> 8) / f64::from(1 << 24);
        let (rare, noise) = (rank < share, f64::from(i % 89) / 89.0 - 0.5);
        let x = if rare { 0.6 } else { -0.2 } + 0.9 * noise;
        format!("{x:.4},{:.4},{}\n", f64::from(i % 17) / 17.0, u8::from(rare != i.is_multiple_of(flipped)))
    };
    place.write("t.csv", &format!("x,z,y\n{}", (0..4000).map(row).collect::<String>()));
}

#[test]
fn held_back_records_are_protected_and_every_output_says_so() {
    let place = Place::new("measured");
    table(&place, 0.3, 50);
    let text = place.text("train --data t.csv --target y --classes 2 --steps 50 --out run");
    let sentence = "800 of your 4,000 records were held back for testing. They are protected by the same guarantee: noise is added to what \
                    is measured on them.";
    assert_eq!(text.lines().nth(1), Some(sentence), "{text}");
    assert!(text.contains(", measured with noise on 800 protected records"), "{text}");
    assert!(text.contains("by always predicting the most frequent class, 0"), "{text}");
    assert!(place.text("show run").contains(sentence));
    let shown = place.json("show run");
    assert_eq!((&shown["test_set_protected"], &shown["private"]), (&true.into(), &true.into()));
    assert_eq!((&shown["planned_measurements"], &shown["charged_measurements"]), (&1.into(), &1.into()));
    assert_eq!(shown["measurement_epsilon"], shown["epsilon"]);
    let metrics = &shown["metrics"];
    assert!(metrics["noise_std"].as_f64().unwrap() > 1.0, "{metrics}");
    for metric in
        ["accuracy", "balanced_accuracy", "auc", "average_precision", "log_loss", "calibration_error"]
    {
        let end = |end: &str| metrics[metric][end].as_f64().unwrap();
        assert!(end("low") <= end("value") && end("value") <= end("high"), "{metric} {metrics}");
    }
    let majority = &metrics["majority"];
    assert!((majority["share"]["value"].as_f64().unwrap() - 0.7).abs() < 0.1, "{majority}");
    // The ledger has the measurement, and config.toml can be used again.
    assert!(place.read("run/ledger").contains("{\"measured\":{\"number\":0}}"));
    let config = place.read("run/config.toml");
    assert!(
        config.contains("test_set = \"protected\"\n") && config.contains("measurements = 1\n"),
        "{config}"
    );
    let page = place.text("report run --format md");
    for part in ["What was measured", "Laplace noise", "protected by the same guarantee", "Balanced accuracy"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("NOT protected"), "{page}");
}

#[test]
fn public_test_records_are_measured_exactly() {
    let place = Place::new("measured-public");
    table(&place, 0.3, 50);
    let flags = "--data t.csv --target y --classes 2 --steps 50";
    let text = place.text(&format!("train {flags} --test-set public --out run"));
    assert!(
        text.contains("800 of your 4,000 records were held back for testing and are NOT protected."),
        "{text}"
    );
    let shown = place.json("show run");
    assert_eq!(shown["test_set_protected"], false);
    let right = 800.0 * shown["test_accuracy"].as_f64().unwrap();
    assert!((right - right.round()).abs() < 1e-9);
    // A seeded run is not private. Its test records are measured exactly, and the report says why.
    let text = place.text(&format!("train {flags} --seed 1 --out seeded"));
    assert!(text.contains("measured exactly because the run is not private"), "{text}");
    for (more, part) in [
        ("--measurements 2 --seed 1", "measurements is 2, but this run has no protected test records"),
        ("--measurements 0", "from 1 to the number of steps, 50, got 0"),
        ("--measurements 51", "from 1 to the number of steps, 50, got 51"),
        ("--test-set secret", "secret"),
    ] {
        let message = place.refusal(&format!("train {flags} {more}"));
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn rare_classes_are_found_with_class_weights() {
    let place = Place::new("measured-rare");
    table(&place, 0.05, 5000);
    let flags = "--data t.csv --target y --classes 2 --steps 100 --epsilon 4 --seed 3";
    let recall = |more: &str, out: &str| {
        let shown = place.json(&format!("train {flags} {more} --out {out}"));
        shown["metrics"]["classes"][1]["recall"]["value"].as_f64().unwrap()
    };
    let (plain, weighted) = (recall("", "plain"), recall("--class-weights 1,20", "weighted"));
    assert!(weighted > plain + 0.2, "{plain} {weighted}");
    for (weights, part) in [
        ("1,2,3", "class_weights has 3 numbers, but there are 2 classes"),
        ("1,0", "between 1e-6 and 1e6, got 0"),
        ("1,nan", "between 1e-6 and 1e6, got NaN"),
    ] {
        let message = place.refusal(&format!("train {flags} --class-weights {weights}"));
        assert!(message.contains(part), "{message}");
    }
}

/// A fifth of the labels is wrong, and large steps make a very overconfident model.
#[test]
fn a_temperature_is_fitted_stored_and_applied_to_probabilities() {
    let place = Place::new("measured-sure");
    table(&place, 0.3, 5);
    let train =
        "train --data t.csv --target y --classes 2 --steps 100 --epsilon 8 --learning-rate 1000 --out run";
    let text = place.text(train);
    assert!(text.contains("fitted to this measurement and applied to predicted probabilities"), "{text}");
    let temperature = place.json("show run")["metrics"]["temperature"]["value"].as_f64().unwrap();
    assert!(temperature > 1.5, "{temperature}");
    let predicted = place.text_with_notes("predict --run run --data t.csv");
    let probability = |line: &str| -> f64 {
        let fields: Vec<f64> = line.split(',').skip(2).map(|field| field.parse().unwrap()).collect();
        fields.into_iter().fold(0.0, f64::max)
    };
    let mean = predicted.lines().skip(1).map(probability).sum::<f64>() / 4000.0;
    // Four fifths of the labels are right.
    assert!((0.6..0.95).contains(&mean), "{mean}");
    let fitted = sordino::Fitted::open(place.0.join("run")).unwrap();
    assert!((fitted.temperature() - temperature).abs() < 1e-12);
}

/// Runs on the same data with the same split: a held-back record pays for the measurement of each.
#[test]
fn comparisons_add_up_what_measurements_cost() {
    let place = Place::new("measured-compare");
    table(&place, 0.3, 50);
    let text = place.text(
        "compare --data t.csv --target y --classes 2 --algorithms dp-sgd --steps 40 --repeats 4 --out rows.json",
    );
    assert!(text.contains("and the noise that protects them"), "{text}");
    let found: serde_json::Value = serde_json::from_str(&place.read("rows.json")).unwrap();
    let epsilon = found["rows"][0]["epsilon"].as_f64().unwrap();
    let total = found["epsilon_of_all"].as_f64().unwrap();
    assert!((total / (4.0 * epsilon) - 1.0).abs() < 1e-9, "{total} {epsilon}");
}
