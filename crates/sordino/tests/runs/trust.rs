//! What a report contains besides epsilon: records that are not covered, weights that were changed, other runs on the same data.

use std::fs;

use serde_json::Value;

use crate::place::Place;
#[cfg(unix)]
use crate::place::interrupted;

#[test]
fn the_report_states_that_held_back_records_are_unprotected() {
    let place = Place::new("held-back");
    let sentence = "1,625 of your 8,124 records were held back for testing and are NOT protected.";
    let text = place.text("train --steps 20 --out a/run");
    assert_eq!(text.lines().nth(1), Some(sentence), "{text}");
    assert_eq!(place.text("show a/run").lines().nth(1), Some(sentence));
    let shown = place.json("show a/run");
    assert_eq!((&shown["held_back_records"], &shown["test_records"]), (&1625.into(), &1625.into()));
    // Nothing is held back, so the report has no such sentence.
    let text = place.text("train --steps 20 --test-fraction 0 --out b/run");
    assert!(!text.contains("protected") && text.lines().nth(1) == Some(""), "{text}");
    assert_eq!(place.json("show b/run")["held_back_records"], 0);
    // A model that is not private protects none of them.
    assert!(!place.text("train --steps 20 --seed 1 --out c/run").contains("held back"));
}

/// Where the weights of a safetensors file begin.
fn data(file: &[u8]) -> usize {
    8 + usize::try_from(u64::from_le_bytes(file[..8].try_into().unwrap())).unwrap()
}

/// A safetensors file with its weights negated.
fn negated(mut file: Vec<u8>) -> Vec<u8> {
    let data = data(&file);
    for value in file[data..].chunks_exact_mut(4) {
        value[3] ^= 0x80;
    }
    file
}

/// A safetensors file whose header has other words of the same length.
fn reworded(file: &[u8], words: &[(&str, &str)]) -> Vec<u8> {
    let header = std::str::from_utf8(&file[8..data(file)]).unwrap();
    let changed = words.iter().fold(header.to_owned(), |header, (old, new)| header.replace(old, new));
    assert!(changed != header && changed.len() == header.len(), "{header}");
    [&file[..8], changed.as_bytes(), &file[data(file)..]].concat()
}

