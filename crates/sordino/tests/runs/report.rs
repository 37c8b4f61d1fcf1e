//! `sordino report`: pages about runs, comparisons, audits and reproduced tables.

use std::fs;

use serde_json::Value;

use crate::place::Place;

const AUDIT: &str = include_str!("../fixtures/audit.json");

/// The report of a path in this form.
fn report(place: &Place, path: &str, form: &str) -> String {
    place.text(&format!("report {path} --format {form}"))
}

#[test]
fn a_run_has_a_page_with_its_guarantee_its_attackers_and_its_ledger() {
    let place = Place::new("report-run");
    place.text("train --steps 60 --out run");
    assert_eq!(place.text("report run"), "written: run/report.html\n");
    let (html, shown) = (place.read("run/report.html"), place.json("show run"));
    let epsilon = shown["epsilon"].as_f64().unwrap();
    assert!(html.contains("This logistic model satisfies (0.99"), "{html}");
    // The last line of the ledger begins with its hash.
    let ledger = place.read("run/ledger");
    let hash = ledger.lines().last().unwrap().split(' ').next().unwrap();
    assert_eq!(html.matches(hash).count(), 3);
    for words in [
        "1,625 of your 8,124 records were held back for testing and are NOT protected.",
        "Neighbouring data sets",
        "What an attacker can achieve at most",
        "Epsilon spent",
        "Learning rate",
        "What voids the guarantee",
        "Paragraph for a paper",
        "Model card",
        "6,499 training records of mushroom",
    ] {
        assert!(html.contains(words), "{words}");
    }
    let json: Value = serde_json::from_str(&report(&place, "run", "json")).unwrap();
    let run = &json["reports"][0];
    assert_eq!(
        (&run["kind"], &run["epsilon"], &run["ledger_hash"]),
        (&"run".into(), &epsilon.into(), &hash.into())
    );
    assert_eq!(run["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(run["parameters"], 127);
    // The last point is the price of the whole plan, and prices do not fall.
    let spent: Vec<f64> = run["epsilon_spent"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| point["value"].as_f64().unwrap())
        .collect();
    assert_eq!(spent.last(), Some(&epsilon));
    assert!(spent.len() == 12 && spent.windows(2).all(|pair| pair[0] <= pair[1]), "{spent:?}");
    let rates = run["attacker"]["rates"].as_array().unwrap();
    assert_eq!(rates.len(), 3);
    for rate in rates {
        let [wrong, right] =
            ["false_positive_rate", "true_positive_rate"].map(|name| rate[name].as_f64().unwrap());
        // Epsilon and delta alone permit e^epsilon a + delta.
        assert!(wrong < right && right <= epsilon.exp() * wrong + 1e-5, "{rate}");
    }
}

#[test]
fn an_unfinished_run_of_an_earlier_version_has_a_page() {
    let place = Place::new("report-earlier");
    let run = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/earlier-run");
    let text = report(&place, run, "md");
    for words in [
        "**This unfinished logistic model satisfies (1.1405, 1e-5)-differential privacy.**",
        "1.1405, a proved upper bound for the whole plan, whenever the run stops.",
        "of 20,000 planned steps, and the guarantee is that of the whole plan",
        "- **Trained by**: a version of Sordino that did not store its number",
        "- **Clipping norm**: adapts to releases; its values are not stored",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
}

#[test]
fn a_report_is_replaced_and_other_files_are_not() {
    let place = Place::new("report-replaced");
    place.text("train --steps 20 --out run");
    place.text("report run");
    place.write("run/report.html", &place.read("run/report.html").replace("</body>", "old</body>"));
    place.text("report run");
    assert!(!place.read("run/report.html").contains("old</body>"));
    place.write("mine.html", "my own page");
    let message = place.refusal("report run --out mine.html");
    assert!(
        message.contains("mine.html exists already") && place.read("mine.html") == "my own page",
        "{message}"
    );
    // A run with a report in its folder is still a run.
    assert_eq!(place.json("show run")["finished"], true);
}

#[test]
fn a_run_that_is_not_private_says_so_first_and_proves_no_epsilon() {
    let place = Place::new("report-not-private");
    place.text_with_notes("train --steps 30 --algorithm dice-published --epsilon 2 --out published");
    place.text("train --steps 20 --seed 1 --out seeded/run");
    place.text_with_notes("train --steps 20 --algorithm none --out plain/run");
    for path in ["published", "seeded/run", "plain/run"] {
        let text = report(&place, path, "md");
        let verdict = text.lines().nth(4).unwrap();
        assert_eq!(verdict, "**This logistic model is NOT PRIVATE.**", "{text}");
        assert!(!text.contains("satisfies") && !text.contains("proved upper bound"), "{text}");
        assert!(!text.contains("What an attacker can achieve") && !text.contains("Epsilon spent"), "{text}");
        assert!(text.contains("The model has no differential privacy guarantee"), "{text}");
        let json: Value = serde_json::from_str(&report(&place, path, "json")).unwrap();
        let run = &json["reports"][0];
        assert!(run["epsilon"].is_null() && run["attacker"].is_null(), "{run}");
        assert_eq!(run["epsilon_spent"], Value::Array(Vec::new()));
    }
    let text = report(&place, "published", "md");
    assert!(
        text.contains(
            "- **Claimed**: Epsilon 2 at delta 1e-5, by Theorem 3.8 of Zhang et al. 2023 (whose conditions exclude these clipping norms)"
        ),
        "{text}"
    );
    assert!(text.contains("- **Proved**: Nothing for this run;"), "{text}");
    assert!(text.contains("| epsilon (set, but NOT guaranteed) | 2.0 |"), "{text}");
}

#[test]
fn names_with_markup_stay_text() {
    let place = Place::new("report-markup");
    let folder = "<script>alert(1)<";
    fs::create_dir(place.0.join(folder)).unwrap();
    let rows: String = (0..400).map(|i| format!("{},{},{}\n", i % 2, i % 7, i % 5)).collect();
    place.write(&format!("{folder}/data.csv"), &rows);
    place.write(
        "schema.toml",
        "header = false\ntarget = 'class'\n[[columns]]\nname = 'class'\ntype = 'category'\nvalues = ['0', '1']\n\
         [[columns]]\nname = 'a'\ntype = 'number'\ncenter = 3\nscale = 3\n[[columns]]\nname = 'b'\ntype = 'number'\ncenter = 2\nscale = 2\n",
    );
    place.text_with_notes(&format!(
        "train --data {folder}/data.csv --schema schema.toml --steps 10 --batch-size 50 --out run"
    ));
    place.text("report run");
    let html = place.read("run/report.html");
    assert!(!html.contains("<script>") && html.contains("&lt;script&gt;alert(1)&lt;/data.csv"), "{html}");
    let text = report(&place, "run", "md");
    assert!(!text.contains("<script>") && text.contains("&lt;script&gt;alert(1)"), "{text}");
}

#[test]
fn a_comparison_has_spread_claims_and_its_total_cost() {
    let place = Place::new("report-comparison");
    place.text_with_notes(
        "compare --algorithms dp-sgd,dice-published --steps 20 --repeats 3 --out comparison.json",
    );
    assert_eq!(place.text("report comparison.json"), "written: report.html\n");
    let html = place.read("report.html");
    for words in [
        "All 6 runs together guarantee NOTHING, because runs of these algorithms are not private: dice-published.",
        "Published claims and what is proved",
        "dice-published (NOT PRIVATE)",
        "Runs of each algorithm",
    ] {
        assert!(html.contains(words), "{words}");
    }
    let text = report(&place, "comparison.json", "md");
    let row = text
        .lines()
        .find(|line| line.starts_with("| dice-published |") && line.contains("not proved"))
        .unwrap();
    assert!(row.starts_with("| dice-published | 1 | NOT PRIVATE | "), "{row}");
    // Files of earlier versions have no setup.
    let mut old: Value = serde_json::from_str(&place.read("comparison.json")).unwrap();
    old.as_object_mut().unwrap().remove("setup").unwrap();
    place.write("old.json", &old.to_string());
    assert!(report(&place, "old.json", "md").contains("An earlier version wrote this file"));
}

#[test]
fn an_audit_shows_its_bounds_beside_the_claim_and_its_checks() {
    let place = Place::new("report-audit");
    place.write("audit.json", AUDIT);
    let text = report(&place, "audit.json", "md");
    for words in [
        "**No attack contradicts the proved epsilon of 0.9998 at delta 1e-5: the largest lower bound that decides is 0.9420.**",
        "| one run, Gaussian | every release | 0.7700 | 95 | 1,000 | 1 | a Gaussian trade-off curve |",
        "| noise variance | The variance of the noise along free directions, divided by the planned one. | passed | 1.0004 | 0.9880 | 1.0120 |",
        "at most (by epsilon and delta)",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    let mut audit: Value = serde_json::from_str(AUDIT).unwrap();
    audit["checks"][0]["measured"] = 0.25.into();
    place.write("check.json", &audit.to_string());
    assert!(report(&place, "check.json", "md").contains("**These checks failed: noise variance."));
    audit["claim"]["proved"] = false.into();
    audit["attacks"][0]["lower_bound"] = 3.7.into();
    place.write("refuted.json", &audit.to_string());
    let text = report(&place, "refuted.json", "md");
    assert!(
        text.contains("**An attack contradicts the claimed epsilon of 0.9998 at delta 1e-5: epsilon is at least 3.7000.**"),
        "{text}"
    );
    assert!(text.contains("at most, if the claim were true"), "{text}");
    let json: Value = serde_json::from_str(&report(&place, "refuted.json", "json")).unwrap();
    assert_eq!(json["reports"][0]["claim_refuted"], true);
}

#[test]
fn the_audit_of_a_run_is_shown_below_its_proved_curve() {
    let place = Place::new("report-both");
    place.text("train --steps 40 --out run");
    let shown = place.json("show run");
    let mut audit: Value = serde_json::from_str(AUDIT).unwrap();
    audit["claim"]["epsilon"] = shown["epsilon"].clone();
    place.write("own.json", &audit.to_string());
    audit["algorithm"] = "dice".into();
    place.write("other.json", &audit.to_string());
    let own = place.text("report run own.json --format md");
    assert!(own.contains("Dots are measured attacks of the audit"), "{own}");
    assert!(!own.contains("by epsilon and delta)"), "{own}");
    let other = place.text("report run other.json --format md");
    assert!(
        !other.contains("Dots are measured attacks") && other.contains("by epsilon and delta)"),
        "{other}"
    );
}

#[test]
fn charts_are_written_one_by_one_or_all_into_a_folder() {
    let place = Place::new("report-charts");
    place.text("train --steps 20 --out run");
    let svg = place.text("report run --format svg --chart trade-off");
    assert!(svg.starts_with("<svg xmlns=") && svg.contains("false positive rate"));
    let said = place.text("report run --format svg --out charts");
    assert_eq!(said.lines().count(), 6, "{said}");
    assert_eq!(place.read("charts/trade-off.svg"), svg);
    let message = place.refusal("report run --format svg --chart trade");
    assert!(
        message.contains("must be one of trade-off, epsilon-spent, accuracy")
            && message.contains("got trade")
    );
    assert!(place.refusal("report run --format svg").contains("needs --chart NAME or --out FOLDER"));
    assert!(place.refusal("report run --chart noise").contains("--format svg"));
    assert!(place.refusal("report run --format svg --out charts").contains("exists already"));
    // With several parts, names begin with the number of the part.
    place.write("audit.json", AUDIT);
    place.text("report run audit.json --format svg --out all");
    assert!(place.has("all/1-trade-off.svg") && place.has("all/2-lower-bounds.svg"));
}

#[test]
fn what_is_not_a_result_is_refused() {
    let place = Place::new("report-refused");
    place.write("list.json", "[1, 2]");
    place.write("half.json", "{\"rows\": [");
    place.write("rows.json", "{\"rows\": [{}], \"runs\": 1}");
    place.write("audit.json", "{\"attacks\": 3}");
    fs::create_dir(place.0.join("empty")).unwrap();
    for (path, words) in [
        ("nothing.json", "nothing.json cannot be read"),
        ("list.json", "list.json is not the result of a comparison"),
        ("half.json", "half.json is not JSON"),
        ("rows.json", "rows.json is not the result of a comparison: missing field"),
        ("audit.json", "audit.json is not the result of an audit"),
        ("empty", "empty is not the folder of a run: it has no config.toml"),
    ] {
        let message = place.refusal(&format!("report {path}"));
        assert!(message.contains(words) && message.contains("\n\nhint: give "), "{message}");
    }
    assert!(!place.has("report.html"));
    // A ledger that was changed has no report.
    place.text("train --steps 20 --out run");
    let ledger = place.read("run/ledger");
    place.write("run/ledger", &ledger.replace("\"seeded\":false", "\"seeded\":true "));
    assert!(place.refusal("report run").contains("its hash does not follow"));
    assert!(!place.has("run/report.html"));
}

/// The text without the accuracy and the hash, which differ between runs.
fn without_chance(paragraph: &str) -> String {
    let words = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let (start, rest) = words.split_once("The accuracy is ").unwrap();
    let (_, rest) = rest.split_once(" on ").unwrap();
    let (middle, _) = rest.split_once("hash of the ledger: ").unwrap();
    format!("{start}{middle}")
}

#[test]
fn the_paragraph_in_the_docs_is_the_one_that_is_written() {
    let place = Place::new("report-paragraph");
    place.text("train --out run");
    let written = report(&place, "run", "json");
    let written: Value = serde_json::from_str(&written).unwrap();
    let docs = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/report.md")).unwrap();
    let quoted: Vec<&str> = docs.lines().filter_map(|line| line.strip_prefix("> ")).collect();
    assert_eq!(
        without_chance(&quoted.join(" ")),
        without_chance(written["reports"][0]["paragraph"].as_str().unwrap())
    );
}
