//! The library as a user calls it.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

use std::{
    cell::Cell,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use sordino::{
    Dataset, Fitted, GuaranteeStatus, Labels, Model, Sampling, Shape, Trainer,
    accounting::{self, ClipNorm, Entry, NoiseMultiplier, Plan},
    algorithms::{About, AlgorithmError, Defaults, NoiseSource, RunFacts, Steps, Verdict},
    data::{Preparation, Scale},
    nn::{
        Description, Init, Parameter, RecordLayer,
        layers::{Linear, Own},
    },
    optim::State,
    own_loop::{Gradients, PrivacyError, Release, Round},
};

/// A folder that is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("sordino-library-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn rows(count: usize) -> Vec<[f32; 2]> {
    (0..count).map(|i| [(i % 10) as f32 / 10.0, (i % 7) as f32 / 7.0]).collect()
}

/// Whether the first value is above one half.
fn data(count: usize) -> Dataset {
    let x = rows(count);
    let y: Vec<bool> = x.iter().map(|row| row[0] > 0.5).collect();
    Dataset::from_rows(&x, &y).unwrap()
}

fn logistic<'a>() -> Trainer<'a> {
    Trainer::new(Model::logistic()).budget(2.0, 1e-5).unwrap().batch_size(100)
}

#[test]
fn a_model_is_fitted_within_its_budget_in_memory() {
    let fitted = logistic().epochs(20.0).fit(&data(1000)).unwrap();
    let guarantee = fitted.guarantee();
    assert!(guarantee.is_private() && fitted.is_finished());
    assert!(guarantee.epsilon().unwrap().get() <= 2.0 && guarantee.delta().unwrap().get() == 1e-5);
    assert!(guarantee.relation().unwrap().contains("zero-out"));
    let statement = guarantee.to_string();
    for part in [
        "This logistic model satisfies (",
        "on 1,000 training records",
        "PROVED",
        "in memory: the whole plan counts as spent from the first step on",
    ] {
        assert!(statement.contains(part), "{statement}");
    }
    // No test records were given, so nothing was measured, and every record is protected.
    assert!(fitted.test_score().is_none() && !statement.contains("NOT protected"), "{statement}");
    assert_eq!(fitted.predict(&[[0.9, 0.5], [0.1, 0.5]]).unwrap(), ["true", "false"]);
    assert_eq!(fitted.predict_classes(&[[0.9, 0.5]]).unwrap(), [1]);
    let probabilities = fitted.predict_proba(&[[0.9, 0.5]]).unwrap();
    assert!(probabilities[0][1] > 0.5 && (probabilities[0].iter().sum::<f64>() - 1.0).abs() < 1e-12);
    assert!(fitted.score(&data(70)).unwrap().accuracy.unwrap() > 0.7);
}

#[test]
fn a_support_vector_machine_predicts_classes_without_probabilities() {
    let folder = Folder::new("hinge");
    for model in [Model::linear(), Model::logistic(), Model::mlp(&[8]), Model::for_data()] {
        let trainer = Trainer::new(model).budget(8.0, 1e-5).unwrap().batch_size(100).seed(1);
        let fitted = trainer.loss(sordino::Loss::Hinge).epochs(40.0).fit(&data(1000)).unwrap();
        fitted.save(folder.join("model")).unwrap();
        for fitted in [&fitted, &Fitted::load(folder.join("model")).unwrap()] {
            assert_eq!(fitted.predict(&[[0.9, 0.5], [0.1, 0.5]]).unwrap(), ["true", "false"]);
            assert!(fitted.score(&data(70)).unwrap().accuracy.unwrap() > 0.8);
            assert!(!fitted.has_probabilities());
            let error = fitted.predict_proba(&[[0.9, 0.5]]).unwrap_err();
            assert_eq!(error.to_string(), "a model with the hinge loss has no probabilities");
        }
    }
}

