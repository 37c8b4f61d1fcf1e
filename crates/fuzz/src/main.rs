//! Reads many damaged files: `sordino-fuzz TARGET|all INPUTS [FIRST]`.
//!
//! Every target runs in a process of its own, whose address space is limited. A failure is printed with the number of its input, and
//! `sordino-fuzz show TARGET NUMBER` writes that input to standard output.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::{
    env, fs,
    io::{self, Write},
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    process::{self, Command, ExitCode, exit},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use sordino_fuzz::{Target, input, targets};

/// The limit of the address space, in KiB: 1 GiB and what the program itself maps.
const ADDRESS_SPACE: u64 = (1 << 20) + (1 << 18);

/// The input that is being read.
static READING: AtomicU64 = AtomicU64::new(0);

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let texts: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().unwrap();
    match texts[..] {
        ["show", target, at] => {
            io::stdout().write_all(&input(&*make(target), number(at))).unwrap();
            ExitCode::SUCCESS
        }
        ["read", target, inputs, first] => read(target, number(first), number(inputs)),
        ["all", inputs] => {
            begin(&targets::all().into_iter().map(|(name, _)| name).collect::<Vec<_>>(), inputs, "0")
        }
        [target, inputs] => begin(&[target], inputs, "0"),
        [target, inputs, first] => begin(&[target], inputs, first),
        _ => {
            let names: Vec<&str> = targets::all().into_iter().map(|(name, _)| name).collect();
            eprintln!("usage: sordino-fuzz TARGET|all INPUTS [FIRST]\ntargets: {}", names.join(", "));
            ExitCode::from(2)
        }
    }
}

fn make(name: &str) -> Box<dyn Target> {
    targets::named(name).unwrap_or_else(|| panic!("there is no target {name}"))
}

/// The most seconds that one small file may take.
fn seconds() -> u64 {
    env::var("SORDINO_FUZZ_SECONDS").map_or(30, |seconds| seconds.parse().unwrap())
}

/// A folder in memory, if there is one.
fn scratch() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { env::temp_dir() }
}

/// The name of the file with the number of a recent input, for a process that ends without a message.
const POSITION: &str = "position";

/// Starts a limited process for each target.
fn begin(names: &[&str], inputs: &str, first: &str) -> ExitCode {
    println!("| target | inputs | accepted | seconds |\n| --- | ---: | ---: | ---: |");
    let mut failed = 0;
    for name in names {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -v {ADDRESS_SPACE} 2>/dev/null; exec \"$@\""), "sh"]);
        command.arg(env::current_exe().unwrap()).args(["read", name, inputs, first]);
        // One thread, so that stacks and arenas take little of the address space.
        command.env("RAYON_NUM_THREADS", "1").env("MALLOC_ARENA_MAX", "1").env("RUST_BACKTRACE", "0");
        // A process that is ended leaves its files.
        let folder = scratch().join(format!("sordino-fuzz-{}-{name}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        command.env("TMPDIR", &folder);
        let status = command.status().unwrap();
        if !status.success() {
            let at = fs::read_to_string(folder.join(POSITION)).unwrap_or_default();
            println!(
                "{name}: {status} {}",
                if at.is_empty() { String::new() } else { format!("between {at} and 255 inputs later") }
            );
            failed += 1;
        }
        let _ = fs::remove_dir_all(&folder);
    }
    ExitCode::from(u8::from(failed > 0))
}

/// Reads the inputs of a target in this process.
fn read(name: &str, first: u64, inputs: u64) -> ExitCode {
    let mut target = make(name);
    watch(name.to_owned());
    let (begun, mut accepted, mut failures, mut reported) = (Instant::now(), 0, 0, 0);
    for number in first..first + inputs {
        READING.store(number, Ordering::Relaxed);
        // An abort (a full stack, memory that is refused) leaves no message, so the number is on the disk.
        if number.is_multiple_of(256) {
            let _ = fs::write(env::temp_dir().join(POSITION), number.to_string());
        }
        let bytes = input(&*target, number);
        match panic::catch_unwind(AssertUnwindSafe(|| target.read(&bytes))) {
            Ok(Ok(false)) if number < target.good().len() as u64 => {
                eprintln!("{name} {number}: a good file was refused");
                failures += 1;
            }
            Ok(Ok(read)) => accepted += u64::from(read),
            Ok(Err(problem)) => {
                eprintln!("{name} {number}: {problem}");
                failures += 1;
            }
            Err(_) => {
                eprintln!("{name} {number}: a panic");
                failures += 1;
            }
        }
        if failures > reported {
            reported = failures;
            // The good files of a run differ from process to process, so the input is kept.
            let kept = scratch().join(format!("sordino-fuzz-{name}-{number}.input"));
            let _ = fs::write(&kept, &bytes);
            eprintln!("its input is in {}", kept.display());
        }
        if failures >= 10 {
            break;
        }
    }
    println!("| {name} | {inputs} | {accepted} | {:.0} |", begun.elapsed().as_secs_f64());
    drop(target);
    let _ = fs::remove_file(env::temp_dir().join(POSITION));
    ExitCode::from(u8::from(failures > 0))
}

/// Ends the process if an input takes too long: in the time of the processor, because other processes may be running, or twenty times as
/// long by the clock.
fn watch(name: String) {
    thread::spawn(move || {
        let (mut last, mut since, mut used) = (u64::MAX, Instant::now(), processor_seconds());
        loop {
            thread::sleep(Duration::from_millis(200));
            let (now, limit) = (READING.load(Ordering::Relaxed), seconds());
            if now != last {
                (last, since, used) = (now, Instant::now(), processor_seconds());
            } else if processor_seconds() > used + limit || since.elapsed() > Duration::from_secs(20 * limit)
            {
                eprintln!("{name} {now}: takes longer than {limit} s");
                exit(3);
            }
        }
    });
}

/// The seconds of the processor that this process has used; 0 where they are not known.
fn processor_seconds() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in parentheses, may have spaces. Times are in hundredths of a second.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    (field(11) + field(12)) / 100
}
