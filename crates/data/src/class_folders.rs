//! Folders of files: one folder for each class, optionally under `train` and `test`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{DataError, quoted};
use crate::field::listed;
use crate::input::unreadable;
use crate::labels::MAX_CLASSES;

/// The folders of the training set and, if there is one, of the test set.
pub(crate) struct Parts {
    pub(crate) train: PathBuf,
    pub(crate) test: Option<PathBuf>,
}

impl Parts {
    /// `train` and `test` of a folder, or `val` if there is no `test`. Without `train`, the folder itself is the training set. A folder
    /// `train` that contains no folders is a class of that name.
    pub(crate) fn of(folder: &Path) -> Parts {
        let has_folders =
            |path: &PathBuf| entries(path).is_ok_and(|entries| entries.iter().any(|entry| entry.is_dir()));
        let part = |name| Some(folder.join(name)).filter(has_folders);
        match part("train") {
            Some(train) => {
                let tests = ["test", "val", "valid", "validation"];
                Parts { train, test: tests.into_iter().find_map(part) }
            }
            None => Parts { train: folder.to_owned(), test: None },
        }
    }
}

/// A file of a class.
pub(crate) struct ClassFile {
    pub(crate) path: PathBuf,
    /// The path within the folder.
    pub(crate) id: String,
    pub(crate) class: u32,
}

impl ClassFile {
    /// A file without a class.
    pub(crate) fn single(path: &Path) -> ClassFile {
        ClassFile { path: path.to_owned(), id: name_of(path), class: 0 }
    }
}

/// The names of the classes of a training set: the names of its folders, sorted. `declared` is their number, if it is declared.
pub(crate) fn names(folder: &Path, declared: Option<usize>) -> Result<Vec<String>, DataError> {
    let folders: Vec<PathBuf> = entries(folder)?.into_iter().filter(|path| path.is_dir()).collect();
    let name = |path: &PathBuf| {
        path.file_name().and_then(OsStr::to_str).map(str::to_owned).ok_or_else(|| {
            DataError::file(path.display().to_string(), "the name is not UTF-8", "rename the folder")
        })
    };
    let names = folders.iter().map(name).collect::<Result<Vec<_>, _>>()?;
    if !(2..=MAX_CLASSES).contains(&names.len()) {
        return Err(DataError::file(
            folder.display().to_string(),
            format!("has {} folders; 2 to {MAX_CLASSES}, one for each class, are permitted", names.len()),
            "make a folder for each class, which may be empty; their names are public",
        ));
    }
    match declared {
        Some(declared) if declared != names.len() => Err(DataError::Setting {
            what: "number of classes",
            permitted: format!("{} as there are folders, or left out", names.len()),
            got: declared.to_string(),
            hint: "every folder is a class; make an empty folder for a class without records".to_owned(),
        }),
        _ => Ok(names),
    }
}

/// The files of the folders of these classes, class by class and sorted by name. A class may have no folder; every other folder is
/// a problem, and so is every file whose name does not end in one of `extensions`. `note` receives each problem; if it returns
/// `Ok`, the folder or file is skipped.
pub(crate) fn files(
    folder: &Path,
    names: &[String],
    extensions: &[&str],
    note: &mut dyn FnMut(DataError) -> Result<(), DataError>,
) -> Result<Vec<ClassFile>, DataError> {
    let mut files = Vec::new();
    for class_folder in entries(folder)?.into_iter().filter(|path| path.is_dir()) {
        let name = name_of(&class_folder);
        let Some(class) = names.iter().position(|other| *other == name) else {
            note(DataError::file(
                class_folder.display().to_string(),
                format!("{} is not one of the classes {}", quoted(name.as_bytes()), listed(names)),
                "the folders of the training records are the classes; rename or remove this one",
            ))?;
            continue;
        };
        for path in entries(&class_folder)? {
            if let Err(problem) = check_extension(&path, extensions) {
                note(problem)?;
                continue;
            }
            let id = format!("{name}/{}", name_of(&path));
            // There are at most 2^16 classes.
            files.push(ClassFile { path, id, class: class as u32 });
        }
    }
    // Of names in another order than the folders.
    files.sort_by_key(|file| file.class);
    Ok(files)
}

/// All files with one of these extensions in a folder and in the folders within it, sorted by name.
pub(crate) fn all_files(folder: &Path, extensions: &[&str]) -> Result<Vec<ClassFile>, DataError> {
    let mut files = Vec::new();
    for path in entries(folder)? {
        let inner = if path.is_dir() { entries(&path)? } else { vec![path.clone()] };
        for inner in inner {
            check_extension(&inner, extensions)?;
            let id = inner.strip_prefix(folder).unwrap_or(&inner).display().to_string();
            files.push(ClassFile { path: inner, id, class: 0 });
        }
    }
    Ok(files)
}

/// Whether a name ends in one of these extensions, which are in lower case.
pub(crate) fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().and_then(OsStr::to_str).map(str::to_lowercase);
    extension.is_some_and(|extension| extensions.contains(&extension.as_str()))
}

fn check_extension(path: &Path, extensions: &[&str]) -> Result<(), DataError> {
    match has_extension(path, extensions) && !path.is_dir() {
        true => Ok(()),
        false => Err(DataError::file(
            path.display().to_string(),
            format!("is not a file whose name ends in .{}", extensions.join(", .")),
            "every file of a class is a record: convert it, or move it elsewhere; only names that begin with a dot are skipped",
        )),
    }
}

/// The files and folders of a folder, sorted by name, without those whose names begin with a dot.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let refuse = |error| unreadable(&folder.display().to_string(), &error);
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(refuse)? {
        let path = entry.map_err(refuse)?.path();
        if !name_of(&path).starts_with('.') {
            entries.push(path);
        }
    }
    entries.sort_unstable();
    Ok(entries)
}

pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
