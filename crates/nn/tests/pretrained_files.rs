//! The files of pre-trained models: every form that is read, and refusals of broken ones.
#![expect(clippy::unwrap_used, reason = "a test stops at the first error")]

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};
use sordino_nn::pretrained::{Export, Kind, Pooling, Pretrained, TrainedPart};
use sordino_nn::{Network, NetworkError, Shape, models};

type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// A copy of a fixture.
struct Model(PathBuf);

impl Model {
    fn copy(kind: Kind, name: &str) -> Model {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        let fixture =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pretrained").join(kind.name());
        for file in ["config.json", "model.safetensors", "tokenizer.json"] {
            if fixture.join(file).exists() {
                fs::copy(fixture.join(file), path.join(file)).unwrap();
            }
        }
        Model(path)
    }

    /// Changes keys of `config.json`.
    fn set(self, key: &str, value: Value) -> Model {
        let path = self.0.join("config.json");
        let mut keys: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        match value {
            Value::Null => drop(keys.as_object_mut().unwrap().remove(key)),
            value => keys[key] = value,
        }
        fs::write(path, keys.to_string()).unwrap();
        self
    }

    fn write(self, file: &str, contents: impl AsRef<[u8]>) -> Model {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
        self
    }

    fn tensors(&self) -> Tensors {
        read(&self.0.join("model.safetensors"))
    }

    /// Changes the weights.
    fn change(self, change: impl FnOnce(&mut Tensors)) -> Model {
        let mut tensors = self.tensors();
        change(&mut tensors);
        self.write("model.safetensors", bytes(&tensors))
    }

    fn open(&self) -> Result<Pretrained, NetworkError> {
        Pretrained::open(&self.0)
    }

    /// All parameters with a head of three outputs.
    fn params(&self) -> Vec<f32> {
        let pretrained = self.open().unwrap();
        let network = Network::new(&pretrained.classifier(5, 3, TrainedPart::All).unwrap()).unwrap();
        pretrained.params(&network, 1).unwrap().values().to_vec()
    }
}

fn read(path: &Path) -> Tensors {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensors = file.tensors().into_iter();
    tensors.map(|(name, view)| (name, (view.dtype(), view.shape().to_vec(), view.data().to_vec()))).collect()
}

fn bytes(tensors: &Tensors) -> Vec<u8> {
    let views = tensors.iter().map(|(name, (dtype, shape, data))| {
        (name.as_str(), TensorView::new(*dtype, shape.clone(), data).unwrap())
    });
    safetensors::serialize(views, None::<HashMap<String, String>>).unwrap()
}

fn renamed(tensors: &mut Tensors, rename: impl Fn(&str) -> String) {
    *tensors = std::mem::take(tensors).into_iter().map(|(name, tensor)| (rename(&name), tensor)).collect();
}

#[test]
fn names_without_a_prefix_and_old_names_are_read() {
    let params = Model::copy(Kind::Bert, "plain").params();
    let bare = Model::copy(Kind::Bert, "bare")
        .change(|tensors| renamed(tensors, |name| name.trim_start_matches("bert.").to_owned()));
    assert_eq!(bare.params(), params);
    let old = Model::copy(Kind::Bert, "old").change(|tensors| {
        renamed(tensors, |name| {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        });
    });
    assert_eq!(old.params(), params);
}

