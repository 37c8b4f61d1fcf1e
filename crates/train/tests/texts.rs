//! Texts from files: they become tokens, and the folder of a run has what is needed to read more of them.
#![expect(clippy::unwrap_used, reason = "the functions that tests share may fail as the tests may")]

use std::{fs, path::PathBuf};

use sordino_data::Dataset;
use sordino_nn::{Inputs, Shape};
use sordino_train::{RunData, RunFiles, RunFolder, Settings, price, resolve};

const NETWORK: &str = "input = { tokens = { steps = 16, vocabulary = 16 } }\nlayers = [\n\
                       { type = \"embedding\", width = 4 },\n{ type = \"mean_over_steps\" },\n\
                       { type = \"linear\", outputs = 2 },\n]\n";

/// A new folder for one test.
fn place(name: &str) -> PathBuf {
    let place = std::env::temp_dir().join(format!("sordino-texts-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).unwrap();
    place.canonicalize().unwrap()
}

fn tokens(data: &Dataset) -> Vec<u32> {
    let Inputs::Tokens { tokens, .. } = data.inputs() else { panic!("tokens") };
    tokens.to_vec()
}

#[test]
fn a_folder_of_texts_becomes_tokens() {
    let place = place("folder");
    for (name, text) in [("neg.txt", "bad\nworse\n"), ("pos.txt", "good\n")] {
        fs::write(place.join(name), text).unwrap();
    }
    let settings = Settings {
        data: Some(place.clone()),
        tokenizer: Some("characters,alphabet=abdegorsw".to_owned()),
        max_length: Some(8),
        test_fraction: Some(0.0),
        ..Settings::default()
    };
    let data = RunData::read(&settings).unwrap();
    assert_eq!(data.description.facts.input, Shape::Tokens { steps: 8, vocabulary: 12 });
    assert_eq!(data.description.facts.classes, ["neg", "pos"]);
    assert_eq!(tokens(&data.train)[..3], [4, 3, 5]);
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn a_run_keeps_the_tokenizer_that_it_was_trained_with() {
    let place = place("tokenizer");
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/tests/fixtures/wordpiece.json");
    let original = place.join("my.json");
    fs::copy(fixture, &original).unwrap();
    fs::write(place.join("network.toml"), NETWORK).unwrap();
    let rows: String = (0..100).map(|row| format!("a good film {row},{}\n", row % 2)).collect();
    fs::write(place.join("t.csv"), format!("text,y\n{rows}")).unwrap();
    fs::write(
        place.join("new.toml"),
        "data = 't.csv'\ntokenizer = 'my.json'\nmax-length = 16\nclasses = 2\nmodel = 'network.toml'\nepsilon = 8.0\n\
         batch_size = 10\nsteps = 2\n",
    )
    .unwrap();
    let settings = Settings::read(&place.join("new.toml")).unwrap();
    let data = RunData::read(&settings).unwrap();
    assert_eq!(data.train.shape(), Shape::Tokens { steps: 16, vocabulary: 16 });
    let priced = price(resolve(&settings, &data.description).unwrap(), None).unwrap();
    let folder = RunFolder::create(&place.join("run")).unwrap();
    priced.write_settings(&folder).unwrap();

    // The run is complete without the original.
    let text = fs::read_to_string(fixture).unwrap();
    assert_eq!(RunFiles::read(&folder).unwrap().tokenizer.as_deref(), Some(text.as_str()));
    fs::remove_file(original).unwrap();
    let stored = Settings::read(&folder.config()).unwrap();
    assert_eq!((&stored.tokenizer, &stored.max_length), (&None, &None));
    let again = RunData::read(&stored).unwrap();
    assert_eq!(tokens(&again.train), tokens(&data.train));
    // And it is described by the same files.
    let second = price(resolve(&stored, &again.description).unwrap(), None).unwrap();
    assert_eq!(second.resolved.files, priced.resolved.files);
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn settings_of_texts_do_not_fit_other_data() {
    let settings = Settings { tokenizer: Some("bytes".to_owned()), ..Settings::default() };
    let error = RunData::read(&settings).err().unwrap();
    assert!(error.to_string().contains("tokenizer must be left out for a table without texts"), "{error}");
    let rows = Dataset::from_rows(&[[1.0]], &[true]).unwrap();
    let error = sordino_train::DataDescription::in_memory(&settings, &rows, None).unwrap_err();
    assert!(error.to_string().contains("tokenizer describes a file"), "{error}");
}
