//! `train`, `show` and `predict`.

use std::fs;

use serde_json::Value;

use crate::place::Place;
#[cfg(unix)]
use crate::place::interrupted;

#[test]
fn without_arguments_a_private_model_is_trained_on_mushrooms() {
    let place = Place::new("default");
    let text = place.text("train");
    for part in [
        "This logistic model satisfies (",
        ", 1e-5)-differential privacy",
        "PROVED",
        "runs/1",
        "zero-out",
        "pld",
    ] {
        assert!(text.contains(part), "{text}");
    }
    for file in ["config.toml", "ledger", "metrics.jsonl", "model.safetensors"] {
        assert!(place.has(&format!("runs/1/{file}")), "{file}");
    }
    assert!(!place.has("runs/1/checkpoint.safetensors"));
    assert_eq!(place.text("show runs/1").lines().next(), text.lines().next());
    let shown = place.json("show runs/1");
    let epsilon = shown["epsilon"].as_f64().unwrap();
    assert!(epsilon <= 1.0 && epsilon > 0.99);
    // Noise is fresh: of a hundred runs the worst had 99.1 %, with a standard deviation of 0.2.
    assert!(shown["test_accuracy"].as_f64().unwrap() > 0.97);
    assert!(place.read("runs/1/model.safetensors").contains("-differential privacy"));
}

#[test]
fn json_has_its_keys() {
    let place = Place::new("json");
    let answer = place.json("train --steps 20 --out run");
    assert_eq!(answer["algorithm"], "dp-sgd");
    assert_eq!(answer["private"], true);
    assert_eq!((&answer["steps"], &answer["delta"]), (&Value::from(20), &Value::from(1e-5)));
    for key in ["test_accuracy", "epsilon", "seconds"] {
        assert!(answer[key].is_f64(), "{key}");
    }
}

#[test]
fn every_way_of_sampling_and_clipping_trains_within_its_budget() {
    let place = Place::new("ways");
    for (number, (flags, relation)) in [
        ("--clipping per-layer --model mlp --hidden 8,4", "zero-out"),
        ("--sampling fixed-size", "replace-one"),
        ("--sampling full-batch --epochs 5", "zero-out"),
        ("--max-batch-size 400", "zero-out"),
        ("--accountant rdp --optimizer adam,noise_correction=true --learning-rate 0.01", "zero-out"),
        ("--optimizer nesterov --schedule cosine --average 0.9 --learning-rate 4", "zero-out"),
        ("--test-fraction 0", "zero-out"),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = place.json(&format!("train {flags} --epsilon 2 --out {number}"));
        assert!(answer["epsilon"].as_f64().unwrap() <= 2.0, "{flags}: {answer}");
        assert!(answer["relation"].as_str().unwrap().contains(relation), "{flags}: {answer}");
        assert_eq!(answer["test_accuracy"].is_null(), flags.contains("fraction"), "{flags}");
    }
}

#[test]
fn a_seed_repeats_a_run_and_marks_it_everywhere() {
    let place = Place::new("seed");
    let first = place.text("train --steps 50 --seed 7 --out a");
    place.text("train --steps 50 --seed 7 --out b");
    place.text("train --steps 50 --seed 8 --out c");
    let weights = |run: &str| {
        let bytes = fs::read(place.0.join(run).join("model.safetensors")).unwrap();
        bytes[8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize..].to_vec()
    };
    assert_eq!(weights("a"), weights("b"));
    assert_ne!(weights("a"), weights("c"));
    assert!(first.starts_with("This logistic model is NOT PRIVATE.") && !first.contains("satisfies"));
    assert!(place.text("show a").contains("NOT PRIVATE"));
    assert!(place.read("a/config.toml").starts_with("# NOT PRIVATE"));
    assert!(place.read("a/ledger").contains("\"seeded\":true"));
    assert!(place.read("a/metrics.jsonl").contains("\"private\":false"));
    assert!(place.read("a/model.safetensors").contains("NOT PRIVATE"));
    let shown = place.json("show a");
    assert_eq!((&shown["private"], &shown["epsilon"]), (&Value::Bool(false), &Value::Null));
}

