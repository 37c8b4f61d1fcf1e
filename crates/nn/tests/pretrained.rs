//! Pre-trained models against `transformers` and `peft` (`fixtures/pretrained.py`), and refusals of broken files.
#![expect(clippy::unwrap_used, reason = "a test stops at the first error")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use serde::Deserialize;
use sordino_nn::pretrained::{Export, Kind, Pooling, Pretrained, TrainedPart};
use sordino_nn::{Description, Engine, Inputs, Loss, Network, Params, Pass, Targets};

const LENGTH: usize = 8;
const CLASSES: usize = 3;
const WIDTH: usize = 8;
const LORA: TrainedPart = TrainedPart::Lora { rank: 2, alpha: 5.0 };

#[derive(Deserialize)]
struct Expected {
    #[serde(default)]
    tokens: Vec<Vec<u32>>,
    #[serde(default)]
    images: Vec<Vec<f32>>,
    targets: Vec<u32>,
    outputs: Vec<Vec<f64>>,
    losses: Vec<f64>,
    embeddings: Vec<Vec<f64>>,
    adapter: Outputs,
    #[serde(default)]
    language_model: Option<Outputs>,
}

#[derive(Deserialize)]
struct Outputs {
    outputs: Vec<Vec<f64>>,
    losses: Vec<f64>,
}

/// The records in the form that the engine reads.
struct Data {
    values: Vec<f32>,
    tokens: Vec<u32>,
    starts: Vec<usize>,
}

impl Data {
    fn of(expected: &Expected) -> Data {
        let mut starts = vec![0];
        expected.tokens.iter().for_each(|tokens| starts.push(starts[starts.len() - 1] + tokens.len()));
        Data { values: expected.images.concat(), tokens: expected.tokens.concat(), starts }
    }

    fn inputs(&self) -> Inputs<'_> {
        match self.tokens.is_empty() {
            true => Inputs::Dense(&self.values),
            false => Inputs::Tokens { tokens: &self.tokens, starts: &self.starts },
        }
    }
}

fn folder(kind: Kind) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pretrained").join(kind.name())
}

fn expected(kind: Kind) -> Expected {
    serde_json::from_slice(&fs::read(folder(kind).join("expected.json")).unwrap()).unwrap()
}

type Tensors = BTreeMap<String, Vec<f32>>;

fn tensors(path: &Path) -> Tensors {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let values =
        |data: &[u8]| data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    file.tensors().into_iter().map(|(name, view)| (name, values(view.data()))).collect()
}

/// A folder of this test that does not exist yet.
fn fresh(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    path
}

fn close(what: &str, got: &[f32], truth: impl IntoIterator<Item = f64>) {
    let truth: Vec<f64> = truth.into_iter().collect();
    assert_eq!(got.len(), truth.len(), "{what}");
    let scale = truth.iter().fold(0.1f64, |scale, value| scale.max(value.abs()));
    for (index, (got, truth)) in got.iter().zip(&truth).enumerate() {
        assert!((f64::from(*got) - truth).abs() <= 1e-5 * scale, "{what}[{index}]: {got}, PyTorch {truth}");
    }
}

/// The gradient of each record, its norm, and the losses.
fn gradients(
    description: &Description,
    params: &Params,
    data: &Data,
    loss: Loss,
    targets: Targets<'_>,
) -> (Vec<Vec<f64>>, Vec<f64>, Vec<f32>) {
    let network = Network::new(description).unwrap();
    let mut engine = Engine::with_workers(network, loss, 1).unwrap();
    let records = engine.records(data.inputs(), targets).unwrap();
    let (mut sums, mut norms, mut losses) = (Vec::new(), Vec::new(), Vec::new());
    let whole = |_: &[f64], weights: &mut [f32]| weights.fill(1.0);
    for record in 0..records.len() {
        let mut sum = [vec![f64::NAN; params.values().len()]];
        let chosen = [record];
        let outcome =
            engine.pass(&Pass::new(params, &records, &chosen).weighed_by(&whole), &mut sum).unwrap();
        let [sum] = sum;
        sums.push(sum);
        norms.push(outcome.norms[0]);
        losses.push(outcome.losses[0] as f32);
    }
    (sums, norms, losses)
}

fn outputs(description: &Description, params: &Params, data: &Data) -> Vec<f32> {
    let mut engine = Engine::without_loss(Network::new(description).unwrap()).unwrap();
    let inputs = engine.unlabelled(data.inputs()).unwrap();
    let all: Vec<usize> = (0..inputs.len()).collect();
    engine.outputs(params, &inputs, &all).unwrap()
}

