//! Folders of texts, recognised by the names of their files.

use std::path::{Path, PathBuf};

use super::{DEFAULT_MAX_LENGTH, DEFAULT_TOKENIZER, DOCUMENT_MAX_LENGTH};
use crate::class_folders::{Parts, entries, has_extension};
use crate::error::DataError;
use crate::input::open;
use crate::labels::MAX_CLASSES;
use crate::schema::Schema;

/// A folder of texts.
///
/// | kind | files | test records |
/// | --- | --- | --- |
/// | a folder for each class (IMDb) | `neg/*.txt`, `pos/*.txt`, a text each; these folders may be in `train`, and both in `aclImdb` | those of `test` |
/// | a file for each class (NAMES) | `Arabic.txt`, `Chinese.txt`, ..., a text on each line | |
/// | SST-2, QNLI | `train.tsv` | `dev.tsv` |
/// | E2E | `trainset.csv` | `devset.csv` |
pub(crate) struct TextFolder {
    kind: Kind,
    root: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    ClassFolders,
    ClassFiles,
    Glue,
    E2e,
}

/// The training records or the test records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Train,
    Test,
}

/// The files of a part.
pub(crate) enum PartFiles {
    /// A CSV file with this delimiter.
    Table(PathBuf, u8),
    /// Files with their classes; each is one text, or has one on each line.
    Texts { files: Vec<(PathBuf, String)>, by_line: bool },
}

/// The folder of IMDb without labels.
const UNLABELLED: &str = "unsup";

impl TextFolder {
    /// The kind of the folder; `None` if it is not a folder of texts.
    pub(crate) fn find(path: &Path) -> Option<TextFolder> {
        let inner = path.join("aclImdb");
        let root = if inner.is_dir() { inner } else { path.to_owned() };
        let kind = if root.join("trainset.csv").is_file() {
            Kind::E2e
        } else if root.join("train.tsv").is_file() {
            Kind::Glue
        } else {
            let folder = TextFolder { kind: Kind::ClassFolders, root: root.clone() };
            let has_texts = |path: &PathBuf| wanted(path, is_text).is_ok_and(|files| !files.is_empty());
            match wanted(&folder.records(Part::Train), Path::is_dir) {
                Ok(classes) if classes.iter().any(has_texts) => Kind::ClassFolders,
                // Other data sets have lists of their classes as .txt files.
                _ if has_texts(&root)
                    && wanted(&root, is_something_else).is_ok_and(|others| others.is_empty()) =>
                {
                    Kind::ClassFiles
                }
                _ => return None,
            }
        };
        Some(TextFolder { kind, root })
    }

    /// Whether there are test records.
    pub(crate) fn has_test(&self) -> bool {
        match self.kind {
            Kind::ClassFolders => Parts::of(&self.root).test.is_some(),
            Kind::ClassFiles => false,
            Kind::Glue => self.root.join("dev.tsv").is_file(),
            Kind::E2e => self.root.join("devset.csv").is_file(),
        }
    }

    /// The folder or file of a part.
    fn records(&self, part: Part) -> PathBuf {
        match (self.kind, part) {
            (Kind::ClassFiles, _) => self.root.clone(),
            (Kind::ClassFolders, Part::Train) => Parts::of(&self.root).train,
            (Kind::ClassFolders, Part::Test) => {
                let Parts { train, test } = Parts::of(&self.root);
                test.unwrap_or(train)
            }
            (Kind::Glue, Part::Train) => self.root.join("train.tsv"),
            (Kind::Glue, Part::Test) => self.root.join("dev.tsv"),
            (Kind::E2e, Part::Train) => self.root.join("trainset.csv"),
            (Kind::E2e, Part::Test) => self.root.join("devset.csv"),
        }
    }