#[test]
fn plain_training_is_never_called_private() {
    let place = Place::new("plain");
    let answer = place.json("train --algorithm none --epochs 5 --learning-rate 1 --out a");
    assert_eq!(
        (&answer["private"], &answer["epsilon"], &answer["algorithm"]),
        (&Value::Bool(false), &Value::Null, &Value::from("none"))
    );
    assert!(answer["test_accuracy"].as_f64().unwrap() > 0.97);
    assert!(place.text("show a").contains("NOT PRIVATE"));
    assert!(place.refusal("train --algorithm none --epsilon 1").contains("epsilon has no effect here"));
}

#[test]
fn settings_come_from_a_file_and_a_run_can_be_repeated_from_its_settings() {
    let place = Place::new("config");
    place.write("mine.toml", "# a comment\nepochs = 2\nbatch-size = 64\nepsilon = 3\n");
    place.text("train --config mine.toml --batch-size 128 --out a");
    let config = place.read("a/config.toml");
    assert!(
        config.contains("batch_size = 128")
            && config.contains("epochs = 2.0")
            && config.contains("epsilon = 3.0")
    );
    place.text("train --config a/config.toml --out b");
    assert_eq!(place.read("b/config.toml"), config);
    place.write("wrong.toml", "epochs = 2\nlearning_rat = 1\n");
    let message = place.refusal("train --config wrong.toml");
    assert!(
        message.contains("wrong.toml") && message.contains("learning_rat") && message.contains("line 2"),
        "{message}"
    );
}

#[test]
fn bad_input_gets_the_value_the_range_and_a_hint() {
    let place = Place::new("bad");
    for (flags, part) in [
        ("--epsilon -1", "at least 0, got -1"),
        ("--delta 2", "between 0 and 1"),
        ("--data nosuch.csv", "No such file"),
        ("--data nosuch", "no such file"),
        ("--model foo", "got foo"),
        ("--model lenet5", "lenet5 reads images, but the data has records of 126 features"),
        ("--algorithm foo", "one of dp-sgd"),
        ("--optimizer foo", "foo"),
        ("--optimizer adam,beta2=2", "got 2"),
        ("--schedule step", "every"),
        ("--batch-size 0", "got 0"),
        ("--batch-size 100000", "6499; got 100000"),
        ("--epochs nan", "got NaN"),
        ("--learning-rate -1", "got -1"),
        ("--learning-rate 0", "must be above 0, got 0"),
        ("--max-grad-norm 0", "got 0"),
        ("--noise-multiplier 0.5 --epsilon 1", "the budget is 1"),
        ("--sampling fixed-size --accountant pld", "--accountant rdp"),
        ("--max-batch-size 257", "raise --max-batch-size"),
        ("--test-fraction 2", "got 2"),
        ("--checkpoint-seconds -1", "got -1"),
        ("--hidden 3", "belongs to the model mlp"),
        ("--average 2", "got 2"),
        ("--resume nosuch", "no config.toml"),
        ("--config nosuch.toml", "nosuch.toml"),
    ] {
        let message = place.refusal(&format!("train {flags}"));
        assert!(message.contains(part), "{flags}: {message}");
        assert!(!place.has("runs"), "{flags} left a folder");
    }
}

const SCHEMA: &str = "target = 'ill'\n[[columns]]\nname = 'age'\ntype = 'number'\ncenter = 50.0\nscale = 20.0\n\
    [[columns]]\nname = 'ward'\ntype = 'category'\nvalues = ['a', 'b']\n\
    [[columns]]\nname = 'ill'\ntype = 'category'\nvalues = ['no', 'yes']\n";

