//! The readers.

mod files;
mod formats;
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
