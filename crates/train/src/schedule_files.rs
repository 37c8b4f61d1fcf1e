//! Options of an algorithm that are read from files, as in `dynamic,mu_schedule=@steps.txt`.
//!
//! A file has one factor on each line, for one step each. It is public, like every setting. A run stores its content, and its settings name
//! the stored file.

use std::{fs, path::Path};

use sordino_algorithms::FactorSchedule;

use crate::TrainError;

/// The options that may name a file, and the name under which a run stores it.
const OPTIONS: [(&str, &str); 4] = [
    ("mu_schedule", "mu_schedule.txt"),
    ("clip_schedule", "clip_schedule.txt"),
    ("curvature", "curvature.txt"),
    ("anchor_scale", "anchor_scale.txt"),
];

/// Stands for a comma in the path of a stored file, because a comma ends an option.
const COMMA: &str = "\u{1f}";

/// The names and the contents of such files.
pub(crate) type Stored = Vec<(&'static str, String)>;

/// The names under which a run stores such files.
pub(crate) fn stored_names() -> impl Iterator<Item = &'static str> {
    OPTIONS.into_iter().map(|(_, name)| name)
}

/// The text of an algorithm with the factors of its files in place of their names.
pub(crate) fn with_factors(text: &str) -> Result<String, TrainError> {
    replaced(text, |_, path| {
        let schedule = FactorSchedule::from_lines(&content(path)?).map_err(|problem| {
            TrainError::refused(
                format!("{path}: {problem}"),
                "write one factor on each line, one for each step",
            )
        })?;
        Ok(schedule.into())
    })
}

/// The text of an algorithm with the names under which a run stores its files, and the contents of the files.
pub(crate) fn stored(text: &str) -> Result<(String, Stored), TrainError> {
    let mut files = Vec::new();
    let text = replaced(text, |name, path| {
        files.push((name, content(path)?));
        Ok(format!("@{name}"))
    })?;
    files.sort_by_key(|(name, _)| OPTIONS.iter().position(|(_, stored)| stored == name));
    Ok((text, files))
}

/// The text of an algorithm without the options that are read from files.
pub(crate) fn without_files(text: &str) -> String {
    let parts = text
        .split(',')
        .filter(|part| !part.split_once('=').is_some_and(|(_, value)| value.trim().starts_with('@')));
    parts.collect::<Vec<_>>().join(",")
}

/// The text of an algorithm whose files are relative to this folder.
pub(crate) fn relative_to(text: &str, folder: &Path) -> String {
    // A text with unknown options stays as it is. It is refused where it is parsed.
    replaced(text, |_, path| Ok(format!("@{}", folder.join(path).display().to_string().replace(',', COMMA))))
        .unwrap_or_else(|_| text.to_owned())
}

/// The text with each `@PATH` replaced, given the name under which a run stores the file, and its path.
fn replaced(
    text: &str,
    mut replacement: impl FnMut(&'static str, &str) -> Result<String, TrainError>,
) -> Result<String, TrainError> {
    let part = |part: &str| -> Result<String, TrainError> {
        let Some((option, path)) = part.split_once('=').filter(|(_, value)| value.trim().starts_with('@'))
        else {
            return Ok(part.to_owned());
        };
        let key = option.trim().replace('-', "_");
        let Some((_, name)) = OPTIONS.into_iter().find(|(option, _)| *option == key) else {
            let permitted = OPTIONS.map(|(option, _)| option).join(", ");
            return Err(TrainError::refused(
                format!("{key} is not read from a file; only {permitted} are"),
                "write the value itself, without @",
            ));
        };
        Ok(format!("{option}={}", replacement(name, &path.trim()[1..])?))
    };
    Ok(text.split(',').map(part).collect::<Result<Vec<_>, _>>()?.join(","))
}

fn content(path: &str) -> Result<String, TrainError> {
    let path = path.replace(COMMA, ",");
    fs::read_to_string(&path).map_err(|error| {
        TrainError::refused(
            format!("cannot read {path}: {error}"),
            "give the path of a text file with one factor on each line, as in {algorithm=dynamic,mu_schedule=@steps.txt}",
        )
    })
}