#[test]
fn test_records_are_protected_or_public_and_the_statement_says_so() {
    let test = data(70);
    let fitted = logistic().epochs(5.0).test_data(&test).fit(&data(1000)).unwrap();
    let statement = fitted.guarantee().to_string();
    let protected =
        "The 70 records of the test set are not trained on. They are protected by the same guarantee";
    assert!(statement.contains(protected), "{statement}");
    assert!(statement.contains("measured with noise on 70 protected records"), "{statement}");
    let (score, metrics) = (fitted.test_score().unwrap(), fitted.metrics().unwrap());
    assert!(score.interval.is_some() && metrics.noise_std > 0.1, "{metrics:?}");
    let fitted = logistic().epochs(5.0).public_test_data(&test).fit(&data(1000)).unwrap();
    let exact = fitted.score(&test).unwrap().accuracy;
    assert!(exact.is_some() && fitted.test_score().unwrap().accuracy == exact);
    assert_eq!(fitted.metrics().unwrap().noise_std, 0.0);
    let statement = fitted.guarantee().to_string();
    assert!(
        statement.contains("The 70 records of the test set are public and NOT protected."),
        "{statement}"
    );
    assert!(statement.contains("on 1,000 training records"), "{statement}");
}

#[test]
fn a_saved_model_is_loaded_with_its_guarantee_and_a_changed_file_is_refused() {
    let folder = Folder::new("saved");
    let described = Model::from_toml(
        "input = { features = 2 }\n[[layers]]\ntype = 'linear'\noutputs = 5\n[[layers]]\ntype = 'tanh'\n[[layers]]\ntype = 'linear'\noutputs = 2\n",
    )
    .unwrap();
    for (name, model) in
        [("mlp", Model::mlp(&[4, 3])), ("default", Model::for_data()), ("described", described)]
    {
        let fitted = Trainer::new(model).epochs(1.0).fit(&data(600)).unwrap();
        let path = folder.join(name);
        fitted.save(&path).unwrap();
        let loaded = Fitted::load(&path).unwrap();
        assert_eq!(loaded.guarantee(), fitted.guarantee());
        let new = rows(30);
        assert_eq!(loaded.predict_proba(&new).unwrap(), fitted.predict_proba(&new).unwrap(), "{name}");
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 0x80;
        fs::write(&path, &bytes).unwrap();
        let error = Fitted::load(&path).unwrap_err().to_string();
        assert!(error.contains("was changed after it was written"), "{error}");
    }
    fs::write(folder.join("not"), b"not a model").unwrap();
    let error = Fitted::load(folder.join("not")).unwrap_err();
    assert!(error.to_string().contains("is not a complete safetensors file"), "{error}");
    assert!(error.hint().to_string().contains("Fitted::save"), "{}", error.hint());
    assert!(Fitted::load(folder.join("missing")).is_err());
}

#[test]
fn training_can_be_stopped_and_the_whole_plan_counts() {
    let data = data(1000);
    let whole = logistic().steps(50).unwrap().fit(&data).unwrap();
    let trainer = logistic().steps(50).unwrap();
    let stop = trainer.stop_handle();
    let last = Cell::new(0);
    let trainer = trainer.on_progress(|progress| {
        last.set(progress.step);
        assert_eq!(progress.steps, 50);
        if progress.step == 3 {
            stop.stop();
        }
    });
    let fitted = trainer.fit(&data).unwrap();
    assert!(!fitted.is_finished() && last.get() == 3);
    assert_eq!(fitted.guarantee().epsilon(), whole.guarantee().epsilon());
    let statement = fitted.guarantee().to_string();
    assert!(
        statement.contains("This unfinished logistic model") && !statement.contains("so far"),
        "{statement}"
    );
    assert!(statement.contains("stopped before the 50 planned"), "{statement}");

    let trainer = logistic().steps(50).unwrap();
    trainer.stop_handle().stop();
    assert!(!trainer.fit(&data).unwrap().is_finished());
    assert!(trainer.fit(&data).unwrap().is_finished(), "a stop ends one training");
}

#[test]
fn test_records_must_be_like_the_training_records() {
    let data = data(600);
    let named = |names: [&str; 2]| Dataset::from_rows(&rows(3), Labels::named(&names, &["true"; 3])).unwrap();
    let fitted = logistic().steps(1).unwrap().test_data(&named(["false", "true"])).fit(&data).unwrap();
    assert!(fitted.score(&named(["false", "true"])).is_ok());
    for (test, part) in [
        (Dataset::unlabelled(&rows(3)).unwrap(), "have no labels"),
        (Dataset::from_rows(&[[0.5]], &[true]).unwrap(), "have the shape 1"),
        (Dataset::from_rows(&rows(3), &[0.5, 1.0, 2.0]).unwrap(), "labels that are numbers"),
        (named(["true", "false"]), "labels that are the classes true, false"),
    ] {
        let error = logistic().steps(1).unwrap().test_data(&test).fit(&data).map(drop).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert!(fitted.score(&test).unwrap_err().to_string().contains(part));
    }
}

