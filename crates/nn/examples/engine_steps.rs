//! Times training steps for `bench/engine.py`, `bench/predict.py` and `bench/scaling.py`:
//! `engine_steps MODEL MODE SECONDS [BATCH] [LENGTH]`, or `engine_steps gemm-ceiling`.
//!
//! The mode is `plain`, `private`, `units8` for a private step whose records form units of 8 (or of any other number), or `forward` for
//! outputs only. The length is that of the sequences of `lstm`, `gru` and `transformer`.
#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first error")]

use std::time::{Duration, Instant};

use sordino_nn::{
    Combination, Description, Engine, Inputs, LayerDescription, Loss, Network, NetworkError, Pass, Shape,
    Targets, Units,
    layers::{Attention, Embedding, Gelu, LayerNorm, Linear, Lora, MeanOverSteps, Positions, Residual},
    models::{self, ModelConfig, ResNet18, Transformer},
};

fn model(name: &str, length: Option<usize>) -> (Network, Loss, usize) {
    let (network, batch) = match name {
        "mnist" => (models::mnist_cnn(), 256),
        "resnet20" => (models::resnet20(10), 128),
        "lstm" => (models::lstm_classifier(1000, length.unwrap_or(32), 2), 128),
        "gru" => (models::gru_classifier(1000, length.unwrap_or(32), 2), 128),
        "transformer" => (models::transformer(1000, length.unwrap_or(64), 10), 32),
        "mlp" => (models::mlp(784, &[512, 256], 10), 512),
        "logistic" => (models::linear(117), 256),
        "lenet5" => (models::lenet5(10), 256),
        "embedding_mlp" => (models::embedding_mlp(1000, 64, 2), 256),
        "resnet18" => (named(ResNet18::default(), Shape::Image { channels: 3, height: 32, width: 32 }), 64),
        "bert" => (named(Transformer { width: 768, heads: 12, ..Transformer::default() }, TOKENS), 8),
        "gpt2" => (gpt2_blocks(), 8),
        "lora" => (adapters_on_minilm(), 16),
        _ => panic!("no model is called {name}"),
    };
    let network = network.unwrap();
    let loss = if network.outputs() == 1 { Loss::Logistic } else { Loss::cross_entropy() };
    (network, loss, batch)
}

const TOKENS: Shape = Shape::Tokens { steps: 128, vocabulary: 1000 };

fn named(model: impl Into<ModelConfig>, input: Shape) -> Result<Network, NetworkError> {
    model.into().network(input, 10)
}

/// Two layers in the shape of GPT-2, the mean over the steps, and ten classes.
fn gpt2_blocks() -> Result<Network, NetworkError> {
    let mut description =
        Description::new(TOKENS).named("embedding", Embedding { width: 768 }).named("positions", Positions);
    for layer in 0..2 {
        let attention =
            vec![LayerNorm::default().into(), LayerDescription::named("attention", Attention::causal(12))];
        let feed_forward =
            vec![LayerNorm::default().into(), Linear::new(3072).into(), Gelu.into(), Linear::new(768).into()];
        description = description
            .named(&format!("{layer}.attention"), Residual::new(attention))
            .named(&format!("{layer}.feed_forward"), Residual::new(feed_forward));
    }
    Network::new(&description.then(LayerNorm::default()).then(MeanOverSteps).named("head", Linear::new(10)))
}

/// Six frozen layers in the shape of MiniLM with adapters of rank 8 on queries and values, the mean over the steps, and ten classes.
fn adapters_on_minilm() -> Result<Network, NetworkError> {
    let frozen = |layer: LayerDescription| LayerDescription { frozen: true, ..layer };
    let lora = Lora { rank: 8, alpha: 16.0, joint: false };
    let mut description = Description::new(TOKENS);
    description.layers.push(frozen(LayerDescription::named("embedding", Embedding { width: 384 })));
    description.layers.push(frozen(LayerDescription::named("positions", Positions)));
    for layer in 0..6 {
        let attention = Attention { lora: Some(lora), ..Attention::new(12) };
        let feed_forward = vec![
            frozen(LayerDescription::named("up", Linear::new(1536))),
            Gelu.into(),
            frozen(LayerDescription::named("down", Linear::new(384))),
        ];
        description = description.named(
            &format!("{layer}.attention"),
            Residual::new(vec![LayerDescription::named("attention", attention)]),
        );
        description
            .layers
            .push(frozen(LayerDescription::named(&format!("{layer}.norm1"), LayerNorm::default())));
        description = description.named(&format!("{layer}.feed_forward"), Residual::new(feed_forward));
        description
            .layers
            .push(frozen(LayerDescription::named(&format!("{layer}.norm2"), LayerNorm::default())));
    }
    Network::new(&description.then(MeanOverSteps).named("head", Linear::new(10)))
}

