//! Runs crafted records through the engine and the vault, for `bench/peers.py`. Prints one JSON object:
//!
//! - `crafted_records norms FILE RECORDS WIDTH`: records of two positions, as little-endian `f32`; the gradient of a record is the
//!   first position minus the second. Each record is clipped to 1 in a separate batch.
//! - `crafted_records sum FILE RECORDS BOUND`: records of one number, which is its own gradient. The sum of all, clipped to this bound,
//!   and of all but the first.
//! - `crafted_records finite FILE RECORDS WIDTH`: records that are their own gradients; how many numbers of the clipped sum are finite.
//! - `crafted_records batches SIZE ...`: the standard deviation of a release and its mean part, for batches of these sizes.
#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first error")]

use std::{env, fs};

use sordino_accounting::{Accountant, ClipNorm, Delta, NoiseMultiplier, Plan, SamplingRate, Steps};
use sordino_nn::layers::{Linear, MeanOverSteps, Positions, Relu};
use sordino_nn::{
    Description, Engine, Inputs, Layer, LayerDescription, Loss, Network, Params, Pass, Shape, Targets,
};
use sordino_privacy::{ClipRule, Randomness, Terms, Vault};
use sordino_train::NetworkGradients;

/// Its derivative is 1 wherever the output lies more than 1 above the target.
const LOSS: Loss = Loss::Huber { delta: 1.0 };
const TARGET: f32 = -1e3;
/// The parameters that noise is measured on.
const WIDE: usize = 20_000;

fn linear(outputs: usize, bias: bool) -> Linear {
    Linear { outputs, inputs: None, bias }
}

fn frozen(name: &str, layer: impl Into<Layer>) -> LayerDescription {
    LayerDescription { frozen: true, ..LayerDescription::named(name, layer) }
}

/// A trained linear layer on both positions. Frozen layers pass on the output at the first position unchanged, and the output at the second position with its sign changed.
fn two_positions(width: usize) -> (Network, Params) {
    let mut description =
        Description::new(Shape::Sequence { steps: 2, width }).named("trained", linear(1, false));
    description.layers.extend([
        frozen("signs", linear(2, false)),
        frozen("choice", Positions),
        Relu.into(),
        MeanOverSteps.into(),
        frozen("total", linear(1, false)),
    ]);
    let network = Network::new(&description).unwrap();
    let mut params = Params::zeros(network.layout().clone());
    // At the first position only the unchanged output is above 0; at the second position only the negated output is.
    let values: [(&str, &[f32]); 3] =
        [("signs", &[1.0, -1.0]), ("choice", &[1.0, -1.0, -1.0, 1.0]), ("total", &[2.0, 2.0])];
    for slice in network.layout().slices().to_vec() {
        if let Some((_, values)) = values.iter().find(|(name, _)| slice.name.starts_with(name)) {
            params.values_mut()[slice.range].copy_from_slice(values);
        }
    }
    (network, params)
}

/// One linear layer without bias: a record's gradient is the record.
fn plain(width: usize) -> (Network, Params) {
    let network =
        Network::new(&Description::new(Shape::Features(width)).named("trained", linear(1, false))).unwrap();
    let params = Params::zeros(network.layout().clone());
    (network, params)
}