#[test]
fn own_data_is_trained_on_and_predicted_with() {
    let place = Place::new("own");
    place.write("schema.toml", SCHEMA);
    let rows: String = (0..400)
        .map(|i| format!("{},{},{}\n", i % 100, ["a", "b"][i % 2], if i % 100 > 50 { "yes" } else { "no" }))
        .collect();
    place.write("train.csv", &format!("age,ward,ill\n{rows}"));
    let answer = place.json(
        "train --data train.csv --schema schema.toml --epsilon 8 --delta 1e-4 --batch-size 100 --seed 1 --out run",
    );
    assert_eq!(answer["training_records"], 320);
    assert!(answer["test_accuracy"].as_f64().unwrap() > 0.8, "{answer}");
    // No labels, columns in another order, from another folder.
    place.write("new.csv", "ward,age\na,95\nb,3\n");
    let predicted = place.text_with_notes("predict --run run --data new.csv");
    let classes: Vec<&str> = predicted.lines().map(|line| line.split(',').nth(1).unwrap()).collect();
    assert_eq!(classes, ["prediction", "yes", "no"]);
    // The run has a copy of the schema, and its folder can be moved.
    fs::remove_file(place.0.join("schema.toml")).unwrap();
    fs::rename(place.0.join("run"), place.0.join("moved")).unwrap();
    assert_eq!(place.text_with_notes("predict --run moved --data new.csv"), predicted);
    let schema = place.read("moved/schema.toml");
    place.write("moved/schema.toml", &schema.replace("50.0", "0.0"));
    assert!(place.refusal("predict --run moved --data new.csv").contains("differ from those in the ledger"));
    fs::rename(place.0.join("moved"), place.0.join("run")).unwrap();
    place.write("run/schema.toml", &schema);
    place.write("schema.toml", SCHEMA);
    place.write("bad.csv", "age,ward,ill\n1,a,no\n2,c,yes\n");
    let message = place.refusal("train --data bad.csv --schema schema.toml --out bad");
    assert!(message.contains("bad.csv, line 3, column 2 (ward)"), "{message}");
    assert!(!place.has("bad"));
    let message = place.refusal("predict --run run --data mushroom");
    assert!(message.contains("mushroom"), "{message}");
}

#[test]
fn numbers_are_predicted_in_their_own_scale() {
    let place = Place::new("numbers");
    place.write(
        "schema.toml",
        "target = 'y'\n[[columns]]\nname = 'x'\ntype = 'number'\n[[columns]]\nname = 'y'\ntype = 'number'\ncenter = 1000\nscale = 100\n",
    );
    let rows: String = (0..500)
        .map(|i| format!("{},{}\n", f64::from(i % 50) / 25.0 - 1.0, 1000 + 4 * (i % 50) - 98))
        .collect();
    place.write("data.csv", &format!("x,y\n{rows}"));
    let answer =
        place.json("train --data data.csv --schema schema.toml --epsilon 8 --delta 1e-4 --seed 1 --out run");
    assert!(answer["test_accuracy"].is_null());
    assert!(answer["test_mean_squared_error"].as_f64().unwrap() < 0.2, "{answer}");
    place.write("new.csv", "x\n1\n-1\n");
    let predicted = place.text_with_notes("predict --run run --data new.csv");
    let numbers: Vec<f64> = predicted.lines().skip(1).map(|line| line[2..].parse().unwrap()).collect();
    assert!((numbers[0] - 1100.0).abs() < 50.0 && (numbers[1] - 900.0).abs() < 50.0, "{predicted}");
}

#[test]
fn a_ledger_or_a_config_that_was_changed_is_refused() {
    let place = Place::new("touched");
    place.text("train --steps 300 --out run");
    let (ledger, config) = (place.read("run/ledger"), place.read("run/config.toml"));
    place.write("run/ledger", &ledger.replace("\"records\":6499", "\"records\":9999"));
    assert!(place.refusal("show run").contains("run/ledger, line 1"));
    // Without its last lines the chain is intact, but the weights name them.
    let cut = ledger.trim_end().rfind('\n').unwrap() + 1;
    place.write("run/ledger", &ledger[..cut]);
    assert!(place.refusal("show run").contains("it was cut"));
    place.write("run/ledger", &ledger[..cut + 30]);
    assert!(place.refusal("show run").contains("it was cut"));
    place.write("run/ledger", &ledger);
    place.write("run/config.toml", &config.replace("epsilon = 1.0", "epsilon = 0.1"));
    assert!(place.refusal("show run").contains("differ from those in the ledger"));
    fs::remove_file(place.0.join("run/ledger")).unwrap();
    assert!(place.refusal("show run").contains("the ledger of run is missing or empty"));
}

