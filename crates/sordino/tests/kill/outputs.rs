//! Commands that write files, killed at any moment: a file is absent, the earlier one, or whole.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use serde_json::Value;
use sordino_testing::Folder;

use crate::{Moments, kill_after, kill_on_sight, kills, sordino, succeed};

/// A command, and the files that it writes. In the arguments, `{in}` is the folder of the good files that [`inputs`] makes, and `{out}`
/// a new folder.
struct Writer {
    name: &'static str,
    arguments: &'static [&'static str],
    files: &'static [Written],
}

/// A file or a folder in `{out}`, and whether it is whole.
struct Written {
    name: &'static str,
    /// Where it is written before it gets its name.
    draft: &'static str,
    is_whole: fn(&Path) -> bool,
    /// Whether the command replaces an earlier file.
    replaces: bool,
}

const JSON: fn(&Path) -> bool = |path| {
    let value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap_or_default();
    value.as_object().is_some_and(|object| !object.is_empty()) || value.is_array()
};
const SVG: fn(&Path) -> bool = |path| fs::read_to_string(path).unwrap().trim_end().ends_with("</svg>");
const CSV: fn(&Path) -> bool = |path| fs::read_to_string(path).unwrap().lines().count() == 401;

/// Every command that writes files, except `train`. A new one is added here.
const WRITERS: &[Writer] = &[
    Writer {
        name: "compare",
        arguments: &[
            "compare",
            "--algorithms",
            "dp-sgd",
            "--repeats",
            "1",
            "--steps",
            "30",
            "--accountant",
            "rdp",
            "--out",
            "{out}/c.json",
            "--figure",
            "{out}/c.svg",
            "--tune",
            "{in}/grid.toml",
        ],
        files: &[
            Written { name: "c.json", draft: "c.json.draft", is_whole: JSON, replaces: false },
            Written { name: "c.svg", draft: "c.svg.draft", is_whole: SVG, replaces: false },
        ],
    },
    Writer {
        name: "schedule",
        arguments: &[
            "schedule",
            "--epsilon",
            "2",
            "--delta",
            "1e-5",
            "--sample-rate",
            "0.05",
            "--steps",
            "400",
            "--max-grad-norm",
            "1",
            "--points",
            "2",
            "--csv",
            "{out}/s.csv",
            "--plan-out",
            "{out}/s.json",
            "--figure",
            "{out}/s.svg",
        ],
        files: &[
            Written { name: "s.csv", draft: "s.csv.draft", is_whole: CSV, replaces: true },
            Written { name: "s.json", draft: "s.json.draft", is_whole: JSON, replaces: true },
            Written { name: "s.svg", draft: "s.svg.draft", is_whole: SVG, replaces: true },
        ],
    },
    Writer {
        name: "data convert",
        arguments: &["data", "convert", "{in}/t.csv", "--classes", "2", "--out", "{out}/t.sordino"],
        files: &[Written {
            name: "t.sordino",
            draft: "",
            is_whole: |path| sordino().args(["data", "show"]).arg(path).output().unwrap().status.success(),
            replaces: false,
        }],
    },
    Writer {
        name: "report",
        arguments: &["report", "{in}/run", "--out", "{out}/report.html"],
        files: &[Written {
            name: "report.html",
            draft: "report.html.draft",
            is_whole: |path| fs::read_to_string(path).unwrap().trim_end().ends_with("</html>"),
            replaces: true,
        }],
    },
    Writer {
        name: "audit",
        arguments: &[
            "audit",
            "--noise-multiplier",
            "4",
            "--accountant",
            "rdp",
            "--steps",
            "30",
            "--canaries",
            "10",
            "--out",
            "{out}/a.json",
        ],
        files: &[Written { name: "a.json", draft: "a.json.draft", is_whole: JSON, replaces: false }],
    },
    Writer {
        name: "export",
        arguments: &["export", "{in}/run", "--out", "{out}/model"],
        files: &[Written {
            name: "model",
            draft: "model.partial",
            is_whole: |path| sordino::nn::pretrained::Pretrained::open(path).is_ok(),
            replaces: false,
        }],
    },
];

