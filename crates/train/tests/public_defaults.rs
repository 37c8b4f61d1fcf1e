//! What a public model states about its records is used if the settings do not say otherwise.
#![expect(clippy::unwrap_used, reason = "the functions that tests share may fail as the tests may")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use sordino_data::{Dataset, TextEncoder};
use sordino_nn::{Inputs, Shape};
use sordino_train::{Origin, RunData, RunFolder, Settings, price, resolve};

/// A folder for one test, with a copy of a tiny model and a small real tokenizer, whose vocabulary has 16 tokens.
struct Place(PathBuf);

impl Place {
    fn new(test: &str, kind: &str) -> Place {
        let place = std::env::temp_dir().join(format!("sordino-public-{test}-{kind}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(place.join("model")).unwrap();
        let place = Place(place.canonicalize().unwrap());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for file in ["config.json", "model.safetensors"] {
            fs::copy(
                root.join("nn/tests/fixtures/pretrained").join(kind).join(file),
                place.model().join(file),
            )
            .unwrap();
        }
        let tokenizer = root.join("data/tests/fixtures/wordpiece.json");
        fs::copy(tokenizer, place.model().join("tokenizer.json")).unwrap();
        place
    }

    fn model(&self) -> PathBuf {
        self.0.join("model")
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Settings with this model and data.
    fn settings(&self, data: &Path) -> Settings {
        Settings {
            data: Some(data.to_owned()),
            model: Some(self.model().display().to_string()),
            test_fraction: Some(0.0),
            ..Settings::default()
        }
    }

    /// A table of texts without a schema.
    fn reviews(&self) -> PathBuf {
        let rows: String = (0..100).map(|row| format!("a good film {row},{}\n", row % 2)).collect();
        self.write("reviews.csv", &format!("text,label\n{rows}"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn tokens(data: &Dataset) -> &[u32] {
    let Inputs::Tokens { tokens, .. } = data.inputs() else { panic!("tokens") };
    tokens
}

#[test]
fn texts_are_read_by_the_tokenizer_of_the_model_up_to_its_positions() {
    // Of 11 positions, RoBERTa uses two for padding.
    for (kind, positions) in [("bert", 11), ("distilbert", 11), ("roberta", 9), ("gpt2", 11)] {
        let place = Place::new("texts", kind);
        let settings = Settings { classes: Some(2), ..place.settings(&place.reviews()) };
        let data = RunData::read(&settings).unwrap();
        assert_eq!(data.train.shape(), Shape::Tokens { steps: positions, vocabulary: 16 }, "{kind}");
        let file = place.model().join("tokenizer.json");
        let encoder = TextEncoder::new(file.to_str().unwrap(), positions).unwrap();
        let first = encoder.encode("a good film 0".into()).unwrap();
        assert_eq!(tokens(&data.train)[..first.len()], first);
        // An encoder states the same.
        let encoder = Settings { model: None, encoder: Some(place.model()), ..settings };
        assert_eq!(RunData::read(&encoder).unwrap().train.shape(), data.train.shape());
    }
}

#[test]
fn a_model_with_many_positions_reads_256_tokens() {
    let place = Place::new("many", "bert");
    let config = fs::read_to_string(place.model().join("config.json")).unwrap();
    let config = config.replace("\"max_position_embeddings\": 11", "\"max_position_embeddings\": 512");
    place.write("model/config.json", &config);
    let settings = Settings { classes: Some(2), ..place.settings(&place.reviews()) };
    let shape = RunData::read(&settings).unwrap().train.shape();
    assert_eq!(shape, Shape::Tokens { steps: 256, vocabulary: 16 });
}

#[test]
fn settings_and_schemas_are_stronger_than_the_model() {
    let place = Place::new("stronger", "bert");
    let data = place.reviews();
    let settings = Settings { classes: Some(2), ..place.settings(&data) };
    let given = Settings { tokenizer: Some("bytes".to_owned()), max_length: Some(8), ..settings };
    assert_eq!(RunData::read(&given).unwrap().train.shape(), Shape::Tokens { steps: 8, vocabulary: 258 });
    let columns = "target = 'label'\n[[columns]]\nname = 'label'\ntype = 'category'\nvalues = ['0', '1']\n\
                   [[columns]]\nname = 'text'\ntype = 'text'\n";
    for (more, shape) in [
        ("", Shape::Tokens { steps: 11, vocabulary: 16 }),
        ("max_length = 9\n", Shape::Tokens { steps: 9, vocabulary: 16 }),
        ("tokenizer = 'bytes'\n", Shape::Tokens { steps: 11, vocabulary: 258 }),
    ] {
        let schema = Some(place.write("schema.toml", &format!("{columns}{more}")));
        let settings = Settings { schema, ..place.settings(&data) };
        assert_eq!(RunData::read(&settings).unwrap().train.shape(), shape, "{more}");
    }
    // A table without texts, and data that is not text, stay as they are.
    let mushroom = Settings { data: None, ..place.settings(&data) };
    assert_eq!(RunData::read(&mushroom).unwrap().train.shape(), Shape::Features(126));
}

#[test]
fn a_run_keeps_the_tokenizer_of_its_model() {
    let place = Place::new("run", "bert");
    let settings = Settings {
        classes: Some(2),
        epsilon: Some(sordino_accounting::Epsilon::new(8.0).unwrap()),
        batch_size: Some(10),
        steps: Some(sordino_accounting::Steps::new(2).unwrap()),
        ..place.settings(&place.reviews())
    };
    let data = RunData::read(&settings).unwrap();
    let priced = price(resolve(&settings, &data.description).unwrap(), None).unwrap();
    let folder = RunFolder::create(&place.0.join("run")).unwrap();
    priced.write_settings(&folder).unwrap();
    assert_eq!(
        fs::read(folder.path().join("tokenizer.json")).unwrap(),
        fs::read(place.model().join("tokenizer.json")).unwrap()
    );
    // After a change of the model's tokenizer, the run still reads the same tokens, but the public model counts as changed.
    place.write("model/tokenizer.json", "{}");
    let stored = Settings::read(&folder.config()).unwrap();
    let again = RunData::read(&stored).unwrap();
    assert_eq!(tokens(&again.train), tokens(&data.train));
    let (files, before) = (resolve(&stored, &again.description).unwrap().files, priced.resolved.files);
    assert_eq!(files.tokenizer, before.tokenizer);
    assert_ne!(files.public_model, before.public_model);
}

/// A grey image of 2 by 2 pixels, as the PNG encoder of another program wrote it.
fn png() -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let image = image::GrayImage::from_pixel(2, 2, image::Luma([255]));
    image.write_to(&mut bytes, image::ImageFormat::Png).unwrap();
    bytes.into_inner()
}

#[test]
fn images_have_the_size_and_the_normalisation_of_the_model() {
    let place = Place::new("images", "vit");
    for name in ["pets/cat/1.png", "pets/dog/1.png"] {
        let path = place.write(name, "");
        fs::write(path, png()).unwrap();
    }
    let settings = place.settings(&place.0.join("pets"));
    let first = |settings: &Settings| {
        let data = RunData::read(settings).unwrap();
        assert_eq!(data.train.shape(), Shape::Image { channels: 3, height: 8, width: 8 });
        let Inputs::Dense(values) = data.train.inputs() else { panic!("pixels") };
        [values[0], values[64], values[128]]
    };
    // White is 1, and becomes (1 - 0.5) / 0.5.
    assert_eq!(first(&settings), [1.0; 3]);
    place.write(
        "model/preprocessor_config.json",
        "{\"image_mean\": [0.5, 0.25, 0.0], \"image_std\": [0.5, 0.25, 0.125]}",
    );
    assert_eq!(first(&settings), [1.0, 3.0, 8.0]);
    let given = Settings { mean: Some(vec![0.0]), std: Some(vec![1.0]), ..settings.clone() };
    assert_eq!(first(&given), [1.0; 3]);

    let data = RunData::read(&settings).unwrap();
    let resolved = resolve(&settings, &data.description).unwrap();
    let mean = resolved.values.mean.as_ref().unwrap();
    assert_eq!((&mean.value, mean.origin), (&vec![0.5, 0.25, 0.0], Origin::PublicFact));
    assert_eq!(resolved.values.image_size.as_ref().unwrap().value.to_string(), "8x8");
    assert_eq!(resolved.values.channels.as_ref().unwrap().origin, Origin::PublicFact);

    // A model of grey images.
    fs::remove_file(place.model().join("preprocessor_config.json")).unwrap();
    let config = fs::read_to_string(place.model().join("config.json")).unwrap();
    place.write("model/config.json", &config.replace("\"num_channels\": 3", "\"num_channels\": 1"));
    let data = RunData::read(&settings).unwrap();
    assert_eq!(data.train.shape(), Shape::Image { channels: 1, height: 8, width: 8 });
}