/// Reproducible numbers in (-1, 1).
fn numbers(count: usize) -> Vec<f32> {
    let mut state = 1u64;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f32) / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

fn peak_memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).map_or(0.0, |kib| kib / 1024.0)
}

/// The fastest product of the engine: forward through a wide linear layer, on one worker and on all.
fn ceiling() {
    let measure = |workers: usize| {
        let network = models::mlp(512, &[], 1024).unwrap();
        let mut engine = Engine::with_workers(network, Loss::cross_entropy(), workers).unwrap();
        let params = engine.network().init(1);
        let values = numbers(4096 * 512);
        let inputs = engine.unlabelled(Inputs::Dense(&values)).unwrap();
        let all: Vec<usize> = (0..4096).collect();
        let best = (0..20)
            .map(|_| {
                let start = Instant::now();
                std::hint::black_box(engine.outputs(&params, &inputs, &all).unwrap());
                start.elapsed().as_secs_f64()
            })
            .fold(f64::INFINITY, f64::min);
        2.0 * 4096.0 * 512.0 * 1024.0 / best / 1e9
    };
    println!("{{\"gflops_per_core\":{:.1},\"gflops_two_cores\":{:.1}}}", measure(1), measure(2));
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, mode, _, rest @ ..] = &arguments[..] else {
        return ceiling();
    };
    let (network, loss, batch) = model(name, rest.get(1).map(|text| text.parse().unwrap()));
    let batch = rest.first().map_or(batch, |text| text.parse().unwrap());
    let gflop = network.operations() * batch as f64 / 1e9;
    let shape = network.input();
    let outputs = network.outputs();
    let size: usize = mode.strip_prefix("units").map_or(1, |size| size.parse().unwrap());
    let forward = mode == "forward";
    let engine = if forward { Engine::without_loss(network) } else { Engine::new(network, loss) };
    let mut engine = engine.unwrap().for_slots_of(size).unwrap();
    let params = engine.network().init(1);
    // A pool of records of its own size, so that memory does not grow because the data does.
    let pool = batch.min(256).next_multiple_of(size);
    let values = numbers(pool * shape.len());
    let tokens: Vec<u32> = values.iter().map(|value| ((value + 1.0) * 499.9) as u32).collect();
    let starts: Vec<usize> = (0..=pool).map(|record| record * shape.steps()).collect();
    let inputs = match shape {
        Shape::Tokens { .. } => Inputs::Tokens { tokens: &tokens, starts: &starts },
        _ => Inputs::Dense(&values),
    };
    let unlabelled = engine.unlabelled(inputs).unwrap();
    if forward {
        let chosen: Vec<usize> = (0..batch).map(|place| place * pool / batch).collect();
        let step = || drop(std::hint::black_box(engine.outputs(&params, &unlabelled, &chosen).unwrap()));
        return report(&arguments, batch, gflop, step);
    }
    let classes: Vec<u32> = (0..pool as u32).map(|record| record * 7 % outputs.max(2) as u32).collect();
    let records = engine.records(inputs, Targets::Classes(&classes)).unwrap();
    let units = Units::new((0..pool).collect(), (0..=pool / size).map(|unit| unit * size).collect()).unwrap();
    let records = records.in_units(&units, Combination::Sum).unwrap();
    let slots = batch / size;
    let chosen: Vec<usize> = (0..slots).map(|slot| slot * units.len() / slots).collect();
    let clip = |norms: &[f64], weights: &mut [f32]| {
        let norm = norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt();
        weights.fill((1.0 / norm).min(1.0) as f32);
    };
    let mut sums = [vec![0.0; params.values().len()]];
    let step = || {
        let pass = Pass::new(&params, &records, &chosen);
        let pass = if mode == "plain" { pass } else { pass.weighed_by(&clip) };
        std::hint::black_box(engine.pass(&pass, &mut sums).unwrap());
    };
    report(&arguments, batch, gflop, step);
}

/// Times steps, after three of warm-up, and prints one JSON object.
fn report(arguments: &[String], batch: usize, gflop: f64, mut step: impl FnMut()) {
    let [name, mode, seconds, ..] = arguments else { panic!("engine_steps MODEL MODE SECONDS") };
    (0..3).for_each(|_| step());
    let (begun, time) = (Instant::now(), Duration::from_secs_f64(seconds.parse().unwrap()));
    let mut times = Vec::new();
    while begun.elapsed() < time || times.len() < 3 {
        let start = Instant::now();
        step();
        times.push(format!("{:.4}", start.elapsed().as_secs_f64() * 1e3));
    }
    println!(
        "{{\"model\":\"{name}\",\"mode\":\"{mode}\",\"batch\":{batch},\"ms\":[{}],\"gflop\":{gflop:.6},\"peak_mib\":{:.1}}}",
        times.join(","),
        peak_memory()
    );
}
