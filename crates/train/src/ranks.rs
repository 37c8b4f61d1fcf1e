//! Several processes, the ranks, that train one model: what they must agree on before the first step.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    sync::Arc,
};

use sha2::{Digest, Sha256};
use sordino_data::Dataset;
use sordino_privacy::{Communicator, PrivacyError, Ranks};

use crate::{PricedRun, RunData, TrainError, data::last_changed, folder::failed};

/// The share of the records that one of several ranks holds.
pub struct Share {
    /// The records of this rank.
    pub records: Dataset,
    /// The connection to the other ranks.
    pub communicator: Arc<dyn Communicator>,
}

impl PricedRun {
    /// Checks that all ranks have the same version, settings and records, and takes the share of this rank from the training records.
    ///
    /// Every rank reads the files once for this check. Afterwards it holds only the records of its own slots. If the files of two ranks
    /// differed, a record could be in the shares of both, and would have twice the influence that the guarantee permits.
    ///
    /// # Errors
    /// A rank that differs from rank 0 (the message states its number); a rank that has ended or does not answer; files that cannot be read.
    pub fn share(&self, data: RunData, communicator: Arc<dyn Communicator>) -> Result<Share, TrainError> {
        let own = [env!("CARGO_PKG_VERSION").to_owned(), self.agreed_settings(), content_hash(self)?];
        check_agreement(communicator.as_ref(), &own)?;
        let (slots, size) = (data.train.slots(), communicator.size());
        if slots < size {
            return Err(TrainError::refused(
                format!("there are {size} ranks, but only {slots} training records or units"),
                "start at most one rank for each record or unit",
            ));
        }
        let slots = Ranks::among(communicator.clone(), data.train.slots()).share();
        Ok(Share { records: data.train.slots_from(slots), communicator })
    }

    /// All settings with the files that they name, the plan, and what is public about the data. The paths of data files may differ between
    /// machines and are left out.
    fn agreed_settings(&self) -> String {
        let mut settings = self.settings();
        (settings.data, settings.test_data) = (None, None);
        let resolved = &self.resolved;
        // Clipping norms of a listed schedule, networks and tokenizers are in these files and not in the plan.
        let files = resolved.files.about(&settings);
        format!("{files}\n{:?}\n{}\n{:?}", self.plan, resolved.facts.records, resolved.data)
    }
}

/// What the ranks compare, in this order.
const COMPARED: [&str; 3] = ["a different version of sordino", "different settings", "different records"];

/// Compares what each rank has with what rank 0 has.
fn check_agreement(communicator: &dyn Communicator, own: &[String; 3]) -> Result<(), TrainError> {
    let ended = |problem| TrainError::from(PrivacyError::Ranks(problem));
    let hash = |text: &String| Sha256::digest(text.as_bytes()).to_vec();
    let hashes: Vec<Vec<u8>> = own.iter().map(hash).collect();
    let mut first = hashes.concat();
    communicator.broadcast_bytes(&mut first).map_err(ended)?;
    let differs = hashes.iter().zip(first.chunks(32)).position(|(own, first)| own != first);
    // The element of a rank is the number of the first difference, counted from 1, or 0 if there is none.
    let mut differences = vec![0.0; communicator.size()];
    differences[communicator.rank()] = differs.map_or(0.0, |place| (place + 1) as f64);
    communicator.sum(&mut differences).map_err(ended)?;
    match differences.iter().enumerate().find(|(_, difference)| **difference > 0.0) {
        None => Ok(()),
        Some((rank, difference)) => Err(TrainError::refused(
            format!("rank {rank} has {} from rank 0", COMPARED[*difference as usize - 1]),
            "start the same program with the same arguments on every machine, and give each the same files",
        )),
    }
}

/// The hash of the names and the content of all files of the data.
///
/// # Errors
/// Files that cannot be read, or that were changed after the records were read.
fn content_hash(run: &PricedRun) -> Result<String, TrainError> {
    let settings = run.settings();
    let mut hash = Sha256::new();
    for path in [&settings.data, &settings.test_data].into_iter().flatten() {
        let included = path == Path::new("mushroom");
        for file in sordino_data::files(path).into_iter().filter(|file| !included || file.is_file()) {
            let name = file.strip_prefix(path).unwrap_or(Path::new(""));
            let content = file_hash(&file).map_err(|error| failed(&file, &error))?;
            // Each file is hashed separately, so that moving bytes from one file to the next changes the hash.
            hash.update(Sha256::digest(name.to_string_lossy().as_bytes()));
            hash.update(content);
        }
    }
    if last_changed(&settings, settings.data.as_ref()) != run.resolved.last_changed {
        return Err(TrainError::refused(
            "the data was changed while it was read",
            "start again when all machines have their files",
        ));
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn file_hash(file: &Path) -> io::Result<Vec<u8>> {
    let (mut file, mut content, mut part) = (File::open(file)?, Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut part)? {
            0 => return Ok(content.finalize().to_vec()),
            read => content.update(&part[..read]),
        }
    }
}
