//! The commands that price plans, as a user runs them: results on standard output, errors on standard error.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

use std::process::{Command, Output};

use serde_json::Value;

fn sordino(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sordino")).args(arguments.split_whitespace()).output().unwrap()
}

fn text(arguments: &str) -> String {
    let output = sordino(arguments);
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty());
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &str) -> Value {
    serde_json::from_str(&text(&format!("{arguments} --json"))).unwrap()
}

/// Writes a plan file.
fn plan_file(name: &str, content: &str) -> String {
    let path = std::env::temp_dir().join(format!("sordino-{}-{name}.json", std::process::id()));
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

const MNIST: &str = "--noise-multiplier 1.1 --sample-rate 0.004 --steps 15000 --delta 1e-5";

#[test]
fn epsilon_reads_like_a_statement() {
    assert_eq!(
        text(&format!("epsilon {MNIST}")),
        "This plan satisfies (2.2957, 1e-5)-differential privacy.

  epsilon      2.2957
  delta        1e-5
  protects     one record, relation add/remove with public N (zero-out): present, or replaced by nothing
  sampling     Poisson sampling at rate 0.004, fresh at each of 15,000 steps
  noise        Gaussian, multiplier 1.1 (standard deviation / sensitivity of a step's releases)
  accountant   pld: privacy loss distributions, composed numerically
  status       PROVED upper bound, for noise in real arithmetic; the exact value lies in [2.2945, 2.2957]
"
    );
}

#[test]
fn epsilon_as_json_has_its_keys() {
    let answer = json(&format!("epsilon {MNIST}"));
    let (epsilon, lower) = (answer["epsilon"].as_f64().unwrap(), answer["epsilon_lower"].as_f64().unwrap());
    assert!(lower <= 2.2955 && 2.2954 <= epsilon && epsilon < 1.002 * lower);
    assert_eq!(answer["delta"], 1e-5);
    assert_eq!(answer["accountant"], "pld");
    assert_eq!(answer["relation"], "add/remove with public N (zero-out)");
    assert_eq!(answer["proved"], true);
}

#[test]
fn approximations_say_so() {
    let answer = text(&format!("epsilon {MNIST} --accountant gdp-clt"));
    assert!(
        answer.contains("is estimated to satisfy") && answer.contains("APPROXIMATE, NOT A BOUND"),
        "{answer}"
    );
    let answer = json(&format!("epsilon {MNIST} --accountant gdp-clt"));
    assert_eq!(answer["proved"], false);
    assert_eq!(answer["epsilon_lower"], Value::Null);
    assert_eq!(json(&format!("epsilon {MNIST} --accountant rdp"))["proved"], true);
}

#[test]
fn plan_files_hold_all_kinds_of_entries() {
    let path = plan_file(
        "kinds",
        r#"[{"noise_multiplier": 1.0, "sample_rate": 0.01, "steps": 400},
            {"noise_multiplier": [2.0, 6.0], "sample_rate": 0.02, "steps": 100},
            {"sampling": "full-batch", "noise_multiplier": 30, "steps": 10}]"#,
    );
    let mixed = json(&format!("epsilon --plan {path} --delta 1e-5"))["epsilon"].as_f64().unwrap();
    let part = json("epsilon --noise-multiplier 1 --sample-rate 0.01 --steps 400 --delta 1e-5")["epsilon"]
        .as_f64()
        .unwrap();
    assert!(mixed > part);
    let fixed = plan_file(
        "fixed",
        r#"[{"sampling": "fixed-size", "noise_multiplier": 4, "batch_size": 600, "population": 60000, "steps": 1000}]"#,
    );
    let answer = json(&format!("epsilon --plan {fixed} --delta 1e-5 --accountant rdp"));
    assert_eq!(answer["relation"], "replace-one");
    refused(&format!("epsilon --plan {fixed} --delta 1e-5"), &["pld", "fixed-size sampling of 600"], "rdp");
}

#[test]
fn noise_meets_its_target() {
    let answer = json("noise --epsilon 1 --delta 1e-6 --sample-rate 0.1 --steps 512");
    let (z, epsilon) = (answer["noise_multiplier"].as_f64().unwrap(), answer["epsilon"].as_f64().unwrap());
    assert!((z - 9.66).abs() < 0.02 && (0.999..=1.0).contains(&epsilon), "{answer}");
    assert!(
        text("noise --epsilon 1 --delta 1e-6 --sample-rate 0.1 --steps 512")
            .starts_with("A noise multiplier of 9.6")
    );
}

#[test]
fn noise_for_a_search_keeps_the_search_within_its_budget() {
    let budget = "noise --epsilon 2 --delta 1e-5 --sample-rate 0.0042666 --steps 2350";
    let one = json(budget)["noise_multiplier"].as_f64().unwrap();
    let composed = json(&format!("{budget} --tuning composition --candidates 10"));
    let stopped = json(&format!("{budget} --tuning liu-talwar --candidates 10"));
    for answer in [&composed, &stopped] {
        let epsilon = answer["epsilon"].as_f64().unwrap();
        assert!(epsilon <= 2.0 && epsilon > 1.99 && answer["proved"] == true, "{answer}");
        assert!(answer["noise_multiplier"].as_f64().unwrap() > 1.5 * one);
        assert!(answer["one_run"]["epsilon"].as_f64().unwrap() < 0.7);
    }
    // The runs of a composition are a plan of ten times as many steps.
    let all = json("noise --epsilon 2 --delta 1e-5 --sample-rate 0.0042666 --steps 23500");
    assert_eq!(composed["noise_multiplier"], all["noise_multiplier"]);
    assert_eq!((&stopped["mean_runs"], &stopped["most_runs"]), (&20.0.into(), &922.0.into()));
    assert!(stopped["epsilon_papernot_steinke"].as_f64().unwrap() < 0.8);
    let stated = text(&format!("{budget} --tuning liu-talwar --candidates 10"));
    for part in [
        "for the search over 10 candidates",
        "PROVED upper bound, under these conditions",
        "Papernot and Steinke",
    ] {
        assert!(stated.contains(part), "{stated}");
    }
    let estimated = json(&format!("{budget} --tuning composition --candidates 10 --accountant gdp-clt"));
    assert_eq!(estimated["proved"], false);
    refused(
        &format!("{budget} --tuning composition --candidates 0"),
        &["from 1 to 1000000", "0"],
        "combinations",
    );
    assert_eq!(sordino(&format!("{budget} --candidates 3")).status.code(), Some(2));
}

#[test]
fn theory_states_step_sizes_conditions_and_floors() {
    let run =
        "--l0 1 --l1 0.1 --tau0 0.5 --tau1 0.1 --gap 2.3 --dimension 28058 --records 60000 --batch-size 256";
    let few = json(&format!("theory dp-nsgd {run} --regulariser 1 --steps 2350 --epsilon 2"));
    assert!(few["bound"].is_null() && few["conditions"][1]["holds"] == false, "{few}");
    assert!((few["floor"].as_f64().unwrap() - 8.0 * 2.0 * 0.25 / (1.5 * 0.729)).abs() < 1e-9);
    assert!((few["lemma"]["noise_multiplier"].as_f64().unwrap() - 2.6259).abs() < 1e-3);
    assert_eq!(few["lemma"]["conditions"].as_array().unwrap().len(), 5);
    let steps = few["least_steps"].as_f64().unwrap();
    let many = format!("theory dp-nsgd {run} --regulariser 1 --steps {steps} --noise-multiplier 0.786521");
    assert!(json(&many)["bound"].is_f64() && json(&many)["lemma"].is_null());
    assert!(text(&many).contains("the paper does not state C"));
    let clipped =
        json(&format!("theory dp-sgd {run} --max-grad-norm 2 --steps 1000000 --noise-multiplier 1"));
    assert!(clipped["bound"].is_f64() && clipped["floor"] == 0.0, "{clipped}");
    let model = "theory linear-model --response 1 --predictors 2 --solution 3 --least-eigenvalue 0.5";
    assert_eq!((&json(model)["tau0"], &json(model)["tau1"]), (&14.0.into(), &8.0.into()));
    refused(&format!("theory dp-nsgd {run} --regulariser 1 --steps 10"), &["no noise"], "--epsilon");
    let wrong = run.replace("--tau1 0.1", "--tau1 1");
    refused(
        &format!("theory dp-nsgd {wrong} --regulariser 1 --steps 10 --epsilon 1"),
        &["tau1", "below 1, got 1"],
        "theory",
    );
}

#[test]
fn schedule_shows_the_true_cost_of_the_limit_theorem() {
    let arguments = "schedule --epsilon 1.2 --delta 1.6667e-6 --sample-rate 0.004166667 --steps 1000 --rho-mu 4 --rho-c 2 --max-grad-norm 1";
    let answer = json(arguments);
    let number = |key: &str| answer[key].as_f64().unwrap();
    assert!(
        number("mu_0") < number("mu_0_clt") && number("epsilon") <= 1.2 && number("epsilon_of_clt") > 1.25,
        "{answer}"
    );
    // The old name is accepted.
    let answer = text(&arguments.replace("--max-grad-norm", "--clip"));
    assert!(answer.contains("APPROXIMATE, NOT A BOUND") && answer.contains("PROVED"), "{answer}");
}

#[test]
fn profile_states_delta_and_curves() {
    let plan = "--noise-multiplier 0.5 --sample-rate 0.2 --steps 3";
    let answer = json(&format!("profile {plan} --epsilon 1"));
    assert!((answer["delta"].as_f64().unwrap() - 0.15594).abs() < 1e-3);
    let answer = json(&format!("profile {plan}"));
    assert!(answer["mu"].as_f64().unwrap() > 0.5 && answer["profile"].as_array().unwrap().len() > 50);
    assert!(text(&format!("profile {plan}")).contains("-GDP"));
}

/// The cost of a cap and the number of times that groups expose a record are upper bounds, so `profile` and `epsilon` state no lower bound.
#[test]
fn profile_and_epsilon_state_a_lower_bound_for_the_same_plans() {
    for (name, entry, reached) in [
        ("plain", "", true),
        ("rotating", r#""sampling":"rotating","groups":7,"#, false),
        ("capped", r#""max_batch_size":90,"population":300,"#, false),
    ] {
        let entry = format!("[{{{entry}\"noise_multiplier\":2,\"sample_rate\":0.1,\"steps\":30}}]");
        let file = plan_file(&format!("reached-{name}"), &entry);
        let epsilon = json(&format!("epsilon --plan {file} --delta 1e-5"));
        let delta = json(&format!("profile --plan {file} --epsilon 0.5"));
        assert_eq!(epsilon["epsilon_lower"].is_f64(), reached, "{name}: {epsilon}");
        assert_eq!(delta["delta_lower"].is_f64(), reached, "{name}: {delta}");
        let text = text(&format!("profile --plan {file} --epsilon 0.5"));
        assert!(text.contains("PROVED") && text.contains("at least") == reached, "{name}: {text}");
    }
}

#[test]
fn groups_cost_more() {
    let one = json(&format!("epsilon {MNIST}"))["epsilon"].as_f64().unwrap();
    let two = json(&format!("epsilon {MNIST} --group-size 2"))["epsilon"].as_f64().unwrap();
    assert!(two > 1.8 * one && two < 3.0 * one, "{one} {two}");
    assert!(text(&format!("epsilon {MNIST} --group-size 2")).contains("any 2 records together"));
    refused(&format!("epsilon {MNIST} --group-size 2 --accountant rdp"), &["rdp", "group of 2"], "pld");
}

/// Exit code 2, nothing on standard output, one line that names the problem, and a hint.
fn refused(arguments: &str, mentions: &[&str], hint: &str) {
    let output = sordino(arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments}: {message}");
    assert!(output.stdout.is_empty(), "{arguments}");
    let mut lines = message.lines();
    let first = lines.next().unwrap();
    assert!(first.starts_with("error: "), "{arguments}: {message}");
    for mention in mentions {
        assert!(first.contains(mention), "{arguments}: {first:?} lacks {mention:?}");
    }
    let last = message.lines().last().unwrap();
    assert!(last.starts_with("hint: ") && last.contains(hint), "{arguments}: {message}");
    assert!(!message.contains("panicked"));
}

#[test]
fn bad_values_are_refused_with_their_range() {
    let with = |flag: &str, value: &str| {
        let mut arguments = format!("epsilon {MNIST}");
        for (name, default) in [
            ("--noise-multiplier", "1.1"),
            ("--sample-rate", "0.004"),
            ("--steps", "15000"),
            ("--delta", "1e-5"),
        ] {
            if name == flag {
                arguments = arguments.replace(&format!("{name} {default}"), &format!("{name} {value}"));
            }
        }
        arguments
    };
    for value in ["0", "1.7", "-0.1", "NaN", "inf", "abc"] {
        refused(&with("--sample-rate", value), &["sampling rate must be in (0, 1]", value], "batch size");
    }
    for value in ["0", "1", "-1e-5", "NaN", "2"] {
        refused(&with("--delta", value), &["delta must be between 0 and 1", value], "number of records");
    }
    for value in ["0", "-5", "1.5", "nan", "1e99"] {
        refused(
            &with("--steps", value),
            &["number of steps must be a whole number of at least 1", value],
            "epochs",
        );
    }
    for value in ["0", "-1", "NaN", "inf"] {
        refused(
            &with("--noise-multiplier", value),
            &["noise multiplier must be between 1e-6 and 1e12", value],
            "noise",
        );
    }
    refused(
        "noise --epsilon -1 --delta 1e-5 --sample-rate 0.1 --steps 10",
        &["epsilon must be", "-1"],
        "epsilon",
    );
    refused(
        "noise --epsilon 0 --delta 1e-5 --sample-rate 0.1 --steps 10",
        &["epsilon of 0"],
        "raise epsilon",
    );
    refused(&format!("epsilon {MNIST} --accountant moments"), &["moments", "pld, rdp, gdp-clt"], "pld");
    refused(
        &format!("epsilon {MNIST} --group-size 0"),
        &["group size", "between 1 and 1000", "0"],
        "records",
    );
}

#[test]
fn bad_plan_files_are_refused_with_their_place() {
    for (name, content, mention) in [
        ("key", r#"[{"noise": 1, "sample_rate": 0.1, "steps": 1}]"#, "unknown field `noise`"),
        ("missing", r#"[{"noise_multiplier": 1, "steps": 1}]"#, "needs sample_rate"),
        ("rate", r#"[{"noise_multiplier": 1, "sample_rate": 1.7, "steps": 1}]"#, "in (0, 1], got 1.7"),
        ("syntax", r#"[{"noise_multiplier": 1,"#, "line 1"),
        ("shape", r#"{"noise_multiplier": 1, "sample_rate": 0.1, "steps": 1}"#, "expected a sequence"),
        ("nan", r#"[{"noise_multiplier": NaN, "sample_rate": 0.1, "steps": 1}]"#, "line 1"),
    ] {
        let path = plan_file(name, content);
        refused(&format!("epsilon --plan {path} --delta 1e-5"), &[&path, mention], "noise_multiplier");
    }
    refused("epsilon --plan /nowhere/plan.json --delta 1e-5", &["/nowhere/plan.json"], "JSON");
}

#[test]
fn settings_out_of_range_name_an_accountant_that_can_price_them() {
    refused(
        "epsilon --noise-multiplier 0.001 --sample-rate 0.1 --steps 10 --delta 1e-5",
        &["pld", "0.0010"],
        "rdp",
    );
    assert!(json("epsilon --noise-multiplier 0.01 --sample-rate 0.1 --steps 10 --delta 1e-5 --accountant rdp")["epsilon"].as_f64().unwrap() > 1e3);
}

#[test]
fn missing_arguments_are_a_usage_error() {
    refused("epsilon --delta 1e-5 --steps 3", &["--noise-multiplier, --sample-rate"], "--plan");
    let output = sordino("noise --epsilon 1");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--delta <D>"));
    assert_eq!(sordino("--help").status.code(), Some(0));
    assert_eq!(sordino("--version").status.code(), Some(0));
    assert_eq!(sordino("").status.code(), Some(2));
}

#[test]
fn hints_about_groups_do_not_name_an_accountant_that_refuses_them() {
    let plan = "--noise-multiplier 1 --sample-rate 0.1 --steps 100 --delta 1e-5 --group-size 50";
    refused(&format!("epsilon {plan} --accountant rdp"), &["a group of 50 records"], "--accountant pld");
    refused(
        &format!("epsilon {plan}"),
        &["pld accountant cannot price this setting"],
        "use a smaller group size or more noise",
    );
    let fixed = plan_file(
        "group",
        r#"[{"noise_multiplier": 1, "sampling": "fixed-size", "steps": 3, "batch_size": 10, "population": 100}]"#,
    );
    refused(
        &format!("epsilon --plan {fixed} --delta 1e-5 --group-size 2"),
        &["cannot bound"],
        "use a group size of 1",
    );
}
