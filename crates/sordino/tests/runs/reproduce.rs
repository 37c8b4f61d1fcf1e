//! `sordino reproduce`: the tables of papers.

use std::{fs, path::Path};

use sordino::{reproduction::data_sets, train::RunData};

use crate::{place::Place, predict::archive};

#[test]
fn tables_are_listed_with_the_data_that_they_need() {
    let place = Place::new("reproduce-list");
    let list = place.text("reproduce");
    let line = |name: &str| list.lines().find(|line| line.trim().starts_with(&format!("{name} "))).unwrap();
    assert!(line("dynamic-1").ends_with("[mnist, fashion-mnist]"), "{list}");
    assert!(line("dicesgd-2").ends_with("[cifar10, cifar100, vit-small]"), "{list}");
    fs::create_dir_all(place.0.join("data/mnist")).unwrap();
    let list = place.text("reproduce --data data");
    assert!(list.contains("missing: fashion-mnist"), "{list}");
}

/// The true epsilon of a plan needs the number of records and no record.
#[test]
fn a_table_without_its_data_still_has_true_epsilons() {
    let place = Place::new("reproduce-prices");
    let output = place.run("reproduce dynamic-4 --only vanilla --json");
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(
        notes.contains(
            "cannot run: no folder of data is given; it must contain infinite-mnist-250k (four IDX files: 250,000 images"
        ),
        "{notes}"
    );
    let table: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let cells = table["cells"].as_array().unwrap();
    let epsilon = |place: usize| cells[place]["true_epsilon"]["proved"].as_f64().unwrap();
    // A claimed epsilon of 1 at the rates 0.001 and 0.0005.
    assert!((epsilon(2) - 2.29).abs() < 0.005 && (epsilon(5) - 3.956).abs() < 0.005, "{cells:?}");
    assert!(!place.has("reproduction"));
}

