//! The readers.

mod files;
mod formats;
mod planted;
mod run;
mod texts;

use crate::Target;

/// Makes a target.
pub type Make = fn() -> Box<dyn Target>;

/// All targets, by their names.
pub fn all() -> Vec<(&'static str, Make)> {
    let mut all: Vec<(&'static str, Make)> = Vec::new();
    all.extend(formats::ALL);
    all.extend(texts::ALL);
    all.extend(run::ALL);
    all
}

/// The target of this name; also one of those with a planted fault, which are not among [`all`].
pub fn named(name: &str) -> Option<Box<dyn Target>> {
    let found = all().into_iter().chain(planted::ALL).find(|(known, _)| *known == name);
    found.map(|(_, make)| make())
}
