//! Some inputs of every target, and planted faults that the program must find.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::process::{Command, Output};

fn fuzz(arguments: &[&str], seconds: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sordino-fuzz"));
    command.args(arguments).env("SORDINO_FUZZ_SECONDS", seconds).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn damaged_files_are_read_or_refused() {
    let output = fuzz(&["all", "400"], "60");
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// The limit on memory needs Linux.
#[cfg(target_os = "linux")]
#[test]
fn planted_faults_are_found() {
    for (target, message) in [
        ("planted-panic", "a panic"),
        ("planted-stack", "stack overflow"),
        ("planted-memory", "memory allocation of 3221225472 bytes failed"),
        ("planted-hang", "takes longer than 1 s"),
        ("planted-acceptance", "planted"),
    ] {
        let output = fuzz(&[target, "200"], "1");
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(!output.status.success() && said.contains(message), "{target}: {said}");
    }
}

#[test]
fn an_input_can_be_shown_again() {
    let shown = |number| fuzz(&["show", "plan", number], "60").stdout;
    assert!(text(&shown("0")).starts_with("[{\"noise_multiplier\""));
    assert!(shown("77") == shown("77") && shown("77") != shown("78"));
}
