//! Writes a trained model as Hugging Face stores models.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Map, Value, json};

use super::{Pretrained, in_file, transpose};
use crate::description::{Description, LayerDescription};
use crate::error::NetworkError;
use crate::layers::{Layer, Lora};
use crate::network::Network;
use crate::params::{Params, Slice};

/// The form of an exported model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Export {
    /// `config.json` and `model.safetensors`, with the adapters added to the weights that they belong to.
    Merged,
    /// The adapters and the head alone, as `adapter_config.json` and `adapter_model.safetensors` for the package `peft`.
    Adapter,
}

/// Files beside the weights that are part of a model and are copied.
const COPIED: &[&str] = &[
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "preprocessor_config.json",
];

/// The class of `transformers` that a network corresponds to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The model without a head, whose names have no prefix.
    Base,
    /// With the model's own head.
    Classifier,
    LanguageModel,
}

/// Tensors by name: shape and values.
type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

impl Pretrained {
    /// Writes a network of this model and its parameters into a new folder, with the names and shapes of `transformers`.
    ///
    /// [`Export::Merged`] gives a folder that `AutoModelForSequenceClassification` (or the class for images, or for language models) loads. If
    /// the [pooling](Self::with_pooling) is not that of the model's own head, the folder holds the model without a head, which `AutoModel`
    /// loads, and `head.safetensors` with the linear layer on the pooled vector. The files of the tokenizer are copied.
    ///
    /// # Errors
    /// If the folder exists, a file cannot be written, the network is not one of this model, or adapters are asked for and there
    /// are none. A folder is written completely or not at all.
    pub fn export(
        &self,
        network: &Network,
        params: &Params,
        folder: &Path,
        how: Export,
    ) -> Result<(), NetworkError> {
        if params.layout() != network.layout() {
            return Err(NetworkError::Parameters("these parameters belong to another network".to_owned()));
        }
        let files = match how {
            Export::Merged => self.merged_files(network, params)?,
            Export::Adapter => self.adapter_files(network, params)?,
        };
        write_folder(folder, &files)
    }

    fn merged_files(
        &self,
        network: &Network,
        params: &Params,
    ) -> Result<Vec<(String, Vec<u8>)>, NetworkError> {
        let lora = find_lora(network.description());
        let form = self.form(network);
        let (mut tensors, mut head) = (Tensors::new(), Tensors::new());
        for slice in network.layout().slices() {
            let values = &params.values()[slice.range.clone()];
            if self.architecture.names.adapter(&slice.name).is_some() {
                continue;
            }
            if slice.name.starts_with("head.") {
                head.insert(slice.name.clone(), (slice.shape.clone(), values.to_vec()));
                continue;
            }
            let mut values = values.to_vec();
            if let (Some(lora), Some(layer)) = (lora, slice.name.strip_suffix(".in_proj_weight")) {
                merge(lora, layer, slice.shape[1], params, &mut values);
            }
            self.write_parameter(slice, &values, form, &mut tensors)?;
        }
        if form == Form::Base {
            self.keep_pooler(&mut tensors)?;
        }
        let mut files = vec![
            ("config.json".to_owned(), self.config_of(network.outputs(), form)?),
            ("model.safetensors".to_owned(), serialize(&tensors)?),
        ];
        if !head.is_empty() {
            files.push(("head.safetensors".to_owned(), serialize(&head)?));
        }
        for name in COPIED {
            let path = self.folder.join(name);
            if path.exists() {
                files.push(((*name).to_owned(), fs::read(&path).map_err(|error| in_file(&path, &error))?));
            }
        }
        Ok(files)
    }

    /// The inverse of [`Pretrained::read`]: a parameter as the tensors of a checkpoint.
    fn write_parameter(
        &self,
        slice: &Slice,
        values: &[f32],
        form: Form,
        tensors: &mut Tensors,
    ) -> Result<(), NetworkError> {
        let origin = self.architecture.names.origin(slice);
        let part = values.len() / origin.names.len();
        for (name, values) in origin.names.iter().zip(values.chunks(part)) {
            if !self.is_head(&slice.name) {
                self.checkpoint.get(name).ok_or_else(|| self.foreign(slice))?;
                self.checkpoint.expect(name, &origin.shape)?;
            }
            let mut stored = vec![0.0; origin.shape.iter().product()];
            match origin.transposed {
                true => transpose(values, origin.shape[0], &mut stored),
                false => {
                    if stored.len() > values.len() {
                        stored = self.checkpoint.values(name, &origin.shape)?;
                    }
                    let first = origin.first_row * (stored.len() / origin.shape[0]);
                    let rows = stored.get_mut(first..first + values.len());
                    rows.ok_or_else(|| self.foreign(slice))?.copy_from_slice(values);
                }
            }
            tensors.insert(self.full_name(name, form), (origin.shape.clone(), stored));
        }
        Ok(())
    }

