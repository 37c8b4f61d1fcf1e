//! Searches that are killed: the whole budget is spent, and nothing but a selected model is released.

use std::{fs, path::Path, process::Command, time::Duration};

use serde_json::Value;
use sordino_testing::Folder;

use crate::{Moments, kill_after, kill_on_sight, kills, sordino, succeed, train::has_begun};

const BUDGET: f64 = 4.0;

fn begin(space: &Path, run: &Path) -> Command {
    let mut command = sordino();
    command.args(["tune", "--trials", "8", "--steps", "300", "--test-set", "protected", "--epsilon"]);
    command.arg(BUDGET.to_string()).arg("--space").arg(space).args(["--json", "--out"]).arg(run);
    command
}

/// Checks a search that was killed. Returns whether it is finished.
fn examine(run: &Path) -> bool {
    let mut command = sordino();
    command.args(["show", "--json"]).arg(run);
    let shown: Value = serde_json::from_slice(&succeed(command)).unwrap();
    let epsilon = shown["epsilon"].as_f64().unwrap();
    assert!(epsilon <= BUDGET && epsilon > 0.98 * BUDGET && shown["private"] == true, "{shown}");
    let ledger = fs::read_to_string(run.join("ledger")).unwrap();
    let finished = shown["finished"] == true;
    // Only the selected trial leaves the process, and the ledger has its hash before.
    if run.join("model.safetensors").exists() {
        assert!(ledger.contains("\"chosen\"") && ledger.contains("\"model\""), "{ledger}");
        let mut predict = sordino();
        predict.args(["predict", "--data", "mushroom", "--run"]).arg(run);
        succeed(predict);
    }
    if !finished {
        let mut resume = sordino();
        resume.args(["train", "--resume"]).arg(run);
        let refused = resume.output().unwrap();
        assert!(
            refused.status.code() == Some(2)
                && String::from_utf8_lossy(&refused.stderr).contains("new budget")
        );
    }
    finished
}

#[test]
fn a_killed_search_has_spent_its_budget_and_releases_at_most_its_selection() {
    let folder = Folder::new("kill-tune");
    let space = folder.file("space.toml");
    fs::write(&space, "learning_rate = [1, 4]\n").unwrap();
    let mut moments = Moments::new(61);
    let mut longest = Duration::from_millis(600);
    let (all, mut killed, mut finished) = (kills(20), 0, 0);
    for number in 0.. {
        let run = folder.file(&number.to_string());
        let ended = match moments.below(3) {
            0 => kill_on_sight(begin(&space, &run), &[&run.join("ledger")], moments.within(longest / 4)),
            1 => kill_on_sight(
                begin(&space, &run),
                &[&run.join("model.safetensors"), &run.join("model.safetensors.draft")],
                moments.within(Duration::from_micros(500)),
            ),
            _ => kill_after(begin(&space, &run), moments.within(longest)),
        };
        if !has_begun(&run) {
            longest += longest / 10;
            continue;
        }
        killed += usize::from(!ended);
        finished += usize::from(examine(&run));
        if killed >= all {
            break;
        }
    }
    println!("killed: tune {killed}; {finished} searches finished");
}