/// Multiplies every value by a parameter.
#[derive(Debug)]
struct Scaling;

impl RecordLayer for Scaling {
    fn output_shape(&self, input: Shape) -> Result<Shape, String> {
        Ok(input)
    }

    fn parameters(&self, input: Shape) -> Vec<Parameter> {
        vec![Parameter::new("factor", &[input.len()], Init::Constant(1.0))]
    }

    fn forward(&self, params: &[f32], input: &[f32], output: &mut [f32]) {
        for (i, output) in output.iter_mut().enumerate() {
            *output = params[i] * input[i];
        }
    }

    fn backward(
        &self,
        params: &[f32],
        input: &[f32],
        output_gradient: &[f32],
        input_gradient: &mut [f32],
        gradient: &mut [f32],
    ) {
        for (i, output) in output_gradient.iter().enumerate() {
            input_gradient[i] = params[i] * output;
            gradient[i] = input[i] * output;
        }
    }
}

#[test]
fn a_network_with_own_layers_is_trained_but_not_stored() {
    let folder = Folder::new("own-layer");
    let data = data(1000);
    let network = Description::new(Shape::Features(2)).named("scale", Own::new(Scaling)).then(Linear::new(2));
    let trainer = || Trainer::new(Model::from_description(network.clone())).budget(2.0, 1e-5).unwrap();
    let fitted = trainer().fit(&data).unwrap();
    assert!(fitted.guarantee().to_string().starts_with("This network satisfies ("));
    assert!(fitted.score(&data).unwrap().accuracy.unwrap() > 0.8);
    assert_eq!(fitted.predict_classes(&[[0.9, 0.5], [0.1, 0.5]]).unwrap(), [1, 0]);
    for error in [
        fitted.save(folder.join("model")).unwrap_err(),
        trainer().run_folder(folder.join("run")).fit(&data).map(drop).unwrap_err(),
    ] {
        assert!(error.to_string().starts_with("a network with own layers cannot be"), "{error}");
    }
    assert!(!folder.join("model").exists() && !folder.join("run").exists());
}

#[test]
fn a_run_folder_is_shown_by_the_command_and_can_be_resumed() {
    let folder = Folder::new("folder");
    let (run, data) = (folder.join("run"), data(1000));
    let trainer = logistic().steps(2000).unwrap().data_name("circles").run_folder(&run);
    let stop = trainer.stop_handle();
    let stopped = trainer.on_progress(|progress| {
        if progress.step == 100 {
            stop.stop();
        }
    });
    let stopped = stopped.fit(&data).unwrap();
    assert!(!stopped.is_finished());
    let error = logistic().run_folder(&run).fit(&data).unwrap_err();
    assert!(error.to_string().contains("is not empty"), "{error}");
    assert!(error.hint().to_string().contains("Trainer::resume"), "{}", error.hint());
    let error = Trainer::resume(&run).batch_size(7).fit(&data).unwrap_err();
    assert!(error.to_string().contains("keeps its settings"), "{error}");
    let error = Trainer::resume(&run).fit(&self::data(999)).unwrap_err();
    assert!(!error.to_string().is_empty());
    let fitted = Trainer::resume(&run).fit(&data).unwrap();
    assert!(fitted.is_finished());
    assert!(fitted.guarantee().to_string().contains("resumed once"), "{}", fitted.guarantee());
    let opened = Fitted::open(&run).unwrap();
    assert_eq!(opened.predict_proba(&rows(20)).unwrap(), fitted.predict_proba(&rows(20)).unwrap());
    assert_eq!(opened.guarantee().status(), fitted.guarantee().status());
    let shown = Command::new(env!("CARGO_BIN_EXE_sordino")).arg("show").arg(&run).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(shown.lines().next(), fitted.guarantee().to_string().lines().next());
    assert!(shown.contains("training records of circles"), "{shown}");
}