    /// Adds the pooler of the checkpoint, which the network does not use but the class of `transformers` has.
    fn keep_pooler(&self, tensors: &mut Tensors) -> Result<(), NetworkError> {
        for layer in self.architecture.pooler.iter().filter_map(|layer| layer.name.as_ref()) {
            for name in ["weight", "bias"].map(|part| format!("{layer}.{part}")) {
                if let Some(stored) = self.checkpoint.get(&name) {
                    let shape = stored.shape.clone();
                    let values = self.checkpoint.values(&name, &shape)?;
                    tensors.insert(name, (shape, values));
                }
            }
        }
        Ok(())
    }

    fn form(&self, network: &Network) -> Form {
        let last = network.description().layers.last();
        if last.is_some_and(|last| matches!(last.layer, Layer::TiedOutput(_))) {
            return Form::LanguageModel;
        }
        let own = |slice: &Slice| self.is_own_head(&slice.name);
        if network.layout().slices().iter().any(own) { Form::Classifier } else { Form::Base }
    }

    fn is_own_head(&self, name: &str) -> bool {
        let mut head = self.architecture.head.iter().filter_map(|layer| layer.name.as_ref());
        head.any(|layer| name.starts_with(&format!("{layer}.")))
    }

    /// The name of a tensor in a checkpoint with or without a head.
    fn full_name(&self, name: &str, form: Form) -> String {
        match form == Form::Base || self.is_own_head(name) {
            true => name.to_owned(),
            false => format!("{}{name}", self.architecture.names.prefix),
        }
    }

    /// `config.json` for this many outputs.
    fn config_of(&self, outputs: usize, form: Form) -> Result<Vec<u8>, NetworkError> {
        let mut keys = self.config.keys.clone();
        let names = &self.architecture.names;
        let class = match form {
            Form::Base => names.classes[0],
            Form::Classifier => names.classes[1],
            Form::LanguageModel => names.language_model.unwrap_or(names.classes[0]),
        };
        keys.insert("architectures".to_owned(), json!([class]));
        for key in ["torch_dtype", "dtype"] {
            if keys.contains_key(key) {
                keys.insert(key.to_owned(), json!("float32"));
            }
        }
        let labels = |key: &str| keys.get(key).and_then(Value::as_object).map(Map::len);
        // Names of classes are kept if there are as many.
        if form == Form::Classifier && labels("id2label") != Some(outputs) {
            let label = |class: usize| format!("LABEL_{class}");
            let ids: Map<_, _> = (0..outputs).map(|class| (class.to_string(), json!(label(class)))).collect();
            let classes: Map<_, _> = (0..outputs).map(|class| (label(class), json!(class))).collect();
            keys.insert("id2label".to_owned(), ids.into());
            keys.insert("label2id".to_owned(), classes.into());
            keys.remove("num_labels");
        }
        pretty(&keys.into())
    }

    fn adapter_files(
        &self,
        network: &Network,
        params: &Params,
    ) -> Result<Vec<(String, Vec<u8>)>, NetworkError> {
        let Some(lora) = find_lora(network.description()) else {
            return Err(NetworkError::Description(
                "the network has no adapters; export it merged, or train it with lora".to_owned(),
            ));
        };
        if self.form(network) == Form::Base {
            return Err(NetworkError::Description(
                "a head on another pooling than that of the model cannot be part of an adapter; export it merged"
                    .to_owned(),
            ));
        }
        let (names, form) = (&self.architecture.names, self.form(network));
        let mut tensors = Tensors::new();
        for slice in network.layout().slices() {
            let name = match names.adapter(&slice.name) {
                Some((projection, matrix)) => {
                    format!("{}.{matrix}.weight", self.full_name(&projection, form))
                }
                None if self.is_head(&slice.name) => self.full_name(&slice.name, form),
                None => continue,
            };
            let values = params.values()[slice.range.clone()].to_vec();
            tensors.insert(format!("base_model.model.{name}"), (slice.shape.clone(), values));
        }
        let mut saved: Vec<&str> = tensors
            .keys()
            .filter_map(|name| {
                let name = name.strip_prefix("base_model.model.")?;
                if name.contains(".lora_") {
                    None
                } else {
                    name.strip_prefix(names.prefix).unwrap_or(name).split('.').next()
                }
            })
            .collect();
        saved.dedup();
        let task = match (form, self.is_text()) {
            (Form::LanguageModel, _) => json!("CAUSAL_LM"),
            (_, true) => json!("SEQ_CLS"),
            // `peft` has no task for images; without one it takes any model.
            _ => Value::Null,
        };
        let config = json!({
            "peft_type": "LORA",
            "task_type": task,
            "base_model_name_or_path": self.folder.display().to_string(),
            "r": lora.rank,
            "lora_alpha": lora.alpha,
            "lora_dropout": 0.0,
            "target_modules": names.adapted_modules(),
            "modules_to_save": saved,
            "fan_in_fan_out": names.transposed.is_some(),
            "bias": "none",
            "inference_mode": true,
        });
        Ok(vec![
            ("adapter_config.json".to_owned(), pretty(&config)?),
            ("adapter_model.safetensors".to_owned(), serialize(&tensors)?),
        ])
    }
}

