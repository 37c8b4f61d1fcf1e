//! `sordino tune`: searches for settings with one guarantee.

use std::{collections::BTreeSet, fs};

use crate::place::Place;
#[cfg(unix)]
use crate::place::interrupted_at;

/// Six candidates that take a fraction of a second each.
fn space(place: &Place) {
    place.write("space.toml", "learning_rate = [1, 4, 16]\nmax_grad_norm = [0.1, 1]\n");
}

const TUNE: &str = "tune --space space.toml --epsilon 2 --steps 30";
const SHORT: &str = "tune --space space.toml --epsilon 2 --steps 3 --trials 6";

#[test]
fn a_dry_run_states_what_the_search_costs_and_trains_nothing() {
    let place = Place::new("tune-dry-run");
    space(&place);
    let cost = place.json(&format!("{TUNE} --trials 8 --dry-run"));
    let number = |key: &str| cost[key].as_f64().unwrap();
    assert!(number("epsilon") <= 2.0 && number("epsilon") > 1.97, "{cost}");
    assert!((number("mean_trials") - 8.0).abs() < 1e-6);
    assert!(number("trial_epsilon") < number("epsilon") && number("epsilon") < number("epsilon_composition"));
    assert!(number("epsilon_composition") < number("epsilon_sum"));
    let candidates = cost["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 6);
    for candidate in candidates {
        let noise = candidate["noise_multiplier"].as_f64().unwrap();
        assert!(noise > number("single_noise_multiplier"), "{candidate}");
    }
    let text = place.text(&format!("{TUNE} --dry-run"));
    for part in
        ["6 on average", "the number stays secret", "NOT protected", "by composition", "What costs nothing"]
    {
        assert!(text.contains(part), "{text}");
    }
    assert!(!place.has("runs"));
}

#[test]
fn a_search_on_protected_records_has_one_guarantee_for_all_records() {
    let place = Place::new("tune-protected");
    space(&place);
    let dry = place.json(&format!("{TUNE} --test-set protected --dry-run"));
    let measuring = dry["measuring_epsilon"].as_f64().unwrap();
    assert!(measuring > 0.5 && measuring <= dry["trial_epsilon"].as_f64().unwrap(), "{dry}");
    let text = place.text_with_notes(&format!("{TUNE} --test-set protected --out run"));
    for part in
        ["Selected: dp-sgd with", "protected by the same guarantee", "the guarantee covers all trials"]
    {
        assert!(text.contains(part), "{text}");
    }
    let shown = place.json("show run");
    assert_eq!(
        (&shown["epsilon"], &shown["delta"], &shown["finished"]),
        (&dry["epsilon"], &dry["delta"], &true.into())
    );
    assert!(shown["private"] == true && shown["weights_covered"] == true, "{shown}");
    assert!(place.read("run/config.toml").starts_with("# Selected by a search"));
    assert!(place.text_with_notes("predict --run run --data mushroom").lines().count() > 8000);
    let page = place.text("report run --format md --out report.md") + &place.read("report.md");
    assert!(page.contains("the guarantee covers the whole search") && page.contains("**Search**"), "{page}");
    // The ledger has the terms and one measurement budget, but no number of trials.
    let ledger = place.read("run/ledger");
    assert!(
        ledger.contains("\"search\"") && ledger.contains("\"measuring\"") && !ledger.contains("\"measured\"")
    );
    // It counts in the total of the folder.
    place.text_with_notes(&format!("{TUNE} --test-set protected --out second"));
    let total = place.json("show second")["epsilon_of_all"].as_f64().unwrap();
    assert!((total - 2.0 * dry["epsilon"].as_f64().unwrap()).abs() < 1e-6, "{total}");
}

/// Twelve searches have different numbers of trials, but their files and messages have the same shape.
#[test]
fn nothing_but_the_time_depends_on_the_number_of_trials() {
    let place = Place::new("tune-shape");
    space(&place);
    let mut shapes = BTreeSet::new();
    for seed in 0..12 {
        let output = place.run(&format!("{SHORT} --seed {seed} --out {seed}/run"));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("NOT PRIVATE"), "{text}");
        let notes = String::from_utf8(output.stderr).unwrap();
        let lines = |file: &str| place.read(&format!("{seed}/run/{file}")).lines().count();
        let entries = fs::read_dir(place.0.join(format!("{seed}/run"))).unwrap();
        let files: BTreeSet<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        // What is printed at the end is about the selected run alone.
        shapes.insert((notes, lines("ledger"), lines("metrics.jsonl"), files));
    }
    assert_eq!(shapes.len(), 1, "{shapes:?}");
    // A seeded search can be repeated.
    place.text_with_notes(&format!("{SHORT} --seed 5 --out again/run"));
    let hash = |run: &str| place.read(&format!("{run}/ledger")).lines().nth(3).unwrap()[64..].to_owned();
    assert_eq!(hash("again/run"), hash("5/run"));
}

