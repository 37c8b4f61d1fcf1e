//! The links between weights and ledger: the weights name the last line of the ledger, and the ledger has the hash of the weights.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

use safetensors::{SafeTensorError, SafeTensors};
use sha2::{Digest, Sha256};
use sordino_nn::Params;
use sordino_privacy::Account;

use crate::{
    RunFolder, TrainError,
    folder::{failed, read, write_whole},
};

/// The prefix of the notes about the ledger. They change when the ledger grows, so the hash of the weights does not cover them.
const LEDGER: &str = "ledger_";

/// The note with the hash of a saved model or a checkpoint, whose hash is not in a ledger. It does not cover itself.
const HASH: &str = "hash";

/// Writes weights with notes and a hash of both to a safetensors file.
///
/// # Errors
/// A file that cannot be written.
pub fn write_weights(
    path: &Path,
    params: &Params,
    mut notes: HashMap<String, String>,
) -> Result<(), TrainError> {
    let hash = weights_hash(&params.to_safetensors_noting(notes.clone())?);
    notes.insert(HASH.to_owned(), hash.map_err(|error| failed(path, &error))?);
    write_whole(path, &params.to_safetensors_noting(notes)?)
}

/// Reads a file that [`write_weights`] has written: its bytes and its notes.
///
/// # Errors
/// A file that cannot be read, or whose content does not have the hash that was written with it.
pub fn read_weights(path: &Path) -> Result<(Vec<u8>, HashMap<String, String>), TrainError> {
    let bytes = read(path)?;
    let notes = notes_in(path, &bytes)?;
    match check_hash(path, &bytes)? {
        true => Ok((bytes, notes)),
        false => Err(failed(path, &"has no hash of its content, so it is not a saved model")),
    }
}

/// Adds the hash of its content to a safetensors file.
pub(crate) fn with_hash(bytes: &[u8]) -> Result<Vec<u8>, SafeTensorError> {
    let (_, head) = SafeTensors::read_metadata(bytes)?;
    let mut notes = head.metadata().clone().unwrap_or_default();
    notes.insert(HASH.to_owned(), weights_hash(bytes)?);
    safetensors::serialize(SafeTensors::deserialize(bytes)?.tensors(), Some(notes))
}

/// Checks the hash in a file. Returns false if it has none.
///
/// # Errors
/// A file whose content does not have this hash.
pub(crate) fn check_hash(path: &Path, bytes: &[u8]) -> Result<bool, TrainError> {
    let hash = weights_hash(bytes).map_err(|error| not_weights(path, &error))?;
    match notes_in(path, bytes)?.get(HASH) {
        Some(written) if *written == hash => Ok(true),
        Some(_) => {
            Err(failed(path, &"was changed after it was written: its content does not match the hash in it"))
        }
        None => Ok(false),
    }
}

/// The notes of a file that is written now: the number of lines of the ledger, and the hash of the last line.
pub(crate) fn notes(account: &Account) -> HashMap<String, String> {
    let (lines, hash) = account.seal();
    HashMap::from([(format!("{LEDGER}lines"), lines.to_string()), (format!("{LEDGER}hash"), hash)])
}

