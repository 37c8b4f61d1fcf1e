//! Every layer against values that PyTorch computed in double precision (`fixtures/make.py`).
#![expect(clippy::unwrap_used, reason = "a test stops at the first error")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Deserialize;
use sordino_nn::{Description, Engine, Inputs, Loss, Network, Params, Pass, Targets};

#[derive(Deserialize)]
struct Case {
    name: String,
    network: Description,
    loss: Loss,
    params: BTreeMap<String, Tensor>,
    #[serde(default)]
    inputs: Vec<Vec<f32>>,
    #[serde(default)]
    tokens: Vec<Vec<u32>>,
    #[serde(default)]
    lengths: Vec<usize>,
    targets: Vec<Target>,
    outputs: Vec<Vec<f64>>,
    losses: Vec<f64>,
    gradients: Vec<BTreeMap<String, Vec<f64>>>,
}

#[derive(Deserialize)]
struct Tensor {
    shape: Vec<usize>,
    values: Vec<f32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Target {
    Class(u32),
    Values(Vec<f32>),
}

fn starts(lengths: impl Iterator<Item = usize>) -> Vec<usize> {
    let ends = lengths.scan(0, |end, length| {
        *end += length;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

fn close(what: &str, got: impl IntoIterator<Item = f32>, truth: &[f64]) {
    let got: Vec<f64> = got.into_iter().map(f64::from).collect();
    assert_eq!(got.len(), truth.len(), "{what}");
    let scale = truth.iter().fold(1.0f64, |scale, value| scale.max(value.abs()));
    for (index, (got, truth)) in got.iter().zip(truth).enumerate() {
        assert!((got - truth).abs() <= 4e-6 * scale, "{what}[{index}]: {got}, PyTorch {truth}");
    }
}

fn check(case: &Case) {
    let name = &case.name;
    let network = Network::new(&case.network).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut engine = Engine::with_workers(network, case.loss, 2).unwrap();
    let layout = engine.network().layout().clone();
    assert_eq!(layout.slices().len(), case.params.len(), "{name}");
    let mut params = Params::zeros(layout.clone());
    for slice in layout.slices() {
        let tensor =
            case.params.get(&slice.name).unwrap_or_else(|| panic!("{name}: {} is unknown", slice.name));
        assert_eq!(slice.shape, tensor.shape, "{name}: {}", slice.name);
        params.slice_mut(&slice.name).unwrap().copy_from_slice(&tensor.values);
    }
    let values: Vec<f32> = case.inputs.concat();
    let tokens: Vec<u32> = case.tokens.concat();
    let token_starts = starts(case.tokens.iter().map(Vec::len));
    let step_starts = starts(case.lengths.iter().copied());
    let inputs = match (tokens.is_empty(), case.lengths.is_empty()) {
        (false, _) => Inputs::Tokens { tokens: &tokens, starts: &token_starts },
        (true, false) => Inputs::Sequences { values: &values, starts: &step_starts },
        (true, true) => Inputs::Dense(&values),
    };
    let classes: Vec<u32> =
        case.targets.iter().filter_map(|t| if let Target::Class(c) = t { Some(*c) } else { None }).collect();
    let wanted: Vec<f32> = case
        .targets
        .iter()
        .flat_map(|t| if let Target::Values(v) = t { v.clone() } else { Vec::new() })
        .collect();
    let from: Vec<usize> = classes.iter().map(|from| *from as usize).collect();
    let targets = match (case.loss, classes.is_empty()) {
        (Loss::NextToken, _) => Targets::NextTokens { from: &from },
        (_, false) => Targets::Classes(&classes),
        (_, true) => Targets::Values { values: &wanted, width: wanted.len() / case.targets.len() },
    };
    let records = engine.records(inputs, targets).unwrap();
    let count = records.len();
    let all: Vec<usize> = (0..count).collect();
    let unlabelled = engine.unlabelled(inputs).unwrap();
    let outputs = engine.outputs(&params, &unlabelled, &all).unwrap();
    close(&format!("{name}: outputs"), outputs, &case.outputs.concat());

    // First, each record alone in a sum of its own, all in one pass of one worker, which processes the records of a small batch in the order of
    // their lengths; then one sum of all records on two workers.
    let mut visited = all.clone();
    match inputs {
        Inputs::Tokens { starts, .. } | Inputs::Sequences { starts, .. } => {
            visited.sort_by_key(|&record| starts[record + 1] - starts[record]);
        }
        _ => {}
    }
    let mut one_worker = Engine::with_workers(Network::new(&case.network).unwrap(), case.loss, 1).unwrap();
    let layers = one_worker.network().layers().len();
    let calls = AtomicUsize::new(0);
    let alone = |_: &[f64], weights: &mut [f32]| {
        let record = visited[calls.fetch_add(1, Ordering::Relaxed)];
        weights[record * layers..(record + 1) * layers].fill(1.0);
    };
    let mut sums = vec![vec![f64::NAN; layout.len()]; count];
    let outcome = one_worker.pass(&Pass::new(&params, &records, &all).weighed_by(&alone), &mut sums).unwrap();
    let mut plain = [vec![f64::NAN; layout.len()]];
    engine.pass(&Pass::new(&params, &records, &all), &mut plain).unwrap();
    assert!(outcome.non_finite.is_empty(), "{name}");
    for (record, sum) in sums.iter().enumerate() {
        let what = format!("{name}: record {record}");
        close(&format!("{what}: loss"), [outcome.losses[record] as f32], &[case.losses[record]]);
        let mut squared = 0.0;
        for slice in layout.slices() {
            let truth = &case.gradients[record][&slice.name];
            close(
                &format!("{what}: {}", slice.name),
                sum[slice.range.clone()].iter().map(|g| *g as f32),
                truth,
            );
            squared += truth.iter().map(|g| g * g).sum::<f64>();
        }
        // Norms from Gram matrices carry an allowance for rounding: they may be a little too large, not too small.
        let (found, norm) = (outcome.norms[record], squared.sqrt());
        assert!(found >= norm - 2e-6 * (1.0 + norm), "{what}: {found} {norm}");
        assert!(found <= norm + 1e-4 * (1.0 + norm), "{what}: {found} {norm}");
    }
    for slice in layout.slices() {
        let truth: Vec<f64> = (0..slice.range.len())
            .map(|i| case.gradients.iter().map(|gradients| gradients[&slice.name][i]).sum())
            .collect();
        close(
            &format!("{name}: sum of {}", slice.name),
            plain[0][slice.range.clone()].iter().map(|g| *g as f32),
            &truth,
        );
    }
}

#[test]
fn every_layer_agrees_with_pytorch() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("fixtures/layers.json")).unwrap();
    assert!(cases.len() >= 50);
    for case in &cases {
        check(case);
    }
}
