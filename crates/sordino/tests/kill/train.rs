//! Training that is killed, and resumed, and killed again.

use std::{fs, path::Path, process::Command, time::Duration};

use serde_json::Value;
use sordino_testing::Folder;

use crate::{Moments, kill_after, kill_on_sight, kills, sordino, succeed};

const BUDGET: f64 = 4.0;
const STEPS: u64 = 20_000;
const MEASUREMENTS: u64 = 60;

pub(crate) fn begin(run: &Path) -> Command {
    let mut command = sordino();
    command.args([
        "train",
        "--accountant",
        "rdp",
        "--optimizer",
        "adam",
        "--learning-rate",
        "0.01",
        "--average",
        "0.99",
    ]);
    command.args(["--epsilon", &BUDGET.to_string(), "--steps", &STEPS.to_string()]);
    // Many measurements on protected records, so that kills fall between their charges and their results.
    command.args(["--test-set", "protected", "--measurements", &MEASUREMENTS.to_string()]);
    command.args(["--checkpoint-seconds", "0.02", "--json", "--out"]).arg(run);
    command
}

pub(crate) fn resume(run: &Path) -> Command {
    let mut command = sordino();
    command.args(["train", "--json", "--resume"]).arg(run);
    command
}

/// Whether the first line of the ledger is complete. If not, nothing was released, and there is nothing to resume.
pub(crate) fn has_begun(run: &Path) -> bool {
    let begun = fs::read(run.join("ledger")).is_ok_and(|ledger| ledger.contains(&b'\n'));
    assert!(begun || !run.join("model.safetensors").exists() && !run.join("metrics.jsonl").exists());
    begun
}

/// The output of `show`, which verifies the ledger and checks the model against it.
fn show(run: &Path) -> Value {
    let mut command = sordino();
    command.args(["show", "--json"]).arg(run);
    serde_json::from_slice(&succeed(command)).unwrap()
}

/// The head of a safetensors file, which must be complete.
fn head(path: &Path, bytes: &[u8]) -> Value {
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let head: Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    let ends = head.as_object().unwrap().values().filter_map(|tensor| tensor["data_offsets"][1].as_u64());
    assert_eq!(ends.max().unwrap() as usize, bytes.len() - 8 - header, "{} is incomplete", path.display());
    head
}

/// Checks the files of a run that was killed. Returns the epsilon of the charged steps, and whether the run is finished.
pub(crate) fn examine(run: &Path) -> (f64, bool) {
    let shown = show(run);
    let charged = shown["steps"].as_u64().unwrap();
    let metrics = fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
    let whole = metrics.rfind('\n').map_or("", |end| &metrics[..end]);
    for line in whole.lines() {
        let measured: Value = serde_json::from_str(line).unwrap();
        assert!(measured["step"].as_u64().unwrap() <= charged, "{line} with {charged} steps charged");
        assert_eq!(measured["protected"], true);
    }
    // Every result was charged before, and no more are charged than were planned.
    let measurements = shown["charged_measurements"].as_u64().unwrap();
    assert!(whole.lines().count() as u64 <= measurements && measurements <= MEASUREMENTS, "{measurements}");
    for file in ["model.safetensors", "checkpoint.safetensors"] {
        let Ok(bytes) = fs::read(run.join(file)) else { continue };
        if let Some(step) = head(&run.join(file), &bytes)["__metadata__"]["step"].as_str() {
            assert!(
                step.parse::<u64>().unwrap() <= charged,
                "{file} is of step {step}, and {charged} are charged"
            );
        }
    }
    if run.join("model.safetensors").exists() {
        let mut predict = sordino();
        predict.args(["predict", "--data", "mushroom", "--run"]).arg(run);
        succeed(predict);
    }
    let epsilon = shown["epsilon"].as_f64().unwrap();
    let so_far = shown["epsilon_so_far"].as_f64().unwrap_or(epsilon);
    assert!(so_far <= epsilon && epsilon <= BUDGET, "{so_far} of {epsilon}");
    (so_far, shown["finished"] == true)
}

/// Resumes a run until it is finished.
pub(crate) fn finish(run: &Path, spent: f64) {
    succeed(resume(run));
    let (epsilon, finished) = examine(run);
    assert!(finished && epsilon >= spent);
    assert_eq!(show(run)["steps"], STEPS);
}

#[test]
fn a_killed_run_covers_what_it_released_and_can_be_resumed() {
    let folder = Folder::new("kill-train");
    let mut moments = Moments::new(23);
    // Grows on machines where a process takes longer to start.
    let mut longest = Duration::from_millis(150);
    let (all, mut begun, mut resumed, mut finished) = (kills(60), 0, 0, 0);
    for number in 0.. {
        let run = folder.file(&number.to_string());
        let mut ended = kill_after(begin(&run), moments.within(longest));
        begun += usize::from(!ended);
        if !has_begun(&run) {
            longest += longest / 10;
            continue;
        }
        let (mut spent, done) = examine(&run);
        ended |= done;
        while !ended && begun + resumed < all {
            let draft = run.join("checkpoint.safetensors.draft");
            ended = match moments.below(3) {
                // While a checkpoint is written. A draft of the last kill may still be there.
                0 => {
                    let _ = fs::remove_file(&draft);
                    kill_on_sight(resume(&run), &[&draft], moments.within(Duration::from_micros(500)))
                }
                _ => kill_after(resume(&run), moments.within(longest)),
            };
            resumed += usize::from(!ended);
            let (now, done) = examine(&run);
            assert!(now >= spent, "epsilon fell from {spent} to {now}");
            (spent, ended) = (now, ended | done);
        }
        if !ended {
            // The last run may finish.
            finish(&run, spent);
        }
        finished += 1;
        if begun + resumed >= all {
            break;
        }
    }
    assert!(finished > 0);
    println!("killed: train {begun}, train --resume {resumed}; {finished} runs finished");
}
