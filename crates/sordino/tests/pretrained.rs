//! Pre-trained models as a user trains them: a tiny random BERT, whose weights are a test file of the engine.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use sordino::{
    Dataset, Fitted, Labels, Model, Pooling, Trainer,
    nn::{Targets, pretrained::Export},
};

const STEPS: usize = 11;
const VOCABULARY: usize = 20;

/// A folder with a copy of the model, which is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("sordino-pretrained-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("model")).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nn/tests/fixtures/pretrained/bert");
        for file in ["config.json", "model.safetensors"] {
            fs::copy(source.join(file), folder.join("model").join(file)).unwrap();
        }
        Self(folder)
    }

    fn model(&self) -> PathBuf {
        self.0.join("model")
    }

    fn run(&self) -> PathBuf {
        self.0.join("run")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Sequences of different lengths; the class is whether the token 3 occurs often.
fn data(count: usize) -> Dataset {
    let (mut tokens, mut starts, mut classes) = (Vec::new(), vec![0], Vec::new());
    for record in 0..count as u32 {
        let class = record % 2;
        let length = 3 + record * 5 % (STEPS as u32 - 2);
        tokens.extend((0..length).map(|step| if class == 1 { 3 } else { 4 + (record * 7 + step * 3) % 16 }));
        starts.push(tokens.len());
        classes.push(class);
    }
    Dataset::from_tokens(tokens, starts, STEPS, VOCABULARY, Labels::classes(&classes, 2)).unwrap()
}

fn trainer<'a>(model: Model) -> Trainer<'a> {
    Trainer::new(model).budget(8.0, 1e-5).unwrap().batch_size(200).epochs(15.0)
}

fn trainer_on<'a>(folder: &Path, part: &str) -> Trainer<'a> {
    trainer(Model::pretrained(folder)).trained_part(part)
}

#[test]
fn every_part_of_a_pre_trained_model_is_trained_privately() {
    let folder = Folder::new("parts");
    let data = data(1000);
    for part in ["head", "last,layers=1", "lora,rank=2", "all"] {
        let fitted = trainer_on(&folder.model(), part).fit(&data).unwrap();
        let statement = fitted.guarantee().to_string();
        assert!(statement.starts_with("This model on top of model satisfies (7.9"), "{statement}");
        assert!(statement.contains("model.safetensors, a public file with SHA-256 "), "{statement}");
        // With a fixed seed, so that the test does not depend on chance.
        let seeded = trainer_on(&folder.model(), part).seed(1).fit(&data).unwrap();
        let accuracy = seeded.score(&data).unwrap().accuracy.unwrap();
        assert!(accuracy > 0.8, "{part}: {accuracy}");
    }
}

#[test]
fn a_model_is_trained_on_the_outputs_of_a_public_encoder() {
    let folder = Folder::new("encoder");
    let data = data(1000);
    let fitted = trainer(Model::mlp(&[16])).encoder(folder.model()).fit(&data).unwrap();
    assert!(fitted.guarantee().to_string().contains("config.json, a public file with SHA-256 "));
    let seeded = trainer(Model::mlp(&[16])).encoder(folder.model()).seed(1).fit(&data).unwrap();
    assert!(seeded.score(&data).unwrap().accuracy.unwrap() > 0.9);
    // The encoder is not part of the model's parameters.
    assert_eq!(fitted.params().values().len(), 8 * 16 + 16 + 16 * 2 + 2);
}

#[test]
fn a_model_is_trained_on_the_features_of_all_layers() {
    let folder = Folder::new("all-layers");
    let data = data(1000);
    let trainer = || {
        let trainer = trainer(Model::named("logistic").unwrap()).encoder(folder.model());
        trainer.pooling(Pooling::AllLayers).seed(1)
    };
    let fitted = trainer().run_folder(folder.run()).fit(&data).unwrap();
    // The embeddings and two layers.
    assert_eq!(fitted.params().values().len(), 3 * 8 + 1);
    assert!(fitted.score(&data).unwrap().accuracy.unwrap() > 0.9);
    // A run and a saved model keep the pooling.
    let opened = Fitted::open(folder.run()).unwrap();
    assert_eq!(opened.predictions(&data).unwrap(), fitted.predictions(&data).unwrap());
    let saved = folder.0.join("saved");
    fitted.save(&saved).unwrap();
    assert_eq!(Fitted::load(&saved).unwrap().predictions(&data).unwrap(), fitted.predictions(&data).unwrap());
}

#[test]
fn a_described_network_is_trained_on_the_outputs_of_a_public_encoder() {
    let folder = Folder::new("described");
    let data = data(600);
    let network = "input = { features = 24 }\nlayers = [{ type = \"linear\", outputs = 2 }]";
    let trainer = || {
        let trainer = trainer(Model::from_toml(network).unwrap()).encoder(folder.model());
        trainer.pooling(Pooling::AllLayers)
    };
    let fitted = trainer().run_folder(folder.run()).fit(&data).unwrap();
    assert!(fitted.guarantee().to_string().contains("config.json, a public file with SHA-256 "));
    let opened = Fitted::open(folder.run()).unwrap();
    assert_eq!(opened.predictions(&data).unwrap(), fitted.predictions(&data).unwrap());
    let saved = folder.0.join("saved");
    fitted.save(&saved).unwrap();
    assert_eq!(Fitted::load(&saved).unwrap().predictions(&data).unwrap(), fitted.predictions(&data).unwrap());
    // Without an encoder, what is for a pre-trained model is refused.
    let error =
        self::trainer(Model::from_toml(network).unwrap()).pooling(Pooling::Mean).fit(&data).unwrap_err();
    assert_eq!(error.to_string(), "pooling is set, but there is no pre-trained model");
}

#[test]
fn a_run_keeps_its_public_model() {
    let folder = Folder::new("run");
    let data = data(600);
    let trainer = trainer_on(&folder.model(), "last,layers=1");
    let stop = trainer.stop_handle();
    let trainer = trainer.run_folder(folder.run()).on_progress(|progress| {
        if progress.step == 5 {
            stop.stop();
        }
    });
    assert!(!trainer.fit(&data).unwrap().is_finished());
    let fitted = Trainer::resume(folder.run()).fit(&data).unwrap();
    assert!(fitted.is_finished());
    let opened = Fitted::open(folder.run()).unwrap();
    assert_eq!(opened.predictions(&data).unwrap(), fitted.predictions(&data).unwrap());
    assert!(opened.guarantee().to_string().contains("a public file with SHA-256 "));
    let saved = folder.0.join("saved");
    fitted.save(&saved).unwrap();
    assert_eq!(Fitted::load(&saved).unwrap().predictions(&data).unwrap(), fitted.predictions(&data).unwrap());

    // The exported model is a pre-trained model again, with the trained weights.
    let exported = folder.0.join("exported");
    fitted.export(&exported, Export::Merged).unwrap();
    let again = trainer_on(&exported, "last,layers=1").price(&data).unwrap();
    let network = again.resolved.model.network().unwrap();
    let params = again.resolved.model.initial(&network, 0).unwrap();
    assert_eq!(params.values(), fitted.params().values());
    assert!(fitted.export(&exported, Export::Merged).unwrap_err().to_string().contains("exists"));
    assert!(fitted.export(folder.0.join("adapter"), Export::Adapter).is_err());

    // One changed weight.
    let weights = folder.model().join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&weights, bytes).unwrap();
    for error in [Fitted::open(folder.run()).unwrap_err(), Fitted::load(&saved).unwrap_err()] {
        assert!(error.to_string().contains("has changed"), "{error}");
    }
}

