//! The commands that price plans, as a user runs them: results on standard output, errors on standard error.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

use std::process::{Command, Output};

use serde_json::Value;
use sordino_testing::Folder;

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

/// The path of a plan file, which is removed at the end of the test.
struct PlanFile {
    path: String,
    _folder: Folder,
}

impl std::fmt::Display for PlanFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.path)
    }
}

/// Writes a plan file.
fn plan_file(name: &str, content: &str) -> PlanFile {
    let folder = Folder::new(&format!("cli-{name}"));
    let path = folder.file("plan.json");
    std::fs::write(&path, content).unwrap();
    PlanFile { path: path.to_str().unwrap().to_owned(), _folder: folder }
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

/// The setting of the DP-C4 paper on Mushroom.
const MUSHROOM: &str = "--epsilon 1 --delta 1e-5 --batch-size 256 --records 6499 --steps 1269";

#[test]
fn published_noise_is_shown_with_its_claim_and_what_is_proved() {
    let published = |flags: &str| json(&format!("noise {MUSHROOM} --published {flags}"));
    let part = |answer: &Value, index: usize, key: &str| answer["noise"][index][key].as_f64().unwrap();
    for name in ["dice", "dice-automatic"] {
        let answer = published(name);
        assert!((part(&answer, 0, "noise_multiplier") - 46.65).abs() < 0.005, "{answer}");
        assert_eq!(answer["claimed_epsilon"], 1.0);
        assert_eq!(answer["accountant"], "first-participation");
        assert!(answer["proved_epsilon"].as_f64().unwrap() > 1e3, "{answer}");
    }
    // Theorem 3: sigma_1^2 + sigma_2^2 is (1 + sqrt(p / theta))^2 and (sqrt(1 - p) + sqrt(p / theta))^2 times 1.8609.
    for (routine, expected) in [(1, 1.0221_f64), (4, 0.9575)] {
        let answer = published(&format!("dp-c4 --anchor-batch 4096 --routine {routine}"));
        let squares = [0, 1].map(|index| part(&answer, index, "sigma").powi(2));
        let found = ((squares[0] + squares[1]) / 1.8609).sqrt();
        assert!((found - expected).abs() < 1e-3, "{found}: {answer}");
        assert!((squares[0].sqrt() * 256.0 - part(&answer, 0, "noise_multiplier")).abs() < 1e-9);
        assert!((squares[1].sqrt() * 4096.0 - part(&answer, 1, "noise_multiplier")).abs() < 1e-9);
        assert_eq!((&answer["proved_epsilon"], &answer["accountant"]), (&Value::Null, &Value::Null));
        assert!(answer["not_proved_because"].as_str().unwrap().contains("raw gradients"), "{answer}");
    }
    for (name, parts) in [("dp-sgd", 1), ("dp-svrg", 3)] {
        let answer = published(name);
        assert_eq!(answer["noise"].as_array().unwrap().len(), parts, "{answer}");
        assert!(answer["proved_epsilon"].as_f64().unwrap() < 0.1, "{answer}");
    }
    // The central limit theorem claims too little.
    let answer = published("dynamic-clt --rho-mu 4 --rho-c 2 --max-grad-norm 3");
    assert!(answer["proved_epsilon"].as_f64().unwrap() > 1.005, "{answer}");
    let last = part(&answer, 1, "sigma") / part(&answer, 1, "noise_multiplier");
    assert!((last - 1.5).abs() < 1e-9, "{answer}");
    let said = text(&format!("noise {MUSHROOM} --published dp-c4"));
    assert!(said.contains("sigma_2") && said.contains("proved       none: the clipping norms"), "{said}");
    let large = "noise --published dice --epsilon 1 --delta 1e-5 --batch-size 300 --records 1000 --steps 500";
    assert!(text(large).contains("needs B / N <= 1/5, and B / N is 0.300; lower --batch-size"));
}

#[test]
fn published_noise_needs_a_batch_and_options_of_its_paper() {
    let flags = |flags: &str| format!("noise {MUSHROOM} --published {flags}");
    refused(
        &flags("dice --anchor-batch 3"),
        &["--anchor-batch belongs to --published dp-c4 and dp-svrg"],
        "leave out",
    );
    refused(&flags("dp-sgd --rho-mu 2"), &["--rho-mu belongs to --published dynamic-clt"], "leave out");
    refused(&flags("dynamic-clt --rho-c -2"), &["--rho-c must be between 0.001 and 1000, got -2"], "default");
    refused(&flags("dice --thresholds theorem --feedback-clip 1"), &["C_1 <= C_2 <= C / B"], "feedback_clip");
    refused(
        &flags("dice --gradient-clip 0.5"),
        &["--gradient-clip needs --thresholds theorem"],
        "add --thresholds theorem",
    );
    refused(
        &flags("dice --feedback-clip NaN"),
        &["--feedback-clip must be a number above 0, got NaN"],
        "default",
    );
    refused(&flags("dice-automatic --thresholds theorem"), &["dice-automatic normalises them"], "leave out");
    refused(&flags("dp-c4 --anchor-batch 9999"), &["at most the number of records, 6499"], "options");
    let small = MUSHROOM.replace("--batch-size 256", "--batch-size 7000");
    refused(
        &format!("noise {small} --published dice"),
        &["batch_size must be between 1 and", "7000"],
        "--batch-size",
    );
    for usage in [
        "noise --published dice --epsilon 1 --delta 1e-5 --steps 10",
        "noise --epsilon 1 --delta 1e-5 --steps 10",
        "noise --epsilon 1 --delta 1e-5 --steps 10 --sample-rate 0.1 --batch-size 30",
        "noise --published dice --epsilon 1 --delta 1e-5 --steps 10 --batch-size 5 --records 9 --sample-rate 0.1",
    ] {
        let output = sordino(usage);
        assert_eq!(output.status.code(), Some(2), "{usage}");
        assert!(output.stdout.is_empty(), "{usage}");
    }
}

/// The digits that are left out never make the noise smaller.
#[test]
fn printed_noise_costs_no_more_than_the_printed_epsilon() {
    let said =
        text("noise --published dp-sgd --epsilon 320 --delta 1e-5 --steps 1 --batch-size 256 --records 256");
    let after = |words: &str| {
        let rest = said.split_once(words).unwrap().1;
        rest.split([' ', '\n']).next().unwrap().to_owned()
    };
    let (multiplier, epsilon) = (after("multiplier "), after("proved       epsilon "));
    let cost =
        json(&format!("epsilon --noise-multiplier {multiplier} --sample-rate 1 --steps 1 --delta 1e-5"));
    assert!(cost["epsilon"].as_f64().unwrap() <= epsilon.parse().unwrap(), "{said} {cost}");
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
        "lowest proved bound for a geometric number of runs",
    ] {
        assert!(stated.contains(part), "{stated}");
    }
    let estimated = json(&format!("{budget} --tuning composition --candidates 10 --accountant gdp-clt"));
    assert_eq!(estimated["proved"], false);
    refused(
        &format!("{budget} --tuning composition --candidates 9 --gamma 0.1"),
        &["--gamma belongs to --tuning liu-talwar"],
        "leave out --gamma",
    );
    refused(
        &format!("{budget} --tuning composition --candidates 0"),
        &["from 1 to 1000000", "0"],
        "combinations",
    );
    refused(
        &format!("{budget} --tuning papernot-steinke --candidates 9 --accountant gdp-clt"),
        &["--tuning papernot-steinke", "does not use gdp-clt"],
        "leave out --accountant gdp-clt",
    );
    assert_eq!(sordino(&format!("{budget} --candidates 3")).status.code(), Some(2));
}

