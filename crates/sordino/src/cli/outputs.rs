//! The files that a command writes when it ends. They are checked before it begins.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sordino_train::check_writable;

use super::problem::Problem;

/// What to do about a file that cannot be written.
pub(crate) const WRITABLE: &str = "choose a file that can be written, in a folder that exists";

/// Picture formats that Sordino does not write.
const OTHER_PICTURES: [&str; 6] = ["png", "jpg", "jpeg", "gif", "pdf", "html"];

/// Refuses a picture that is not SVG, two options with the same file, and a file that cannot be written. Nothing is written, so an interrupted
/// command leaves no empty file.
pub(crate) fn check_outputs(files: &[(&str, Option<&Path>)]) -> Result<(), Problem> {
    let mut checked: Vec<(&str, &Path)> = Vec::new();
    for (option, path) in files.iter().filter_map(|(option, path)| Some((*option, (*path)?))) {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if option == "--figure" && OTHER_PICTURES.contains(&extension.to_ascii_lowercase().as_str()) {
            return Err(Problem::refused(
                format!("--figure writes SVG, got {}", path.display()),
                "choose a name that ends in .svg",
            ));
        }
        if let Some((other, _)) = checked.iter().find(|(_, known)| same_file(known, path)) {
            return Err(Problem::refused(
                format!("{other} and {option} both name {}", path.display()),
                "choose a different file for each",
            ));
        }
        check_writable(path).map_err(|error| Problem::refused(error.to_string(), WRITABLE))?;
        checked.push((option, path));
    }
    Ok(())
}

/// Whether two paths name one file, which may not exist yet.
pub(crate) fn same_file(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| -> Option<PathBuf> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::canonicalize(path).ok().or_else(|| Some(fs::canonicalize(folder).ok()?.join(path.file_name()?)))
    };
    match (whole(one), whole(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}