#[test]
fn finished_runs_are_kept_and_not_trained_again() {
    let place = Place::new("reproduce-cache");
    let command = "reproduce dp-c4-1 --only mushroom --quick --markdown table.md --json";
    let first = place.run(command);
    let notes = String::from_utf8(first.stderr).unwrap();
    // Five algorithms as published, four of them with a proved epsilon, and the best settings.
    assert_eq!(notes.lines().filter(|line| line.starts_with("run ")).count(), 10, "{notes}");
    let table: serde_json::Value = serde_json::from_slice(&first.stdout).unwrap();
    let cells = table["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 5);
    assert!(cells[0]["best"]["mean"].as_f64().unwrap() > 75.0, "{table}");
    assert!(
        cells[0]["true_epsilon"]["proved"].as_f64().unwrap() < cells[0]["claimed_epsilon"].as_f64().unwrap()
    );
    assert_eq!(cells[3]["true_epsilon"], "none");
    assert!(
        place.read("table.md").contains("| Mushroom, 1 | DP-C4 | 1 | none | 91.76 |"),
        "{}",
        place.read("table.md")
    );
    let files = fs::read_dir(place.0.join("reproduction")).unwrap().count();
    assert_eq!(files, 10);
    assert_eq!(place.text(command).as_bytes(), first.stdout);
    let text = place.text("reproduce dp-c4-1 --only mushroom --quick");
    for part in [
        "The paper states: all clipping norms 1",
        "at delta 1e-5",
        "(1) marks single runs",
        "Each result is that of one run",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(place.text("reproduce dp-c4-1 --only mushroom --only DP-SGD --quick").contains("QUICK"));
    // `sordino report` accepts the JSON.
    place.write("table.json", std::str::from_utf8(&first.stdout).unwrap());
    place.text("report table.json");
    let page = place.read("report.html");
    for part in ["DP-C4 and its baselines", "<svg", "91.76", "Setting", "QUICK"] {
        assert!(page.contains(part), "{part}");
    }
    let report: serde_json::Value =
        serde_json::from_str(&place.text("report table.json --format json")).unwrap();
    assert_eq!(report["reports"][0]["kind"], "reproduction");
    assert_eq!(report["reports"][0]["cells"], table["cells"]);
    // Only one column is trained.
    let best = place.run("reproduce dp-c4-1 --only mushroom --quick --column best --results best --json");
    let table: serde_json::Value = serde_json::from_slice(&best.stdout).unwrap();
    assert_eq!(table["cells"][0]["best"]["mean"], cells[0]["best"]["mean"]);
    assert!(table["cells"][0]["published"].is_null());
    assert_eq!(fs::read_dir(place.0.join("best")).unwrap().count(), 1);
    // Damaged results are found before training.
    let name = fs::read_dir(place.0.join("best")).unwrap().next().unwrap().unwrap().file_name();
    let stored = format!("best/{}", name.to_str().unwrap());
    let whole = place.read(&stored);
    place.write(&stored, &whole.replace("\"accuracy\": 0.", "\"accuracy\": 7."));
    let damaged = place.refusal("reproduce dp-c4-1 --only mushroom --quick --results best");
    assert!(damaged.contains("an accuracy must be from 0 to 1, got 7."), "{damaged}");
    assert_eq!(fs::read_dir(place.0.join("best")).unwrap().count(), 1);
    place.write(&stored, &whole);
    // The list counts whole runs.
    assert!(!place.text("reproduce --results best").contains("have results"));
    place.run("reproduce dp-c4-1 --only mushroom --column best --runs 1 --results best");
    let list = place.text("reproduce --results best");
    assert!(list.contains("DP-C4 and its baselines  (1 of "), "{list}");
}

#[test]
fn wrong_arguments_are_refused() {
    let place = Place::new("reproduce-wrong");
    let both = place.refusal("reproduce dp-c4-1 --results there --markdown ./there");
    assert!(both.contains("--markdown and --results both name there"), "{both}");
    place.write("file", "");
    let inside = place.refusal("reproduce dp-c4-1-readings --only mushroom --results file/results");
    assert!(inside.contains("cannot store results in file/results"), "{inside}");
    assert!(place.refusal("reproduce table-7").contains("there is no table table-7"));
    assert!(place.refusal("reproduce dynamic-1 --data nowhere").contains("nowhere is not a folder"));
    assert!(place.refusal("reproduce dynamic-1 --runs 0").contains("between 1 and 1000, got 0"));
    assert!(place.refusal("reproduce --markdown table.md").contains("--markdown needs a table"));
    let nowhere = place.refusal("reproduce dp-c4-1 --markdown nowhere/table.md");
    assert!(
        nowhere.contains("nowhere/table.md") && nowhere.contains("a file that can be written"),
        "{nowhere}"
    );
    assert!(
        place
            .refusal("reproduce dynamic-1 --only imagenet")
            .contains("no cell of dynamic-1 matches imagenet")
    );
}

/// Small files of the same format replace the data sets.
#[test]
fn every_data_set_is_read_from_its_folder() {
    let place = Place::new("reproduce-data");
    let write = |name: &str, bytes: &[u8]| {
        let path = place.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    let idx = |magic: [u8; 4], sizes: &[u32], values: Vec<u8>| {
        [magic.to_vec(), sizes.iter().flat_map(|size| size.to_be_bytes()).collect(), values].concat()
    };
    for folder in ["mnist", "fashion-mnist", "infinite-mnist-250k", "infinite-mnist-500k"] {
        for part in ["train", "t10k"] {
            write(
                &format!("{folder}/{part}-images-idx3-ubyte"),
                &idx([0, 0, 8, 3], &[20, 28, 28], vec![7; 20 * 784]),
            );
            write(
                &format!("{folder}/{part}-labels-idx1-ubyte"),
                &idx([0, 0, 8, 1], &[20], (0..20).map(|i| i % 10).collect()),
            );
        }
    }
    let pixels = [9; 3072];
    for file in ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"]
    {
        write(&format!("cifar10/{file}.bin"), &[&[3][..], &pixels, &[4], &pixels].concat());
    }
    for file in ["train", "test"] {
        write(&format!("cifar100/{file}.bin"), &[&[1, 99][..], &pixels, &[1, 5], &pixels].concat());
    }
    archive(&place, "svhn.npz", &[40, 32, 32, 3], 10);
    for part in ["train", "test"] {
        for class in ["neg", "pos"] {
            write(&format!("imdb/aclImdb/{part}/{class}/0_1.txt"), b"a film");
        }
    }
    for part in ["train", "dev"] {
        write(&format!("sst2/{part}.tsv"), b"sentence\tlabel\ngood \t1\nbad \t0\n");
        write(
            &format!("qnli/{part}.tsv"),
            b"index\tquestion\tsentence\tlabel\n0\tWho?\tShe.\tentailment\n1\tWhen?\tThere.\tnot_entailment\n",
        );
    }
    for part in ["train", "dev"] {
        write(
            &format!("e2e/{part}set.csv"),
            b"mr,ref\nname[Aromi],Aromi is a pub.\nname[Zizzi],Zizzi is a bar.\n",
        );
    }
    write("names/Irish.txt", b"Ryan\nKelly\nNolan\nByrne\nWalsh\n");
    write("names/Greek.txt", b"Pappas\nManos\nKouros\nLekas\nRouvas\n");
    let picture = image::DynamicImage::ImageLuma8(image::GrayImage::from_pixel(9, 7, image::Luma([80])));
    let mut png = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut png, image::ImageFormat::Png).unwrap();
    for part in ["train", "test"] {
        for class in ["NORMAL", "PNEUMONIA"] {
            write(&format!("chest-xray/{part}/{class}/1.png"), png.get_ref());
        }
    }
    for set in data_sets() {
        let settings =
            set.settings(Some(Path::new(&place.0))).unwrap_or_else(|| panic!("{} is missing", set.name));
        let data = RunData::read(&settings).unwrap_or_else(|error| panic!("{}: {error}", set.name));
        let classes = match set.name {
            "cifar100" => 100,
            "e2e" => 0,
            "mushroom" | "imdb" | "sst2" | "qnli" | "names" | "chest-xray" => 2,
            _ => 10,
        };
        assert_eq!(data.description.facts.classes.len(), classes, "{}", set.name);
        assert!(data.test.is_some_and(|test| !test.is_empty()), "{}", set.name);
    }
}