#[test]
fn weights_that_were_changed_have_no_guarantee_and_are_not_applied() {
    let place = Place::new("negated");
    place.text("train --steps 20 --out run");
    assert_eq!(place.json("show run")["weights_covered"], true);
    let path = place.0.join("run/model.safetensors");
    let file = fs::read(&path).unwrap();
    let records: String = "p,x,s,n,t,p,f,c,n,k,e,e,s,s,w,w,p,w,o,p,k,s,u\n".repeat(2);
    place.write("new.csv", &records);
    fs::write(&path, negated(file.clone())).unwrap();
    for command in ["show run", "show run --json", "predict --run run --data new.csv"] {
        let message = place.refusal(command);
        assert!(message.contains("was changed after the run wrote it"), "{command}: {message}");
        assert!(message.contains("Nothing is guaranteed for these weights"), "{command}: {message}");
    }
    // Names of classes are noted with the weights. Exchanged, they turn every prediction around.
    let words = [(r#"[\"e\",\"p\"]"#, r#"[\"p\",\"e\"]"#)];
    fs::write(&path, reworded(&file, &words)).unwrap();
    assert!(place.refusal("show run").contains("was changed"));
    fs::write(&path, &file).unwrap();
    assert!(place.text("show run").contains("satisfies"));
}

/// Weights of a run that is not finished are covered as well, and the run can be resumed even if they were changed.
#[cfg(unix)]
#[test]
fn weights_of_an_unfinished_run_are_covered_and_it_can_be_resumed() {
    let place = Place::new("unfinished");
    interrupted(&place, 6000, "--accountant rdp");
    assert_eq!(place.json("show run")["weights_covered"], true);
    let path = place.0.join("run/model.safetensors");
    let file = fs::read(&path).unwrap();
    fs::write(&path, negated(file)).unwrap();
    assert!(place.refusal("show run").contains("was changed after the run wrote it"));
    place.text_with_notes("train --resume run");
    assert_eq!(place.json("show run")["weights_covered"], true);
}

#[cfg(unix)]
#[test]
fn a_checkpoint_that_was_changed_is_refused() {
    let place = Place::new("checkpoint");
    interrupted(&place, 6000, "--accountant rdp");
    let path = place.0.join("run/checkpoint.safetensors");
    let file = fs::read(&path).unwrap();
    let mut flipped = file.clone();
    *flipped.last_mut().unwrap() ^= 1;
    for changed in [negated(file.clone()), flipped, reworded(&file, &[("\"seconds\":", "\"sec0nds\":")])] {
        fs::write(&path, changed).unwrap();
        let (ledger, message) = (place.read("run/ledger"), place.refusal("train --resume run"));
        assert!(
            message.contains("checkpoint.safetensors")
                && message.contains("was changed after it was written")
        );
        // Nothing is charged for the attempt.
        assert!(place.read("run/ledger").matches("charge").count() == ledger.matches("charge").count());
    }
    fs::write(&path, &file).unwrap();
    place.text_with_notes("train --resume run");
}

/// A ledger of an earlier version: without the hashes of weights, and chained anew.
fn without_hashes(ledger: &str) -> (String, usize, String) {
    use sha2::{Digest, Sha256};
    let (mut text, mut lines, mut last) = (String::new(), 0, [0_u8; 32]);
    for line in ledger.lines().filter(|line| !line.contains("{\"model\":")) {
        let (_, json) = line.split_once(' ').unwrap();
        last = Sha256::new().chain_update(last).chain_update(json).finalize().into();
        let hash: String = last.iter().map(|byte| format!("{byte:02x}")).collect();
        text += &format!("{hash} {json}\n");
        lines += 1;
    }
    (text, lines, last.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[test]
fn a_run_from_before_weights_had_hashes_is_shown_with_a_remark() {
    let place = Place::new("earlier");
    place.text("train --steps 20 --out run");
    let ledger = place.read("run/ledger");
    let (text, lines, last) = without_hashes(&ledger);
    let path = place.0.join("run/model.safetensors");
    let hash = ledger.lines().last().unwrap().split(' ').next().unwrap();
    let count = |lines: usize| format!("\"ledger_lines\":\"{lines}\"");
    let words = [(hash, &*last), (&*count(ledger.lines().count()), &*count(lines))];
    fs::write(&path, reworded(&fs::read(&path).unwrap(), &words)).unwrap();
    place.write("run/ledger", &text);
    let shown = place.text("show run");
    assert!(shown.contains("satisfies") && shown.contains("weights      NOT COVERED"), "{shown}");
    assert_eq!(place.json("show run")["weights_covered"], false);
}

#[test]
fn the_total_of_all_runs_on_the_same_data_is_stated() {
    let place = Place::new("same-data");
    let first = place.json("train --steps 20");
    assert_eq!((&first["runs_on_data"], &first["epsilon_of_all"]), (&1.into(), &first["epsilon"]));
    assert!(!place.text("show runs/1").contains("has been used by"));
    place.text("train --steps 20");
    let third = place.text("train --steps 40 --accountant rdp");
    let shown = place.json("show runs/1");
    let epsilons: Vec<f64> =
        (1..=3).map(|run| place.json(&format!("show runs/{run}"))["epsilon"].as_f64().unwrap()).collect();
    let all = shown["epsilon_of_all"].as_f64().unwrap();
    assert!((all - epsilons.iter().sum::<f64>()).abs() < 1e-9, "{shown}");
    assert_eq!((&shown["runs_on_data"], &shown["delta_of_all"]), (&3.into(), &Value::from(3e-5)));
    // If their plans were fixed beforehand, they are one plan.
    let fixed = shown["epsilon_of_all_if_fixed_beforehand"].as_f64().unwrap();
    assert!(fixed < all && fixed > epsilons[0] && shown["delta_of_all_if_fixed_beforehand"] == 1e-5);
    let sentence = "This data has been used by 3 runs in the folder runs. Together they satisfy (";
    assert!(third.contains(sentence) && third.contains(", 3e-5)-differential privacy, or ("), "{third}");
    assert!(place.text("show runs/2").contains(sentence));
    // Other data and other folders have separate accounts.
    place.write("other.csv", &"0.5,1\n-0.5,0\n".repeat(200));
    let flags = "train --data other.csv --classes 2 --steps 5 --batch-size 50";
    assert_eq!(place.json(flags)["runs_on_data"], 1);
    assert_eq!(place.json("train --steps 20 --out elsewhere/1")["runs_on_data"], 1);
    // Runs under other relations are priced apart; a guarantee under replace-one also holds under zero-out.
    place.text("train --steps 20 --out mixed/1");
    let mixed = place.text("train --steps 20 --sampling fixed-size --out mixed/2");
    assert!(
        mixed.contains(", 2e-5)-differential privacy under add/remove with public N (zero-out).\n"),
        "{mixed}"
    );
    // Another split leaves other records unprotected.
    assert!(!third.contains("different records"));
    let split = place.text("train --steps 20 --split-seed 4");
    assert!(
        split.contains("4 runs") && split.contains("A record that any of them held back is NOT protected")
    );
    // One run that is not private leaves no total.
    place.text("train --steps 20 --seed 1 --out runs/seeded");
    assert!(
        place
            .text("show runs/1")
            .contains("they guarantee NOTHING, because these runs are not private: runs/seeded.")
    );
    let shown = place.json("show runs/1");
    assert_eq!((&shown["epsilon_of_all"], &shown["runs_on_data"]), (&Value::Null, &5.into()));
    fs::remove_dir_all(place.0.join("runs/seeded")).unwrap();
    // A ledger that cannot be read is reported. A run that never began is ignored.
    fs::create_dir(place.0.join("runs/killed")).unwrap();
    place.write("runs/killed/config.toml", "");
    place.write("runs/killed/ledger", "0123");
    assert_eq!(place.json("show runs/1")["runs_on_data"], 4);
    let ledger = place.read("runs/2/ledger");
    place.write("runs/2/ledger", &ledger.replace("6499", "9999"));
    let text = place.text("show runs/1");
    assert!(
        text.contains("satisfies") && text.contains("NOT KNOWN: ") && text.contains("runs/2/ledger"),
        "{text}"
    );
    assert_eq!(place.json("show runs/1")["epsilon_of_all"], Value::Null);
    // A run that has lost its ledger has still used the data.
    place.write("runs/2/ledger", "");
    for _ in 0..2 {
        let text = place.text("show runs/1");
        assert!(text.contains("NOT KNOWN: ") && text.contains("runs/2 is missing or empty"), "{text}");
        assert!(place.refusal("show runs/2").contains("although its run has begun"));
        let _ = fs::remove_file(place.0.join("runs/2/ledger"));
    }
}

#[test]
fn a_comparison_says_which_records_are_not_protected() {
    let place = Place::new("compared");
    let text = place.text("compare --algorithms dp-sgd --repeats 2 --steps 20");
    assert!(
        text.contains("\n1,625 of your 8,124 records were held back for testing and are NOT protected.\n"),
        "{text}"
    );
}

/// `fixtures/earlier-run` was trained by version 0.1.0 before settings moved into the library, and was interrupted.
#[test]
fn a_run_of_an_earlier_version_is_shown_predicted_with_and_resumed() {
    let place = Place::new("fixture");
    fs::create_dir(place.0.join("run")).unwrap();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/earlier-run");
    for entry in fs::read_dir(fixture).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), place.0.join("run").join(entry.file_name())).unwrap();
    }
    let shown = place.json("show run");
    assert_eq!((&shown["steps"], &shown["finished"]), (&265.into(), &Value::Bool(false)));
    assert_eq!((&shown["algorithm"], &shown["weights_covered"]), (&"quantile".into(), &Value::Bool(true)));
    assert_eq!(place.text_with_notes("predict --run run --data mushroom").lines().count(), 8125);
    let resumed: Value = serde_json::from_str(&place.text_with_notes("train --resume run --json")).unwrap();
    assert_eq!((&resumed["steps"], &resumed["finished"]), (&20_000.into(), &Value::Bool(true)));
    assert_eq!(resumed["epsilon"], shown["epsilon"]);
}
