//! The weights of a pre-trained model: one or several safetensors files, read as 32-bit floats.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};
use sha2::{Digest, Sha256};

use super::in_file;
use crate::error::NetworkError;

/// A file that a model was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFile {
    /// Its path.
    pub path: PathBuf,
    /// The SHA-256 hash of its contents, in hexadecimal digits.
    pub sha256: String,
}

impl ModelFile {
    /// The file at this path; `None` if it does not exist.
    pub(super) fn of(path: &Path) -> Result<Option<ModelFile>, NetworkError> {
        match fs::read(path) {
            Ok(bytes) => Ok(Some(ModelFile { path: path.to_owned(), sha256: sha256(&bytes) })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(in_file(path, &error)),
        }
    }
}

/// The tensors of all files.
pub(super) struct Checkpoint {
    pub(super) files: Vec<ModelFile>,
    contents: Vec<Vec<u8>>,
    tensors: BTreeMap<String, Stored>,
}

/// The location of a tensor.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    /// Its name in the file.
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    file: usize,
    dtype: Dtype,
    bytes: Range<usize>,
}

impl Checkpoint {
    /// Reads `model.safetensors`, or the files that `model.safetensors.index.json` lists. `rename` maps the name of each tensor to the one
    /// that is used here.
    pub(super) fn read(folder: &Path, rename: impl Fn(&str) -> String) -> Result<Checkpoint, NetworkError> {
        let mut checkpoint = Checkpoint { files: Vec::new(), contents: Vec::new(), tensors: BTreeMap::new() };
        for path in weight_files(folder)? {
            let bytes = fs::read(&path).map_err(|error| in_file(&path, &error))?;
            checkpoint.add(&path, bytes, &rename)?;
        }
        Ok(checkpoint)
    }

    fn add(
        &mut self,
        path: &Path,
        bytes: Vec<u8>,
        rename: &impl Fn(&str) -> String,
    ) -> Result<(), NetworkError> {
        let file = self.contents.len();
        let (header, metadata) = SafeTensors::read_metadata(&bytes)
            .map_err(|error| in_file(path, &format!("not a safetensors file: {error}")))?;
        // The file begins with the length of the header, in eight bytes.
        let data = 8 + header;
        for (name, info) in metadata.tensors() {
            let (shape, dtype) = (info.shape.clone(), info.dtype);
            let bytes = data + info.data_offsets.0..data + info.data_offsets.1;
            let stored = Stored { name: name.clone(), shape, file, dtype, bytes };
            if let Some(other) = self.tensors.insert(rename(&name), stored) {
                return Err(in_file(path, &format!("{name} and {} are the same tensor", other.name)));
            }
        }
        self.files.push(ModelFile { path: path.to_owned(), sha256: sha256(&bytes) });
        self.contents.push(bytes);
        Ok(())
    }

    /// All names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Stored> {
        self.tensors.get(name)
    }

    /// The file that holds a tensor.
    pub(super) fn file(&self, stored: &Stored) -> &Path {
        &self.files[stored.file].path
    }

    /// A tensor of this name and shape as 32-bit floats.
    pub(super) fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, NetworkError> {
        let stored = self.expect(name, shape)?;
        let bytes = &self.contents[stored.file][stored.bytes.clone()];
        let two = |convert: fn(u16) -> f32| {
            bytes.chunks_exact(2).map(|b| convert(u16::from_le_bytes([b[0], b[1]]))).collect()
        };
        Ok(match stored.dtype {
            Dtype::F16 => two(from_half),
            Dtype::BF16 => two(|bits| f32::from_bits(u32::from(bits) << 16)),
            _ => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        })
    }

    /// Checks that there is a tensor with this name and shape, and with a type that can be read.
    pub(super) fn expect(&self, name: &str, shape: &[usize]) -> Result<&Stored, NetworkError> {
        let Some(stored) = self.tensors.get(name) else {
            return Err(in_file(
                &self.files[0].path,
                &format!("{name} is missing; config.json requires it with shape {shape:?}"),
            ));
        };
        let path = self.file(stored);
        if stored.shape != shape {
            return Err(in_file(
                path,
                &format!("{} has shape {:?}, but config.json requires {shape:?}", stored.name, stored.shape),
            ));
        }
        match stored.dtype {
            Dtype::F32 | Dtype::F16 | Dtype::BF16 => Ok(stored),
            other => Err(in_file(
                path,
                &format!("{} is of type {other:?}; the types F32, F16 and BF16 can be read", stored.name),
            )),
        }
    }
}

/// The files that hold the weights.
fn weight_files(folder: &Path) -> Result<Vec<PathBuf>, NetworkError> {
    let single = folder.join("model.safetensors");
    let index = folder.join("model.safetensors.index.json");
    if single.exists() || !index.exists() {
        return Ok(vec![single]);
    }
    let text = fs::read(&index).map_err(|error| in_file(&index, &error))?;
    let keys: serde_json::Value = serde_json::from_slice(&text).map_err(|error| in_file(&index, &error))?;
    let files = keys["weight_map"].as_object().map(|map| map.values().map(|file| file.as_str()).collect());
    let files: Option<BTreeSet<&str>> =
        files.and_then(|files: Vec<Option<&str>>| files.into_iter().collect());
    match files {
        // A file of the same folder, and nothing else.
        Some(files) if !files.is_empty() && files.iter().all(|file| is_plain(file)) => {
            Ok(files.into_iter().map(|file| folder.join(file)).collect())
        }
        _ => Err(in_file(&index, &"weight_map must give the name of a file in this folder for each tensor")),
    }
}

fn is_plain(file: &str) -> bool {
    Path::new(file).file_name().is_some_and(|name| name == file)
}

/// The SHA-256 hash in hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A half-precision number: a sign bit, five bits of exponent, ten of fraction.
fn from_half(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_is_read_exactly() {
        // From the table of IEEE 754-2008's binary16.
        let known = [
            (0x0000, 0.0),
            (0x3C00, 1.0),
            (0xC000, -2.0),
            (0x3555, 0.333_251_95),
            (0x7BFF, 65504.0),
            (0x0400, 6.103_515_6e-5),
            (0x03FF, 6.097_555e-5),
            (0x0001, 5.960_464_5e-8),
            (0x7C00, f32::INFINITY),
        ];
        for (bits, value) in known {
            assert_eq!(from_half(bits), value, "{bits:x}");
        }
        assert!(from_half(0x7C01).is_nan());
    }

    #[test]
    fn a_file_outside_the_folder_is_not_read() {
        assert!(is_plain("model-00001-of-00002.safetensors"));
        for file in ["../x.safetensors", "/etc/passwd", "a/b", "..", ""] {
            assert!(!is_plain(file), "{file}");
        }
    }
}