#[test]
fn algorithms_can_be_searched_together() {
    let place = Place::new("tune-algorithms");
    place.write("space.toml", "learning_rate = [2, 8]\n[dc-sgd-p]\npercentile = [0.3, 0.7]\n");
    let cost =
        place.json("tune --space space.toml --algorithms dp-sgd,dc-sgd-p --epsilon 1 --steps 20 --dry-run");
    let names: Vec<&str> =
        cost["candidates"].as_array().unwrap().iter().map(|one| one["algorithm"].as_str().unwrap()).collect();
    assert_eq!(names, ["dp-sgd", "dp-sgd", "dc-sgd-p", "dc-sgd-p", "dc-sgd-p", "dc-sgd-p"]);
    assert!(cost["epsilon"].as_f64().unwrap() <= 1.0);
}

#[test]
fn searches_without_a_guarantee_are_refused_before_anything_is_spent() {
    let place = Place::new("tune-refused");
    space(&place);
    for (flags, problem) in [
        ("--trials 1", "above 1 and at most 100, got 1"),
        ("--trials 5000", "above 1 and at most 100, got 5000"),
        ("--eta -0.9", "at least -0.5, got -0.9"),
        ("--noise-multiplier 2", "privacy budget"),
        ("--algorithm dice-published", "has no guarantee"),
        ("--algorithm dp-sgd,noise=dp-c4-paper", "the noise of a search follows from its privacy budget"),
        ("--algorithm none", ""),
        ("--test-fraction 0", "needs test records"),
        ("--epsilon 0", ""),
    ] {
        let flags = flags.to_owned();
        let base = if flags.starts_with("--epsilon") { "tune --space space.toml --steps 30" } else { TUNE };
        let message = place.refusal(&format!("{base} {flags} --out refused"));
        assert!(message.contains(problem), "{flags}: {message}");
        assert!(!place.has("refused/ledger"), "{flags}");
    }
    place.write("one.toml", "learning_rate = [4]\n");
    assert!(place.refusal("tune --space one.toml --epsilon 1").contains("a search needs at least 2"));
    place.write("twice.toml", "learning_rate = [4, 2, 4]\n");
    assert!(place.refusal("tune --space twice.toml --epsilon 1").contains("twice"));
    place.write("wrong.toml", "epsilon = [1, 2]\n");
    assert!(place.refusal("tune --space wrong.toml --epsilon 1").contains("epsilon cannot be tuned"));
    assert!(place.refusal("tune --space missing.toml --epsilon 1").contains("missing.toml"));
}

#[test]
fn a_search_cannot_be_resumed() {
    let place = Place::new("tune-resume");
    space(&place);
    place.text_with_notes(&format!("{SHORT} --out run"));
    let message = place.refusal("train --resume run");
    assert!(message.contains("cannot be resumed") && message.contains("new budget"), "{message}");
    assert!(place.refusal(&format!("{TUNE} --out run")).contains("is not empty"));
}

#[cfg(unix)]
#[test]
fn a_search_that_is_stopped_has_spent_its_budget_and_releases_nothing() {
    let place = Place::new("tune-stopped");
    space(&place);
    let command = "tune --space space.toml --epsilon 2 --steps 20000 --trials 20 --out run";
    let output = interrupted_at(&place, command, "run/ledger", std::time::Duration::from_millis(100));
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{message}");
    assert!(message.contains("its whole privacy budget is spent, and nothing is released"), "{message}");
    assert!(
        output.stdout.is_empty() && !place.has("run/model.safetensors") && !place.has("run/metrics.jsonl")
    );
    let shown = place.json("show run");
    let epsilon = shown["epsilon"].as_f64().unwrap();
    assert!(shown["finished"] == false && epsilon > 1.9 && epsilon <= 2.0, "{shown}");
    assert!(place.text("show run").starts_with("This search, which did not finish, satisfies"));
}