/// A run on these records that is stopped after some steps.
fn stopped_run(run: &Path, trainer: Trainer<'_>, data: &Dataset) {
    let trainer = trainer.steps(2000).unwrap().run_folder(run);
    let stop = trainer.stop_handle();
    let stopped = trainer.on_progress(|progress| {
        if progress.step >= 10 {
            stop.stop();
        }
    });
    assert!(!stopped.fit(data).unwrap().is_finished());
}

#[test]
fn a_run_is_not_resumed_with_other_public_facts() {
    let (folder, x) = (Folder::new("facts"), rows(1000));
    let classes: Vec<u32> = x.iter().map(|row| u32::from(row[0] > 0.5)).collect();
    let labelled = |names: [&str; 2]| {
        let flat = x.iter().flatten().copied().collect();
        Dataset::from_flat(flat, Shape::Features(2), Labels::numbered(&names, &classes)).unwrap()
    };
    let run = folder.join("classes");
    stopped_run(&run, logistic(), &labelled(["0", "1"]).with_observed_classes());
    let refused = |data: &Dataset| Trainer::resume(&run).fit(data).unwrap_err().to_string();
    let (begun, problem) = (fs::read(run.join("ledger")).unwrap(), refused(&labelled(["0", "1"])));
    assert_eq!(
        problem,
        "the run began with classes that were taken from the labels, but is resumed with classes that were declared"
    );
    let problem = refused(&labelled(["no", "yes"]).with_observed_classes());
    assert_eq!(problem, "the run began with the classes 0, 1, but is resumed with the classes no, yes");
    assert_eq!(fs::read(run.join("ledger")).unwrap(), begun, "a refused run leaves the ledger as it was");
    let fitted = Trainer::resume(&run).fit(&labelled(["0", "1"]).with_observed_classes()).unwrap();
    assert!(fitted.guarantee().to_string().contains("is NOT protected"), "{}", fitted.guarantee());

    let targets: Vec<f64> = x.iter().map(|row| f64::from(row[0])).collect();
    let in_range = |high: f64| {
        let labels = Labels::scaled(&targets, &[Scale::of_range(0.0, high).unwrap()]);
        Dataset::from_flat(x.iter().flatten().copied().collect(), Shape::Features(2), labels).unwrap()
    };
    let run = folder.join("range");
    let linear = Trainer::new(Model::linear()).budget(2.0, 1e-5).unwrap().batch_size(100);
    stopped_run(&run, linear, &in_range(0.3));
    let problem = Trainer::resume(&run).fit(&in_range(10.0)).unwrap_err().to_string();
    assert!(problem.contains("targets that are scaled so that 0 to 10 become -1 to 1"), "{problem}");
    assert!(Trainer::resume(&run).fit(&in_range(0.3)).unwrap().is_finished());
}

#[test]
fn the_statement_and_the_page_name_the_schema_the_features_and_the_range_of_the_targets() {
    let (folder, x) = (Folder::new("prepared"), rows(1000));
    let targets: Vec<f64> = x.iter().map(|row| f64::from(row[0])).collect();
    let labels = Labels::scaled(&targets, &[Scale::of_range(0.1, 0.7).unwrap()]);
    let data = Dataset::from_flat(x.iter().flatten().copied().collect(), Shape::Features(2), labels).unwrap();
    let preparation = Preparation {
        schema: Some("columns = []\n".to_owned()),
        features: Some(vec!["age".to_owned(), "height".to_owned()]),
        ..Preparation::default()
    };
    let run = folder.join("run");
    let trainer = Trainer::new(Model::linear()).budget(2.0, 1e-5).unwrap().run_folder(&run);
    let fitted = trainer.fit(&data.prepared(preparation.clone())).unwrap();
    let statement = fitted.guarantee().to_string();
    assert!(statement.contains("public: the columns, categories and scales"), "{statement}");
    assert!(statement.contains("scaled by a public range: 0.1 to 0.7 become -1 to 1"), "{statement}");
    let page =
        Command::new(env!("CARGO_BIN_EXE_sordino")).args(["report", "--format", "md"]).arg(&run).output();
    let page = String::from_utf8(page.unwrap().stdout).unwrap();
    for public in ["the schema (columns", "the names of the features", "the range of the targets (0.1 to 0.7"]
    {
        assert!(page.contains(public), "{public}: {page}");
    }
    fitted.save(folder.join("model")).unwrap();
    for kept in [Fitted::open(&run).unwrap(), Fitted::load(folder.join("model")).unwrap()] {
        assert_eq!(kept.facts().preparation.as_ref(), Some(&preparation));
    }
}