/// The files that the commands read: a table, and a run on a small pre-trained model.
fn inputs(folder: &Folder) -> PathBuf {
    let rows: String = (0..20_000).map(|row| format!("{},{},{}\n", row % 97, row % 89, row % 2)).collect();
    fs::write(folder.file("t.csv"), format!("a,b,c\n{rows}")).unwrap();
    fs::write(folder.file("grid.toml"), "learning_rate = [10, 20]\nmax_grad_norm = [0.5, 1]\n").unwrap();
    let texts: String = (0..40).map(|row| format!("film {row},{}\n", row % 2)).collect();
    fs::write(folder.file("texts.csv"), format!("text,class\n{texts}")).unwrap();
    fs::create_dir(folder.file("model")).unwrap();
    for file in ["config.json", "model.safetensors"] {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nn/tests/fixtures/pretrained/bert");
        fs::copy(model.join(file), folder.file("model").join(file)).unwrap();
    }
    let mut train = sordino();
    train.args(["train", "--classes", "2", "--target", "class", "--max-length", "11", "--train", "head"]);
    // As many tokens as the model has.
    train.args(["--tokenizer", "characters,alphabet=abcdefghijklmnopq"]);
    train.args(["--noise-multiplier", "4", "--accountant", "rdp", "--steps", "2"]);
    train.arg("--data").arg(folder.file("texts.csv")).arg("--model").arg(folder.file("model"));
    train.arg("--out").arg(folder.file("run"));
    succeed(train);
    folder.file("")
}

fn command(writer: &Writer, inputs: &Path, out: &Path) -> Command {
    let mut command = sordino();
    let filled = |argument: &&str| {
        argument.replace("{in}", &inputs.display().to_string()).replace("{out}", &out.display().to_string())
    };
    command.args(writer.arguments.iter().map(filled));
    command
}

/// Checks every file that exists, and that no earlier file is lost.
fn check(writer: &Writer, out: &Path, had_earlier: bool) {
    for file in writer.files {
        let path = out.join(file.name);
        assert!(
            !path.exists() || (file.is_whole)(&path),
            "{}: {} is incomplete",
            writer.name,
            path.display()
        );
        assert!(
            path.exists() || !had_earlier || !file.replaces,
            "{}: {} is lost",
            writer.name,
            path.display()
        );
    }
}

/// Removes what a command does not replace.
fn clear(writer: &Writer, out: &Path) {
    for file in writer.files {
        let paths = [
            (!file.replaces).then(|| out.join(file.name)),
            (!file.draft.is_empty()).then(|| out.join(file.draft)),
        ];
        for path in paths.into_iter().flatten() {
            let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
        }
    }
}

#[test]
fn a_killed_command_leaves_no_half_written_file() {
    let (folder, mut moments) = (Folder::new("kill-outputs"), Moments::new(31));
    let inputs = inputs(&folder);
    for writer in WRITERS {
        let out = folder.file(&writer.name.replace(' ', "-"));
        fs::create_dir(&out).unwrap();
        let begun = Instant::now();
        succeed(command(writer, &inputs, &out));
        let lasts = begun.elapsed();
        check(writer, &out, true);
        let (mut killed, mut ended) = (0, 0);
        while killed < kills(25).div_ceil(WRITERS.len()) && ended < 20 + killed {
            // Every other time there are no earlier files.
            let has_earlier = moments.below(2) == 0;
            if !has_earlier {
                fs::remove_dir_all(&out).unwrap();
                fs::create_dir(&out).unwrap();
            } else if writer.files.iter().any(|file| file.replaces && !out.join(file.name).exists()) {
                succeed(command(writer, &inputs, &out));
            }
            clear(writer, &out);
            let drafts: Vec<PathBuf> = writer
                .files
                .iter()
                .filter(|file| !file.draft.is_empty())
                .map(|file| out.join(file.draft))
                .collect();
            let drafts: Vec<&Path> = drafts.iter().map(PathBuf::as_path).collect();
            let command = command(writer, &inputs, &out);
            let by_itself = match moments.below(2) {
                0 if !drafts.is_empty() => {
                    kill_on_sight(command, &drafts, moments.within(Duration::from_millis(1)))
                }
                _ => kill_after(command, moments.within(lasts)),
            };
            (killed, ended) = (killed + usize::from(!by_itself), ended + usize::from(by_itself));
            check(writer, &out, has_earlier);
        }
        clear(writer, &out);
        succeed(self::command(writer, &inputs, &out));
        check(writer, &out, true);
        println!("killed: {} {killed}", writer.name);
    }
}