/// Adds `scale B A` of each adapter to the rows of the projection that it belongs to.
fn merge(lora: Lora, layer: &str, width: usize, params: &Params, projection: &mut [f32]) {
    for (name, columns) in lora.adapters() {
        let get = |matrix: &str| params.slice(&format!("{layer}.{matrix}.{name}"));
        let (Some(a), Some(b)) = (get("lora_A"), get("lora_B")) else { continue };
        let rows = projection.chunks_exact_mut(width).skip(columns.start * width);
        for (row, b) in rows.zip(b.chunks_exact(lora.rank)) {
            for (column, weight) in row.iter_mut().enumerate() {
                let product: f64 =
                    (0..lora.rank).map(|k| f64::from(b[k]) * f64::from(a[k * width + column])).sum();
                *weight = (f64::from(*weight) + f64::from(lora.scale()) * product) as f32;
            }
        }
    }
}

/// The adapters of a network; all attention layers have the same.
fn find_lora(description: &Description) -> Option<Lora> {
    fn find(layers: &[LayerDescription]) -> Option<Lora> {
        layers.iter().find_map(|described| match &described.layer {
            Layer::Residual(block) => find(&block.body),
            Layer::PooledStages(pooled) => pooled.stages.iter().find_map(|stage| find(stage)),
            Layer::Attention(attention) => attention.lora,
            _ => None,
        })
    }
    find(&description.layers)
}

fn serialize(tensors: &Tensors) -> Result<Vec<u8>, NetworkError> {
    let refuse = |error| NetworkError::Parameters(format!("cannot write the parameters: {error}"));
    let bytes: Vec<Vec<u8>> = tensors
        .values()
        .map(|(_, values)| values.iter().flat_map(|value| value.to_le_bytes()).collect())
        .collect();
    let views = tensors.iter().zip(&bytes).map(|((name, (shape, _)), bytes)| {
        TensorView::new(Dtype::F32, shape.clone(), bytes).map(|view| (name.as_str(), view))
    });
    let views: Vec<_> = views.collect::<Result<_, _>>().map_err(refuse)?;
    // `transformers` refuses files without this note.
    let notes = [("format".to_owned(), "pt".to_owned())].into();
    safetensors::serialize(views, Some(notes)).map_err(refuse)
}

fn pretty(value: &Value) -> Result<Vec<u8>, NetworkError> {
    serde_json::to_vec_pretty(value).map_err(|error| NetworkError::Parameters(error.to_string()))
}

/// Writes the files into a temporary folder beside the final one, syncs them, and then renames the folder.
fn write_folder(folder: &Path, files: &[(String, Vec<u8>)]) -> Result<(), NetworkError> {
    if folder.exists() {
        return Err(in_file(folder, &"exists already; choose a new folder"));
    }
    let mut partial = folder.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    if partial.exists() {
        return Err(in_file(&partial, &"is left from an interrupted export; delete it"));
    }
    let write = || {
        fs::create_dir_all(&partial)?;
        for (name, bytes) in files {
            let mut file = fs::File::create(partial.join(name))?;
            file.write_all(bytes)?;
            file.sync_all()?;
        }
        fs::rename(&partial, folder)
    };
    write().map_err(|error: std::io::Error| {
        // Nothing half written is left; if even this fails, the first error is the one to report.
        let _ = fs::remove_dir_all(&partial);
        in_file(folder, &error)
    })
}
