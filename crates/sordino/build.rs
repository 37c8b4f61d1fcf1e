//! States the commit that the crate is built from, as `SORDINO_COMMIT`, so that stored results name their build.
//!
//! It is empty outside Sordino's own Git repository, such as in a package from a registry.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=..");
    // Git changes this file at every commit.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
    println!("cargo:rustc-env=SORDINO_COMMIT={}", commit().unwrap_or_default());
}

fn commit() -> Option<String> {
    let is_own_repository = git(&["rev-parse", "--show-prefix"])? == "crates/sordino/";
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).filter(|_| is_own_repository)?;
    let is_clean = git(&["status", "--porcelain", "--untracked-files=no", "--", ".."])?.is_empty();
    Some(if is_clean { commit } else { commit + " with changes" })
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