/// A vector in the network's order as tensors under the names of a checkpoint: it is exported like parameters.
fn as_checkpoint(
    pretrained: &Pretrained,
    description: &Description,
    values: &[f64],
    how: Export,
    name: &str,
) -> Tensors {
    let network = Network::new(description).unwrap();
    let values = values.iter().map(|value| *value as f32).collect();
    let params = Params::new(network.layout().clone(), values).unwrap();
    let path = fresh(name);
    pretrained.export(&network, &params, &path, how).unwrap();
    let file = if how == Export::Merged { "model.safetensors" } else { "adapter_model.safetensors" };
    let tensors = tensors(&path.join(file));
    fs::remove_dir_all(path).unwrap();
    tensors
}

/// The rows of a table that belong to the positions and segments of the network.
fn used_rows(kind: Kind, name: &str) -> std::ops::Range<usize> {
    match (kind, name) {
        (Kind::Roberta, name) if name.contains("position_embeddings") => 2..2 + LENGTH,
        (Kind::Roberta, name) if name.contains("token_type") => 0..1,
        (Kind::Vit, _) => 0..usize::MAX,
        (_, name) if name.contains("position_embeddings") || name.contains("wpe") => 0..LENGTH,
        _ => 0..usize::MAX,
    }
}

#[test]
fn outputs_and_embeddings_equal_those_of_transformers() {
    for &kind in Kind::ALL {
        let (pretrained, expected) = (Pretrained::open(&folder(kind)).unwrap(), expected(kind));
        assert_eq!(pretrained.kind(), kind);
        assert_eq!(pretrained.head(), Some(CLASSES), "{kind}");
        let data = Data::of(&expected);
        let run = |description: Description| {
            let params = pretrained.params(&Network::new(&description).unwrap(), 1).unwrap();
            outputs(&description, &params, &data)
        };
        let classifier = pretrained.classifier(LENGTH, CLASSES, TrainedPart::All).unwrap();
        close(&format!("{kind}: outputs"), &run(classifier), expected.outputs.concat());
        let embeddings: Vec<f64> = expected.embeddings.concat();
        let got = run(match kind {
            Kind::Vit => pretrained.encoder(1).unwrap(),
            _ => pretrained.encoder(LENGTH).unwrap(),
        });
        close(&format!("{kind}: embeddings"), &got, embeddings);
    }
}

/// Normalises to mean 0 and variance 1.
fn standardised(x: &[f64]) -> Vec<f64> {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    x.iter().map(|x| (x - mean) / (variance + 1e-5).sqrt()).collect()
}

/// The last part of the features of all layers equals that of `transformers`. All parts are standardised, and no two are equal.
#[test]
fn the_features_of_all_layers_are_the_standardised_means_of_each() {
    // Not ViT: the expected embedding of an image is its class token, not a mean over steps.
    for &kind in Kind::ALL.iter().filter(|kind| **kind != Kind::Vit) {
        let expected = expected(kind);
        let data = Data::of(&expected);
        let features = |pooling| {
            let pretrained = Pretrained::open(&folder(kind)).unwrap().with_pooling(pooling);
            let description = pretrained.encoder(LENGTH).unwrap();
            let network = Network::new(&description).unwrap();
            assert!(network.layers().is_empty(), "{kind}: everything is frozen");
            let params = pretrained.params(&network, 1).unwrap();
            (pretrained.layers(), outputs(&description, &params, &data))
        };
        let (layers, all) = features(Pooling::AllLayers);
        let (_, last) = features(Pooling::StandardisedMean);
        assert_eq!(all.len(), expected.embeddings.len() * (1 + layers) * WIDTH, "{kind}");
        for (record, (all, last)) in all.chunks((1 + layers) * WIDTH).zip(last.chunks(WIDTH)).enumerate() {
            let truth = standardised(&expected.embeddings[record]);
            close(&format!("{kind}: last of all layers"), &all[layers * WIDTH..], truth.iter().copied());
            close(&format!("{kind}: last layer"), last, truth.iter().copied());
            for part in all.chunks(WIDTH) {
                let part: Vec<f64> = part.iter().map(|x| f64::from(*x)).collect();
                assert!(
                    (part.iter().map(|x| x * x).sum::<f64>() / WIDTH as f64 - 1.0).abs() < 0.01,
                    "{kind}"
                );
            }
            assert!(
                all.chunks(WIDTH).enumerate().all(|(i, part)| all.chunks(WIDTH).take(i).all(|p| p != part))
            );
        }
    }
}