/// The worked example of the accountant: 20 runs on average, one run 1.742.
#[test]
fn epsilon_prices_a_search_by_every_method() {
    let plan = "epsilon --noise-multiplier 1 --sample-rate 0.00512 --steps 3900 --delta 1e-5";
    let all = json(&format!("{plan} --tuning --candidates 20 --gamma 0.05 --delta-2 5e-6"));
    let of = |i: usize| (all[i]["tuning"].as_str().unwrap(), all[i]["epsilon"].as_f64().unwrap());
    let (composition, liu_talwar, selection) = (of(0), of(1), of(2));
    assert!(composition.0 == "composition" && (composition.1 - 9.32).abs() < 0.02, "{all}");
    assert!(liu_talwar.0 == "liu-talwar" && liu_talwar.1 < 15.26 && liu_talwar.1 > 10.0, "{all}");
    assert!(selection.0 == "papernot-steinke" && (selection.1 - 2.684).abs() < 0.005, "{all}");
    assert!((all[2]["epsilon_papernot_steinke"].as_f64().unwrap() - 3.52).abs() < 0.01, "{all}");
    let renamed = json(&format!("{plan} --tuning papernot-steinke --candidates 7 --trials 20 --eta 1"));
    assert!((renamed["epsilon"].as_f64().unwrap() - 2.885).abs() < 0.005, "{renamed}");
    let stated = text(&format!("{plan} --tuning --candidates 20"));
    for part in ["(composition) costs at most epsilon 9.3", "(papernot-steinke) costs at most epsilon 2.6"] {
        assert!(stated.contains(part), "{stated}");
    }
    for (flags, problem) in [
        ("--candidates 20 --trials 1", "a finite number above 1, got 1"),
        ("--candidates 20 --eta -1", "above -1, got -1"),
        ("--candidates 20 --gamma 2", "in (0, 1], got 2"),
        ("--candidates 20 --delta-2 0", "above 0 and below 1, got 0"),
        ("--candidates 20 --delta-2 1e-3", "above delta_2"),
        ("--candidates 0", "from 1 to 1000000, got 0"),
    ] {
        refused(&format!("{plan} --tuning {flags}"), &[problem], "");
    }
    assert_eq!(sordino(&format!("{plan} --tuning")).status.code(), Some(2));
    assert_eq!(sordino(&format!("{plan} --eta 1")).status.code(), Some(2));
    assert_eq!(sordino(&format!("{plan} --tuning --candidates 2 --group-size 3")).status.code(), Some(2));
}

