//! Training on texts, and predictions for texts in other files.

use std::fs;

use crate::place::Place;

const NETWORK: &str = "input = { tokens = { steps = 32, vocabulary = 16 } }\nlayers = [\n\
                       { type = \"embedding\", width = 8 },\n{ type = \"mean_over_steps\" },\n\
                       { type = \"linear\", outputs = 2 },\n]\n";

/// A run on reviews with a `tokenizer.json`.
fn trained(name: &str) -> Place {
    let place = Place::new(name);
    place.write("network.toml", NETWORK);
    let tokenizer = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/tests/fixtures/wordpiece.json");
    fs::copy(tokenizer, place.0.join("my.json")).unwrap();
    for row in 0..400 {
        let (class, text) = if row % 2 == 0 { ("pos", "a good film") } else { ("neg", "unhelpful") };
        fs::create_dir_all(place.0.join("reviews").join(class)).unwrap();
        place.write(&format!("reviews/{class}/{row}.txt"), text);
    }
    let flags = "--batch-size 100 --delta 1e-4 --epsilon 8 --steps 60 --seed 1 --out run";
    let texts = "--data reviews --tokenizer my.json --max-length 32 --model network.toml";
    place.text_with_notes(&format!("train {texts} {flags}"));
    fs::remove_file(place.0.join("my.json")).unwrap();
    place
}

/// The column of predictions.
fn predicted(table: &str) -> Vec<&str> {
    table.lines().skip(1).map(|line| line.split(',').nth(1).unwrap()).collect()
}

#[test]
fn texts_are_predicted_from_every_kind_of_file() {
    let place = trained("texts");
    place.write("new.csv", "text\nGood film\n\"unhelpful, a\"\n");
    place.write("new.jsonl", "{\"text\": \"Good film\"}\n{\"text\": \"unhelpful\"}\n");
    place.write("new.txt", "Good film\nunhelpful\n");
    for file in ["new.csv", "new.jsonl", "new.txt"] {
        let table = place.text_with_notes(&format!("predict --run run --data {file}"));
        assert!(table.starts_with("id,prediction,probability_neg,probability_pos\n1,"), "{table}");
        assert_eq!(predicted(&table), ["pos", "neg"], "{file}");
    }
    for (name, text) in [("more/b/1.txt", "unhelpful"), ("more/a/1.txt", "good")] {
        fs::create_dir_all(place.0.join(name).parent().unwrap()).unwrap();
        place.write(name, text);
    }
    let table = place.text_with_notes("predict --run run --data more");
    assert!(table.contains("\na/1.txt,pos,") && table.contains("\nb/1.txt,neg,"), "{table}");
    place.write("bad.csv", "words\nx\n");
    assert!(
        place.refusal("predict --run run --data bad.csv").contains("the column `words` is not in the schema")
    );
}

#[test]
fn a_tokenizer_that_was_changed_is_refused() {
    let place = trained("changed-tokenizer");
    let tokenizer = place.read("run/tokenizer.json");
    place.write("run/tokenizer.json", &tokenizer.replace("\"good\"", "\"evil\""));
    let message = place.refusal("show run");
    assert!(
        message.contains("differ from those in the ledger") && message.contains("tokenizer.json"),
        "{message}"
    );
}

#[test]
fn bad_texts_are_refused_before_a_run_begins() {
    let place = Place::new("bad-texts");
    place.write("t.csv", "text,y\na,0\n");
    for (flags, part) in [
        ("--tokenizer words", "tokenizer must be bytes"),
        ("--tokenizer absent.json", "absent.json: "),
        ("--tokenizer bytes --max-length 3", "max_length must be 8 to 65536 tokens, got 3"),
        ("--tokenizer bytes --truncation start", "truncation must be one of end, middle, got start"),
        (
            "--tokenizer bytes --test-fraction 0 --model bag-of-words,first=300",
            "first must be a token from 0 to 257, got 300",
        ),
    ] {
        let message = place.refusal(&format!("train --data t.csv --classes 2 {flags}"));
        assert!(message.contains(part), "{message}");
    }
    assert!(!place.has("runs"));
}

const FLAGS: &str = "--batch-size 100 --delta 1e-4 --epsilon 8 --steps 60 --seed 1 --out run";

#[test]
fn a_folder_of_texts_is_learnt_by_the_default_model() {
    let place = Place::new("default-texts");
    for row in 0..400 {
        let (class, text) = if row % 2 == 0 { ("pos", "a good film") } else { ("neg", "a bad joke") };
        fs::create_dir_all(place.0.join("reviews").join(class)).unwrap();
        place.write(&format!("reviews/{class}/{row}.txt"), text);
    }
    let answer = place.json(&format!("train --data reviews {FLAGS}"));
    assert!(answer["test_accuracy"].as_f64().unwrap() > 0.9, "{answer}");
    assert!(place.read("run/config.toml").contains("model = \"bag-of-words\""));
    place.write("new.txt", "good film\nbad joke\n");
    let table = place.text_with_notes("predict --run run --data new.txt");
    assert_eq!(predicted(&table), ["pos", "neg"], "{table}");

    // The tokens in a file give the same model.
    place.text_with_notes("data convert reviews --out reviews.sordino");
    let stored = place.json(&format!("train --data reviews.sordino {}", FLAGS.replace("run", "stored")));
    assert_eq!(stored["test_accuracy"], answer["test_accuracy"]);
    let again = place.text_with_notes("predict --run stored --data new.txt");
    assert_eq!(again, table);
}

