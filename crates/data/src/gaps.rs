//! Gaps: values of a drafted schema that are still to be filled in.

use crate::error::DataError;

/// The beginning of every value that is still to be filled in.
pub(crate) const GAP: &str = "FILL IN: ";

/// The error for the first value of a draft that is still to be filled in.
pub(crate) fn first_gap(file: &str, text: &str) -> Option<DataError> {
    let gap = |(number, line): (usize, &str)| {
        let (before, rest) = line.split_once(&format!("\"{GAP}"))?;
        if before.trim_start().starts_with('#') {
            return None;
        }
        let key = before.split_once('=').map_or("a value".to_owned(), |(key, _)| format!("`{}`", key.trim()));
        Some((number + 1, key, rest.split('"').next().unwrap_or_default().to_owned()))
    };
    let gaps: Vec<_> = text.lines().enumerate().filter_map(gap).collect();
    let (line, key, needed) = gaps.first()?;
    let more = match gaps.len() - 1 {
        0 => String::new(),
        more => format!("; {more} more are to be filled in"),
    };
    Some(DataError::schema(
        format!("{file}, line {line}"),
        format!("{key} is not filled in: {needed}{more}"),
        "write it from your knowledge of the subject, not from the records: what a schema states is public",
    ))
}
