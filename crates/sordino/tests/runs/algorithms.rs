//! `train --algorithm`, `algorithms` and `compare`.

use serde_json::Value;

use crate::place::Place;
#[cfg(unix)]
use crate::place::{interrupted, interrupted_at};

#[test]
fn every_algorithm_of_the_registry_trains_within_its_budget() {
    let place = Place::new("algorithms");
    let listed: Value = serde_json::from_str(&place.text("algorithms --json")).unwrap();
    let text = place.text("algorithms");
    assert!(text.starts_with("Which algorithm?\n  When in doubt, use dp-sgd"), "{text}");
    for algorithm in listed.as_array().unwrap() {
        let name = algorithm["name"].as_str().unwrap();
        assert!(text.contains(name));
        assert!(
            include_str!("../../../../docs/algorithms.md").contains(&format!("`{name}`")),
            "{name} is not in the docs"
        );
        let flags = format!("train --algorithm {name} --steps 60 --optimizer momentum --out {name} --json");
        let answer: Value = serde_json::from_str(&place.text_with_notes(&flags)).unwrap();
        assert_eq!((&answer["algorithm"], &answer["finished"]), (&Value::from(name), &Value::Bool(true)));
        let epsilon = answer["epsilon"].as_f64();
        let claimed = answer["claimed_epsilon"].as_f64();
        let provable = answer["provable_epsilon"].as_f64();
        let infinite = epsilon.is_none() && provable.is_none();
        assert_eq!(answer["epsilon_infinite"], Value::Bool(infinite), "{name}");
        match algorithm["promise"].as_str().unwrap() {
            "sound" => assert!(
                epsilon.unwrap() <= 1.0 && claimed.is_none() && provable.is_none(),
                "{name}: {answer}"
            ),
            "as-published" => assert!(
                claimed == Some(1.0) && epsilon.is_none() && provable.is_none_or(|epsilon| epsilon > 1.0),
                "{name}: {answer}"
            ),
            _ => assert!(name == "none" && epsilon.is_none() && claimed.is_none()),
        }
    }
    for (flags, part) in [
        ("--algorithm nope", "one of dp-sgd"),
        ("--algorithm dp-sgd,mu_growth=2", "mu_growth belongs to dynamic, not to dp-sgd"),
        ("--algorithm dc-sgd-p,percentile=1.5", "percentile must be above 0 and below 1, got 1.5"),
        ("--algorithm dynamic,mu_grow=2", "mu_grow"),
        (
            "--algorithm dynamic,clip_decay=1000 --max-grad-norm 1e-11 --learning-rate 1",
            "between 1e-12 and 1e12",
        ),
        ("--algorithm dynamic --steps 10000000000", "at most 1000000 different steps"),
        ("--algorithm quantile,count_noise=1", "count_noise must be above"),
        ("--max-grad-norm 1e-20", "clipping norms must be between"),
        ("--algorithm dp-sgd,window=3", "window belongs to dice, not to dp-sgd"),
        ("--algorithm dice --sampling full-batch", "dice needs Poisson sampling without a cap"),
        ("--algorithm dice --noise-multiplier 5", "chosen for a budget"),
        ("--algorithm dice,window=90", "is too large for 91 groups"),
        ("--algorithm dp-c4,routine=5", "routine must be between 1 and 4, got 5"),
        ("--algorithm dp-c4,anchor_batch=100000", "anchor_batch must be at most the number of records"),
        ("--algorithm dp-c4,update_probability=0", "update_probability must be between 1e-6 and 1, got 0"),
        ("--algorithm dice,residual_clip=0", "residual_clip must be between 1e-9 and 1e9, got 0"),
        ("--algorithm dice,window=0", "window must be between 1 and "),
        ("--algorithm band-mf --sampling full-batch", "band-mf needs Poisson sampling without a cap"),
        ("--algorithm band-mf --noise-multiplier 5", "chosen for a budget"),
        ("--algorithm band-mf,band=90", "band must be at most 25, got 90"),
        ("--algorithm band-mf,band=0", "band must be between 1 and "),
        ("--algorithm band-mf,momentum=1", "momentum must be between 0 and 0.999, got 1"),
        ("--algorithm quantile,count_noise=0", "count_noise must be above 0"),
        (
            "--algorithm dp-c4-published --noise-multiplier 1",
            "follows from the epsilon that its paper claims",
        ),
        ("--algorithm dp-c4-published --accountant pld", "no accountant prices it"),
        ("--algorithm dice-published --accountant pld", "no accountant prices it"),
        ("--algorithm dice-published,gradient_clip=1", "needs thresholds=theorem"),
        ("--algorithm dp-sgd,noise=dp-c4-paper --accountant gdp-clt", "accountant has no effect here"),
        ("--algorithm dice-published,thresholds=theorem,feedback_clip=1", "C_1 <= C_2 <= C / B"),
        ("--algorithm dice-published,feedback_clip=0", "feedback_clip must be between 1e-9 and 1e9, got 0"),
        ("--algorithm dp-sgd,noise=dp-c4-paper --noise-multiplier 3", "noise=dp-c4-paper sets the noise"),
        ("--algorithm dynamic,mu_schedule=0:1/0:2", "increasing fractions of the run"),
        ("--algorithm dynamic,mu_growth=2,mu_schedule=0:1/1:2", "both set the change of the noise"),
        ("--algorithm dynamic,mu_growth=@steps.txt", "mu_growth is not read from a file"),
        ("--algorithm dynamic,mu_schedule=@nosuch.txt", "cannot read nosuch.txt"),
        ("--algorithm dp-c4,anchor_scale=@nosuch.txt", "cannot read nosuch.txt"),
        ("--algorithm dp-c4,anchor_scale=much", "neither a number nor a schedule"),
        ("--algorithm dp-c4,anchor_scale=true", "expected a number or text"),
        ("--algorithm dc-sgd-e,bins=-1", "expected a whole number, got -1"),
        ("--algorithm dice-published,feedback_clip=nan", "expected a number, got \"nan\""),
        ("--algorithm dice-published --test-set protected --measurements 3", "or is not private"),
        ("--algorithm dynamic,allocation=curvature", "must be given together"),
        ("--algorithm noise-decay-zcdp --sampling fixed-size", "uses disjoint batches, not fixed-size"),
    ] {
        let message = place.refusal(&format!("train {flags}"));
        assert!(message.contains(part), "{flags}: {message}");
    }
}

