//! `kill -9` at a hundred random moments: the ledger covers what was released, the files are complete, and the run can be resumed.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};
use serde_json::Value;

const KILLS: usize = 100;

fn sordino() -> Command {
    Command::new(env!("CARGO_BIN_EXE_sordino"))
}

fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("sordino-kill-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn begin(run: &Path) -> Command {
    let mut command = sordino();
    command.args(["train", "--noise-multiplier", "2", "--accountant", "rdp", "--steps", "60000"]);
    command.args(["--optimizer", "adam", "--learning-rate", "0.01", "--average", "0.99"]);
    command.args(["--checkpoint-seconds", "0.02", "--json", "--out"]).arg(run);
    command
}

fn resume(run: &Path) -> Command {
    let mut command = sordino();
    command.args(["train", "--json", "--resume"]).arg(run);
    command
}

/// Kills the process after a delay. Returns whether it ended by itself before.
fn kill_after(mut command: Command, delay: Duration) -> bool {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(delay);
    let ended = child.try_wait().unwrap();
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    if let Some(status) = ended {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(status.success(), "{said}");
    }
    ended.is_some()
}

/// The output of `show`, which verifies the ledger and checks the model against it.
fn show(run: &Path) -> Value {
    let output = sordino().args(["show", "--json"]).arg(run).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Checks the files of a killed run. Returns the epsilon of the charged steps.
fn examine(run: &Path) -> f64 {
    let shown = show(run);
    let charged = shown["steps"].as_u64().unwrap();
    let metrics = fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
    let whole = metrics.rfind('\n').map_or("", |end| &metrics[..end]);
    for line in whole.lines() {
        let measured: Value = serde_json::from_str(line).unwrap();
        assert!(measured["step"].as_u64().unwrap() <= charged, "{line} with {charged} steps charged");
    }
    for file in ["model.safetensors", "checkpoint.safetensors"] {
        if let Ok(bytes) = fs::read(run.join(file)) {
            let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            let head: Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
            let ends =
                head.as_object().unwrap().values().filter_map(|tensor| tensor["data_offsets"][1].as_u64());
            assert_eq!(ends.max().unwrap() as usize, bytes.len() - 8 - header, "{file} is incomplete");
        }
    }
    if run.join("model.safetensors").exists() {
        let predicted = sordino().args(["predict", "--data", "mushroom", "--run"]).arg(run).output().unwrap();
        assert!(predicted.status.success(), "{}", String::from_utf8_lossy(&predicted.stderr));
    }
    let so_far = shown["epsilon_so_far"].as_f64();
    let whole = shown["epsilon"].as_f64().unwrap();
    assert!(so_far.is_none_or(|so_far| so_far <= whole));
    so_far.unwrap_or(whole)
}

#[test]
fn a_killed_run_covers_what_it_released_and_can_be_resumed() {
    let folder = folder();
    let mut rng = ChaCha8Rng::seed_from_u64(23);
    // Grows on machines where a process takes longer to start.
    let mut longest = 150_000;
    let mut delay = |longest: u64| Duration::from_micros(rng.next_u64() % longest);
    let (mut kills, mut finished) = (0, 0);
    for number in 0.. {
        let run = folder.join(number.to_string());
        let mut ended = kill_after(begin(&run), delay(longest));
        kills += usize::from(!ended);
        // Killed before there was a ledger, so nothing was released and there is nothing to resume.
        if !run.join("ledger").exists() {
            assert!(!run.join("model.safetensors").exists() && !run.join("metrics.jsonl").exists());
            longest += longest / 10;
            continue;
        }
        // A ledger whose first line was not written: nothing can have been released either.
        if !fs::read(run.join("ledger")).unwrap().contains(&b'\n') {
            continue;
        }
        let mut epsilon = examine(&run);
        // A run that was killed after the last line of its ledger is finished.
        let finished_by_ledger = || show(&run)["finished"] == true;
        ended |= finished_by_ledger();
        while !ended && kills < KILLS {
            ended = kill_after(resume(&run), delay(longest));
            kills += usize::from(!ended);
            let now = examine(&run);
            assert!(now >= epsilon, "epsilon fell from {epsilon} to {now}");
            epsilon = now;
            ended |= finished_by_ledger();
        }
        if !ended {
            // The last run may finish.
            let output = resume(&run).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert!(examine(&run) >= epsilon);
            ended = true;
        }
        finished += u32::from(ended);
        let shown = show(&run);
        assert_eq!((&shown["finished"], &shown["steps"]), (&Value::Bool(true), &Value::from(60000)));
        if kills >= KILLS {
            break;
        }
    }
    assert!(finished > 0);
    fs::remove_dir_all(folder).unwrap();
}