fn read(path: &str) -> Vec<f32> {
    let bytes = fs::read(path).unwrap();
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

struct Clipped {
    sum: Vec<f64>,
    norms: Vec<f64>,
    non_finite: usize,
}

fn clipped(engine: &mut Engine, params: &Params, values: &[f32], chosen: &[usize], bound: f64) -> Clipped {
    let targets = vec![TARGET; values.len() / engine.network().input().len()];
    let records =
        engine.records(Inputs::Dense(values), Targets::Values { values: &targets, width: 1 }).unwrap();
    let clip = |norms: &[f64], weights: &mut [f32]| {
        let norm = norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt();
        weights.fill((bound / norm).min(1.0) as f32);
    };
    let mut sums = [vec![0.0; params.values().len()]];
    let outcome = engine.pass(&Pass::new(params, &records, chosen).weighed_by(&clip), &mut sums).unwrap();
    let [sum] = sums;
    Clipped { sum, norms: outcome.norms.clone(), non_finite: outcome.non_finite.len() }
}

fn norms(path: &str, records: usize, width: usize) {
    let values = read(path);
    let (network, params) = two_positions(width);
    let mut engine = Engine::new(network, LOSS).unwrap();
    let rows = (0..records).map(|record| {
        let found = clipped(&mut engine, &params, &values, &[record], 1.0);
        let added = found.sum.iter().map(|x| x.powi(2)).sum::<f64>().sqrt();
        format!("{{\"norm\": {}, \"added\": {added}, \"non_finite\": {}}}", found.norms[0], found.non_finite)
    });
    println!("[{}]", rows.collect::<Vec<_>>().join(", "));
}

fn sum(path: &str, records: usize, bound: f64) {
    let values = read(path);
    let (network, params) = plain(1);
    let mut engine = Engine::new(network, LOSS).unwrap();
    let all: Vec<usize> = (0..records).collect();
    let with = clipped(&mut engine, &params, &values, &all, bound);
    let without = clipped(&mut engine, &params, &values, &all[1..], bound);
    println!(
        "{{\"with\": {}, \"without\": {}, \"non_finite\": {}}}",
        with.sum[0], without.sum[0], with.non_finite
    );
}

fn finite(path: &str, records: usize, width: usize) {
    let values = read(path);
    let (network, params) = plain(width);
    let mut engine = Engine::new(network, LOSS).unwrap();
    let found = clipped(&mut engine, &params, &values, &(0..records).collect::<Vec<_>>(), 1.0);
    let finite = found.sum.iter().filter(|value| value.is_finite()).count();
    println!("{{\"finite\": {finite}, \"non_finite\": {}}}", found.non_finite);
}

/// Every record's gradient has a 1 in its first coordinate. Either every batch has all records, or batches are almost always empty.
fn batches(sizes: &[usize]) {
    let rows = sizes.iter().map(|&size| {
        let (network, params) = plain(WIDE);
        let engine = Engine::new(network, LOSS).unwrap();
        let count = size.max(1);
        let mut values = vec![0.0; count * WIDE];
        values.iter_mut().step_by(WIDE).for_each(|value| *value = 1.0);
        let targets = vec![TARGET; count];
        let records =
            engine.records(Inputs::Dense(&values), Targets::Values { values: &targets, width: 1 }).unwrap();
        let rate = SamplingRate::new(if size == 0 { 1e-9 } else { 1.0 }).unwrap();
        let plan = Plan::dp_sgd(NoiseMultiplier::new(1.0).unwrap(), rate, Steps::new(1).unwrap());
        let delta = Delta::new(1e-5).unwrap();
        let terms = Terms::price(plan, count as u64, delta, None, Accountant::Pld).unwrap();
        let ledger = env::temp_dir().join(format!("sordino-peers-{}-{size}", std::process::id()));
        let gradients = NetworkGradients::new(engine, records);
        let mut vault = Vault::seal(gradients, &terms, Randomness::from_os().unwrap(), &ledger).unwrap();
        let rule = ClipRule::flat(ClipNorm::new(1.0).unwrap()).unwrap();
        let release = vault
            .round(|round| {
                let sum = round.gradients(&params).clipped_sum(&rule)?;
                round.release(sum)
            })
            .unwrap()
            .unwrap()
            .unwrap()
            .into_inner();
        let _ = fs::remove_file(&ledger);
        let square = release[1..].iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
        format!(
            "{{\"size\": {size}, \"noise\": {}, \"first\": {}}}",
            (square / (WIDE - 1) as f64).sqrt(),
            release[0]
        )
    });
    println!("[{}]", rows.collect::<Vec<_>>().join(", "));
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["norms", path, records, width] => norms(path, records.parse().unwrap(), width.parse().unwrap()),
        ["sum", path, records, bound] => sum(path, records.parse().unwrap(), bound.parse().unwrap()),
        ["finite", path, records, width] => finite(path, records.parse().unwrap(), width.parse().unwrap()),
        ["batches", ref sizes @ ..] => {
            batches(&sizes.iter().map(|size| size.parse().unwrap()).collect::<Vec<_>>());
        }
        _ => panic!(
            "crafted_records norms FILE RECORDS WIDTH | finite FILE RECORDS WIDTH | sum FILE RECORDS BOUND | batches SIZE ..."
        ),
    }
}