#[test]
fn algorithms_are_compared_at_equal_budgets() {
    let place = Place::new("compare");
    let text = place
        .text("compare --algorithms dp-sgd,dynamic,mu_growth=3,none --steps 40 --repeats 3 --out rows.json");
    assert_eq!(text.lines().count(), 12, "{text}");
    // Fewer than half of the test records are poisonous.
    assert!(text.contains("Always predicting the most frequent class has an accuracy of 5"), "{text}");
    assert!(text.contains("dynamic,mu_growth=3") && text.contains("NOT PRIVATE"), "{text}");
    assert!(
        text.contains(
            "All 9 runs together guarantee NOTHING, because runs of these algorithms are not private: none."
        ),
        "{text}"
    );
    let found: Value = serde_json::from_str(&place.read("rows.json")).unwrap();
    assert_eq!((&found["epsilon_of_all"], &found["not_private"]), (&Value::Null, &Value::from(vec!["none"])));
    for row in found["rows"].as_array().unwrap() {
        assert_eq!(row["test_accuracies"].as_array().unwrap().len(), 3);
        assert!(row["epsilon"].as_f64().is_none_or(|epsilon| epsilon <= 1.0));
    }
    assert!(!place.has("runs"));
    // Settings are for those that have a use for them, and seeds differ from run to run.
    let flags = "compare --algorithms dp-sgd,none --epsilon 2 --max-grad-norm 0.2 --seed 3 --steps 5 --repeats 2 --json";
    let found: Value = serde_json::from_str(&place.text(flags)).unwrap();
    assert_eq!(found["not_private"], Value::from(vec!["dp-sgd", "none"]));
    let rows = &found["rows"];
    let accuracies = rows[0]["test_accuracies"].as_array().unwrap();
    assert_ne!(accuracies[0], accuracies[1]);
    assert_eq!(rows[0]["private"], false);
    for (flags, part) in [
        ("--algorithm dp-sgd", "--algorithms"),
        ("--repeats 0", "repeats must be at least 1"),
        ("--algorithms nope", "got nope"),
        ("--test-fraction 0", "needs test records"),
    ] {
        let message = place.refusal(&format!("compare {flags}"));
        assert!(message.contains(part), "{flags}: {message}");
    }
}

