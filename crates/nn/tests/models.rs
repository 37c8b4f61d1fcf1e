//! The models of the list against values that PyTorch computed in double precision (`fixtures/make_models.py`), and the list itself.
#![expect(clippy::unwrap_used, reason = "a test stops at the first error")]

use std::collections::BTreeMap;

use serde::Deserialize;
use sordino_nn::models::{self, ModelConfig, Reads};
use sordino_nn::{Description, Engine, Inputs, Loss, Network, Params, Pass, Shape, Targets};

#[derive(Deserialize)]
struct Case {
    model: ModelConfig,
    input: Shape,
    outputs: usize,
    seed: u64,
    records: Vec<Record>,
}

#[derive(Deserialize)]
struct Record {
    outputs: Vec<f64>,
    loss: f64,
    /// The norm of each parameter's gradient, and its product with the cosines of 1, 2, 3, ...
    gradients: BTreeMap<String, [f64; 2]>,
}

const LENGTHS: [usize; 3] = [7, 3, 5];

/// Reproducible multiples of 2^-19 in [-1, 1), as in `make_models.py`.
fn numbers(text: &str, seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed;
    for byte in text.bytes() {
        state = (state * 31 + u64::from(byte)) % (1 << 31);
    }
    let mut next = || {
        state = (state * 1_103_515_245 + 12345) % (1 << 31);
        (state >> 11) as f32 / (1 << 19) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn params(network: &Network, seed: u64) -> Params {
    let mut params = network.init(0);
    for slice in network.layout().slices() {
        let fan_in: usize = slice.shape[1..].iter().product();
        let scale = 2f32.powi(-(((fan_in as f64).log2() / 2.0 - 0.5) as i32));
        let shift = if slice.name.ends_with("weight") { 1.0 } else { 0.0 };
        let values = numbers(&slice.name, seed, slice.range.len());
        let own = params.slice_mut(&slice.name).unwrap();
        for (own, value) in own.iter_mut().zip(values) {
            *own = if slice.shape.len() > 1 { value * scale } else { value / 4.0 + shift };
        }
    }
    params
}

fn close(what: &str, got: f64, truth: f64) {
    assert!((got - truth).abs() <= 2e-5 * (1.0 + truth.abs()), "{what}: {got}, PyTorch {truth}");
}

fn check(case: &Case) {
    let name = serde_json::to_string(&case.model).unwrap();
    let loss = if case.outputs == 0 { Loss::NextToken } else { Loss::cross_entropy() };
    let network = case.model.network(case.input, case.outputs).unwrap();
    let params = params(&network, case.seed);
    let mut engine = Engine::with_workers(network, loss, 1).unwrap();
    let (mut values, mut tokens, mut starts) = (Vec::new(), Vec::new(), vec![0]);
    for (record, length) in (0..).zip(LENGTHS) {
        values.extend(numbers("inputs", case.seed + record, case.input.len()));
        if let Shape::Tokens { vocabulary, .. } = case.input {
            let numbers = numbers("tokens", case.seed + record, length).into_iter();
            tokens.extend(numbers.map(|x| ((x + 1.0) / 2.0 * vocabulary as f32) as u32));
        }
        starts.push(starts[starts.len() - 1] + length);
    }
    let inputs = match case.input {
        Shape::Tokens { .. } => Inputs::Tokens { tokens: &tokens, starts: &starts },
        _ => Inputs::Dense(&values),
    };
    let targets = match case.outputs {
        0 => Targets::NextTokens { from: &[1; 3] },
        _ => Targets::Classes(&[0, 1, 2]),
    };
    let records = engine.records(inputs, targets).unwrap();
    let unlabelled = engine.unlabelled(inputs).unwrap();
    for (record, truth) in case.records.iter().enumerate() {
        let outputs = engine.outputs(&params, &unlabelled, &[record]).unwrap();
        for (index, (found, truth)) in outputs.iter().zip(&truth.outputs).enumerate() {
            close(&format!("{name}: output {index}"), f64::from(*found), *truth);
        }
        let mut sums = [vec![0.0; params.values().len()]];
        let one = |_: &[f64], weights: &mut [f32]| weights.fill(1.0);
        let pass = Pass::new(&params, &records, std::slice::from_ref(&record)).weighed_by(&one);
        let outcome = engine.pass(&pass, &mut sums).unwrap();
        close(&format!("{name}: loss"), outcome.losses[0], truth.loss);
        let layout = engine.network().layout();
        assert_eq!(layout.slices().len(), truth.gradients.len(), "{name}");
        let mut squared = 0.0;
        for slice in layout.slices() {
            let [norm, product] = truth.gradients[&slice.name];
            let gradient = &sums[0][slice.range.clone()];
            let what = format!("{name}: {}", slice.name);
            close(&what, gradient.iter().map(|g| g * g).sum::<f64>().sqrt(), norm);
            close(&what, gradient.iter().zip(1..).map(|(g, i)| g * f64::from(i).cos()).sum(), product);
            squared += norm * norm;
        }
        close(&format!("{name}: norm"), outcome.norms[0], squared.sqrt());
    }
}

#[test]
fn every_model_agrees_with_pytorch() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("fixtures/models.json")).unwrap();
    assert!(cases.len() >= 15);
    for case in &cases {
        check(case);
    }
}

