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
    ] {
        let message = place.refusal(&format!("train --data t.csv --classes 2 {flags}"));
        assert!(message.contains(part), "{message}");
    }
    assert!(!place.has("runs"));
}