/// The hash of the weights in a safetensors file and of their notes.
pub(crate) fn weights_hash(bytes: &[u8]) -> Result<String, SafeTensorError> {
    let (_, head) = SafeTensors::read_metadata(bytes)?;
    let notes: BTreeMap<_, _> = head.metadata().iter().flatten().collect();
    let tensors: BTreeMap<_, _> = SafeTensors::deserialize(bytes)?.tensors().into_iter().collect();
    let mut hash = Sha256::new();
    // Every part is preceded by its length, so that different parts never give the same bytes.
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    };
    for (name, note) in notes.into_iter().filter(|(name, _)| !name.starts_with(LEDGER) && *name != HASH) {
        add(name.as_bytes());
        add(note.as_bytes());
    }
    add(b"weights");
    for (name, tensor) in &tensors {
        add(name.as_bytes());
        add(format!("{:?} {:?}", tensor.dtype(), tensor.shape()).as_bytes());
        add(tensor.data());
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Read from the files of a run: the number of lines that the ledger had when each file was written, and the hash of the weights.
///
/// The files are read before the ledger, which only grows. So the ledger has all of these lines even while the run continues.
pub(crate) struct Seals {
    seen: Vec<(PathBuf, u64, String)>,
    weights: Option<String>,
}

impl Seals {
    pub(crate) fn read(folder: &RunFolder) -> Result<Self, TrainError> {
        let mut seals = Self { seen: Vec::new(), weights: None };
        for path in [folder.model(), folder.checkpoint()].into_iter().filter(|path| path.is_file()) {
            let bytes = read(&path)?;
            let notes = notes_in(&path, &bytes)?;
            let lines = notes.get(&format!("{LEDGER}lines")).and_then(|lines| lines.parse().ok());
            let (Some(lines), Some(hash)) = (lines, notes.get(&format!("{LEDGER}hash"))) else {
                return Err(failed(&path, &"does not name its ledger"));
            };
            if path == folder.model() {
                seals.weights = Some(weights_hash(&bytes).map_err(|error| failed(&path, &error))?);
            }
            seals.seen.push((path, lines, hash.clone()));
        }
        Ok(seals)
    }

    /// Checks that the ledger has every line that it had when the files were written.
    ///
    /// # Errors
    /// The first file whose lines are missing.
    pub(crate) fn check_ledger(&self, folder: &RunFolder, account: &Account) -> Result<(), TrainError> {
        let Some((path, lines, hash)) =
            self.seen.iter().find(|(_, lines, hash)| !account.has_seal(*lines, hash))
        else {
            return Ok(());
        };
        Err(failed(
            &folder.ledger(),
            &format!(
                "when {} was written the ledger had {lines} lines, the last with hash {hash}; these lines are missing: it \
                 was cut or replaced",
                path.display()
            ),
        ))
    }

    /// Checks that the weights are those that the run wrote. Returns false if the ledger has no hash of weights, as in runs of earlier
    /// versions.
    ///
    /// # Errors
    /// Weights or notes that were changed.
    pub(crate) fn check_weights(&self, folder: &RunFolder, account: &Account) -> Result<bool, TrainError> {
        let Some(hash) = &self.weights else { return Ok(true) };
        match account.covers_model(hash) {
            Some(false) => Err(TrainError::Refused {
                problem: format!(
                    "{} was changed after the run wrote it: its weights have the hash {hash}, which is not the one in the ledger. \
                     Nothing is guaranteed for these weights",
                    folder.model().display()
                ),
                hint: "restore the file from a copy, or train again".to_owned(),
            }),
            covered => Ok(covered.is_some()),
        }
    }
}

/// The notes of a file.
pub(crate) fn read_notes(path: &Path) -> Result<HashMap<String, String>, TrainError> {
    notes_in(path, &read(path)?)
}

/// The number of values in all tensors of a file.
pub(crate) fn parameter_count(path: &Path) -> Option<u64> {
    let bytes = read(path).ok()?;
    let tensors = SafeTensors::deserialize(&bytes).ok()?;
    Some(tensors.tensors().iter().map(|(_, tensor)| tensor.shape().iter().product::<usize>() as u64).sum())
}

fn not_weights(path: &Path, error: &SafeTensorError) -> TrainError {
    failed(path, &format!("is not a complete safetensors file: {error}"))
}

fn notes_in(path: &Path, bytes: &[u8]) -> Result<HashMap<String, String>, TrainError> {
    let (_, head) = SafeTensors::read_metadata(bytes).map_err(|error| not_weights(path, &error))?;
    Ok(head.metadata().clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use safetensors::{Dtype, tensor::TensorView};

    use super::*;

    fn file(values: [f32; 2], shape: [usize; 2], notes: &[(&str, &str)]) -> String {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let view = TensorView::new(Dtype::F32, shape.to_vec(), &bytes).unwrap();
        let notes = notes.iter().map(|(name, note)| ((*name).to_owned(), (*note).to_owned())).collect();
        weights_hash(&safetensors::serialize([("weight", view)], Some(notes)).unwrap()).unwrap()
    }

    #[test]
    fn the_hash_covers_weights_shapes_and_notes_but_not_the_ledger() {
        let notes = [("facts", "x"), ("guarantee", "y"), ("ledger_lines", "3")];
        let hash = file([1.0, 2.0], [1, 2], &notes);
        let later = [("ledger_lines", "4"), ("guarantee", "y"), ("facts", "x")];
        assert_eq!(file([1.0, 2.0], [1, 2], &later), hash);
        assert_ne!(file([-1.0, -2.0], [1, 2], &notes), hash);
        assert_ne!(file([1.0, 2.0], [2, 1], &notes), hash);
        assert_ne!(file([1.0, 2.0], [1, 2], &[("facts", "z"), ("guarantee", "y")]), hash);
        assert_ne!(file([1.0, 2.0], [1, 2], &[("facts", "x")]), hash);
    }
}