#[test]
fn a_run_is_not_resumed_with_another_kind_of_test_records() {
    let (folder, test, data) = (Folder::new("test-kind"), data(200), data(1000));
    let run = |name: &str| folder.join(name);
    stopped_run(&run("public"), logistic().public_test_data(&test), &data);
    let error = Trainer::resume(run("public")).test_data(&test).fit(&data).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the run began with public test records, but is resumed with protected ones"
    );
    assert!(error.hint().to_string().contains("public_test_data"), "{}", error.hint());
    let error = Trainer::resume(run("public")).fit(&data).unwrap_err().to_string();
    assert_eq!(error, "the run began with 200 test records, but is resumed with 0 test records");
    assert!(Trainer::resume(run("public")).public_test_data(&test).fit(&data).unwrap().is_finished());

    stopped_run(&run("settled"), logistic().set("test_set", "public").unwrap().test_data(&test), &data);
    let error = Trainer::resume(run("settled")).test_data(&test).fit(&data).unwrap_err().to_string();
    assert!(error.contains("is resumed with protected ones"), "{error}");

    stopped_run(&run("protected"), logistic().test_data(&test), &data);
    let error = Trainer::resume(run("protected")).public_test_data(&test).fit(&data).unwrap_err();
    assert!(error.to_string().contains("began with protected test records"), "{error}");
    assert!(Trainer::resume(run("protected")).test_data(&test).fit(&data).unwrap().is_finished());

    stopped_run(&run("none"), logistic(), &data);
    for trainer in
        [Trainer::resume(run("none")).test_data(&test), Trainer::resume(run("none")).public_test_data(&test)]
    {
        assert!(trainer.fit(&data).unwrap_err().to_string().contains("test records"));
    }
}

#[test]
fn training_begins_with_the_given_weights_which_the_run_stores() {
    let (data, folder) = (data(500), Folder::new("initial-weights"));
    let begun = logistic().fit(&data).unwrap();
    // A learning rate so small that no weight changes.
    let still = || logistic().steps(3).unwrap().learning_rate(1e-30);
    let again = still().initial_weights(begun.params()).unwrap().run_folder(folder.join("run")).fit(&data);
    let again = again.unwrap();
    assert_eq!(again.params().values(), begun.params().values());
    assert_ne!(still().fit(&data).unwrap().params().values(), begun.params().values());
    assert!(again.guarantee().to_string().contains("initial.safetensors, declared public, with SHA-256"));
    assert_eq!(Fitted::open(folder.join("run")).unwrap().params(), again.params());

    let other = Trainer::new(Model::mlp(&[3])).initial_weights(begun.params()).unwrap().fit(&data);
    let problem = other.err().unwrap().to_string();
    assert!(problem.starts_with("initial_weights: "), "{problem}");
    let mut infinite = begun.params().clone();
    infinite.values_mut()[0] = f32::INFINITY;
    let problem = logistic().initial_weights(&infinite).unwrap().fit(&data).err().unwrap().to_string();
    assert_eq!(problem, "initial_weights: a weight is not finite");

    fs::write(folder.join("run/initial.safetensors"), begun.params().to_safetensors().unwrap().split_off(1))
        .unwrap();
    let changed = Fitted::open(folder.join("run")).err().unwrap().to_string();
    assert!(changed.contains("differ from those in the ledger"), "{changed}");
}

/// The command and the library go through the same stages, so the same seed gives the same weights.
#[test]
fn the_library_and_the_command_train_the_same_model() {
    let folder = Folder::new("same");
    let run = folder.join("run");
    let output = Command::new(env!("CARGO_BIN_EXE_sordino"))
        .args(["train", "--seed", "7", "--steps", "20", "--algorithm", "quantile", "--out"])
        .arg(&run)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (train, test) = sordino::data::embedded::mushroom().unwrap().split(0.2, 0).unwrap();
    let trainer = || Trainer::new(Model::for_data()).seed(7).steps(20).unwrap();
    let named = trainer().algorithm("quantile").fit(&train).unwrap();
    let command = Fitted::open(&run).unwrap();
    assert_eq!(named.params().values(), command.params().values());
    assert_eq!(named.score(&test.unwrap()).unwrap().accuracy, command.test_score().unwrap().accuracy);
    assert!(matches!(named.guarantee().status(), GuaranteeStatus::NotPrivate(why) if why.contains("seed")));
    // An algorithm as a value gives the same run as its name.
    let value = trainer().with_algorithm(sordino::algorithms::Quantile::default()).fit(&train).unwrap();
    assert_eq!(value.params().values(), named.params().values());
}