/// The total cost of a comparison is the price of all its plans as one plan, if one accountant can price them all.
#[test]
fn a_comparison_says_what_all_its_runs_cost_together() {
    let place = Place::new("total");
    let found = place.json("compare --algorithms dp-sgd --steps 30 --noise-multiplier 4 --repeats 5");
    let long =
        place.json("epsilon --noise-multiplier 4 --sample-rate 0.0393906754885367 --steps 150 --delta 1e-5");
    assert_eq!(
        (&found["epsilon_of_all"], &found["delta_of_all"]),
        (&long["epsilon"], &Value::from(1e-5)),
        "{found}"
    );
    let one = found["rows"][0]["epsilon"].as_f64().unwrap();
    assert!(found["epsilon_of_all"].as_f64().unwrap() < 5.0 * one);
    // An algorithm as published has no guarantee, so there is no total.
    let found = place.json("compare --algorithms dp-sgd,dice-published --steps 60 --repeats 2");
    assert_eq!(
        (&found["epsilon_of_all"], &found["not_private"]),
        (&Value::Null, &Value::from(vec!["dice-published"]))
    );
}

/// The files of a schedule are part of the run: it is resumed without the originals, and not if they were changed.
#[cfg(unix)]
#[test]
fn a_schedule_from_files_is_stored_with_the_run() {
    let place = Place::new("schedule-files");
    let factors: String = (1..=6000).map(|t| format!("{}\n", 1.0 + f64::from(t) / 6000.0)).collect();
    place.write("mu.txt", &factors);
    place.write("clip.txt", &factors);
    interrupted(&place, 6000, "--algorithm dynamic,mu_schedule=@mu.txt,clip-schedule=@clip.txt");
    assert!(
        place
            .read("run/config.toml")
            .contains("mu_schedule=@mu_schedule.txt,clip-schedule=@clip_schedule.txt")
    );
    assert_eq!(place.read("run/clip_schedule.txt"), factors);
    place.write("mu.txt", "1\n");
    place.write("run/clip_schedule.txt", &factors.replace("2\n", "1.9\n"));
    assert!(place.refusal("train --resume run").contains("differ from those in the ledger"));
    place.write("run/clip_schedule.txt", &factors);
    let resumed = place.text_with_notes("train --resume run --json");
    assert_eq!(serde_json::from_str::<Value>(&resumed).unwrap()["finished"], true);
    let message = place.refusal("train --algorithm dynamic,mu_schedule=@mu.txt --steps 7");
    assert!(message.contains("1 steps, but the run has 7"), "{message}");
}

/// A record is in one batch of each epoch. Three epochs of 26 batches cost as much as three full batches.
#[test]
fn disjoint_batches_cost_one_full_batch_for_each_epoch() {
    let place = Place::new("disjoint");
    let run = place
        .json("train --algorithm noise-decay-zcdp,noise_decay=1 --noise-multiplier 8 --steps 76 --out run");
    let full =
        place.json("epsilon --noise-multiplier 8 --sample-rate 1 --steps 3 --delta 1e-5 --accountant zcdp");
    assert_eq!(run["epsilon"], full["epsilon"]);
    let text = place.text("show run");
    assert!(text.contains("a fixed partition into 26 batches, taken in turn, over 76 steps"), "{text}");
    // A run with fixed-size batches is priced by tCDP under replace-one.
    let run = place.json("train --algorithm noise-decay-tcdp --sampling fixed-size --steps 20 --out other");
    assert_eq!((&run["relation"], &run["accountant"]), (&"replace-one".into(), &"tcdp".into()));
}

#[cfg(unix)]
#[test]
fn an_adaptive_clipping_norm_is_stored_in_a_checkpoint() {
    let place = Place::new("threshold");
    interrupted(&place, 60_000, "--algorithm quantile --accountant rdp");
    assert!(place.read("run/checkpoint.safetensors").contains("algorithm.clip"));
    let resumed = place.text_with_notes("train --resume run --json");
    assert_eq!(serde_json::from_str::<Value>(&resumed).unwrap()["finished"], true);
}