/// Only the last words of the texts, which exceed the maximum length, determine the class.
#[test]
fn truncation_in_the_middle_keeps_the_end_of_long_texts() {
    let place = Place::new("bag-of-words");
    for row in 0..400 {
        let (class, text) = if row % 2 == 0 { ("pos", "a good film") } else { ("neg", "a bad joke") };
        fs::create_dir_all(place.0.join("reviews").join(class)).unwrap();
        place.write(&format!("reviews/{class}/{row}.txt"), &format!("{}{text}", "so ".repeat(20)));
    }
    let flags = format!("--model bag-of-words --max-length 8 --truncation middle {FLAGS}");
    let answer = place.json(&format!("train --data reviews {flags}"));
    assert!(answer["test_accuracy"].as_f64().unwrap() > 0.9, "{answer}");
    assert!(place.read("run/schema.toml").contains("truncation = \"middle\""));
    let long = |end: &str| format!("{}{end}\n", "oh ".repeat(20));
    place.write("new.txt", &format!("{}{}", long("good film"), long("bad joke")));
    let table = place.text_with_notes("predict --run run --data new.txt");
    assert_eq!(predicted(&table), ["pos", "neg"], "{table}");
}

#[test]
fn texts_in_json_lines_are_read_by_a_schema() {
    let place = Place::new("json-lines");
    let row = |row: usize| {
        let (label, text) = if row.is_multiple_of(2) { ("yes", "a good film") } else { ("no", "a bad joke") };
        format!("{{\"id\": {row}, \"text\": \"{text}\", \"label\": \"{label}\"}}\n")
    };
    place.write("reviews.jsonl", &(0..400).map(row).collect::<String>());
    place.write(
        "schema.toml",
        "target = 'label'\nothers = 'ignore'\n[[columns]]\nname = 'text'\ntype = 'text'\n\
         tokenizer = 'hashed,size=64'\nmax_length = 8\n[[columns]]\nname = 'label'\ntype = 'category'\n\
         values = ['no', 'yes']\n",
    );
    let checked = place.text_with_notes("data check reviews.jsonl --schema schema.toml");
    assert_eq!(checked, "400 records, no problems\n");
    let answer = place.json(&format!("train --data reviews.jsonl --schema schema.toml {FLAGS}"));
    assert!(answer["test_accuracy"].as_f64().unwrap() > 0.9, "{answer}");
    place.write("new.jsonl", "{\"id\": \"p\", \"text\": \"good\"}\n{\"id\": \"q\", \"text\": \"bad\"}\n");
    let table = place.text_with_notes("predict --run run --data new.jsonl --id id");
    assert_eq!(predicted(&table), ["yes", "no"], "{table}");
    assert!(table.contains("\np,") && table.contains("\nq,"), "{table}");
}

#[test]
fn names_are_read_by_characters_and_an_lstm() {
    let place = Place::new("names");
    fs::create_dir_all(place.0.join("names")).unwrap();
    for (class, name) in [("Greek", "Adamidis"), ("Irish", "O'Brien")] {
        place.write(&format!("names/{class}.txt"), &format!("{name}\n").repeat(100));
    }
    let flags = "--model lstm,width=8 --max-length 8 --batch-size 50 --delta 1e-3 --epsilon 8 --steps 4 --seed 1 --out run";
    place.text_with_notes(&format!("train --data names {flags}"));
    assert!(place.read("run/schema.toml").contains("tokenizer = \"characters\""));
    place.write("new.txt", "Brown\n");
    let table = place.text_with_notes("predict --run run --data new.txt");
    assert!(table.starts_with("id,prediction,probability_Greek,probability_Irish\n1,"), "{table}");
}

#[test]
fn a_language_model_generates_text() {
    let place = Place::new("language-model");
    fs::create_dir_all(place.0.join("e2e")).unwrap();
    let rows = |count: usize| (0..count).map(|row| format!("m{},ok\n", row % 7)).collect::<String>();
    place.write("e2e/trainset.csv", &format!("mr,ref\n{}", rows(100)));
    place.write("e2e/devset.csv", &format!("mr,ref\n{}", rows(10)));
    let model = "--model gpt,depth=1,width=16,heads=2 --max-length 16";
    let learning =
        "--algorithm none --optimizer adam --learning-rate 0.01 --batch-size 100 --steps 60 --seed 1";
    let answer = place.json(&format!("train --data e2e {model} {learning} --out run"));
    assert!(answer["test_token_loss"].as_f64().unwrap() < 0.5, "{answer}");
    assert!(place.text_with_notes("show run").contains("per token (perplexity"));
    place.write("new.csv", "who,mr\nx,m1\ny,m5\n");
    let table = place.text_with_notes("predict --run run --data new.csv --id who");
    assert_eq!(table, "id,prediction\nx,ok\ny,ok\n");
    // Hashed words cannot be decoded.
    let hashed =
        "--tokenizer hashed,size=64 --algorithm none --batch-size 10 --steps 1 --seed 1 --out hashed";
    place.text_with_notes(&format!("train --data e2e {model} {hashed}"));
    let message = place.refusal("predict --run hashed --data new.csv --id who");
    assert!(message.contains("tokenizer must be bytes, characters or a tokenizer.json"), "{message}");
    assert!(
        place.refusal("data convert e2e --out t.sordino").contains("language models cannot be converted")
    );
}