#[test]
fn every_model_is_read_and_written_with_its_options() {
    for model in ModelConfig::all() {
        let name = model.name();
        let read = |json| serde_json::from_value::<ModelConfig>(json);
        assert_eq!(read(serde_json::json!({ "type": name })).unwrap(), model);
        let written = serde_json::to_value(&model).unwrap();
        let keys: Vec<&String> = written.as_object().unwrap().keys().filter(|key| *key != "type").collect();
        let mut named: Vec<&str> = model.options().iter().map(|option| option.name).collect();
        named.sort_unstable();
        assert_eq!(keys, named, "{name}");
        assert_eq!(read(written).unwrap(), model, "{name}");
        assert!(read(serde_json::json!({ "type": name, "colour": "blue" })).is_err(), "{name}");
        assert_eq!(ModelConfig::names().iter().filter(|other| **other == name).count(), 1);
    }
    let unknown = serde_json::from_str::<ModelConfig>(r#"{"type":"resnet81"}"#).unwrap_err();
    assert!(unknown.to_string().contains("one of logistic, "), "{unknown}");
}

#[test]
fn every_model_fits_the_records_that_it_reads_and_refuses_others() {
    let shapes = [
        (Shape::Features(20), Reads::Values),
        (Shape::Image { channels: 3, height: 32, width: 32 }, Reads::Images),
        (Shape::Image { channels: 1, height: 28, width: 28 }, Reads::Images),
        (Shape::Image { channels: 3, height: 96, width: 96 }, Reads::Images),
        (Shape::Tokens { steps: 16, vocabulary: 50 }, Reads::Tokens),
    ];
    for model in ModelConfig::all() {
        for (input, kind) in shapes {
            let fits = model.reads() == kind || model.reads() == Reads::Values && kind == Reads::Images;
            match model.network(input, 4) {
                Ok(network) => assert!(fits && network.output() == Shape::Features(4), "{}", model.name()),
                Err(error) => {
                    assert!(!fits && error.to_string().contains("reads"), "{}: {error}", model.name());
                }
            }
            let next = model.network(input, 0);
            assert_eq!(next.is_ok(), model.name() == "gpt" && kind == Reads::Tokens, "{}", model.name());
        }
    }
}

#[test]
fn options_out_of_range_are_refused_with_their_range() {
    let image = Shape::Image { channels: 3, height: 32, width: 32 };
    let tokens = Shape::Tokens { steps: 9, vocabulary: 9 };
    for (json, input, problem) in [
        (r#"{"type":"vit-tiny","patch":0}"#, image, "vit-tiny: patch must be 1 to 1024, got 0"),
        (
            r#"{"type":"vit-tiny","patch":5}"#,
            image,
            "patch must divide the sides of the image, got 5 for 3x32x32",
        ),
        (r#"{"type":"vit-small","heads":5}"#, image, "heads must divide the width 384, got 5"),
        (r#"{"type":"resnet18","width":20}"#, image, "groups"),
        (r#"{"type":"mlp","hidden":"8x0"}"#, image, "hidden must be 1 to 16777216, got 0"),
        (r#"{"type":"lstm","depth":17}"#, tokens, "depth must be 1 to 16, got 17"),
        (r#"{"type":"gpt","heads":3}"#, tokens, "heads must divide the width 256, got 3"),
    ] {
        let model: ModelConfig = serde_json::from_str(json).unwrap();
        let error = model.network(input, 4).err().unwrap().to_string();
        assert!(error.contains(problem), "{json}: {error}");
    }
    let error = serde_json::from_str::<ModelConfig>(r#"{"type":"mlp","hidden":"8-4"}"#).unwrap_err();
    assert!(error.to_string().contains("64x32, got 8-4"), "{error}");
}

/// Sizes of the papers' networks. (A network is built without its parameters.)
#[test]
fn models_have_the_sizes_of_their_papers() {
    let image = |side| Shape::Image { channels: 3, height: side, width: side };
    let tokens = Shape::Tokens { steps: 32, vocabulary: 1000 };
    for (name, input, outputs, parameters) in [
        // torchvision's count for 1000 classes, in which a norm has as many parameters.
        ("resnet18", image(224), 1000, 11_689_512),
        ("resnet34", image(224), 1000, 21_797_672),
        // timm's vit_tiny_patch16_224 and vit_small_patch16_224.
        ("vit-tiny", image(224), 1000, 5_717_416),
        ("vit-small", image(224), 1000, 22_050_664),
        ("resnet20", image(32), 10, 272_474),
        ("bag-of-words", tokens, 10, 1000 * 10 + 10),
        ("embedding-mlp", tokens, 10, 1000 * 64 + 64 * 128 + 128 + 128 * 10 + 10),
    ] {
        let model: ModelConfig = serde_json::from_value(serde_json::json!({ "type": name })).unwrap();
        assert_eq!(model.network(input, outputs).unwrap().layout().len(), parameters, "{name}");
    }
}

/// The networks that earlier versions had are the same layer by layer; files of weights and reproducible runs depend on it.
#[test]
fn earlier_models_are_as_they_were() {
    let text = |network: Network| serde_json::to_string(network.description()).unwrap();
    let known =
        |text: &str| serde_json::to_string(&serde_json::from_str::<Description>(text).unwrap()).unwrap();
    let lstm = r#"{"input":{"tokens":{"steps":5,"vocabulary":9}},"layers":[{"type":"embedding","width":64,"name":"embedding"},
        {"type":"lstm","hidden":128,"name":"lstm"},{"type":"last_step"},{"type":"linear","outputs":3,"name":"fc"}]}"#;
    assert_eq!(text(models::lstm_classifier(9, 5, 3).unwrap()), known(lstm));
    assert_eq!(text(models::gru_classifier(9, 5, 3).unwrap()), known(&lstm.replace("lstm", "gru")));
    let mean = r#"{"input":{"tokens":{"steps":5,"vocabulary":9}},"layers":[{"type":"embedding","width":64,"name":"embedding"},
        {"type":"mean_over_steps"},{"type":"linear","outputs":128,"name":"fc1"},{"type":"relu"},
        {"type":"linear","outputs":3,"name":"fc2"}]}"#;
    assert_eq!(text(models::embedding_mlp(9, 5, 3).unwrap()), known(mean));
    for (network, parameters, names) in [
        (models::mnist_cnn(), 26_010, ["conv1.weight", "fc2.bias"]),
        (models::lenet5(10), 61_706, ["conv1.weight", "fc3.bias"]),
        (models::resnet20(10), 272_474, ["conv1.weight", "fc.bias"]),
        (models::mlp(784, &[512, 256], 10), 535_818, ["fc1.weight", "fc3.bias"]),
        (models::softmax_regression(20, 3), 63, ["linear.weight", "linear.bias"]),
        (models::transformer(100, 8, 3), 1_607_939, ["embedding.weight", "fc.bias"]),
    ] {
        let network = network.unwrap();
        let slices = network.layout().slices();
        assert_eq!(network.layout().len(), parameters);
        assert_eq!([&slices[0].name, &slices[slices.len() - 1].name], names);
    }
    // Products of the initial values with the cosines of 1, 2, 3, ..., computed before the models were a list.
    for (network, product) in [
        (models::mnist_cnn(), 4.422_219_664_959_948),
        (models::lenet5(10), 7.813_933_833_748_004),
        (models::resnet20(10), 12.011_323_897_671_17),
        (models::mlp(30, &[20, 10], 4), -0.462_084_526_153_698_16),
        (models::softmax_regression(20, 3), -0.442_896_300_559_885_1),
        (models::linear(5), 0.145_482_561_010_740_14),
        (models::lstm_classifier(9, 5, 3), -44.002_716_373_566_01),
        (models::gru_classifier(9, 5, 3), -38.345_288_407_116_82),
        (models::embedding_mlp(9, 5, 3), -33.438_486_471_784_08),
        (models::transformer(100, 8, 3), -80.165_500_233_158_1),
    ] {
        let init = network.unwrap().init(7);
        let found: f64 = init.values().iter().zip(1..).map(|(v, i)| f64::from(*v) * f64::from(i).cos()).sum();
        assert!((found - product).abs() < 1e-9, "{found} {product}");
    }
}

/// `UPDATE_DOCS=1 cargo test -p sordino-nn --test models` writes the table.
#[test]
fn the_table_in_the_docs_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/models.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (begin, end) = ("<!-- models: generated -->\n", "<!-- end -->");
    let (before, rest) = text.split_once(begin).expect("the table's first line");
    let (_, after) = rest.split_once(end).expect("the table's last line");
    let current = format!("{before}{begin}{}{end}{after}", models::markdown_table());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, current).unwrap();
    } else {
        assert!(text == current, "run UPDATE_DOCS=1 cargo test -p sordino-nn --test models");
    }
}