/// A file in the format of MNIST.
fn idx(kind: u32, sizes: &[u32], bytes: &[u8]) -> Vec<u8> {
    let sizes = sizes.iter().flat_map(|size| size.to_be_bytes());
    kind.to_be_bytes().into_iter().chain(sizes).chain(bytes.iter().copied()).collect()
}

#[test]
fn a_saved_model_keeps_the_normalisation_of_its_images() {
    let folder = Folder::new("normalised");
    let (pixels, classes): (Vec<u8>, Vec<u8>) = (
        (0..200)
            .flat_map(|record| if record % 2 == 0 { [10, 20, 30, 40] } else { [210, 220, 230, 240] })
            .collect(),
        (0..200).map(|record| record % 2).collect(),
    );
    fs::create_dir(folder.join("data")).unwrap();
    fs::write(folder.join("data/train-images-idx3-ubyte"), idx(0x803, &[200, 2, 2], &pixels)).unwrap();
    fs::write(folder.join("data/train-labels-idx1-ubyte"), idx(0x801, &[200], &classes)).unwrap();
    let read = |mean: Option<Vec<f64>>| {
        let images = sordino::data::ImageOptions { mean, ..Default::default() };
        let source = sordino::data::Source {
            path: folder.join("data"),
            classes: Some(2),
            images,
            ..Default::default()
        };
        sordino::data::read(&source).unwrap().train
    };
    let data = read(Some(vec![0.5]));
    let trainer = Trainer::new(Model::logistic()).batch_size(100).seed(1);
    let fitted = trainer.steps(20).unwrap().fit(&data).unwrap();
    fitted.save(folder.join("saved")).unwrap();
    let loaded = Fitted::load(folder.join("saved")).unwrap();
    assert_eq!(loaded.predictions(&data).unwrap(), fitted.predictions(&data).unwrap());
    for wrong in [None, Some(vec![0.4])] {
        let message = loaded.predictions(&read(wrong)).unwrap_err().to_string();
        assert!(message.contains("normalised by the (mean, std) [(0.5, 1.0)]"), "{message}");
    }
    // Rows are normalised like the images of files.
    let row: Vec<f32> = [10.0, 20.0, 30.0, 40.0].map(|pixel: f32| pixel / 255.0).to_vec();
    let probabilities = loaded.predict_proba(&[row]).unwrap();
    let sordino::Prediction::Class { probabilities: expected, .. } = &loaded.predictions(&data).unwrap()[0]
    else {
        panic!("a class")
    };
    assert!((probabilities[0][0] - expected[0]).abs() < 1e-6, "{probabilities:?} {expected:?}");
}

#[test]
fn numbers_are_predicted() {
    let x = rows(1000);
    let y: Vec<f32> = x.iter().map(|row| 2.0 * row[0] - 1.0).collect();
    let data = Dataset::from_rows(&x, &y).unwrap();
    let fitted = Trainer::new(Model::linear()).budget(8.0, 1e-5).unwrap().epochs(20.0).fit(&data).unwrap();
    let values = fitted.predict_values(&[[0.9, 0.5], [0.0, 0.5]]).unwrap();
    assert!((values[0][0] - 0.8).abs() < 0.3 && (values[1][0] + 1.0).abs() < 0.3, "{values:?}");
    assert!(fitted.score(&data).unwrap().mean_squared_error.unwrap() < 0.1);
    assert!(fitted.predict(&x).unwrap_err().to_string().contains("predicts numbers"));
}

