//! What weights remember of their ledger, so that a ledger that was cut is found out.

use std::{collections::HashMap, path::Path};

use safetensors::SafeTensors;
use sordino_privacy::Account;

use crate::{
    RunFolder, TrainError,
    folder::{failed, read},
};

/// The notes of a file that is written now: how many lines the ledger has, and the hash of the last.
pub(crate) fn notes(account: &Account) -> HashMap<String, String> {
    let (lines, hash) = account.seal();
    HashMap::from([("ledger_lines".to_owned(), lines.to_string()), ("ledger_hash".to_owned(), hash)])
}

/// Checks that the ledger has every line that the run's files have seen.
///
/// # Errors
/// The first file that knows of lines which are not there.
pub(crate) fn verify(folder: &RunFolder, account: &Account) -> Result<(), TrainError> {
    for path in [folder.model(), folder.checkpoint()] {
        let Some((lines, hash)) = seen(&path)? else { continue };
        if !account.has_seal(lines, &hash) {
            return Err(failed(
                &folder.ledger(),
                &format!(
                    "when {} was written the ledger had {lines} lines, the last with hash {hash}; they are not there: \
                     it was cut or exchanged",
                    path.display()
                ),
            ));
        }
    }
    Ok(())
}

/// The notes of a file, if there is one.
pub(crate) fn read_notes(path: &Path) -> Result<HashMap<String, String>, TrainError> {
    let bytes = read(path)?;
    let (_, head) = SafeTensors::read_metadata(&bytes).map_err(|error| failed(path, &error))?;
    Ok(head.metadata().clone().unwrap_or_default())
}

fn seen(path: &Path) -> Result<Option<(u64, String)>, TrainError> {
    if !path.is_file() {
        return Ok(None);
    }
    let notes = read_notes(path)?;
    let lines = notes.get("ledger_lines").and_then(|lines| lines.parse().ok());
    match (lines, notes.get("ledger_hash")) {
        (Some(lines), Some(hash)) => Ok(Some((lines, hash.clone()))),
        _ => Err(failed(path, &"does not say to which ledger it belongs")),
    }
}
