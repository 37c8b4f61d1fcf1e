//! The trusted base: sampling, clipping, noise and the ledger. Only releases leave it.
//!
//! A [`Plan`](sordino_accounting::Plan) becomes [`Terms`] when it is priced. A [`Vault`] holds private records under these terms and
//! runs one [`Round`] for each step of the plan. A round is charged to the ledger, draws its batch, and can release what the plan
//! permits, with noise. A [measurement](Vault::measure) releases a table of counts on held-back slots. All other values computed from records are [`Sensitive`] or [`Bounded`] and cannot be read.
//!
//! `PROOF.md`, next to this crate, proves that the releases satisfy the printed guarantee. It has a section for each file.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss
    )
)]

mod clip;
mod discrete_laplace;
mod error;
mod gradients;
mod keystream;
mod ledger;
mod measurement;
mod memory;
#[cfg(doctest)]
mod misuse;
mod noise;
mod normal;
mod per_record;
mod randomness;
mod ranks;
mod release;
mod sampling;
mod search;
mod sensitive;
mod statistic;
mod terms;
mod vault;

pub use clip::ClipRule;
pub use error::PrivacyError;
pub use gradients::{Gradients, Sum, WeightRule};
pub use ledger::Account;
pub use measurement::{MeasurementBudget, Outcomes, Tally};
pub use memory::Coefficients;
pub use per_record::PerRecord;
pub use randomness::Randomness;
pub use ranks::{Communicator, Ranks};
pub use release::Release;
pub use search::{Search, SearchPlan, Tried};
pub use sensitive::{Bounded, Sensitive};
pub use statistic::NormStatistic;
pub use terms::{PrivacyStatus, Terms};
pub use vault::{Round, Vault};

#[cfg(test)]
mod tests {
    /// A reader can check a file with its section alone, so every file has one.
    #[test]
    fn the_proof_has_a_section_for_every_file() {
        fn files(folder: &std::path::Path, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    files(&entry, found);
                } else {
                    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
                    found.push(entry.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/"));
                }
            }
        }
        let mut found = Vec::new();
        files(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut found);
        assert!(found.len() > 15, "{found:?}");
        for file in found.iter().filter(|file| !file.ends_with("tests.rs")) {
            let heading = |line: &str| line.starts_with("## ") && line.contains(&format!("`{file}`"));
            let sections = include_str!("../PROOF.md").lines().filter(|line| heading(line)).count();
            assert_eq!(sections, 1, "sections of {file} in PROOF.md");
        }
    }
}