#[test]
fn noise_by_the_lowest_bound_is_less_than_by_the_other_methods() {
    let budget =
        "noise --epsilon 2 --delta 1e-5 --sample-rate 0.0042666 --steps 2350 --tuning --candidates 10";
    let all = json(budget);
    let noise = |i: usize| all[i]["noise_multiplier"].as_f64().unwrap();
    assert!(noise(2) < noise(0) && noise(0) < noise(1), "{all}");
    let spent = all[2]["epsilon"].as_f64().unwrap();
    assert!(
        spent <= 2.0 && spent > 1.99 && all[2]["proved"] == true && all[2]["most_runs"].is_null(),
        "{all}"
    );
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
const SCHEDULE: &str =
    "schedule --epsilon 4 --delta 1.6667e-6 --sample-rate 0.1 --steps 100 --max-grad-norm 1.5 --points 4";

#[test]
fn schedule_shows_the_true_cost_of_the_central_limit_theorem() {
    let arguments = format!("{SCHEDULE} --algorithm dynamic,mu_growth=4,clip_decay=2");
    let answer = json(&arguments);
    let schedule = &answer["schedules"][0];
    let calibration = |index: usize, key: &str| schedule["calibrations"][index][key].as_f64().unwrap();
    assert!(calibration(0, "mu_0") < calibration(1, "mu_0"), "{schedule}");
    assert!(calibration(0, "epsilon") <= 4.0 && calibration(1, "epsilon") > 5.0, "{schedule}");
    // By the theorem, its own noise spends the budget, and Corollary 2 spends less. Its condition mu_t <= 1 does not hold.
    let budget = answer["mu_tot"].as_f64().unwrap();
    assert!((calibration(1, "mu_spent") / budget - 1.0).abs() < 2e-3, "{schedule}");
    assert!(calibration(2, "largest_mu") > 1.0 && calibration(2, "mu_spent") < budget, "{schedule}");
    // The old name is accepted.
    let answer = text(&arguments.replace("--max-grad-norm", "--clip"));
    assert!(answer.contains("APPROXIMATE, NOT A BOUND") && answer.contains("PROVED"), "{answer}");
    assert!(answer.contains("Corollary 2 does not apply here"), "{answer}");
}

#[test]
fn schedule_lists_every_step_and_its_plan_has_the_same_price() {
    let file = |name: &str| plan_file(&format!("schedule-{name}"), "");
    let (plan, csv, figure) = (file("plan"), file("csv"), file("figure"));
    let answer = json(&format!(
        "{SCHEDULE} --algorithm dynamic,mu_growth=2,clip_decay=3 --plan-out {plan} --csv {csv} --figure {figure}"
    ));
    let schedule = &answer["schedules"][0];
    let steps = schedule["steps"].as_array().unwrap();
    let mu_0 = schedule["calibrations"][0]["mu_0"].as_f64().unwrap();
    assert_eq!(steps.len(), 100);
    for (t, step) in (1..).zip(steps) {
        let number = |key: &str| step[key].as_f64().unwrap();
        let part = f64::from(t) / 100.0;
        assert!((number("clip_norm") / (1.5 * 3.0_f64.powf(-part)) - 1.0).abs() < 1e-9);
        assert!((number("mu") / (mu_0 * 2.0_f64.powf(part)) - 1.0).abs() < 1e-9);
        assert!((number("noise_std") * number("mu") / number("clip_norm") - 1.0).abs() < 1e-9);
        assert!(number("epsilon_rdp") > number("epsilon_clt"));
        // The exact epsilon is between both, as in Figure 4 of the paper.
        assert_eq!(step["epsilon_pld"].is_f64(), t % 25 == 0, "{step}");
        if let Some(exact) = step["epsilon_pld"].as_f64() {
            assert!(number("epsilon_clt") < exact && exact < number("epsilon_rdp"), "{step}");
        }
    }
    let priced = json(&format!("epsilon --plan {plan} --delta 1.6667e-6"));
    assert_eq!(priced["epsilon"], schedule["calibrations"][0]["epsilon"]);
    assert_eq!(priced["epsilon"], steps[99]["epsilon_pld"]);
    let rows = std::fs::read_to_string(&csv.path).unwrap();
    assert_eq!((rows.lines().count(), rows.matches(",,").count()), (101, 96));
    assert!(std::fs::read_to_string(&figure.path).unwrap().contains("CLT (not a bound)"));
}

#[test]
fn schedules_are_compared_and_equal_steps_have_a_closed_form() {
    let answer = json(&format!(
        "{SCHEDULE} --noise gdp-clt --algorithm dynamic,mu_growth=1 --algorithm dynamic,allocation=curvature,curvature=0:1/1:16"
    ));
    let schedules = answer["schedules"].as_array().unwrap();
    assert_eq!(schedules.len(), 2);
    let (equal, clt) = (&schedules[0]["mu_0_of_equation_13"], &schedules[0]["calibrations"][0]);
    assert_eq!(clt["noise_from"], "gdp-clt");
    assert!((equal.as_f64().unwrap() / clt["mu_0"].as_f64().unwrap() - 1.0).abs() < 2e-3, "{equal}");
    assert!(schedules[1]["mu_0_of_equation_13"].is_null());
    // mu_t is proportional to sqrt(C_t) Q_t^(1/4), and the default halves the clipping norm.
    let mu = |index: usize| schedules[1]["steps"][index]["mu"].as_f64().unwrap();
    let growth = (0.5_f64.sqrt() * 2.0).powf(0.99);
    assert!((mu(99) / mu(0) / growth - 1.0).abs() < 1e-9);
    for (arguments, parts, hint) in [
        ("--algorithm dp-sgd", &["must be dynamic", "dp-sgd"][..], "sordino noise"),
        ("--algorithm dynamic --algorithm dynamic --plan-out p", &["one schedule, got 2"], "once"),
        (
            "--algorithm dynamic,mu_schedule=@nosuch.txt",
            &["cannot read nosuch.txt"],
            "one factor on each line",
        ),
        ("--figure spent.png", &["writes SVG", "spent.png"], ".svg"),
        (
            "--csv same.txt --plan-out same.txt",
            &["--csv and --plan-out both name same.txt"],
            "a different file for each",
        ),
        ("--csv nosuch/steps.csv", &["nosuch/steps.csv"], "in a folder that exists"),
    ] {
        refused(&format!("{SCHEDULE} {arguments}"), parts, hint);
    }
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
        refused(&format!("epsilon --plan {path} --delta 1e-5"), &[&path.path, mention], "noise_multiplier");
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