#[test]
fn frozen_layers_before_the_trained_ones_are_not_trained_parameters() {
    let folder = Folder::new("frozen");
    let data = data(400);
    let head = trainer(Model::pretrained(folder.model())).price(&data).unwrap();
    let all = trainer_on(&folder.model(), "all").price(&data).unwrap();
    // The head on the pooled vector: 8 x 2 weights and 2 biases.
    assert_eq!(head.resolved.facts.dimension, 18);
    assert!(all.resolved.facts.dimension > 1000);
    assert!(matches!(data.targets(), Some(Targets::Classes(_))));
}

#[test]
fn settings_that_do_not_fit_a_public_model_are_refused() {
    let folder = Folder::new("refused");
    let data = data(300);
    for (trainer, part) in [
        (trainer_on(&folder.model(), "tail"), "the trained part must be head"),
        (trainer_on(&folder.model(), "last,layers=9"), "1 to 2"),
        (trainer(Model::named("embedding-mlp").unwrap()).trained_part("head"), "not a pre-trained one"),
        (trainer(Model::pretrained(folder.model())).encoder(folder.model()), "not for a pre-trained model"),
        (trainer(Model::named("bag-of-words").unwrap()).pooling(Pooling::Mean), "no pre-trained model"),
        (
            trainer(Model::pretrained(folder.model())).loss(sordino::Loss::Hinge),
            "loss cannot be set for a pre-trained",
        ),
        (trainer(Model::mlp(&[4])).encoder(folder.0.join("absent")), "config.json"),
    ] {
        let error = trainer.fit(&data).unwrap_err();
        assert!(error.to_string().contains(part) && !error.hint().to_string().is_empty(), "{error}");
    }
    let short = Dataset::from_tokens(vec![1, 2], vec![0, 1, 2], 4, 30, Labels::classes(&[0, 1], 2)).unwrap();
    let error = trainer(Model::pretrained(folder.model())).fit(&short).unwrap_err();
    assert!(
        error.to_string().contains("reads records of 4 tokens of 20, but the data has 4 tokens of 30"),
        "{error}"
    );
}