    /// The files of a part, in the order of their records.
    pub(crate) fn files(&self, part: Part) -> Result<PartFiles, DataError> {
        let records = self.records(part);
        match self.kind {
            Kind::Glue => Ok(PartFiles::Table(records, b'\t')),
            Kind::E2e => Ok(PartFiles::Table(records, b',')),
            Kind::ClassFiles => {
                let class = |path: PathBuf| Ok((path.clone(), name(&path.with_extension(""))?));
                let files = wanted(&records, is_text)?.into_iter().map(class);
                Ok(PartFiles::Texts { files: files.collect::<Result<_, _>>()?, by_line: true })
            }
            Kind::ClassFolders => {
                let mut files = Vec::new();
                for folder in class_folders(&records)? {
                    let class = name(&folder)?;
                    files.extend(wanted(&folder, is_text)?.into_iter().map(|file| (file, class.clone())));
                }
                Ok(PartFiles::Texts { files, by_line: false })
            }
        }
    }

    /// All files that are read, and the folders of classes.
    pub(crate) fn all_files(&self) -> Result<Vec<PathBuf>, DataError> {
        let parts: &[Part] = if self.has_test() { &[Part::Train, Part::Test] } else { &[Part::Train] };
        let mut all = Vec::new();
        for &part in parts {
            match self.files(part)? {
                PartFiles::Table(file, _) => all.push(file),
                PartFiles::Texts { files, by_line } => {
                    if !by_line {
                        all.extend(class_folders(&self.records(part))?);
                    }
                    all.extend(files.into_iter().map(|(file, _)| file));
                }
            }
        }
        Ok(all)
    }

    /// The schema of the folder, unless another is given.
    pub(crate) fn schema(&self) -> Result<Schema, DataError> {
        let train = self.records(Part::Train);
        let file = self.root.display().to_string();
        match self.kind {
            Kind::E2e => Schema::parse("e2e.toml", include_str!("e2e.toml")),
            Kind::Glue => {
                let mut header = super::Lines::new(train.display().to_string(), open(&train)?);
                header.next()?;
                match header.text() {
                    b"sentence\tlabel" => Schema::parse("sst2.toml", include_str!("sst2.toml")),
                    b"index\tquestion\tsentence\tlabel" => {
                        Schema::parse("qnli.toml", include_str!("qnli.toml"))
                    }
                    _ => Err(DataError::file(
                        header.place(),
                        "the columns are not those of SST-2 (sentence, label) or QNLI (index, question, sentence, label)",
                        "describe the columns with {schema}",
                    )),
                }
            }
            Kind::ClassFiles => {
                let files = wanted(&train, is_text)?;
                let classes = files.iter().map(|path| name(&path.with_extension("")));
                let classes = classes.collect::<Result<_, _>>()?;
                Schema::classified_texts(&file, "characters", DEFAULT_MAX_LENGTH, classes)
            }
            Kind::ClassFolders => {
                let classes =
                    class_folders(&train)?.iter().map(|path| name(path)).collect::<Result<_, _>>()?;
                Schema::classified_texts(&file, DEFAULT_TOKENIZER, DOCUMENT_MAX_LENGTH, classes)
            }
        }
    }

    /// A part as it is named in messages.
    pub(crate) fn describe(&self, part: Part) -> String {
        let kind = if part == Part::Test { "test" } else { "training" };
        format!("the {kind} records in {}", self.records(part).display())
    }
}

/// The folders of the classes, in the order of their names.
fn class_folders(path: &Path) -> Result<Vec<PathBuf>, DataError> {
    let mut folders = wanted(path, Path::is_dir)?;
    folders.retain(|folder| folder.file_name().is_some_and(|name| name != UNLABELLED));
    Ok(folders)
}

fn is_text(path: &Path) -> bool {
    has_extension(path, &["txt"])
}

/// Whether this is neither a text nor a note such as README.md.
fn is_something_else(path: &Path) -> bool {
    !has_extension(path, &["txt", "md"])
}

/// The entries of a folder that are wanted, sorted by name.
fn wanted(folder: &Path, is_wanted: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>, DataError> {
    let mut found = entries(folder)?;
    found.retain(|path| is_wanted(path));
    Ok(found)
}

/// The name of a file or folder, which is the name of a class.
fn name(path: &Path) -> Result<String, DataError> {
    let text = path.file_name().and_then(|name| name.to_str()).filter(|name| name.trim_ascii() == *name);
    text.map(str::to_owned).ok_or_else(|| {
        DataError::file(
            path.display().to_string(),
            "the name of a class must be UTF-8, without spaces around it",
            format!("rename it; each of 2 to {MAX_CLASSES} classes is a file or a folder"),
        )
    })
}