/// The claimed and the proved epsilon are stated before the run, after it, and by `show`.
#[test]
fn algorithms_as_published_warn_and_say_what_is_proved() {
    let place = Place::new("published");
    let output = place.run("train --algorithm dice-published,thresholds=theorem --steps 60 --out dice");
    let (said, noted) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(noted.contains("warning: epsilon 1 is claimed, epsilon"), "{noted}");
    assert!(noted.contains("--algorithm dice"), "{noted}");
    for part in [
        "WARNING",
        "claimed      epsilon 1 at delta 1e-5, by Theorem 3.8 of Zhang et al. 2023",
        "proved       epsilon",
        "--algorithm dice",
        "first-participation",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(place.text("show dice").contains("WARNING"));
    for (options, formula) in [
        ("", "by Theorem 3.8 of Zhang et al. 2023 (whose conditions exclude these clipping norms)"),
        (",automatic=true", "by section C.4 of Zhang et al. 2023\n"),
        (",feedback_clip=3", "(whose conditions exclude these clipping norms)"),
        (",noise=dp-c4-paper,feedback_clip=3", "by Algorithm 5 of the DP-C4 paper"),
    ] {
        let text = place.text_with_notes(&format!("train --algorithm dice-published{options} --steps 5"));
        assert!(text.contains(formula), "{options}: {text}");
    }
    let theorem =
        place.refusal("train --algorithm dice-published,automatic=true,thresholds=theorem --steps 5");
    assert!(theorem.contains("automatic=true normalises"), "{theorem}");
    let seeded = place.run("train --algorithm dice-published --steps 60 --seed 3 --out seeded");
    let noted = String::from_utf8(seeded.stderr).unwrap();
    assert!(noted.contains("warning: epsilon 1 is claimed, nothing is proved"), "{noted}");
    let text = place.text_with_notes("train --algorithm dp-c4-plus-published --steps 60 --out c4");
    assert!(text.starts_with("This logistic model is NOT PRIVATE.") && !text.contains("satisfies"), "{text}");
    assert!(text.contains("proved       nothing") && text.contains("raw gradients"), "{text}");
    let shown = place.json("show c4");
    let symbols = [0, 1].map(|index| shown["published_noise"][index]["symbol"].as_str().unwrap());
    assert_eq!(symbols, ["sigma_1", "sigma_2"]);
    assert!(text.contains("as published  sigma_2"), "{text}");
    let large = place.run("train --algorithm dice-published --batch-size 2000 --steps 60 --out large");
    let noted = String::from_utf8(large.stderr).unwrap();
    assert!(noted.contains("note: Theorem 3.8 of DiceSGD needs B / N <= 1/5"), "{noted}");
    assert_eq!((&shown["epsilon"], &shown["epsilon_infinite"]), (&Value::Null, &Value::Bool(true)));
    assert!(place.read("c4/ledger").contains("come from raw gradients and set the scale of the noise"));
    assert!(place.read("c4/config.toml").starts_with("# NOT PRIVATE"));
}

/// The noise of the DP-C4 paper follows from its claim. The run stays sound, and its proved epsilon is that of its plan.
#[test]
fn sound_runs_with_the_noise_of_the_dp_c4_paper_prove_less_than_it_claims() {
    let place = Place::new("dp-c4-noise");
    for (name, parts) in [("dp-sgd", 1), ("dp-svrg", 3)] {
        let flags = format!("train --algorithm {name},noise=dp-c4-paper --steps 60 --out {name}");
        let output = place.run(&flags);
        let (said, noted) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(noted.contains("epsilon 1 is claimed, epsilon 0.0"), "{noted}");
        for part in ["satisfies (0.0", "NOTE: the noise of this run is set by a claim", "of the DP-C4 paper"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains("WARNING") && !said.contains("NOT PRIVATE"), "{said}");
        let shown = place.json(&format!("show {name}"));
        let epsilon = shown["epsilon"].as_f64().unwrap();
        assert!(epsilon < 0.1 && shown["claimed_epsilon"] == 1.0 && shown["private"] == true, "{shown}");
        assert_eq!(shown["published_noise"].as_array().unwrap().len(), parts, "{shown}");
    }
    // 4 T (2 ln(1/delta) + epsilon) / (|S| epsilon)^2, and the multiplier on the sum of 256 records.
    let noise = &place.json("show dp-sgd")["published_noise"][0];
    let sigma = (4.0 * 60.0 * (2.0 * 1e5_f64.ln() + 1.0)).sqrt() / 256.0;
    assert!((noise["sigma"].as_f64().unwrap() / sigma - 1.0).abs() < 1e-9, "{noise}");
    assert!((noise["noise_multiplier"].as_f64().unwrap() / (256.0 * sigma) - 1.0).abs() < 1e-9, "{noise}");
}

/// The noise of the central limit theorem costs more than it says.
#[test]
fn the_central_limit_theorem_sets_noise_and_the_report_says_what_it_costs() {
    let place = Place::new("clt");
    let flags = "train --algorithm dynamic,mu_growth=8 --accountant gdp-clt --steps 200 --out run --json";
    let answer: Value = serde_json::from_str(&place.text_with_notes(flags)).unwrap();
    let (proved, claimed) =
        (answer["epsilon"].as_f64().unwrap(), answer["claimed_epsilon"].as_f64().unwrap());
    assert!(claimed <= 1.0 && claimed > 0.99 && proved > 1.005 * claimed, "{answer}");
    assert_eq!(answer["accountant"], "pld");
    let refused = place.refusal("train --accountant gdp-clt --noise-multiplier 0.5 --epsilon 0.1");
    assert!(refused.contains("the budget is 0.1"), "{refused}");
    assert!(place.text("show run").contains("central limit theorem"));
}

#[test]
fn the_best_of_a_list_of_settings_is_shown() {
    let place = Place::new("tune");
    place.write(
        "grid.toml",
        "learning_rate = [0.001, 40]\n[dynamic]\nlearning_rate = [40]\nmu_growth = [3]\n",
    );
    let text = place
        .text("compare --algorithms dp-sgd,dynamic --tune grid.toml --steps 60 --repeats 2 --out rows.json");
    assert!(text.contains("learning_rate=40") && !text.contains("learning_rate=0.001"), "{text}");
    assert!(text.contains("the epsilon of all runs together does"), "{text}");
    let found: Value = serde_json::from_str(&place.read("rows.json")).unwrap();
    // Candidates that were not chosen count, too.
    assert!(text.contains("All 6 runs together satisfy (") && found["runs"] == 6, "{text}");
    let best: Vec<bool> =
        found["rows"].as_array().unwrap().iter().map(|row| row["best"].as_bool().unwrap()).collect();
    assert_eq!(best, [false, true, true]);
    assert_eq!(found["rows"][2]["tuned"], serde_json::json!({"learning_rate": 40, "mu_growth": 3}));
    place.write("wrong.toml", "learning_rate = 3\n");
    assert!(place.refusal("compare --tune wrong.toml").contains("not a list"));
    place.write("stray.toml", "[stray]\nlearning_rate = [3]\n");
    assert!(place.refusal("compare --tune stray.toml").contains("[stray] is not among"));
    place.write("budget.toml", "epsilon = [1, 8]\n");
    assert!(place.refusal("compare --tune budget.toml").contains("epsilon cannot be tuned"));
    // What is there is not overwritten.
    assert!(place.refusal("compare --steps 5 --repeats 1 --out rows.json").contains("exists already"));
}

#[test]
fn all_settings_of_a_grid_are_shown_as_a_table_and_a_picture() {
    let place = Place::new("heat-map");
    place.write("grid.toml", "learning_rate = [0.001, 4, 40]\nmax_grad_norm = [0.5, 1]\n");
    let command = "compare --algorithms dp-sgd --tune grid.toml --steps 20 --repeats 1 --seed 1";
    let text = place.text(&format!("{command} --figure map.svg"));
    assert!(text.contains("max_grad_norm \\ learning_rate   0.001"), "{text}");
    let svg = place.read("map.svg");
    for part in ["learning_rate", "max_grad_norm", "0.001", "accuracy in %", "dp-sgd"] {
        assert!(svg.contains(&format!(">{part}<")), "{part}: {svg}");
    }
    let markdown = place.text(&format!("{command} --markdown"));
    assert!(
        markdown.contains("| max_grad_norm \\ learning_rate | 0.001 | 4 | 40 |\n| --- | ---:"),
        "{markdown}"
    );
    assert!(markdown.contains("| algorithm | mean |"), "{markdown}");
    // An existing file, and a grid without several values, are refused before any run.
    assert!(place.refusal(&format!("{command} --figure map.svg")).contains("exists already"));
    place.write("one.toml", "learning_rate = [4]\n");
    let refused = place.refusal("compare --algorithms dp-sgd --tune one.toml --steps 20 --figure other.svg");
    assert!(refused.contains("no setting of the grid has several values"), "{refused}");
    assert!(!place.0.join("other.svg").exists());
}

/// Runs that are finished when a comparison is stopped are not lost.
#[cfg(unix)]
#[test]
fn an_interrupted_comparison_shows_its_finished_runs() {
    let place = Place::new("stopped");
    let command = "compare --algorithms dp-sgd,dynamic --steps 30 --repeats 10000 --out rows.json";
    // Nothing is written before the end, so the comparison gets some time for its first runs.
    place.write("begun", "");
    let output = interrupted_at(&place, command, "begun", std::time::Duration::from_secs(5));
    assert_eq!(output.status.code(), Some(130));
    let (said, noted) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(said.contains("dp-sgd") && !said.contains("dynamic"), "{said}");
    assert!(noted.contains("of 20000 runs are finished"), "{noted}");
    let found: Value = serde_json::from_str(&place.read("rows.json")).unwrap();
    let rows = &found["rows"];
    let counted = rows[0]["test_accuracies"].as_array().unwrap().len();
    // A run that began and was not finished has spent privacy budget, too.
    assert!(found["runs"].as_u64().unwrap() >= counted as u64 && found["epsilon_of_all"].is_f64());
    assert!(rows.as_array().unwrap().len() == 1 && (1..10_000).contains(&counted), "{counted}");
    // Nothing else is left behind.
    assert_eq!(std::fs::read_dir(&place.0).unwrap().count(), 2);
}

/// Anchors and errors are public and stored in a checkpoint. Residuals are private and never stored on disk.
#[cfg(unix)]
#[test]
fn public_state_is_stored_in_a_checkpoint_and_private_state_is_not() {
    for (name, kept) in [
        ("dp-c4", vec!["algorithm.anchor_gradient", "algorithm.length"]),
        ("dp-svrg,routine=1", vec!["algorithm.anchor", "algorithm.previous"]),
        ("dice-two-release", vec!["algorithm.error"]),
        ("dice,window=8", vec![]),
        ("band-mf,band=8", vec![]),
    ] {
        let place = Place::new(&format!("memory-{}", name.replace(',', "-")));
        interrupted(&place, 6000, &format!("--algorithm {name} --accountant rdp"));
        let checkpoint = place.read("run/checkpoint.safetensors");
        for part in &kept {
            assert!(checkpoint.contains(part), "{name}: {part}");
        }
        assert_eq!(checkpoint.contains("algorithm."), !kept.is_empty(), "{name}");
        let resumed: Value =
            serde_json::from_str(&place.text_with_notes("train --resume run --json")).unwrap();
        assert_eq!(resumed["finished"], true, "{name}");
    }
}

/// 6,499 training records: an epoch has 25.4 batches of 256, or 12.7 anchors of 512. With `p = 1` in routine 4 every step is an anchor.
#[test]
fn epochs_count_the_records_of_anchors_where_that_is_chosen() {
    let place = Place::new("epochs");
    for (name, number) in [("dp-c4-published", 0), ("dp-c4-plus-published", 1), ("dp-c4", 2), ("dp-svrg", 3)]
    {
        for (counted, steps) in [("", 51), (",epochs_count_anchors=true", 25)] {
            let algorithm = format!("{name},routine=4,anchor_batch=512{counted}");
            let command = format!("train --algorithm {algorithm} --epochs 2 --out run-{number}-{steps}");
            let report: Value =
                serde_json::from_str(&place.text_with_notes(&format!("{command} --json"))).unwrap();
            assert_eq!(report["planned_steps"], steps, "{algorithm}");
            assert_eq!(report["private"], !name.ends_with("published"), "{algorithm}");
        }
    }
    // With B + p B_a = 256 + 512 records in a step.
    let command = "train --algorithm dp-svrg,routine=1,epochs_count_anchors=true --epochs 6 --out run";
    let report = place.json(command);
    let (steps, plan) = (50.8, report["planned_steps"].as_f64().unwrap());
    // A step that moves the anchor is two steps of the plan; p is 1/8.
    assert!((plan / steps - 1.125).abs() < 0.2, "{plan}");
}

#[test]
fn a_comparison_says_which_of_its_arguments_is_wrong() {
    let place = Place::new("compare-arguments");
    let message = place.refusal("compare --repeats 0");
    assert!(
        message.contains("repeats must be at least 1, got 0") && !message.contains("--algorithms"),
        "{message}"
    );
    let message = place.refusal("compare --algorithm dice");
    assert!(message.contains("takes --algorithms, got --algorithm dice"), "{message}");
    let help = place.text("compare --help");
    assert!(help.contains("--algorithms <") && !help.contains("--algorithm <"), "{help}");
}