#[cfg(unix)]
#[test]
fn a_run_is_not_resumed_with_other_data_or_without_its_checkpoint() {
    let place = Place::new("changed");
    let rows: String =
        (0..600).map(|i| format!("{},{}\n", f64::from(i) / 300.0 - 1.0, u8::from(i > 300))).collect();
    place.write("data.csv", &rows);
    interrupted(&place, 60_000, "--data data.csv --classes 2 --accountant rdp");
    let checkpoint = fs::read(place.0.join("run/checkpoint.safetensors")).unwrap();
    fs::remove_file(place.0.join("run/checkpoint.safetensors")).unwrap();
    assert!(place.refusal("train --resume run").contains("checkpoint.safetensors: is missing"));
    fs::write(place.0.join("run/checkpoint.safetensors"), checkpoint).unwrap();
    place.write("data.csv", &rows.lines().rev().collect::<Vec<_>>().join("\n"));
    assert!(place.refusal("train --resume run").contains("was changed after the run began"));
    // A table without a schema is read by the names of its columns, or by their order; the label may be missing.
    place.write("new.csv", "0.9\n-0.9\n");
    assert_eq!(place.text_with_notes("predict --run run --data new.csv").lines().count(), 3);
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_is_saved_and_can_be_resumed() {
    let place = Place::new("interrupt");
    let output = interrupted(&place, 60_000, "");
    assert_eq!(output.status.code(), Some(130));
    let (said, hint) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(
        said.contains("This unfinished logistic model satisfies") && said.contains("whenever it stops"),
        "{said}"
    );
    assert!(hint.contains("sordino train --resume run"), "{hint}");
    let before = place.json("show run");
    // No charged step is lost when a run is stopped in good order.
    let last = place.read("run/metrics.jsonl").lines().last().unwrap().to_owned();
    assert_eq!(serde_json::from_str::<Value>(&last).unwrap()["step"], before["steps"]);
    let resumed = place.text_with_notes("train --resume run --json");
    let after: Value = serde_json::from_str(&resumed).unwrap();
    assert_eq!((&after["finished"], &after["steps"]), (&Value::Bool(true), &Value::from(60_000)));
    assert!(after["epsilon"].as_f64() >= before["epsilon_so_far"].as_f64());
    assert!(place.text("show run").contains("resumed once"));
    // There is nothing left to do.
    assert!(place.refusal("train --resume run").contains("is finished: no step of its plan is left"));
}

#[test]
fn a_model_that_does_not_fit_into_memory_is_refused_before_anything_is_written() {
    let place = Place::new("memory");
    let message = place.refusal("train --model mlp --hidden 1000000,4000");
    assert!(message.contains("4,127,012,002 parameters takes about"), "{message}");
    assert!(
        message.contains(" GiB is ") && message.contains("parameters fit: choose a smaller model"),
        "{message}"
    );
    for hidden in ["16777216,16777216,16777216,16777216", "9223372036854775808", "18446744073709551615"] {
        place.refusal(&format!("train --model mlp --hidden {hidden}"));
    }
    assert!(
        place
            .refusal("train --seed 18446744073709551615")
            .contains("seed must be at most 9223372036854775807")
    );
    assert!(!place.0.join("runs").exists());
}

#[test]
fn a_folder_without_a_ledger_is_explained_and_does_not_count() {
    let place = Place::new("ledgerless");
    let quick = "train --steps 2 --seed 1";
    place.text(quick);
    // As if it had been killed right after its settings were written.
    for file in ["ledger", "model.safetensors", "metrics.jsonl"] {
        fs::remove_file(place.0.join("runs/1").join(file)).unwrap();
    }
    for command in ["show runs/1", "train --resume runs/1", "predict --run runs/1 --data x.csv"] {
        let message = place.refusal(command);
        assert!(message.contains("no step was taken, and no privacy budget was spent"), "{message}");
        assert!(message.contains("rm -r runs/1"), "{message}");
    }
    assert!(place.text(quick).contains("runs/2"));
    assert!(place.text("show runs/2").contains("runs/2"));
    // A model without its ledger is another matter.
    fs::remove_file(place.0.join("runs/2/ledger")).unwrap();
    let message = place.refusal("show runs/2");
    assert!(
        message.contains("although its run has begun") && !message.contains("no privacy budget was spent"),
        "{message}"
    );
}

#[test]
fn the_old_name_of_the_clipping_norm_is_accepted() {
    let place = Place::new("clip");
    place.text("train --steps 2 --seed 1 --clip 0.5");
    assert!(place.read("runs/1/config.toml").contains("max_grad_norm = 0.5"));
    let help = place.text("train --help");
    assert!(help.contains("--max-grad-norm") && !help.contains("--clip "), "{help}");
}