#[test]
fn all_layers_with_a_head_have_the_names_of_the_checkpoint() {
    let pretrained = Pretrained::open(&folder(Kind::Bert)).unwrap().with_pooling(Pooling::AllLayers);
    for part in [TrainedPart::Head, TrainedPart::Last { layers: 1 }, LORA, TrainedPart::All] {
        let description = pretrained.classifier(LENGTH, CLASSES, part).unwrap();
        let network = Network::new(&description).unwrap();
        let params = pretrained.params(&network, 1).unwrap();
        let out = fresh(&format!("all-layers-{part}"));
        pretrained.export(&network, &params, &out, Export::Merged).unwrap();
        let head = tensors(&out.join("head.safetensors"));
        assert_eq!(head["head.weight"].len(), (1 + pretrained.layers()) * WIDTH * CLASSES);
        let (original, exported) =
            (tensors(&folder(Kind::Bert).join("model.safetensors")), tensors(&out.join("model.safetensors")));
        let word = "embeddings.word_embeddings.weight";
        assert_eq!(exported[word], original[&format!("bert.{word}")]);
        assert_eq!(Description::split_frozen(&description).is_some(), part == TrainedPart::Head);
    }
}

#[test]
fn per_record_gradients_equal_those_of_pytorch_for_every_trained_part() {
    let parts = [TrainedPart::All, TrainedPart::Last { layers: 1 }, TrainedPart::Head];
    for (&kind, part) in Kind::ALL.iter().flat_map(|kind| parts.map(|part| (kind, part))) {
        let (pretrained, expected) = (Pretrained::open(&folder(kind)).unwrap(), expected(kind));
        let description = pretrained.classifier(LENGTH, CLASSES, part).unwrap();
        let network = Network::new(&description).unwrap();
        let params = pretrained.params(&network, 1).unwrap();
        let truth = tensors(&folder(kind).join("gradients.safetensors"));
        let trained = network.layout().slices().iter().filter(|slice| !slice.frozen).count();
        assert!(trained > 0 && (part == TrainedPart::All) == (trained == network.layout().slices().len()));
        let (sums, norms, losses) = gradients(
            &description,
            &params,
            &Data::of(&expected),
            Loss::cross_entropy(),
            Targets::Classes(&expected.targets),
        );
        close(&format!("{kind}: losses"), &losses, expected.losses);
        for (record, (sum, norm)) in sums.iter().zip(norms).enumerate() {
            let what = format!("{kind}, {part}, record {record}");
            let name = format!("gradients-{kind}-{part}-{record}");
            let mut squared = 0.0;
            for (name, got) in as_checkpoint(&pretrained, &description, sum, Export::Merged, &name) {
                let truth = &truth[&format!("{record}/{name}")];
                let rows = used_rows(kind, &name);
                let used = |(index, _): &(usize, &f32)| rows.contains(&(index / WIDTH));
                let got: Vec<f32> = got.iter().enumerate().filter(used).map(|(_, g)| *g).collect();
                let truth: Vec<f64> =
                    truth.iter().enumerate().filter(used).map(|(_, g)| f64::from(*g)).collect();
                // Everything that is frozen has no gradient.
                if got.iter().any(|got| *got != 0.0) {
                    squared += truth.iter().map(|g| g * g).sum::<f64>();
                    close(&format!("{what}: {name}"), &got, truth);
                } else if part == TrainedPart::All {
                    assert!(truth.iter().all(|g| g.abs() < 1e-6), "{what}: {name}");
                }
            }
            assert!((norm - squared.sqrt()).abs() <= 1e-4 * norm, "{what}: {norm} {}", squared.sqrt());
        }
    }
}

/// The parameters of the checkpoint with the adapters of the fixture.
fn adapted(pretrained: &Pretrained, network: &Network, kind: Kind) -> Params {
    let adapter = tensors(&folder(kind).join("adapter.safetensors"));
    let mut params = pretrained.params(network, 1).unwrap();
    for slice in network.layout().slices().iter().filter(|slice| slice.name.contains(".lora_")) {
        let (block, rest) = slice.name.split_once(".lora_").unwrap();
        let layer = block.rsplit('.').nth(1).unwrap();
        let (matrix, projection) = rest.split_once('.').unwrap();
        let short = format!(".{}_", &projection[..1]);
        let fits = |name: &&String| {
            let projection = name.contains(projection) || name.contains(&short) || name.contains("c_attn");
            name.contains(&format!(".{layer}.")) && name.contains(&format!("lora_{matrix}")) && projection
        };
        let found: Vec<&String> = adapter.keys().filter(fits).collect();
        assert_eq!(found.len(), 1, "{}: {found:?}", slice.name);
        params.slice_mut(&slice.name).unwrap().copy_from_slice(&adapter[found[0]]);
    }
    params
}