#[test]
fn images_and_named_classes_are_trained_on() {
    let values: Vec<f32> =
        (0..60 * 64).map(|i| ((i / 64) % 3) as f32 / 3.0 + (i % 5) as f32 / 50.0).collect();
    let names = ["a", "b", "c"];
    let labels: Vec<&str> = (0..60).map(|i| names[i % 3]).collect();
    let shape = Shape::Image { channels: 1, height: 8, width: 8 };
    let data = Dataset::from_flat(values.clone(), shape, Labels::named(&names, &labels)).unwrap();
    let trainer = Trainer::new(Model::for_data()).batch_size(20).sampling(Sampling::FixedSize);
    let fitted = trainer.budget(8.0, 1e-3).unwrap().steps(3).unwrap().fit(&data).unwrap();
    assert_eq!(fitted.classes(), names);
    assert!(fitted.guarantee().relation().unwrap().contains("replace-one"));
    let predicted = fitted.predict(&values.chunks(64).take(5).collect::<Vec<_>>()).unwrap();
    assert!(predicted.len() == 5 && predicted.iter().all(|name| names.contains(&name.as_str())));
}

#[test]
fn settings_are_priced_without_training_and_have_their_origins() {
    use sordino::train::Origin;
    let priced = logistic().epochs(3.0).price(&data(1000)).unwrap();
    assert!(priced.terms.guarantee().unwrap().epsilon.get() <= 2.0);
    let origins = priced.resolved.values.origins();
    let origin = |name| origins.iter().find(|(other, _)| *other == name).map(|(_, origin)| *origin);
    assert_eq!(origin("batch_size"), Some(Origin::User));
    assert_eq!(origin("optimizer"), Some(Origin::Default));
    assert_eq!(origin("test_fraction"), None);
    let priced = Trainer::new(Model::for_data()).price(&data(1000)).unwrap();
    assert_eq!(priced.resolved.values.batch_size.unwrap().origin, Origin::PublicFact);
    assert_eq!(priced.resolved.values.model.unwrap().value, "logistic");
}

#[test]
fn bad_input_gets_the_value_the_range_and_a_hint() {
    let data = data(600);
    let errors = [
        (logistic().batch_size(1000).fit(&data), "600; got 1000"),
        (logistic().epochs(f64::NAN).fit(&data), "got NaN"),
        (logistic().algorithm("dp-sdg").fit(&data), "got dp-sdg"),
        (logistic().optimizer("adam,beta2=2").fit(&data), "got 2"),
        (logistic().schedule("step").fit(&data), "factor"),
        (logistic().learning_rate(-1.0).fit(&data), "got -1"),
        (logistic().average(2.0).fit(&data), "got 2"),
        (logistic().max_batch_size(101).fit(&data), ""),
        (logistic().set("test_fraction", "0.5").unwrap().fit(&data), "given in memory"),
        (logistic().noise_multiplier(0.5).unwrap().fit(&data), "the budget is 2"),
        (Trainer::new(Model::lenet5()).fit(&data), "reads images"),
        (Trainer::new(Model::logistic()).fit(&Dataset::unlabelled(&rows(600)).unwrap()), "have no labels"),
        (logistic().epochs(1e18).fit(&data), "at most 2^40 steps"),
    ];
    for (number, (result, part)) in errors.into_iter().enumerate() {
        let error = result.map(drop).unwrap_err();
        assert!(error.to_string().contains(part), "{number}: {error}");
        let (error, hint) = (error.to_string(), error.hint().to_string());
        assert!(!hint.is_empty() && !format!("{error} {hint}").contains("--"), "{error} {hint}");
    }
    assert!(logistic().budget(-1.0, 1e-5).is_err() && logistic().budget(1.0, 1.0).is_err());
    assert!(logistic().max_grad_norm(0.0).is_err() && logistic().steps(0).is_err());
    let fitted = logistic().steps(1).unwrap().fit(&data).unwrap();
    let error = fitted.predict(&[[1.0, 2.0, 3.0]]).unwrap_err();
    assert!(error.to_string().contains("row 0 has 3 values, but the model reads 2"), "{error}");
    let error = fitted.predict(&[[0.0, 0.0], [0.0, f32::NAN]]).unwrap_err();
    assert!(error.to_string().contains("row 1, value 1: must be a finite number, got NaN"), "{error}");
    assert!(fitted.predict(&[] as &[[f32; 2]]).unwrap().is_empty());
    assert!(fitted.predict_values(&[[0.0, 0.0]]).unwrap_err().to_string().contains("predicts classes"));
}

