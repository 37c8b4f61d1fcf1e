//! A folder to run commands in.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

/// The folder of a test, in which commands run.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    pub(crate) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("sordino-train-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder.canonicalize().unwrap())
    }

    pub(crate) fn run(&self, arguments: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sordino"));
        command.args(arguments.split_whitespace()).current_dir(&self.0).output().unwrap()
    }

    pub(crate) fn text(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Standard output, with any notes on standard error.
    pub(crate) fn text_with_notes(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn json(&self, arguments: &str) -> Value {
        serde_json::from_str(&self.text(&format!("{arguments} --json"))).unwrap()
    }

    /// The message of a command that fails with exit code 2, an error and a hint, and nothing on standard output.
    pub(crate) fn refusal(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {message}");
        assert!(output.stdout.is_empty());
        assert!(message.starts_with("error: "), "{arguments}: {message}");
        assert!(!message.contains("panicked") && !message.contains("backtrace"), "{message}");
        message
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        fs::write(self.0.join(name), content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.0.join(name)).unwrap()).into_owned()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        Path::new(&self.0).join(name).exists()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Starts a long run and interrupts it once it has begun. Its test records are public, so that it is measured along the way.
#[cfg(unix)]
pub(crate) fn interrupted(place: &Place, steps: u64, flags: &str) -> Output {
    let command = format!("train --noise-multiplier 5 --steps {steps} --test-set public --out run {flags}");
    interrupted_at(place, &command, "run/metrics.jsonl", std::time::Duration::ZERO)
}

/// Starts a command and interrupts it once there is a file with this name and this time has passed.
#[cfg(unix)]
pub(crate) fn interrupted_at(
    place: &Place,
    arguments: &str,
    file: &str,
    delay: std::time::Duration,
) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sordino"))
        .args(arguments.split_whitespace())
        .current_dir(&place.0)
        // Temporary files, if there are any, lie in the same folder.
        .env("TMPDIR", &place.0)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while !place.has(file) {
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(child.try_wait().unwrap().is_none(), "ended before it was interrupted");
    }
    std::thread::sleep(delay);
    // Twice at once, as `timeout` and job schedulers do: that is one request to stop.
    let mut interrupt = Command::new("kill");
    interrupt.args(["-INT", &child.id().to_string()]).stderr(std::process::Stdio::null());
    assert!(interrupt.status().unwrap().success());
    let _ = interrupt.status();
    child.wait_with_output().unwrap()
}