#[test]
fn adapters_equal_those_of_peft() {
    for &kind in Kind::ALL {
        let (pretrained, expected) = (Pretrained::open(&folder(kind)).unwrap(), expected(kind));
        let description = pretrained.classifier(LENGTH, CLASSES, LORA).unwrap();
        let network = Network::new(&description).unwrap();
        let params = adapted(&pretrained, &network, kind);
        let data = Data::of(&expected);
        close(&format!("{kind}"), &outputs(&description, &params, &data), expected.adapter.outputs.concat());
        let truth = tensors(&folder(kind).join("adapter_gradients.safetensors"));
        let (sums, norms, losses) = gradients(
            &description,
            &params,
            &data,
            Loss::cross_entropy(),
            Targets::Classes(&expected.targets),
        );
        close(&format!("{kind}: losses"), &losses, expected.adapter.losses);
        for (record, (sum, norm)) in sums.iter().zip(norms).enumerate() {
            let name = format!("adapters-{kind}-{record}");
            let got = as_checkpoint(&pretrained, &description, sum, Export::Adapter, &name);
            let all: Vec<&String> =
                truth.keys().filter(|name| name.starts_with(&format!("{record}/"))).collect();
            assert_eq!(got.len(), all.len(), "{kind}: {:?} {all:?}", got.keys());
            let mut squared = 0.0;
            for (name, got) in got {
                let truth = &truth[&format!("{record}/{name}")];
                squared += truth.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>();
                close(&format!("{kind}, record {record}: {name}"), &got, truth.iter().map(|g| f64::from(*g)));
            }
            assert!((norm - squared.sqrt()).abs() <= 1e-4 * norm, "{kind}: {norm} {}", squared.sqrt());
        }
    }
}

#[test]
fn the_language_model_equals_that_of_transformers() {
    let (pretrained, expected) = (Pretrained::open(&folder(Kind::Gpt2)).unwrap(), expected(Kind::Gpt2));
    let truth = tensors(&folder(Kind::Gpt2).join("language_model_gradients.safetensors"));
    let known = expected.language_model.as_ref().unwrap();
    let data = Data::of(&expected);
    for part in [TrainedPart::All, TrainedPart::Last { layers: 1 }] {
        let description = pretrained.language_model(LENGTH, part).unwrap();
        let network = Network::new(&description).unwrap();
        let params = pretrained.params(&network, 1).unwrap();
        close("outputs", &outputs(&description, &params, &data), known.outputs.concat());
        let targets = Targets::NextTokens { from: &[1; 3] };
        let (sums, norms, losses) = gradients(&description, &params, &data, Loss::NextToken, targets);
        close("losses", &losses, known.losses.iter().copied());
        for (record, (sum, norm)) in sums.iter().zip(norms).enumerate() {
            let name = format!("language-model-{part}-{record}");
            let mut squared = 0.0;
            for (name, got) in as_checkpoint(&pretrained, &description, sum, Export::Merged, &name) {
                let used = used_rows(Kind::Gpt2, &name).end.saturating_mul(WIDTH).min(got.len());
                let (got, truth) = (&got[..used], &truth[&format!("{record}/{name}")]);
                if got.iter().any(|got| *got != 0.0) {
                    let truth = truth[..got.len()].iter().map(|g| f64::from(*g));
                    squared += truth.clone().map(|g| g * g).sum::<f64>();
                    close(&format!("{part}, record {record}: {name}"), got, truth);
                }
            }
            assert!((norm - squared.sqrt()).abs() <= 1e-4 * norm, "{part}: {norm} {}", squared.sqrt());
        }
    }
    let lora = pretrained.language_model(LENGTH, LORA).unwrap();
    assert!(Network::new(&lora).unwrap().layers().iter().all(|layer| layer.name.contains(".lora_")));
    assert!(pretrained.language_model(LENGTH, TrainedPart::Head).is_err());
    assert!(Pretrained::open(&folder(Kind::Bert)).unwrap().language_model(LENGTH, LORA).is_err());
}

