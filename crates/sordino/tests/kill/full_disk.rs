//! Files that cannot grow: a limit on their size, and a full disk.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use sordino_testing::Folder;

use crate::{
    Moments, kills,
    train::{begin, examine, finish, has_begun, resume},
};

/// The same command, whose files end at a number of blocks of 512 bytes. At the limit, a write fails, or the signal of the limit kills the
/// process in the middle of a line.
fn limited(command: &Command, blocks: u64, fails: bool) -> Command {
    let mut limited = Command::new("sh");
    let trap = if fails { "trap '' XFSZ; " } else { "" };
    limited.args(["-c", &format!("ulimit -c 0; {trap}ulimit -f {blocks}; exec \"$@\""), "sh"]);
    limited.arg(command.get_program()).args(command.get_args());
    limited
}

/// Runs a command that is expected to fail, with an error and not with a panic. Returns whether it succeeded after all.
fn run(mut command: Command, may_be_killed: bool) -> bool {
    let output = command.stdout(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => true,
        Some(2) => {
            assert!(
                said.contains("error: ") && said.contains("hint: ") && !said.contains("panicked"),
                "{said}"
            );
            false
        }
        None if may_be_killed => false,
        other => panic!("{other:?}: {said}"),
    }
}

#[cfg(unix)]
#[test]
fn a_run_whose_files_cannot_grow_covers_what_it_released_and_can_be_resumed() {
    let (folder, mut moments, mut limits) = (Folder::new("kill-limit"), Moments::new(47), 0);
    let mut unfinished = None;
    for number in 0.. {
        let path = folder.file(&number.to_string());
        let fails = moments.below(2) == 0;
        // The first line of the ledger takes a few blocks, the model more.
        limits += usize::from(!run(limited(&begin(&path), 1 + moments.below(20), fails), !fails));
        if has_begun(&path) {
            let (spent, finished) = examine(&path);
            let size = fs::metadata(path.join("ledger")).unwrap().len() / 512;
            let fails = moments.below(2) == 0;
            if !finished {
                limits += usize::from(!run(limited(&resume(&path), size + moments.below(20), fails), !fails));
            }
            let (now, finished) = examine(&path);
            assert!(now >= spent, "epsilon fell from {spent} to {now}");
            unfinished = (!finished).then_some((path, now)).or(unfinished);
        }
        if limits >= kills(15) && unfinished.is_some() {
            break;
        }
    }
    let (path, spent) = unfinished.unwrap();
    finish(&path, spent);
    println!("killed: limits on files {limits}");
}

/// `SORDINO_SMALL_DISK` names a folder on a small file system of its own, which `bench/kills.py` mounts.
#[test]
fn a_run_on_a_full_disk_covers_what_it_released_and_can_be_resumed() {
    let Some(disk) = env::var_os("SORDINO_SMALL_DISK").map(PathBuf::from) else { return };
    let mut moments = Moments::new(59);
    let filler = disk.join("filler");
    // Writes until the disk is full, then leaves some bytes free.
    let fill = |free: u64| {
        let _ = fs::remove_file(&filler);
        let mut size: u64 = 1 << 30;
        while size >= 512 {
            let before = fs::metadata(&filler).map_or(0, |file| file.len());
            let grown = fs::OpenOptions::new().create(true).append(true).open(&filler);
            let block = vec![0; size.min(1 << 16) as usize];
            if grown.and_then(|mut file| std::io::Write::write_all(&mut file, &block)).is_err() {
                size /= 2;
            }
            size = if fs::metadata(&filler).map_or(0, |file| file.len()) == before { size / 2 } else { size };
        }
        let full = fs::metadata(&filler).unwrap().len();
        fs::OpenOptions::new().write(true).open(&filler).unwrap().set_len(full.saturating_sub(free)).unwrap();
    };
    let mut full = 0;
    while full < kills(10) {
        let path: &Path = &disk.join(full.to_string());
        fill(moments.below(40_000));
        let ended = run(begin(path), false);
        full += usize::from(!ended);
        if has_begun(path) {
            let (mut spent, mut finished) = examine(path);
            if !finished {
                fill(moments.below(10_000));
                full += usize::from(!run(resume(path), false));
                let (now, done) = examine(path);
                assert!(now >= spent, "epsilon fell from {spent} to {now}");
                (spent, finished) = (now, done);
            }
            fs::remove_file(&filler).unwrap();
            if !finished && full >= kills(10) {
                finish(path, spent);
            }
        }
        let _ = fs::remove_dir_all(path);
    }
    println!("killed: full disk {full}");
}
