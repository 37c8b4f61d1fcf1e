//! `config.json` of a pre-trained model.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::checkpoint::{ModelFile, sha256};
use super::in_file;
use crate::error::NetworkError;
use crate::layers::{Gelu, GeluTanh, Layer, Relu};

/// The largest permitted number of transformer layers.
const MOST_LAYERS: usize = 1024;

/// The largest permitted size.
const GREATEST: usize = 1 << 24;

/// The keys of a `config.json`, and its path for messages.
#[derive(Debug, Clone)]
pub(super) struct Config {
    pub(super) path: PathBuf,
    pub(super) sha256: String,
    pub(super) keys: Map<String, Value>,
}

impl Config {
    pub(super) fn read(path: &Path) -> Result<Config, NetworkError> {
        let text = fs::read(path).map_err(|error| in_file(path, &error))?;
        let keys = serde_json::from_slice(&text)
            .map_err(|error| in_file(path, &format!("not a configuration of a model: {error}")))?;
        Ok(Config { path: path.to_owned(), sha256: sha256(&text), keys })
    }

    pub(super) fn file(&self) -> ModelFile {
        ModelFile { path: self.path.clone(), sha256: self.sha256.clone() }
    }

    pub(super) fn error(&self, problem: &str) -> NetworkError {
        in_file(&self.path, &problem)
    }

    /// A size; `default` is its value if the key is missing or null.
    pub(super) fn size(&self, key: &str, default: Option<usize>) -> Result<usize, NetworkError> {
        let value = match (self.keys.get(key), default) {
            (None | Some(Value::Null), Some(default)) => return Ok(default),
            (None, None) => return Err(self.error(&format!("{key} is missing"))),
            (Some(value), _) => value,
        };
        match value.as_u64().and_then(|size| usize::try_from(size).ok()) {
            Some(size) if (1..=GREATEST).contains(&size) => Ok(size),
            _ => Err(self.error(&format!("{key} must be 1 to {GREATEST}, got {value}"))),
        }
    }

    /// The number of transformer layers.
    pub(super) fn layers(&self, key: &str, default: usize) -> Result<usize, NetworkError> {
        match self.size(key, Some(default))? {
            layers if layers <= MOST_LAYERS => Ok(layers),
            layers => Err(self.error(&format!("{key} must be 1 to {MOST_LAYERS}, got {layers}"))),
        }
    }

    /// The number of a token.
    pub(super) fn token(&self, key: &str, default: usize) -> Result<usize, NetworkError> {
        match self.keys.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(value) => match value.as_u64().and_then(|token| usize::try_from(token).ok()) {
                Some(token) if token < GREATEST => Ok(token),
                _ => Err(self.error(&format!("{key} must be a token below {GREATEST}, got {value}"))),
            },
        }
    }

    /// The epsilon of normalisations.
    pub(super) fn epsilon(&self, key: &str, default: f64) -> Result<f32, NetworkError> {
        let value = self.keys.get(key).map_or(Some(default), Value::as_f64);
        match value.filter(|epsilon| *epsilon > 0.0 && *epsilon <= 1.0) {
            Some(epsilon) => Ok(epsilon as f32),
            None => Err(self.error(&format!("{key} must be in (0, 1], got {}", self.keys[key]))),
        }
    }

    /// The activation function.
    pub(super) fn activation(&self, key: &str, default: &str) -> Result<Layer, NetworkError> {
        let name = match self.keys.get(key) {
            None => default,
            Some(value) => value.as_str().unwrap_or("something else"),
        };
        match name {
            "gelu" => Ok(Gelu.into()),
            "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Ok(GeluTanh.into()),
            "relu" => Ok(Relu.into()),
            _ => Err(self.error(&format!("{key} must be gelu, gelu_new or relu, got {name}"))),
        }
    }

    /// The number of a special token in the `tokenizer.json` beside this file; none if there is no such file or token.
    pub(super) fn special_token(&self, content: &str) -> Result<Option<u32>, NetworkError> {
        let path = self.path.with_file_name("tokenizer.json");
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read(&path).map_err(|error| in_file(&path, &error))?;
        let keys: Value = serde_json::from_slice(&text)
            .map_err(|error| in_file(&path, &format!("not a tokenizer: {error}")))?;
        let tokens = keys["added_tokens"].as_array().map_or(&[][..], Vec::as_slice);
        let token = tokens.iter().find(|token| token["content"] == content);
        Ok(token.and_then(|token| token["id"].as_u64()).and_then(|token| u32::try_from(token).ok()))
    }

    /// Refuses a key with any value other than the supported one. A missing key counts as supported.
    pub(super) fn only(&self, key: &str, supported: &Value) -> Result<(), NetworkError> {
        match self.keys.get(key) {
            Some(value) if value != supported && !value.is_null() => Err(self
                .error(&format!("{key} must be {supported}, got {value}; other models are not supported"))),
            _ => Ok(()),
        }
    }
}
