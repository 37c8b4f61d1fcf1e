//! Small files, written for a test and removed after it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use sordino_data::{DataError, Dataset, PredictionOptions, Source, read_unlabelled};
use sordino_nn::{Inputs, Targets};

/// A temporary directory for one test.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Directory {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("sordino-data-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// An error's message without the directory's name.
    pub(crate) fn message(&self, error: &DataError) -> String {
        assert!(!error.hint().is_empty());
        error.to_string().replace(&format!("{}/", self.0.display()), "")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

pub(crate) fn source(path: impl Into<PathBuf>) -> Source {
    Source { path: path.into(), ..Source::default() }
}

/// The records of a file for prediction, or the error of the file or of its first row that cannot be read.
pub(crate) fn unlabelled(source: &Source) -> Result<Dataset, DataError> {
    let unlabelled = read_unlabelled(source, &PredictionOptions::default())?;
    match unlabelled.rows.into_iter().find_map(|row| row.refused) {
        Some(error) => Err(error),
        None => Ok(unlabelled.records.unwrap()),
    }
}

pub(crate) fn gzip(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes.as_ref()).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn values(dataset: &Dataset) -> &[f32] {
    match dataset.inputs() {
        Inputs::Dense(values) => values,
        Inputs::Stored(store) => {
            let mut values = vec![0.0; dataset.len() * dataset.shape().len()];
            for (record, values) in values.chunks_exact_mut(dataset.shape().len()).enumerate() {
                store.read_values(record, values).unwrap();
            }
            // The process of a test does not live long.
            values.leak()
        }
        _ => panic!("dense"),
    }
}

/// The tokens of each record.
pub(crate) fn tokens(dataset: &Dataset) -> Vec<Vec<u32>> {
    match dataset.inputs() {
        Inputs::Tokens { tokens, starts } => {
            starts.windows(2).map(|record| tokens[record[0]..record[1]].to_vec()).collect()
        }
        Inputs::Stored(store) => {
            let read = |record| {
                let mut tokens = vec![0; store.steps(record)];
                store.read_tokens(record, &mut tokens).unwrap();
                tokens
            };
            (0..store.records()).map(read).collect()
        }
        _ => panic!("tokens"),
    }
}

/// The text of each record that the tokenizer `bytes` has read.
pub(crate) fn texts(dataset: &Dataset) -> Vec<String> {
    let text = |tokens: Vec<u32>| {
        let byte = |token: u32| if token < 2 { b'|' } else { (token - 2) as u8 };
        String::from_utf8(tokens.into_iter().map(byte).collect()).unwrap()
    };
    tokens(dataset).into_iter().map(text).collect()
}

pub(crate) fn classes(dataset: &Dataset) -> &[u32] {
    match dataset.targets() {
        Some(Targets::Classes(classes)) => classes,
        _ => panic!("classes"),
    }
}

pub(crate) fn numbers(dataset: &Dataset) -> (&[f32], usize) {
    match dataset.targets() {
        Some(Targets::Values { values, width }) => (values, width),
        _ => panic!("numbers"),
    }
}

/// Where the predictions of a language model begin.
pub(crate) fn starts(dataset: &Dataset) -> &[usize] {
    match dataset.targets() {
        Some(Targets::NextTokens { from }) => from,
        _ => panic!("next tokens"),
    }
}