#[test]
fn heads_for_other_tasks_and_buffers_are_ignored() {
    for (kind, name) in [
        (Kind::Bert, "cls.predictions.bias"),
        (Kind::Bert, "bert.embeddings.position_ids"),
        (Kind::Roberta, "lm_head.dense.weight"),
        (Kind::Distilbert, "vocab_projector.bias"),
        (Kind::Gpt2, "transformer.h.0.attn.bias"),
        (Kind::Vit, "vit.pooler.dense.weight"),
    ] {
        let model = Model::copy(kind, "ignored").change(|tensors| {
            tensors.insert(name.to_owned(), (Dtype::I64, vec![1], vec![0; 8]));
        });
        model.open().unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn weights_of_half_precision_are_read() {
    let params = Model::copy(Kind::Distilbert, "full").params();
    let brain = Model::copy(Kind::Distilbert, "bf16").change(|tensors| {
        for (dtype, _, data) in tensors.values_mut() {
            *dtype = Dtype::BF16;
            *data = data.chunks_exact(4).flat_map(|bytes| [bytes[2], bytes[3]]).collect();
        }
    });
    let truncated: Vec<f32> = params.iter().map(|p| f32::from_bits(p.to_bits() >> 16 << 16)).collect();
    assert_eq!(brain.params(), truncated);
    let half = Model::copy(Kind::Distilbert, "f16").change(|tensors| {
        for (dtype, _, data) in tensors.values_mut() {
            *dtype = Dtype::F16;
            // One and a half.
            *data = data.chunks_exact(4).flat_map(|_| [0x00, 0x3E]).collect();
        }
    });
    assert!(half.params().iter().all(|value| *value == 1.5));
}

#[test]
fn weights_in_several_files_are_read_and_hashed() {
    let params = Model::copy(Kind::Gpt2, "single").params();
    let model = Model::copy(Kind::Gpt2, "shards");
    let mut first = model.tensors();
    let second = first.split_off("transformer.h.1");
    let map: serde_json::Map<String, Value> = first
        .keys()
        .map(|name| (name.clone(), json!("a.safetensors")))
        .chain(second.keys().map(|name| (name.clone(), json!("b.safetensors"))))
        .collect();
    fs::remove_file(model.0.join("model.safetensors")).unwrap();
    let model = model
        .write("a.safetensors", bytes(&first))
        .write("b.safetensors", bytes(&second))
        .write("model.safetensors.index.json", json!({ "weight_map": map }).to_string());
    assert_eq!(model.params(), params);
    let names: Vec<String> =
        model.open().unwrap().files().iter().map(|file| file.path.display().to_string()).collect();
    assert!(names[0].ends_with("config.json") && names[1].ends_with("a.safetensors") && names.len() == 3);
}

#[test]
fn hashes_are_those_of_the_files() {
    // From sha256sum.
    let pretrained = Model::copy(Kind::Bert, "hash").write("preprocessor_config.json", "{}").open().unwrap();
    let names: Vec<_> = pretrained.files().iter().map(|file| file.path.file_name().unwrap()).collect();
    assert_eq!(names, ["config.json", "model.safetensors", "tokenizer.json", "preprocessor_config.json"]);
    assert_eq!(pretrained.files()[1].sha256, include_str!("fixtures/pretrained/bert/model.sha256").trim());
    assert!(pretrained.files()[3].sha256.starts_with("44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e83"));
}

#[test]
fn a_checkpoint_without_a_head_gets_a_new_one() {
    let model = Model::copy(Kind::Bert, "headless").change(|tensors| {
        tensors.retain(|name, _| !name.starts_with("classifier") && !name.contains("pooler"));
    });
    let pretrained = model.open().unwrap();
    assert_eq!(pretrained.head(), None);
    let network = Network::new(&pretrained.classifier(5, 2, TrainedPart::Head).unwrap()).unwrap();
    // The pooler is new as well, and trained.
    let trained: Vec<&str> = network.layers().iter().map(|layer| layer.name.as_str()).collect();
    assert_eq!(trained, ["pooler.dense", "classifier"]);
    let (params, init) = (pretrained.params(&network, 7).unwrap(), network.init(7));
    for name in ["pooler.dense.weight", "classifier.weight", "classifier.bias"] {
        assert_eq!(params.slice(name), init.slice(name));
    }
    assert_ne!(
        params.slice("embeddings.word_embeddings.weight"),
        init.slice("embeddings.word_embeddings.weight")
    );
    // A head for another number of classes is not used.
    let other = Model::copy(Kind::Bert, "other-head").open().unwrap();
    let network = Network::new(&other.classifier(5, 2, TrainedPart::Head).unwrap()).unwrap();
    assert_eq!(network.layers().len(), 1);
    assert_eq!(
        other.params(&network, 7).unwrap().slice("classifier.weight"),
        network.init(7).slice("classifier.weight")
    );
}

#[test]
fn a_model_for_sentences_has_a_head_on_the_mean() {
    let model = Model::copy(Kind::Bert, "sentences").write(
        "1_Pooling/config.json",
        r#"{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false}"#,
    );
    let pretrained = model.open().unwrap();
    let description = pretrained.classifier(5, 2, TrainedPart::Head).unwrap();
    let kinds: Vec<&str> = description.layers.iter().rev().take(2).map(|layer| layer.layer.kind()).collect();
    assert_eq!(kinds, ["linear", "mean_over_steps"]);
    let network = Network::new(&description).unwrap();
    let params = pretrained.params(&network, 1).unwrap();
    let folder = model.0.join("exported");
    pretrained.export(&network, &params, &folder, Export::Merged).unwrap();
    assert_eq!(
        read(&folder.join("head.safetensors")).into_keys().collect::<Vec<_>>(),
        ["head.bias", "head.weight"]
    );
    let weights = read(&folder.join("model.safetensors"));
    assert!(
        weights.keys().all(|name| !name.starts_with("bert.")) && weights.contains_key("pooler.dense.bias")
    );
    assert!(pretrained.files().iter().any(|file| file.path.ends_with("1_Pooling/config.json")));
    let config: Value = serde_json::from_slice(&fs::read(folder.join("config.json")).unwrap()).unwrap();
    assert_eq!(config["architectures"], json!(["BertModel"]));
    assert!(folder.join("tokenizer.json").exists() && !folder.with_extension("partial").exists());
    let own = model.open().unwrap().with_pooling(Pooling::First).classifier(5, 2, TrainedPart::Head).unwrap();
    assert_eq!(own.layers.last().unwrap().name.as_deref(), Some("classifier"));
}

/// A broken model, and what the refusal says.
fn refused(model: &Model, file: &str, parts: &[&str]) {
    let error = model.open().err().map(|error| error.to_string());
    let error = error.unwrap_or_else(|| panic!("{parts:?} should be refused"));
    let path = model.0.join(file).display().to_string();
    assert!(error.starts_with(&path), "{error}\nshould begin with {path}");
    for part in parts {
        assert!(error.contains(part), "{error}\nshould contain {part}");
    }
}

#[test]
fn configurations_that_are_not_supported_are_refused_by_key_and_value() {
    let cases = [
        (Kind::Bert, "model_type", json!("t5"), "one of bert, roberta, distilbert, gpt2, vit, got t5"),
        (Kind::Bert, "model_type", json!(3), "got missing"),
        (Kind::Bert, "vocab_size", Value::Null, "vocab_size is missing"),
        (Kind::Bert, "hidden_size", json!(0), "hidden_size must be 1 to 16777216, got 0"),
        (Kind::Bert, "hidden_size", json!(-8), "got -8"),
        (Kind::Bert, "hidden_size", json!(1e30), "got 1e+30"),
        (Kind::Bert, "hidden_size", json!("wide"), "got \"wide\""),
        (Kind::Bert, "num_attention_heads", json!(3), "heads must divide the width 8, got 3"),
        (Kind::Bert, "num_hidden_layers", json!(1_000_000), "num_hidden_layers must be 1 to 1024"),
        (Kind::Bert, "layer_norm_eps", json!(0.0), "layer_norm_eps must be in (0, 1], got 0"),
        (Kind::Bert, "hidden_act", json!("swish"), "hidden_act must be gelu, gelu_new or relu, got swish"),
        (
            Kind::Bert,
            "position_embedding_type",
            json!("relative_key"),
            "must be \"absolute\", got \"relative_key\"",
        ),
        (Kind::Bert, "is_decoder", json!(true), "is_decoder must be false, got true"),
        (
            Kind::Roberta,
            "max_position_embeddings",
            json!(2),
            "must be more than 2, where positions begin, got 2",
        ),
        (Kind::Gpt2, "scale_attn_by_inverse_layer_idx", json!(true), "must be false, got true"),
        (Kind::Vit, "qkv_bias", json!(false), "qkv_bias must be true, got false"),
        (Kind::Vit, "patch_size", json!(3), "patch_size must divide image_size 8, got 3"),
    ];
    for (kind, key, value, message) in cases {
        refused(&Model::copy(kind, "config").set(key, value), "config.json", &[message]);
    }
    refused(
        &Model::copy(Kind::Bert, "config").write("config.json", "{"),
        "config.json",
        &["not a configuration"],
    );
    refused(
        &Model::copy(Kind::Bert, "config").write("config.json", "[1]"),
        "config.json",
        &["not a configuration"],
    );
    refused(
        &Model::copy(Kind::Bert, "config").write("tokenizer.json", "?"),
        "tokenizer.json",
        &["not a tokenizer"],
    );
    let pooling = Model::copy(Kind::Bert, "config")
        .write("1_Pooling/config.json", r#"{"pooling_mode_max_tokens": true}"#);
    refused(&pooling, "1_Pooling/config.json", &["pooling_mode_mean_tokens"]);
    let missing = Model(PathBuf::from("nowhere"));
    refused(&missing, "config.json", &["No such file"]);
}

#[test]
fn weights_that_disagree_with_the_configuration_are_refused_by_name() {
    let weights = "model.safetensors";
    let cases = [
        ("num_hidden_layers", 3, "encoder.layer.2.attention.self.query.weight is missing"),
        (
            "num_hidden_layers",
            1,
            "bert.encoder.layer.1.attention.output.LayerNorm.bias is not a tensor of the bert",
        ),
        (
            "vocab_size",
            21,
            "bert.embeddings.word_embeddings.weight has shape [20, 8], but config.json requires [21, 8]",
        ),
        ("max_position_embeddings", 12, "bert.embeddings.position_embeddings.weight has shape [11, 8]"),
        ("type_vocab_size", 3, "bert.embeddings.token_type_embeddings.weight has shape [2, 8]"),
        ("intermediate_size", 13, "bert.encoder.layer.0.intermediate.dense.weight has shape [12, 8]"),
    ];
    for (key, value, message) in cases {
        refused(&Model::copy(Kind::Bert, "weights").set(key, json!(value)), weights, &[message]);
    }
    let name = "bert.embeddings.LayerNorm.weight";
    let other = Model::copy(Kind::Bert, "weights").change(|tensors| {
        let (dtype, shape, _) = tensors.get_mut(name).unwrap();
        (*dtype, *shape) = (Dtype::I32, vec![8]);
    });
    refused(&other, weights, &[name, "is of type I32", "F32, F16 and BF16"]);
    let twice = Model::copy(Kind::Bert, "weights").change(|tensors| {
        let tensor = tensors[name].clone();
        tensors.insert("embeddings.LayerNorm.weight".to_owned(), tensor);
    });
    refused(&twice, weights, &["are the same tensor"]);
    let stranger = Model::copy(Kind::Vit, "weights").change(|tensors| {
        tensors.insert("vit.extra".to_owned(), (Dtype::F32, Vec::new(), vec![0; 4]));
    });
    refused(&stranger, weights, &["vit.extra is not a tensor"]);
    let scalar = Model::copy(Kind::Bert, "weights").change(|tensors| {
        tensors.insert("classifier.weight".to_owned(), (Dtype::F32, Vec::new(), vec![0; 4]));
    });
    assert_eq!(scalar.open().unwrap().head(), None);
}

#[test]
fn files_that_are_not_weights_are_refused() {
    let weights = "model.safetensors";
    let whole = fs::read(Model::copy(Kind::Bert, "broken").0.join(weights)).unwrap();
    for end in [0, 4, 8, 100, whole.len() / 2, whole.len() - 1] {
        let broken = Model::copy(Kind::Bert, "broken").write(weights, &whole[..end]);
        refused(&broken, weights, &["not a safetensors file"]);
    }
    let huge = Model::copy(Kind::Bert, "broken").write(weights, u64::MAX.to_le_bytes());
    refused(&huge, weights, &["not a safetensors file"]);
    let absent = Model::copy(Kind::Bert, "broken");
    fs::remove_file(absent.0.join(weights)).unwrap();
    refused(&absent, weights, &["No such file"]);
    let index = "model.safetensors.index.json";
    for text in
        ["", "{}", r#"{"weight_map": {}}"#, r#"{"weight_map": {"a": 1}}"#, r#"{"weight_map": {"a": "../b"}}"#]
    {
        let broken = Model::copy(Kind::Bert, "broken").write(index, text);
        fs::remove_file(broken.0.join(weights)).unwrap();
        refused(&broken, index, &[]);
    }
}

#[test]
fn lengths_parts_and_foreign_networks_are_refused() {
    let model = Model::copy(Kind::Roberta, "refusals");
    let pretrained = model.open().unwrap();
    let refuse = |result: Result<(), NetworkError>, part: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    // Two of the eleven rows are not positions.
    assert_eq!(pretrained.input(9).unwrap(), Shape::Tokens { steps: 9, vocabulary: 20 });
    for length in [0, 10] {
        refuse(pretrained.input(length).map(drop), "the length must be 1 to 9");
    }
    let classifier = |outputs, part| pretrained.classifier(5, outputs, part).map(drop);
    refuse(classifier(0, TrainedPart::All), "outputs must be 1 to");
    for layers in [0, 3] {
        refuse(classifier(2, TrainedPart::Last { layers }), "must be 1 to 2, the layers of this model");
    }
    for (rank, alpha) in [(0, 1.0), (5000, 1.0), (2, 0.0), (2, f32::NAN), (2, f32::INFINITY)] {
        refuse(classifier(2, TrainedPart::Lora { rank, alpha }), "of lora must be");
    }
    let foreign = models::mlp(4, &[3], 2).unwrap();
    refuse(pretrained.params(&foreign, 1).map(drop), "fc1.weight is not a parameter of this roberta");
    let network = Network::new(&pretrained.classifier(5, 3, TrainedPart::All).unwrap()).unwrap();
    let params = pretrained.params(&network, 1).unwrap();
    let folder = model.0.join("exported");
    refuse(pretrained.export(&network, &params, &folder, Export::Adapter), "has no adapters");
    refuse(pretrained.export(&network, &foreign.init(1), &folder, Export::Merged), "another network");
    refuse(pretrained.export(&network, &params, &model.0, Export::Merged), "exists already");
    refuse(
        pretrained.export(&foreign, &foreign.init(1), &folder, Export::Merged),
        "fc1.weight is not a parameter",
    );
    assert!(!folder.exists());
}