/// Library errors and hints name settings, not flags: a front end renders them in its own vocabulary.
#[test]
fn no_text_of_the_library_has_a_flag() {
    fn visit(folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() && !entry.ends_with("cli") {
                visit(&entry, found);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&entry).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap_or_default();
                let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
                let has_flag = |line: &&str| {
                    line.split("--").skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
                };
                found.extend(lines.filter(has_flag).map(|line| format!("{}: {line}", entry.display())));
            }
        }
    }
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    for name in ["accounting", "algorithms", "data", "nn", "optim", "privacy", "train", "sordino"] {
        visit(&crates.join(name).join("src"), &mut found);
    }
    assert!(found.is_empty(), "{found:#?}");
}

sordino::algorithms::options! {
    /// Says that it is sound and discloses its sums.
    pub struct Careless {}
}

impl sordino::algorithms::Algorithm for Careless {
    fn about(&self) -> About {
        About { name: "careless", reference: "", verdict: Verdict::Sound("") }
    }

    fn defaults(&self, max_grad_norm: Option<ClipNorm>) -> Result<Defaults, AlgorithmError> {
        Defaults::clipped(max_grad_norm, 0.1)
    }

    fn accountant(&self, _: accounting::Sampling) -> sordino::Accountant {
        sordino::Accountant::Rdp
    }

    fn plan(&self, facts: &RunFacts, _: NoiseSource) -> Result<Plan, AlgorithmError> {
        let noise = vec![NoiseMultiplier::new(100.0)?];
        Ok(Plan::new(vec![Entry::new(facts.sampling, noise, facts.steps)?]))
    }

    fn start<G: Gradients>(&self, _: &RunFacts, _: &Plan) -> Result<Box<dyn Steps<G>>, AlgorithmError>
    where
        G::Point: 'static,
    {
        Ok(Box::new(CarelessSteps))
    }
}

struct CarelessSteps;

impl<G: Gradients> Steps<G> for CarelessSteps {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        _: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        let sum = round.gradients(at).plain_sum()?;
        round.disclose(sum, "sums are used as they are").map(Some)
    }

    fn state(&self) -> State {
        State::default()
    }

    fn restore(&mut self, _: &State) {}
}

/// Whatever an algorithm says about itself, a disclosure is in the statement and in all files of the run.
#[test]
fn an_algorithm_that_discloses_is_not_private_whatever_it_says() {
    let folder = Folder::new("careless");
    let (run, test) = (folder.join("run"), data(70));
    let trainer = Trainer::new(Model::logistic()).with_algorithm(Careless::default()).test_data(&test);
    assert!(trainer.price(&data(300)).unwrap().terms.guarantee().is_some());
    let fitted = trainer.steps(20).unwrap().run_folder(&run).fit(&data(300)).unwrap();
    assert!(!fitted.guarantee().is_private() && fitted.guarantee().to_string().contains("is NOT PRIVATE"));
    assert!(!Fitted::open(&run).unwrap().guarantee().is_private());
    let weights = fs::read(run.join("model.safetensors")).unwrap();
    let notes = String::from_utf8_lossy(&weights);
    assert!(notes.contains("NOT PRIVATE: sums are used as they are"), "{notes}");
    assert!(!notes.contains("-differential privacy"), "{notes}");
    let metrics = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    assert!(!metrics.contains("\"private\":true"), "{metrics}");
}

#[test]
fn the_statement_names_classes_that_were_taken_from_the_labels() {
    let fit = |data: &Dataset| logistic().steps(1).unwrap().fit(data).unwrap();
    let sentence = "The list of the 2 classes was taken from the training labels and is NOT protected";
    let (declared, observed) = (fit(&data(600)), fit(&data(600).with_observed_classes()));
    assert!(!declared.guarantee().to_string().contains(sentence));
    assert!(observed.guarantee().to_string().contains(sentence));
    assert!(!declared.guarantee().to_json().contains("observed_classes"));
    assert!(observed.guarantee().to_json().contains("\"observed_classes\": true"));
    let folder = Folder::new("observed");
    observed.save(folder.join("model")).unwrap();
    let loaded = Fitted::load(folder.join("model")).unwrap();
    assert!(loaded.facts().observed_classes && loaded.guarantee() == observed.guarantee());
}