#[test]
fn new_adapters_change_nothing_and_merged_ones_give_the_same_outputs() {
    for &kind in Kind::ALL {
        let (pretrained, expected) = (Pretrained::open(&folder(kind)).unwrap(), expected(kind));
        let data = Data::of(&expected);
        let description = pretrained.classifier(LENGTH, CLASSES, LORA).unwrap();
        let network = Network::new(&description).unwrap();
        let new = pretrained.params(&network, 1).unwrap();
        close(&format!("{kind}: new"), &outputs(&description, &new, &data), expected.outputs.concat());
        let path = fresh(&format!("merged-{kind}"));
        let params = adapted(&pretrained, &network, kind);
        pretrained.export(&network, &params, &path, Export::Merged).unwrap();
        let merged = Pretrained::open(&path).unwrap();
        let description = merged.classifier(LENGTH, CLASSES, TrainedPart::All).unwrap();
        let params = merged.params(&Network::new(&description).unwrap(), 1).unwrap();
        let got = outputs(&description, &params, &data);
        close(&format!("{kind}: merged"), &got, expected.adapter.outputs.concat());
        assert!(pretrained.export(&network, &new, &path, Export::Merged).is_err(), "the folder exists");
    }
}

#[test]
fn an_exported_model_is_the_file_it_was_read_from() {
    for &kind in Kind::ALL {
        let pretrained = Pretrained::open(&folder(kind)).unwrap();
        let network =
            Network::new(&pretrained.classifier(LENGTH, CLASSES, TrainedPart::All).unwrap()).unwrap();
        let path = fresh(&format!("same-{kind}"));
        let params = pretrained.params(&network, 1).unwrap();
        pretrained.export(&network, &params, &path, Export::Merged).unwrap();
        let file = "model.safetensors";
        assert_eq!(tensors(&path.join(file)), tensors(&folder(kind).join(file)), "{kind}");
        let config = |path: &Path| -> serde_json::Value {
            serde_json::from_slice(&fs::read(path.join("config.json")).unwrap()).unwrap()
        };
        assert_eq!(config(&path), config(&folder(kind)), "{kind}");
    }
}

#[test]
fn frozen_layers_are_a_prefix_that_can_be_run_once() {
    let parts = [TrainedPart::Head, TrainedPart::Last { layers: 1 }, LORA];
    for (&kind, part) in Kind::ALL.iter().flat_map(|kind| parts.map(|part| (kind, part))) {
        let (pretrained, expected) = (Pretrained::open(&folder(kind)).unwrap(), expected(kind));
        let description = pretrained.classifier(LENGTH, CLASSES, part).unwrap();
        let (frozen, rest) = description.split_frozen().unwrap();
        let params = pretrained.params(&Network::new(&description).unwrap(), 1).unwrap();
        let (first, second) = (Network::new(&frozen).unwrap(), Network::new(&rest).unwrap());
        assert!(first.layers().is_empty(), "{kind}, {part}");
        assert_eq!(first.layout().len() + second.layout().len(), params.values().len());
        let names = |network: &Network| -> Vec<String> {
            network.layout().slices().iter().map(|slice| slice.name.clone()).collect()
        };
        let whole: Vec<String> = params.layout().slices().iter().map(|slice| slice.name.clone()).collect();
        assert_eq!([names(&first), names(&second)].concat(), whole);
        let (before, after) = params.values().split_at(first.layout().len());
        let before = Params::new(first.layout().clone(), before.to_vec()).unwrap();
        let after = Params::new(second.layout().clone(), after.to_vec()).unwrap();

        let data = Data::of(&expected);
        let mut engine = Engine::without_loss(first).unwrap();
        let inputs = engine.unlabelled(data.inputs()).unwrap();
        let all: Vec<usize> = (0..inputs.len()).collect();
        let (values, starts) = engine.sequence_outputs(&before, &inputs, &all).unwrap();
        let mut engine = Engine::without_loss(second).unwrap();
        let middle = match engine.network().input() {
            sordino_nn::Shape::Sequence { .. } => Inputs::Sequences { values: &values, starts: &starts },
            _ => Inputs::Dense(&values),
        };
        let middle = engine.unlabelled(middle).unwrap();
        let got = engine.outputs(&after, &middle, &all).unwrap();
        assert_eq!(got, outputs(&description, &params, &data), "{kind}, {part}");
    }
    let all = Pretrained::open(&folder(Kind::Bert)).unwrap().classifier(LENGTH, 2, TrainedPart::All).unwrap();
    assert!(all.split_frozen().is_none());
}
